"""What the tests of watching forever share: what a server watches, and which states were seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.support.embedded_servers import EmbeddedServer
from tests.support.lock_helpers import watch_count
from tests.support.server_control import ZooKeeperServer
from zkwire import SeenChildren, SeenData
from zkwire.testing import Server
from zkwire.testing.server.state import Watchers

T = TypeVar("T")


def watches(server: ZooKeeperServer) -> int:
    """How many watches a server has, of all clients and kinds."""
    return _look(server, len) if isinstance(server, EmbeddedServer) else watch_count(server)


def _look(server: EmbeddedServer, look: Callable[[Watchers], T]) -> T:
    service = server._member
    assert isinstance(service, Server)
    return service._running().call(lambda: look(service._processor.state.watchers))


def assert_in_order(seen: Sequence[SeenData | SeenChildren]) -> None:
    """No state comes behind a newer one, and none twice."""
    stats = [one.stat for one in seen if one.stat is not None]
    zxids = [stat.mzxid if isinstance(seen[0], SeenData) else stat.pzxid for stat in stats]
    assert zxids == sorted(set(zxids)), zxids
