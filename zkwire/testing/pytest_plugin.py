"""Fixtures for pytest: a ZooKeeper in memory, and a client connected to it.

    def test_it(zkwire_client):
        zkwire_client.create("/a", b"x")

The plugin is registered under the entry point ``pytest11``, so installing zkwire is enough.
Importing this module imports zkwire, but no server, and starts nothing.  In unittest, use
``with zkwire.testing.Server() as server:``.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire import Client
    from zkwire.testing.server.server import Server


@pytest.fixture
def zkwire_server() -> Iterator[Server]:
    """An empty server for one test, with ``hosts``, ``tree``, ``expire(session_id)``, ..."""
    from zkwire.testing.server.server import Server

    with Server() as server:
        yield server


@pytest.fixture
def zkwire_client(zkwire_server: Server) -> Iterator[Client]:
    """A client connected to :func:`zkwire_server`."""
    from zkwire import Client

    with Client(zkwire_server.hosts) as client:
        yield client
