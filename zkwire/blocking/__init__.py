"""The shell for threads."""
