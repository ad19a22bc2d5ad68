"""The Python of the playground, which a browser loads beside zkwire itself."""
