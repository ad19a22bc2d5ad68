"""Whole trees: out to a file, in from one, and from one place to another."""
