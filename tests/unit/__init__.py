"""What needs no socket: values, jute, the automaton, recipes step by step, documents, layers."""
