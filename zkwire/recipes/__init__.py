"""The recipes: what is built on the client.  Each algorithm is written once; see ``runtime``."""
