"""Programs that use kazoo, with kazoo's own connection and with zkwire's: see `__main__`."""
