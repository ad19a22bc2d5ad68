"""Scenarios of what clients share in a node or two: double barriers, counters, once per period."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from tests.support.simulation_parts import (
    Judge,
    children,
    has_faults,
    living,
    scenario,
    wrong,
)
from zkwire.errors import ZooKeeperError
from zkwire.recipes.barrier import READY, AsyncDoubleBarrier
from zkwire.recipes.counter import AsyncCounter
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

# --- double barriers: members that enter and leave -----------------------------------------------


BARRIER = "/barriers/one"
BARRIER_SECONDS = 40.0


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
        there = children(sim, BARRIER)
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
        there = children(sim, BARRIER)
        left = [name for name, age in there.items() if age < member._round and name != READY]
        if left:
            wrong(sim, "LATE", f"{left} are still in {member._round}")

    def end(self, sim: Simulation) -> None:
        there, alive = children(sim, BARRIER), living(sim)
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
            if not await member.enter(BARRIER_SECONDS):
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
        member = AsyncDoubleBarrier(client.world, BARRIER, count)
        client.spawn(take_part(sim, client, member, together, rounds))


# --- counters: each addition has two binary digits of the number to itself -----------------------


COUNTER = "/counters/one"
COUNTER_SECONDS = 30.0


class Sums(Judge):
    """ONCE: what has succeeded was made once, what may have been at most once, the rest never.

    VALUE: what is returned has been the number.  ORPHAN: no queue is left, nor a token too many.
    """

    def __init__(self) -> None:
        self.ended: list[int | BaseException | None] = []  # of each addition, None: it is under way
        self._seen: dict[int, int] = {}  # numbers, with their zxids

    def step(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(COUNTER)
        if node is not None and node.data:
            self._seen[int(node.data)] = node.mzxid

    async def add(self, sim: Simulation, counter: AsyncCounter, times: int) -> None:
        """Add, again and again; what has failed is told and not repeated."""
        for _ in range(times):
            digit = len(self.ended)
            self.ended.append(None)
            try:
                value = self.ended[digit] = await counter.add(4**digit, COUNTER_SECONDS)
            except BaseException as error:
                self.ended[digit] = error
                if not isinstance(error, (ZooKeeperError, Cancelled)):
                    raise
            else:
                if self._seen.get(value) != counter.version or value >> 2 * digit & 3 != 1:
                    wrong(sim, "VALUE", f"{value:b} at {counter.version}, of {self._seen}")

    def end(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(COUNTER)
        number = int(node.data or b"0") if node is not None else 0
        for digit, end in enumerate(self.ended):
            made, allowed = number >> 2 * digit & 3, {1} if isinstance(end, int) else {0, 1}
            if isinstance(end, ZooKeeperError) and not end.maybe_applied:
                allowed = {0}
            if made not in allowed:
                raise ViolationError("ONCE", f"addition {digit} made {made} times: {end}")
        ours = tuple(f"{client.session.session_id:016x}" for client in living(sim))
        left = [name for name in children(sim, COUNTER) if name.startswith(ours)]
        sessions = [name[:16] for name in left]
        if any("lock" in name for name in left) or len(sessions) > len(set(sessions)):
            raise ViolationError("ORPHAN", f"left: {left}")


@scenario
def adding(sim: Simulation, number: int = 2, times: int = 2, *, crowded: bool = False) -> None:
    """So many clients that add so many times each; ``crowded``: they queue from the beginning."""
    sums = Sums()
    sim.checks.append(sums)
    for _ in range(number):
        client: Client = sim.client()
        counter = AsyncCounter(client.world, COUNTER)
        counter._contention.crowded = crowded
        client.spawn(sums.add(sim, counter, times))


# --- what is due once per period: clients that ask for their turn --------------------------------


JOB = "/jobs/one"
PERIOD = 60.0


class Turns(Judge):
    """OFTEN: between two turns there is a period.  NEVER: what is due is claimed by one of all.

    ORPHAN: nothing is claimed by nobody, and nothing else is left.
    """

    def __init__(self) -> None:
        self._claimed: list[float] = []

    async def ask(self, client: Client, times: int) -> None:
        """Ask again and again."""
        turn = AsyncOncePer(client.world, JOB, PERIOD * 1000)
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
        node = sim.tree.nodes.get(JOB)
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
