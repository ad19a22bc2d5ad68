"""What needs no socket: values, jute, state machine, recipes step by step, documents, layers."""
