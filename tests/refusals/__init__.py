"""What each recipe does when a server refuses one of its requests; writes docs/refusals.md."""
