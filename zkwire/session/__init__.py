"""The automaton: bytes and the time in, bytes and deadlines out."""
