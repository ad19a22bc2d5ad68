"""``zkwire lesson``: sessions, watches and locks, shown by running them on a virtual clock."""
