"""The servers themselves: whether they are well, and what they know of a session."""
