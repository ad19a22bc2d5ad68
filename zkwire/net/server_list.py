"""Keeps the list of servers up to date with the ensemble's configuration (``follow_reconfig``).

A coroutine in the background reads the configuration with a watch, takes its servers over, waits
for the watch, and begins anew.  The connection in use stays, whatever the new list says; the next
connection follows the list (``ZooKeeper.updateServerList`` may move clients at once; this does
not).

The configuration names the ports for clients without TLS.  A server may speak TLS at that port, too
(``client.portUnification``), or only at a port that the configuration does not name.  So with TLS
the servers that the client was given stay on its list.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import BUSY, ConnectionLossError, ZooKeeperError
from zkwire.session.hosts import parse_config
from zkwire.session.waitable import Awaited, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.net.driver import Driver
    from zkwire.recipes._service import Background


class ServerListUpdates:
    """Starts with the first connection and ends with the session."""

    _given: list[tuple[str, int]]

    def __init__(self, driver: Driver, given: list[tuple[str, int]]) -> None:
        self._driver = driver
        self.given(given)
        driver.when_ready(driver.session.change, self._start)

    def given(self, servers: list[tuple[str, int]]) -> None:
        """The program names these servers now; with TLS they stay on the list."""
        self._given = servers if self._driver.tls is not None else []

    def _start(self) -> None:
        with suppress(ZooKeeperError):  # the session is over already
            self._driver.serve(self)

    async def _run(self, runtime: Background) -> None:
        """Follow the configuration to the end of the session, as services run."""
        while True:
            watch = Watch()
            try:
                config = await runtime.operations.get_config(watch=watch)
                if _is_whole(config.data):
                    found = parse_config(config.data)
                    new = [server for server in found if server not in self._given]
                    if found:
                        self._driver.replace_hosts([*self._given, *new])
                await Awaited(watch)
            except (ConnectionLossError, *BUSY):
                continue
            except ZooKeeperError:
                return  # no configuration to read, or not by us; or the session is over


def _is_whole(config: bytes) -> bool:
    """Whether it names every server's address for clients.

    The configuration leaves out addresses that stand only in a server's own file (``clientPort``):
    when a server joins such an ensemble, the list would shrink to the new server.
    """
    servers = [line for line in config.splitlines() if line.startswith(b"server.")]
    return all(b";" in server for server in servers)
