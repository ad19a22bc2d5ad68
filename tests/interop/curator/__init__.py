"""Apache Curator's recipes beside zkwire's on the same paths."""
