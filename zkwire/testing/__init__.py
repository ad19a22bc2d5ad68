"""For tests of code that talks to ZooKeeper: a server in this process, a proxy for faults, and a
simulation that runs code in every order of events.

`ZooKeeperContainer` is a real server in a container, for tests that have testcontainers.
Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkwire.testing.connections import break_connection as break_connection
    from zkwire.testing.container import ZooKeeperContainer as ZooKeeperContainer
    from zkwire.testing.proxy.proxy import FaultProxy as FaultProxy
    from zkwire.testing.server.clock import VirtualClock as VirtualClock
    from zkwire.testing.server.server import Ensemble as Ensemble
    from zkwire.testing.server.server import Server as Server
    from zkwire.testing.simulation.simulation import Simulation as Simulation

_HOMES = {
    "Ensemble": "zkwire.testing.server.server",
    "FaultProxy": "zkwire.testing.proxy.proxy",
    "Server": "zkwire.testing.server.server",
    "Simulation": "zkwire.testing.simulation.simulation",
    "VirtualClock": "zkwire.testing.server.clock",
    "ZooKeeperContainer": "zkwire.testing.container",
    "break_connection": "zkwire.testing.connections",
}

# Without the container: a star import needs nothing but Python.
__all__ = ["Ensemble", "FaultProxy", "Server", "Simulation", "VirtualClock", "break_connection"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
