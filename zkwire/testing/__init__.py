"""For tests of code that talks to ZooKeeper: a server in this process, a proxy for faults, and a
simulation that runs code in every order of events.

`ZooKeeperContainer` is a real server in a container, for tests that have testcontainers.
Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkwire import AsyncClient, Client
    from zkwire.testing.container import ZooKeeperContainer as ZooKeeperContainer
    from zkwire.testing.proxy.proxy import FaultProxy as FaultProxy
    from zkwire.testing.server.loop import VirtualClock as VirtualClock
    from zkwire.testing.server.server import Ensemble as Ensemble
    from zkwire.testing.server.server import Server as Server
    from zkwire.testing.simulation.simulation import Simulation as Simulation

_HOMES = {
    "Ensemble": "zkwire.testing.server.server",
    "FaultProxy": "zkwire.testing.proxy.proxy",
    "Server": "zkwire.testing.server.server",
    "Simulation": "zkwire.testing.simulation.simulation",
    "VirtualClock": "zkwire.testing.server.loop",
    "ZooKeeperContainer": "zkwire.testing.container",
}

# Without the container: a star import needs nothing but Python.
__all__ = ["Ensemble", "FaultProxy", "Server", "Simulation", "VirtualClock", "break_connection"]


def break_connection(client: Client | AsyncClient) -> bool:
    """Break the connection of this client now; whether there was one.  From any thread.

    The client sees what it would see of a network: requests that are not answered end with
    OutcomeUnknownError (the server may still read and execute them) or NotSentError, the state
    becomes DISCONNECTED, and the client connects anew, in the same session.  This returns before
    that.  For a supervisor, give it the client of the session: ``supervisor.client()``.
    """
    from zkwire.net.dial import shut_down

    connection = client._driver.current_connection
    if connection is None:
        return False
    shut_down(connection.sock)
    return True


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
