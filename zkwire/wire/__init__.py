"""What the protocol names: paths, opcodes, states, events, access lists."""
