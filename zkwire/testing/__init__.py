"""For tests of code that talks to ZooKeeper: a server in this process, a proxy for faults, and a
simulation in which recipes meet every order of events (``schedule``, ``claims``).

Everything is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkwire.testing.clock import VirtualClock as VirtualClock
    from zkwire.testing.proxy import FaultProxy as FaultProxy
    from zkwire.testing.server import Ensemble as Ensemble
    from zkwire.testing.server import Server as Server
    from zkwire.testing.simulation import Simulation as Simulation

_HOMES = {
    "Ensemble": "zkwire.testing.server",
    "FaultProxy": "zkwire.testing.proxy",
    "Server": "zkwire.testing.server",
    "Simulation": "zkwire.testing.simulation",
    "VirtualClock": "zkwire.testing.clock",
}

__all__ = ["Ensemble", "FaultProxy", "Server", "Simulation", "VirtualClock"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
