"""The ``zkwire`` command."""
