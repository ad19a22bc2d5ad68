"""zkwire, kazoo and Curator on one path, in processes of their own, before one arbiter."""
