"""Other clients beside zkwire."""
