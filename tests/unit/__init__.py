"""What needs no socket: values, jute, the core, recipes step by step, documents, the layers."""
