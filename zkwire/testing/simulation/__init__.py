"""Every order of events: many clients, one server and one clock in one thread.

This package exports the simulation, its schedules, the functions that make many runs, and the
invariants of locks.
"""

# fmt: off
# isort: off
from zkwire.testing.simulation.client import Cancelled, Client, Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.invariants import (
    Claims, Fifo, Herd, Orphans, at_most, exclusive, readers_together,
)
from zkwire.testing.simulation.runs import (
    CancelAt, FailedRunError, Figures, InTurn, OneFault, Scenario, Scripted, Seeded,
    cancel_everywhere, exhaust, explore, replay, sweep,
)
from zkwire.testing.simulation.simulation import Check, Schedule, Simulation

__all__ = [
    "FAULTS", "CancelAt", "Cancelled", "Check", "Claims", "Client", "FailedRunError", "Fifo",
    "Figures", "Herd", "InTurn", "OneFault", "Orphans", "Scenario", "Schedule", "Scripted",
    "Seeded", "Simulation", "Step", "ViolationError", "at_most", "cancel_everywhere",
    "exclusive", "exhaust", "explore", "readers_together", "replay", "sweep",
]
