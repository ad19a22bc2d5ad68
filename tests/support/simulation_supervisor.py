"""Scenarios of supervisors: processes whose clients follow one another, and planted bugs.

Each process runs a service and is a candidate.  Whatever happens to its sessions, it has one at a
time, the service runs in it, and terms of all processes never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from random import Random
from typing import Any

from tests.support.simulation_parts import Judge, change, make, scenario
from zkwire.errors import NoNodeError
from zkwire.recipes._service import Condition, Service
from zkwire.recipes.runtime import retry
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.recipes.supervisor import Leadership, SessionLoop
from zkwire.session.states import StateWait
from zkwire.session.waitable import Waitable
from zkwire.testing.simulation.client import Client, Task, ViolationError
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS
from zkwire.testing.simulation.invariants import Claims
from zkwire.testing.simulation.simulation import Simulation

ELECTION, NODE = "/election", "/node"
NETWORK = ("cut", "unsent", "linger", "partition", "blip", "slow", "lag", "pause")
FAULTS = (*NETWORK, "expire", "abandon", "crash")


class Connected:
    """A client of the simulation, as a supervisor sees one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._driver = client.world


class Process:
    """The backend of a supervisor; its tasks stand still, and die, with its newest client."""

    def __init__(self, sim: Simulation, name: str, claims: Claims) -> None:
        self.mutex = nullcontext()
        self.awaits = False
        self.check_function = callable
        self.sim, self.name, self.claims = sim, name, claims
        self.rng = Random(sim.seed)
        self.clients: list[Client] = []
        self.tasks: list[Task] = []
        self.terms = 0
        backend: Any = self
        self.sequence = SessionLoop(backend)
        self.service = Reader(self.sequence)
        self.sequence.serve(self.service)
        leadership = Leadership(self.sequence, self.work, ELECTION, name, "zkwire", None)
        self.sequence.run(leadership.run, "leadership")
        self.begin(self.live, "life")

    @property
    def newest(self) -> Client:
        return self.clients[-1]

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
        await self.sequence.stop()

    async def work(self, lock: AsyncSequentialLock) -> None:
        """Lead for a while, and look before each act."""
        self.terms += 1
        for _ in range(self.rng.choice((1, 3))):
            lock.check()
            acts = self.acts(lock)
            if acts:
                raise ViolationError("TERM", acts)
            await self.newest.turn()
        await self.newest.sleep(self.rng.choice((1.0, 3.0)))
        lock.check()

    def acts(self, lock: AsyncSequentialLock) -> str:
        """Act; what is wrong with that, but for a session that was killed."""
        client = next(c for c in self.clients if c.world is lock._runtime)
        highest = max((grant.fence for grant in self.claims.grants), default=0)
        if not client.killed and lock.fence not in self.sim.stolen and lock.fence < highest:
            return f"{client.name} acts with the fence {lock.fence} behind {highest}"
        return ""

    # --- the backend ------------------------------------------------------------------------------

    def now(self) -> float:
        return self.sim.now

    def check(self) -> None:
        """There is one loop."""

    def jitter(self) -> float:
        return self.rng.uniform(0.5, 1.0)

    def make_client(self) -> Connected:
        client = self.sim.client(f"{self.name}{len(self.clients) + 1}", connected=False)
        self.clients.append(client)
        for task in self.tasks:
            task.client = client
        return Connected(client)

    async def close_client(self, connected: Connected) -> None:
        client = connected.client
        if client.session.ended:
            return
        if client.close_at is None:
            client.world.closing = self.sim.timeout
            client.session.close(self.sim.now)
            client.close_at = self.sim.now + self.sim.timeout
            client.call_due()
            client.flush()
        over = StateWait((), client.session.state)
        client.world.attach(over)
        try:
            await client.world.within(over)
        finally:
            client.world.detach(over)

    async def until_idle(self, connected: Connected) -> None:
        """What is dismissed ends at once."""

    def make_lock(
        self, connected: Connected, path: str, text: str, names: Any
    ) -> AsyncSequentialLock:
        lock = AsyncSequentialLock(connected.client.world, path, text, names=names)
        self.claims.add(lock, connected.client)
        return lock

    async def under(self, lock: AsyncSequentialLock, function: Callable[[Any], Any]) -> None:
        async with lock:
            await function(lock)

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        stem = f"{self.name}.{name}"
        self.tasks.append(self.sim.add_task(self.newest, work(), stem, background=True))

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        return await self.newest.world.within(waitable, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        self.newest.world.dispatch(function)


class Reader(Service):
    """Reads a node at the beginning of each session: what it has seen never gets older."""

    _called, _path = "reader", NODE

    def __init__(self, sessions: Any) -> None:
        super().__init__(sessions)
        self.running = False
        self._seen = 0

    async def _serve(self, runtime: Any) -> None:
        if self.running:
            raise ViolationError("RUNS", "its run in the session before has not ended")
        self.running = True
        try:
            _, stat = await retry(runtime, None, runtime.operations.get_data, NODE)
        except NoNodeError:
            raise ViolationError("OLDER", "a node is gone that had been there before") from None
        if stat.mzxid < self._seen:
            raise ViolationError("OLDER", f"{stat.mzxid} is read behind {self._seen}")
        self._seen = stat.mzxid
        await runtime.wait_for(Condition(lambda: False))

    def _session_ended(self) -> None:
        self.running = False


class OneSession(Judge):
    """ONE: of a process's clients all but the newest are closed, and nothing is served by them."""

    reducible = False

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes

    def step(self, sim: Simulation) -> None:
        for process in self.processes:
            for error in (process.sequence._error, process.service._error):
                if error is not None:
                    raise error if isinstance(error, ViolationError) else _error(process, error)
            for client in process.clients[:-1]:
                if not client.session.ended:
                    raise ViolationError("ONE", f"{client.name} lives beside {process.newest.name}")
                if client.world.services:
                    raise ViolationError("RUNS", f"a service still runs in {client.name}")


def _error(process: Process, error: BaseException) -> ViolationError:
    return ViolationError("ERROR", f"{process.name} has ended with {error!r}")


class Lagging(Judge):
    """No check, but what makes each later session begin on a server that is far behind."""

    reducible = False

    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes

    def step(self, sim: Simulation) -> None:
        for process in self.processes:
            link = process.newest.link
            if len(process.clients) > 1 and link is not None and not link.connection.greeted:
                CLIENT_FAULTS["lag"](sim, process.newest)


@scenario
def supervised(sim: Simulation, number: int = 2, *, lagging: bool = False) -> None:
    """So many processes, and an outsider that writes what their services read."""
    make(sim, ELECTION, NODE)
    claims = Claims()
    writer = sim.client("writer")
    processes = [Process(sim, name, claims) for name in "abc"[:number]]
    sim.checks += [claims, OneSession(processes)]
    if lagging:
        sim.checks.append(Lagging(processes))

    async def change_on() -> None:
        for _ in range(20):
            change(sim, lambda tree, outsider: tree.set_data(NODE, b"", -1, outsider)[1])
            await writer.sleep(1.0)

    sim.add_task(writer, change_on(), "change", background=True)
