"""Scenarios of a partitioner: members that come, leave and die, and versions with planted bugs.

Each member lives through lost connections, other and stale servers, pauses and the ends of
sessions.  Its program works on items in the three ways that a program can: it stops what a share
calls leaving, it stops what the next share leaves out, or it does both and is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.support.simulation_cache import OneAfterAnother
from tests.support.simulation_parts import (
    Judge,
    has_been_refused,
    living,
    nobody_failed,
    nothing_left,
    scenario,
)
from zkwire.errors import ClientClosedError
from zkwire.recipes.partitioner import (
    AsyncPartitioner,
    AsyncShare,
    ItemOwnership,
)
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS
from zkwire.testing.simulation.simulation import Simulation

PATH = "/p"
ITEMS = ("1", "2", "3", "4", "5")
NETWORK = ("cut", "unsent", "linger", "pause", "partition", "blip", "slow", "lag", "refuse")
FAULTS = (*NETWORK, "expire", "delete")


class Worker:
    """A member and its program: ``working`` is what that works on at this moment."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim = sim
        self.name = name
        self.sessions = OneAfterAnother(sim)
        self.clients: list[Client] = [self.sessions.client]
        self.rng = Random(f"{sim.seed} {name}")
        self.attention = self.rng.choice((0.0, 0.5, 1.0))  # how often it looks at its share
        self.working: dict[str, ItemOwnership] = {}
        self.share: AsyncShare | None = None
        self.too_early = ""  # an item that was given out anew
        items = self.rng.sample(ITEMS, len(ITEMS))  # in any order
        self.partitioning = AsyncPartitioner(self.sessions, PATH, items, name=name)
        self.clients[0].spawn(self.work())

    @property
    def client(self) -> Client:
        return self.sessions.client

    @property
    def dead(self) -> bool:
        return self.client.dead

    @property
    def excused(self) -> bool:
        """Whether it cannot know what has become of its session."""
        return self.dead or self.client.killed or self.client.paused

    def go_on(self) -> None:
        """Begin the next session if the last has ended."""
        if not self.dead:
            self.sessions.go_on()
            if self.client is not self.clients[-1]:
                self.clients.append(self.client)

    def die(self) -> None:
        for client in self.clients:
            CLIENT_FAULTS["crash"](self.sim, client)
        self.working.clear()

    async def work(self) -> None:
        while True:
            looks = self.rng.random() < self.attention
            try:
                limit = self.rng.choice((None, None, 0.0, 1.0, 5.0))
                share = await self.partitioning.next(limit)
            except ClientClosedError:
                return
            if share is not None:
                self._begin(share)
            await self.clients[0].turn()
            if self.share is not None and looks:
                share = self.share
                await self.partitioning._until_changed(share, self.rng.choice((None, 3.0)))
                for item in share.leaving:
                    await self.clients[0].turn()
                    self.working.pop(item, None)
            elif self.rng.random() < 0.3:
                await self.clients[0].sleep(self.rng.random())

    def _begin(self, share: AsyncShare) -> None:
        """Stop what the share leaves out, begin what is new in it."""
        for item, ownership in share._ownerships.items():
            if self.working.get(item, ownership) is not ownership:
                self.too_early = item
        self.share, self.working = share, dict(share._ownerships)


class OneOwner(Judge):
    """What holds of items.

    ME: no two members hold one item.  FENCE: each ownership of an item has a higher fence than
    those before.  KEPT: an item that is being worked on is not let go.  TOLD: a share of which an
    item is lost has changed.  BACK: an item is not given out anew before work on it has stopped.
    LEFT: at the end nothing is left.
    """

    reducible = False

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self._highest: dict[str, int] = {}
        self._seen = set[ItemOwnership]()

    def _held(self) -> Iterator[tuple[str, ItemOwnership, Worker]]:
        for worker in self.workers:
            ownerships = {*worker.partitioning._ownerships.items(), *worker.working.items()}
            for item, ownership in () if worker.excused else ownerships:
                if ownership.held and ownership.lock.fence not in worker.sim.stolen:
                    yield item, ownership, worker

    def step(self, sim: Simulation) -> None:
        owners: dict[str, str] = {}
        for item, ownership, worker in self._held():
            if owners.setdefault(item, worker.name) != worker.name:
                raise ViolationError("ME", f"{item}: {owners[item]} and {worker.name}")
            if ownership not in self._seen:
                self._seen.add(ownership)
                if ownership.lock.fence <= self._highest.get(item, 0):
                    why = f"{item}: {ownership.lock.fence} of {worker.name}"
                    raise ViolationError("FENCE", why)
                self._highest[item] = ownership.lock.fence
        for worker in self.workers:
            self._look_at_work(worker)

    def _look_at_work(self, worker: Worker) -> None:
        partitioning = worker.partitioning
        if worker.dead or partitioning._leaving:
            return
        if partitioning._error is not None:
            raise ViolationError("ERROR", f"{worker.name} has ended with {partitioning._error!r}")
        if worker.too_early:
            raise ViolationError("BACK", f"{worker.too_early} is back before work on it stopped")
        for item, ownership in worker.working.items():
            lock = ownership.lock
            if not (ownership.held or lock._owned or lock.lost.reason):
                raise ViolationError("KEPT", f"{worker.name} works on {item}, which was let go")
            share = worker.share
            if not ownership.held and share is not None and item in share and not share._stale:
                raise ViolationError("TOLD", f"{worker.name} is not told that {item} is lost")

    def settled(self) -> bool:
        """Whether each item is worked on by one living member, and evenly."""
        living = [worker for worker in self.workers if not worker.dead]
        work = [[i for i, t in worker.working.items() if t.held] for worker in living]
        sizes = [len(items) for items in work]
        return sorted(i for items in work for i in items) == sorted(ITEMS) and (
            max(sizes) - min(sizes) <= 1
        )

    def end(self, sim: Simulation) -> None:
        nobody_failed(sim)
        nothing_left(sim, PATH, watches=not has_been_refused(sim))
        if any(client.world.active_locks or client.world.services for client in living(sim)):
            raise ViolationError("LEFT", "a client has a claim or a service left")


@scenario
def shared_out(sim: Simulation, members: int = 3, changes: int = 4) -> None:
    """Members of which some come, leave and die; then all is quiet, and then all leave."""
    rng = Random(sim.seed)
    workers: list[Worker] = []
    check = OneOwner(workers)
    sim.checks.append(check)
    workers += [Worker(sim, f"m{number}") for number in range(members)]
    outside, names = sim.client("w"), iter(range(members, 1000))

    async def rest(seconds: float) -> None:
        for worker in workers:
            worker.go_on()
        await outside.sleep(seconds)

    async def live() -> None:
        for _ in range(changes):
            for _ in range(rng.randrange(8)):
                await rest(rng.choice((0.0, 0.0, 0.3, 4.0)))
            change = rng.choice(("join", "join", "leave", "die"))
            living = [worker for worker in workers if not worker.dead]
            if change == "join" or len(living) < 2:
                workers.append(Worker(sim, f"m{next(names)}"))
            elif change == "die":
                rng.choice(living).die()
            else:
                await leave(rng.choice(living))
        for _ in range(2):  # it stays so
            while not check.settled():
                await rest(1.0)
            await rest(3.0)
        for worker in [worker for worker in workers if not worker.dead]:
            await leave(worker)
        await outside.sleep(3.0)  # for clean-ups

    async def leave(worker: Worker) -> None:
        worker.working.clear()
        await worker.partitioning.close(None)
        workers.remove(worker)

    outside.spawn(live())
