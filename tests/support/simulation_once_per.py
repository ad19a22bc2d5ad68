"""Scenarios of what is due once per period: clients that ask for their turn, and bugs."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from tests.support.simulation_parts import Judge, has_faults, living, scenario
from zkwire.errors import ZooKeeperError
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

PATH = "/jobs/one"
PERIOD = 60.0


class Turns(Judge):
    """OFTEN: between two turns there is a period.  NEVER: what is due is claimed by one of all.

    ORPHAN: nothing is claimed by nobody, and nothing else is left.
    """

    def __init__(self) -> None:
        self._claimed: list[float] = []

    async def ask(self, client: Client, times: int) -> None:
        """Ask again and again."""
        turn = AsyncOncePer(client.world, PATH, PERIOD * 1000)
        for _ in range(times):
            with suppress(ZooKeeperError, Cancelled):
                if await turn.claim(40.0):
                    self._claimed.append(client.world.now())

    def end(self, sim: Simulation) -> None:
        times = sorted(self._claimed)
        if any(second - first < PERIOD / 2 for first, second in pairwise(times)):
            raise ViolationError("OFTEN", f"claimed at {times}")
        if not times and not has_faults(sim):
            raise ViolationError("NEVER", "all were refused though nothing happened")
        node = sim.tree.nodes.get(PATH)
        if node is None:
            return
        if node.data and not times and len(living(sim)) == len(sim.clients):
            raise ViolationError("ORPHAN", f"claimed by none: {node.data!r}")
        if node.children:
            raise ViolationError("ORPHAN", f"left: {list(node.children)}")


@scenario
def asking(sim: Simulation, number: int = 2, times: int = 2) -> None:
    """So many clients that ask so many times each, all within one period."""
    turns = Turns()
    sim.checks.append(turns)
    for _ in range(number):
        client = sim.client()
        client.spawn(turns.ask(client, times))
