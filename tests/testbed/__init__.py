"""The embedded server, the fault proxy and the fixtures that users get."""
