"""Which release has what: every operation and recipe, run on servers of each."""
