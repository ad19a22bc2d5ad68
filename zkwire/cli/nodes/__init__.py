"""The commands that work with nodes, one by one and in the shell."""
