"""Scenarios for the simulation: clients that claim what is due once per period, and bugs."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from zkwire.errors import OutcomeUnknownError, ZooKeeperError
from zkwire.recipes._node import Attempt
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.simulation import Simulation

PATH = "/jobs/one"
PERIOD = 60.0
OUTSIDERS = ("delete", "touch", "uproot", "wrap", "refuse")
NETWORK = tuple(fault for fault in FAULTS if fault not in OUTSIDERS)


class Turns:
    """OFTEN: between two turns there is a period.  NEVER: what is due is claimed by one of all."""

    reducible = True

    def __init__(self) -> None:
        self.claimed: list[float] = []
        self.refused = 0

    def step(self, sim: Simulation) -> None:
        pass

    def comparison_key(self) -> tuple[object, ...]:
        return (*self.claimed, self.refused)

    def end(self, sim: Simulation) -> None:
        times = sorted(self.claimed)
        if any(second - first < PERIOD / 2 for first, second in pairwise(times)):
            raise ViolationError("OFTEN", f"claimed at {times}")
        node = sim.tree.nodes.get(PATH)
        if not times and not any(step.kind in FAULTS for step in sim.done):
            raise ViolationError(
                "NEVER", "it was due, and all were refused though nothing happened"
            )
        alive = [c for c in sim.clients if not (c.dead or c.session.ended)]
        if node is not None and node.data and not times and len(alive) == len(sim.clients):
            raise ViolationError("ORPHAN", f"claimed by none: {node.data!r}")
        if node is not None and node.children:
            raise ViolationError("ORPHAN", f"left: {list(node.children)}")


async def ask(client: Client, claim: AsyncOncePer, turns: Turns, times: int) -> None:
    """Ask again and again."""
    for _ in range(times):
        with suppress(ZooKeeperError, Cancelled):
            if await claim.claim(40.0):
                turns.claimed.append(client.world.now())
            else:
                turns.refused += 1


def asking(number: int = 2, times: int = 2, core: type[AsyncOncePer] = AsyncOncePer) -> Scenario:
    """So many clients that ask so many times each, all within one period."""

    def scenario(sim: Simulation) -> None:
        turns = Turns()
        sim.checks.append(turns)
        for _ in range(number):
            client = sim.client()
            client.spawn(ask(client, core(client.world, PATH, PERIOD * 1000), turns, times))

    return scenario


class BelievesLoss(AsyncOncePer):
    """A claim that was not answered was made."""

    async def _try(self, attempt: Attempt, deadline: float) -> bool:
        try:
            return await super()._try(attempt, deadline)
        except OutcomeUnknownError:
            return True


class NewName(AsyncOncePer):
    """Does not know its own claim again."""

    async def _try(self, attempt: Attempt, deadline: float) -> bool:
        attempt.id = attempt.id[:-8] + self._runtime.unique()[-8:]
        return await super()._try(attempt, deadline)


class KeepsDoubt(AsyncOncePer):
    """Does not give back what it may have claimed."""

    def _clean_up_after(self, attempt: Attempt) -> None:
        pass


class GivesBackAnything(AsyncOncePer):
    """Gives back what another has claimed."""

    def _clean_up_after(self, attempt: Attempt) -> None:
        attempt.entered, attempt.id = True, "0"
        super()._clean_up_after(attempt)


PLANTED: dict[type[AsyncOncePer], set[str]] = {
    BelievesLoss: {"OFTEN", "ORPHAN", "NEVER"},
    NewName: {"OFTEN", "ORPHAN", "NEVER"},
    KeepsDoubt: {"ORPHAN"},
    GivesBackAnything: {"OFTEN", "NEVER", "ORPHAN"},
}
