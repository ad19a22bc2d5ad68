"""Barriers, the counter, the queue, and what is done once per period."""
