"""Locks: one holder at a time, or a number of them, in the order of arrival or in none."""
