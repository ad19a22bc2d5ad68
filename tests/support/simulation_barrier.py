"""Scenarios for the simulation: members of a double barrier, and some with planted bugs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from zkwire.errors import NoNodeError, ZooKeeperError
from zkwire.operations import Operations
from zkwire.operations.multi import Create, Operation, SetData
from zkwire.recipes._node import Attempt
from zkwire.recipes.barrier import READY, AsyncDoubleBarrier, Generations, Seen
from zkwire.recipes.runtime import retry
from zkwire.session.watch import Watch
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.simulation import Simulation

PATH = "/barriers/one"
OUTSIDERS = ("delete", "touch", "uproot", "wrap", "refuse")
NETWORK = tuple(fault for fault in FAULTS if fault not in OUTSIDERS)
PATIENCE = 40.0


class Together:
    """EARLY: a round begins only while so many members are there, and only theirs is entered.

    LATE: what has left sees no member of its round.  ORPHAN: nothing is left of those that live.
    """

    reducible = True

    def __init__(self, count: int, *, even: bool = True) -> None:
        self._count = count
        self._even = even  # without a fault there is a round for all
        self._generations: dict[int, set[str]] = {}  # the members, by zxid
        self.entered = 0
        self.refused = 0
        self.wrong: list[str] = []

    @staticmethod
    def _members(sim: Simulation) -> dict[str, int]:
        node = sim.tree.nodes.get(PATH)
        names = list((node and node.children) or ())
        return {name: sim.tree.nodes[f"{PATH}/{name}"].czxid for name in names}

    def step(self, sim: Simulation) -> None:
        there = self._members(sim)
        round = there.pop(READY, 0)
        if round and round not in self._generations:
            members = {name for name, czxid in there.items() if czxid < round}
            self._generations[round] = members
            if len(members) < self._count:
                raise ViolationError("EARLY", f"{len(members)} began the round {round}")

    def comparison_key(self) -> tuple[object, ...]:
        return (*sorted(self._generations), self.entered, self.refused)

    def has_entered(self, member: AsyncDoubleBarrier) -> None:
        self.entered += 1
        assert member._inside is not None
        if member._inside.id not in self._generations.get(member._round, ()):
            self.wrong.append(f"EARLY: {member._inside.id} is not in {member._round}")

    def has_left(self, sim: Simulation, member: AsyncDoubleBarrier) -> None:
        left = [n for n, age in self._members(sim).items() if age < member._round and n != READY]
        if left:
            self.wrong.append(f"LATE: {left} are still in {member._round}")

    def end(self, sim: Simulation) -> None:
        if self.wrong:
            raise ViolationError(self.wrong[0].partition(":")[0], self.wrong[0])
        there = self._members(sim)
        alive = [c for c in sim.clients if not (c.dead or c.session.ended)]
        ours = tuple(f"{client.session.session_id:016x}" for client in alive)
        left = [name for name in there if name.startswith(ours)]
        if left or (READY in there and len(alive) == len(sim.clients)):
            raise ViolationError("ORPHAN", f"left: {sorted(there)}")
        if self.refused and self._even and not any(step.kind in FAULTS for step in sim.done):
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
            together.has_entered(member)
            try:
                await client.turn()
            except Cancelled:
                member._abandon()
                continue
            if await member.leave():
                together.has_left(sim, member)


def meeting(
    count: int = 2,
    rounds: int = 2,
    core: type[AsyncDoubleBarrier] = AsyncDoubleBarrier,
    *,
    more: int = 0,
) -> Scenario:
    """So many members, and ``more`` than a round needs."""

    def scenario(sim: Simulation) -> None:
        together = Together(count, even=not more)
        sim.checks.append(together)
        for _ in range(count + more):
            client = sim.client()
            member = core(client.world, PATH, count)
            client.spawn(take_part(sim, client, member, together, rounds))

    return scenario


# --- members with planted bugs --------------------------------------------------------------------


class Blind(Generations):
    """Begins a round with those that it has seen, be they there or not."""

    async def begin(self, seen: Seen, deadline: float | None) -> int:
        steps: list[Operation] = [
            SetData(self._path, b"", seen.version),
            Create(f"{self._path}/{READY}", b"", self._acl),
        ]
        results = await self._unless_changed(steps, deadline)
        return int(results[0].mzxid) if results else 0


class BeginsBlindly(AsyncDoubleBarrier):
    """See `Blind`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._generations = Blind(self._runtime, self._path, self._acl)


class AnyRound(AsyncDoubleBarrier):
    """Enters the round that is on, whenever that began."""

    async def _waits(
        self, attempt: Attempt, seen: Seen, deadline: float | None, watch: Watch
    ) -> bool:
        if seen.round:
            self._round = seen.round
            return False
        return await super()._waits(attempt, seen, deadline, watch)


class EndsAtOnce(AsyncDoubleBarrier):
    """The first to leave deletes ``ready``, as kazoo's does: others may not have seen it yet."""

    async def _exit(self, deadline: float | None) -> None:
        with suppress(NoNodeError):
            delete = self._runtime.operations.delete
            await retry(self._runtime, deadline, delete, f"{self._path}/{READY}")
        await super()._exit(deadline)


class LeavesAlone(AsyncDoubleBarrier):
    """Does not wait for the lowest."""

    async def _gone(self, name: str, deadline: float | None) -> None:
        assert self._pending_cleanup is not None
        if self._pending_cleanup.id < name:
            await super()._gone(name, deadline)
        else:
            raise NoNodeError


class KeepsItsNode(AsyncDoubleBarrier):
    """Does not delete its node when it gives up."""

    def _clean_up_pending(self) -> None:
        self._pending_cleanup = None


class WaitsForAnEvent(AsyncDoubleBarrier):
    """Believes that there is something to wait for, also where it has gone meanwhile."""

    async def _gone(self, name: str, deadline: float | None) -> None:
        watch = Watch()
        try:
            look, path = self._runtime.operations.exists, f"{self._path}/{name}"
            await retry(self._runtime, deadline, look, path, watch=watch)
            await self._event(watch, deadline)
        finally:
            watch.close()


class DeletesAnyRound(AsyncDoubleBarrier):
    """What cleans up deletes ``ready``, whatever has become of the barrier since."""

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(NoNodeError):
            await operations.delete(attempt.node or "")
        await operations.delete(f"{self._path}/{READY}")


PLANTED: dict[type[AsyncDoubleBarrier], tuple[tuple[str, ...], set[str]]] = {
    BeginsBlindly: (("crash", "expire", "cancel"), {"EARLY"}),
    AnyRound: (("cancel", "crash", "expire"), {"EARLY", "LIVE", "LATE", "STUCK"}),
    EndsAtOnce: ((), {"LIVE", "STUCK", "LATE"}),
    LeavesAlone: ((), {"LATE"}),
    KeepsItsNode: (("cancel", "slow"), {"ORPHAN", "LIVE"}),
    WaitsForAnEvent: ((), {"LIVE"}),
    DeletesAnyRound: (("cancel", "slow"), {"LIVE", "STUCK", "ORPHAN", "LATE"}),
}
"""Each with the faults that reveal it, and the invariants that it may break."""
