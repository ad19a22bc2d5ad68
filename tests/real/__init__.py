"""The same scenarios on any server."""
