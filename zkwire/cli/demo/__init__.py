"""The demo: what the locks do when things go wrong, shown and checked."""
