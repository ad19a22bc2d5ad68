"""Scenarios of processes whose sessions follow one another: supervisors, and watching forever."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from tests.support.simulation_parts import (
    PASSING,
    Judge,
    Process,
    has_been_refused,
    make,
    scenario,
    wrong,
)
from zkwire.errors import ServerError
from zkwire.operations import Operations
from zkwire.recipes._service import Condition, Service
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.recipes.supervisor import Leadership
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch, NodeWatcher
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS
from zkwire.testing.simulation.invariants import Claims
from zkwire.testing.simulation.simulation import Simulation

# --- supervisors: terms of all processes never overlap --------------------------------------------

ELECTION = "/election"
LEADING = (*PASSING, "expire", "abandon", "crash")


class Supervised(Process):
    """It runs a service, and is a candidate."""

    def __init__(self, sim: Simulation, name: str, claims: Claims) -> None:
        super().__init__(sim, name)
        self.claims, self.terms = claims, 0
        self.service = Resident(self.sessions)
        self.sessions.serve(self.service)
        leadership = Candidacy(self.sessions, self.work, ELECTION, name, "zkwire", None)
        self.sessions.run(leadership.run, "leadership")
        self.begin(self.live, "life")

    @property
    def settled(self) -> bool:
        """Whether it is what it is for: in a living session, and it has led."""
        living = self.sim.sessions.get(self.newest.session.session_id) is not None
        return living and self.service.running and self.terms > 0

    async def live(self) -> None:
        """Until there were as many sessions as it takes for what can go wrong."""
        await self.newest.sleep(self.rng.choice((0.0, 10.0, 30.0)))
        while not self.settled:
            await self.newest.sleep(1.0)
        await self.sessions.stop()

    async def work(self, lock: AsyncSequentialLock) -> None:
        """Lead for a while, and look before each act."""
        self.terms += 1
        for _ in range(self.rng.choice((1, 3))):
            lock.check()
            client = next(c for c in self.clients if c.world is lock._runtime)
            highest = max((grant.fence for grant in self.claims.grants), default=0)
            excused = client.killed or lock.fence in self.sim.stolen
            if lock.fence < highest and not excused:
                raise ViolationError("TERM", f"{client} acts by {lock.fence} behind {highest}")
            await self.newest.turn()
        await self.newest.sleep(self.rng.choice((1.0, 3.0)))
        lock.check()

    async def lead(self, function: Callable[[Any], Any], lock: AsyncSequentialLock) -> None:
        await function(lock)


class Candidacy(Leadership):
    """Its locks are looked at."""

    def _make_lock(self, driver: Any) -> AsyncSequentialLock:
        lock, sessions = super()._make_lock(driver), cast(Any, self._sessions)
        sessions.claims.add(lock, driver._client)
        return lock


class Resident(Service):
    """Runs until its session ends."""

    _called, _path = "resident", "/"
    running = False

    async def _serve(self, runtime: Any) -> None:
        if self.running:
            raise ViolationError("RUNS", "its run in the session before has not ended")
        self.running = True
        await runtime.wait_for(Condition(lambda: False))

    def _session_ended(self, runtime: Any) -> None:
        self.running = False


class OneSession(Judge):
    """ONE: of a process's clients all but the newest are closed, and nothing is served by them."""

    reducible = False

    def __init__(self, processes: list[Supervised]) -> None:
        self.processes = processes

    def step(self, sim: Simulation) -> None:
        for process in self.processes:
            for error in (process.sessions._error, process.service._error):
                if isinstance(error, ViolationError):
                    raise error
                if error is not None:
                    raise ViolationError("ERROR", f"{process.name} has ended with {error!r}")
            for client in process.clients[:-1]:
                if not client.session.ended:
                    raise ViolationError("ONE", f"{client.name} lives beside {process.newest.name}")
                if client.world.services:
                    raise ViolationError("RUNS", f"a service still runs in {client.name}")


@scenario
def supervised(sim: Simulation, number: int = 2) -> None:
    """So many processes."""
    make(sim, ELECTION)
    claims = Claims()
    processes = [Supervised(sim, name, claims) for name in "abc"[:number]]
    sim.checks += [claims, OneSession(processes)]


# --- watching forever: a node that one client writes ----------------------------------------------

PATH = "/f"
QUIET = 5
"""Session timeouts without a new state, after which none comes."""
WATCHING = (*PASSING, "refuse", "expire", "close")

Kind: TypeAlias = type[NodeWatcher]
Deed = Callable[[Operations], Any]


class State(NamedTuple):
    """A state of the node, or of its children; ``zxid`` 0: there is none."""

    zxid: int
    value: object


