"""The embedded server: a ZooKeeper in memory on the real wire protocol."""

from zkwire.testing.server.server import Ensemble, Server, serve

__all__ = ["Ensemble", "Server", "serve"]
