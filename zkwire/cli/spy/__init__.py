"""What is on the wire: the commands ``spy`` and ``decode``."""