MISSING = State(0, None)


class Follows(Judge):
    """What has been seen is part of what was, in its order, and ends with what is.

    ORDER: an older state behind a newer one, or one that never was.  SKIPPED: a state that was
    skipped without a word.  LAST: the last state is missed.  LEFT: a watch stays behind.
    With ``lagging`` each later session of the reader begins on a server that is far behind.
    """

    reducible = False

    def __init__(self, kind: Kind, lagging: bool) -> None:
        self._children = issubclass(kind, AsyncChildrenWatch)
        self._lagging = lagging
        self._was = [MISSING]
        self._at = -1  # in the history
        self.last: State | None = None
        self.settled = False  # a reader has waited for long, and then closed

    def _is(self, sim: Simulation) -> State:
        node = sim.tree.nodes.get(PATH)
        if node is None:
            return MISSING
        if self._children:
            return State(node.pzxid, sorted(node.children))
        return State(node.mzxid, node.data)

    def step(self, sim: Simulation) -> None:
        now = self._is(sim)
        if now != self._was[-1]:
            self._was.append(now)
        for client in sim.clients[2:] if self._lagging else ():
            if client.link is not None and not client.link.connection.greeted:
                CLIENT_FAULTS["lag"](sim, client)

    def saw(self, sim: Simulation, seen: Any) -> None:
        """A reader has got this."""
        value, stat, skipped = seen
        zxid = 0 if stat is None else stat.pzxid if self._children else stat.mzxid
        state, before = State(zxid, value), self._at
        self.step(sim)
        if state not in self._was[before + 1 :]:
            wrong(sim, "ORDER", f"{state} behind {self.last}, of {self._was}")
            return
        self._at, self.last = self._was.index(state, before + 1), state
        if not skipped and before >= 0 and self._at != before + 1:
            wrong(sim, "SKIPPED", f"{self._was[before + 1]} before {state}")

    def end(self, sim: Simulation) -> None:
        if self.settled and self.last != self._was[-1]:
            raise ViolationError("LAST", f"{self._was[-1]} is not seen, only {self.last}")
        if sim.watches_on_server and not has_been_refused(sim):
            raise ViolationError("LEFT", f"{sim.watches_on_server} watches on the server")
        for client in sim.clients:
            if client.session.watch_count and not client.session.ended:
                raise ViolationError("LEFT", f"{client} has watches")


def changes(sim: Simulation, kind: Kind, number: int) -> list[Deed]:
    """Writes and deletes, as they come; some of them are refused."""

    def one(n: int) -> Deed:
        child, value = f"{PATH}/{sim.rng.choice('abc')}", b"%d" % n
        if issubclass(kind, AsyncChildrenWatch):
            others: list[Deed] = [lambda o: o.create(child), lambda o: o.delete(child)]
        else:
            others = [lambda o: o.set_data(PATH, value)] * 2
        return sim.rng.choice([lambda o: o.create(PATH, b"new"), lambda o: o.delete(PATH), *others])

    return [one(n) for n in range(number)]


async def write(client: Client, deeds: list[Deed]) -> None:
    """Make these changes one after the other."""
    for deed in deeds:
        with suppress(ServerError):  # a delete of what is not there, and so on
            await client.world.retry(None, partial(deed, client.world.operations))
        if client.sim.rng.random() < 0.3:
            await client.sleep(1.0)


@scenario
def following(
    sim: Simulation,
    kind: Kind = AsyncDataWatch,
    *,
    sessions: int = 1,
    number: int = 4,
    lagging: bool = False,
) -> None:
    """One writer; one reader, which ends all but the last of so many sessions."""
    follows, choose = Follows(kind, lagging), sim.rng.choice
    sim.checks.append(follows)
    writer, process = sim.client(), Process(sim, "r")
    follower, long = kind(process.sessions, PATH), QUIET * sim.timeout
    writing = writer.spawn(write(writer, changes(sim, kind, number)))

    async def read() -> None:
        """Read until nothing has come for long; then close."""
        left, ends = choose((0, 0, 1, 2)), sessions - 1
        try:
            while True:
                seen = await follower.next(long)
                if seen is not None:
                    follows.saw(sim, seen)
                    for _ in range(choose((0, 0, 1, 5))):
                        await process.newest.turn()
                    if sim.rng.random() < 0.1:
                        await process.newest.sleep(2.0)
                elif writing.done and sim.now > sim.last_fault_at + long - 1.0:
                    follows.settled = True
                    return
                left -= 1
                if left < 0 < ends:
                    ends -= 1
                    await process.close_client(process.newest)
        finally:
            follower.close()
            process.end()

    process.spawn(read(), "read")
