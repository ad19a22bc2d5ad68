"""zkwire in threads: callers block, and read and write the socket for one another."""
