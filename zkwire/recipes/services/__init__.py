"""What outlives a session: watches for ever, caches, membership, supervisor, partitioner."""
