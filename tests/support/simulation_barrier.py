"""Scenarios of double barriers: members that enter and leave, and bugs."""

from __future__ import annotations

from contextlib import suppress

from tests.support.simulation_parts import (
    NETWORK,
    Bug,
    Change,
    Judge,
    children,
    has_faults,
    living,
    scenario,
    wrong,
)
from zkwire.errors import ZooKeeperError
from zkwire.recipes.barrier import READY, AsyncDoubleBarrier
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

__all__ = ["BUGS", "NETWORK", "meeting"]

PATH = "/barriers/one"
PATIENCE = 40.0


class Together(Judge):
    """EARLY: a round begins only while so many members are there, and only theirs is entered.

    LATE: what has left sees no member of its round.  ORPHAN: nothing is left of those that live.
    STUCK: without a fault there is a round for all, if it is ``even``.
    """

    def __init__(self, count: int, *, even: bool) -> None:
        self._count = count
        self._even = even
        self._generations: dict[int, set[str]] = {}  # the members, by zxid
        self.refused = 0

    def step(self, sim: Simulation) -> None:
        there = children(sim, PATH)
        round = there.pop(READY, 0)
        if round and round not in self._generations:
            members = {name for name, czxid in there.items() if czxid < round}
            self._generations[round] = members
            if len(members) < self._count:
                raise ViolationError("EARLY", f"{len(members)} began the round {round}")

    def has_entered(self, sim: Simulation, member: AsyncDoubleBarrier) -> None:
        assert member._inside is not None
        if member._inside.id not in self._generations.get(member._round, ()):
            wrong(sim, "EARLY", f"{member._inside.id}: {member._round}")

    def has_left(self, sim: Simulation, member: AsyncDoubleBarrier) -> None:
        there = children(sim, PATH)
        left = [name for name, age in there.items() if age < member._round and name != READY]
        if left:
            wrong(sim, "LATE", f"{left} are still in {member._round}")

    def end(self, sim: Simulation) -> None:
        there, alive = children(sim, PATH), living(sim)
        ours = tuple(f"{client.session.session_id:016x}" for client in alive)
        left = [name for name in there if name.startswith(ours)]
        if left or (READY in there and len(alive) == len(sim.clients)):
            raise ViolationError("ORPHAN", f"left: {sorted(there)}")
        if self.refused and self._even and not has_faults(sim):
            raise ViolationError("STUCK", f"{self.refused} were refused though nothing happened")


async def take_part(
    sim: Simulation, client: Client, member: AsyncDoubleBarrier, together: Together, rounds: int
) -> None:
    """Enter and leave, again and again."""
    for _ in range(rounds):
        with suppress(ZooKeeperError, Cancelled):
            if not await member.enter(PATIENCE):
                together.refused += 1
                continue
            together.has_entered(sim, member)
            try:
                await client.turn()
            except Cancelled:
                member._abandon()
                continue
            if await member.leave():
                together.has_left(sim, member)


@scenario
def meeting(sim: Simulation, count: int = 2, rounds: int = 2, *, more: int = 0) -> None:
    """So many members, and ``more`` than a round needs."""
    together = Together(count, even=not more)
    sim.checks.append(together)
    for _ in range(count + more):
        client = sim.client()
        member = AsyncDoubleBarrier(client.world, PATH, count)
        client.spawn(take_part(sim, client, member, together, rounds))


def _bug(faults: str, invariants: str, home: type, name: str, *what: object) -> Bug:
    return Bug(meeting(2, 2, more=1), faults, invariants, (Change(home, name, *what),))


_M = AsyncDoubleBarrier
_ENDS = (
    "await ensure_gone(self._runtime, deadline, f'{self._path}/{READY}')\n    "
    "with suppress(NoNodeError):\n        "
)
BUGS = {
    # Begins a round with those that it has seen, be they there or not.
    "begins blindly": _bug(
        "crash expire cancel", "EARLY", _M, "_begin_round", "[*checks, *steps]", "steps"
    ),
    # Enters the round that is on, whenever that began.
    "any round": _bug(
        "cancel crash expire",
        "EARLY LIVE LATE STUCK",
        *(_M, "_waits", "seen.round > attempt.stat.czxid", "seen.round"),
    ),
    # The first to leave deletes ``ready``, as kazoo's does: others may not have seen it yet.
    "ends at once": _bug(
        "",
        "LIVE STUCK LATE",
        *(_M, "_exit", "with suppress(NoNodeError):\n        while", _ENDS + "while"),
    ),
    # Does not wait for the lowest.
    "leaves alone": _bug("", "LATE", _M, "_exit", "await self._gone(others[0], deadline)", "break"),
    # Does not delete its node when it gives up.
    "keeps its node": _bug(
        "cancel slow",
        "ORPHAN LIVE",
        *(_M, "_clean_up_pending", lambda member: setattr(member, "_pending_cleanup", None)),
    ),
    # Believes that there is something to wait for, also where it has gone meanwhile.
    "waits for an event": _bug("", "LIVE", _M, "_gone", "operations.get_data", "operations.exists"),
    # What cleans up deletes ``ready``, whatever has become of the barrier since.
    "deletes any round": _bug(
        "cancel slow",
        "LIVE STUCK ORPHAN LATE",
        *(_M, "_leave", "names == [READY]", "READY in names"),
        *("Check(self._path, stat.version), ", ""),
    ),
}
