"""What is on the wire: the command ``spy``."""
