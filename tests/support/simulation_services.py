"""Scenarios of services that live through sessions: a cache, and the members of a partitioner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

from tests.support.simulation_parts import (
    PASSING,
    Judge,
    Process,
    change,
    has_been_refused,
    is_still,
    living,
    nobody_failed,
    nothing_left,
    scenario,
)
from zkwire.errors import ClientClosedError, NodeExistsError, NoNodeError, NotEmptyError
from zkwire.jute.records import Stat
from zkwire.recipes.cache import AsyncCache, CacheEvent
from zkwire.recipes.partitioner import AsyncPartitioner, AsyncShare, ItemOwnership
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.tree import DataTree, Event, NewNode
from zkwire.testing.simulation.client import ViolationError
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import OPEN_ACL_UNSAFE

# --- a cache of a tree that changes at random -----------------------------------------------------

ROOT = "/r"
PATHS = ("/r", "/r/a", "/r/a/x", "/r/a/x/1", "/r/a/y", "/r/b", "/r/b/x", "/r/no", "/r/no/x")
MIRRORING = (*PASSING, "refuse", "expire")
Content = dict[str, tuple[bytes, Stat]]


class Mirror(Judge):
    """What the cache and its readers show.

    MIRROR: while nothing is under way, the tree.  EVENTS: what a reader is told makes the same of
    an empty dict.  WATCH: none is left.
    """

    reducible = False

    def __init__(self, process: Process, cache: AsyncCache, has: Callable[[str], bool]) -> None:
        self.process = process
        self.cache = cache
        self._has = has
        self.copies: list[Content] = []
        self.told = self.reader()

    def truth(self, sim: Simulation) -> Content:
        return {
            path: self._seen(path, node.data or b"", node.stat())
            for path, node in sim.tree.nodes.items()
            if self._has(path)
        }

    def shown(self) -> Content:
        nodes = [self.cache.get(path) for path in self.cache]
        return {n.path: self._seen(n.path, n.data, n.stat) for n in nodes if n is not None}

    def _seen(self, path: str, data: bytes, stat: Stat) -> tuple[bytes, Stat]:
        """What must be right: of a node whose children are not there, nothing about children."""
        if not self._has(f"{path}/x"):
            times = stat.czxid, stat.mzxid, stat.ctime, stat.mtime
            sizes = stat.aversion, stat.ephemeral_owner, stat.data_length
            stat = Stat(*times, stat.version, 0, *sizes, 0, 0)
        return data, stat

    def fresh(self, sim: Simulation) -> bool:
        """Whether it says so, and nothing is under way, so that it cannot be excused."""
        return self.cache.fresh and is_still(sim, self.process.newest)

    def step(self, sim: Simulation) -> None:
        if self.fresh(sim) and self.shown() != self.truth(sim):
            raise ViolationError("MIRROR", f"{self.shown()} is not {self.truth(sim)}")

    def end(self, sim: Simulation) -> None:
        nobody_failed(sim)
        wrong = self.wrong_copy(sim)
        if wrong is not None:
            raise ViolationError("EVENTS", f"{wrong} is not {self.truth(sim)}")
        if sim.watches_on_server and not has_been_refused(sim):
            raise ViolationError("WATCH", f"{sim.watches_on_server} watches are left")

    def wrong_copy(self, sim: Simulation) -> Content | None:
        """What events have made that is not the tree's data."""
        truth = {path: data for path, (data, _) in self.truth(sim).items()}
        for copy in self.copies:
            if {path: data for path, (data, _) in copy.items()} != truth:
                return copy
        return None

    def reader(self) -> Callable[[CacheEvent], None]:
        """A function that applies events to a new copy."""
        copy: Content = {}
        self.copies.append(copy)
        exact = [True]

        def apply(event: CacheEvent) -> None:
            known = copy.get(event.path)
            if event.kind == "resynced":
                copy.clear()
                copy.update(self.shown())
                exact[0] = False  # events may tell of what the copy has already
                return
            if event.kind == "removed":
                copy.pop(event.path, None)
                wrong = exact[0] and known is None
            else:
                assert event.data is not None
                assert event.stat is not None
                copy[event.path] = event.data, event.stat
                older = known is not None and known[1].mzxid > event.stat.mzxid
                same = known is not None and known[1].mzxid == event.stat.mzxid
                wrong = older or (exact[0] and (same or (known is None) != (event.kind == "added")))
            if wrong:
                raise ViolationError("EVENTS", f"{event} does not follow")

        return apply


def change_at_random(sim: Simulation, rng: Random) -> None:
    """An outsider makes a random change, which may fail."""
    path = rng.choice(PATHS)

    def make(tree: DataTree, outsider: Credentials) -> list[Event]:
        if path in tree.nodes and rng.random() < 0.5:
            return tree.delete(path, -1, outsider)
        data = b"%d" % rng.randrange(100)
        if path in tree.nodes:
            return tree.set_data(path, data, -1, outsider)[1]
        return tree.create(NewNode(path, data, OPEN_ACL_UNSAFE), outsider)[2]

    with suppress(NoNodeError, NotEmptyError, NodeExistsError):
        change(sim, make)


@scenario
def mirror(sim: Simulation, *, version: Any = "3.9", depth: int | None = None) -> None:
    """A cache under random changes, with an iterator and a callback."""

    def has(path: str) -> bool:
        inside = path == ROOT or path.startswith(f"{ROOT}/")
        deep = path.count("/") - 1
        return inside and not path.startswith("/r/no") and (depth is None or deep <= depth)

    sim.processor.rules = Rules(version=version)
    rng = Random(sim.seed)
    for _ in range(10):
        change_at_random(sim, rng)
    process, outside = Process(sim, "p"), sim.client("w")

    def tell(event: CacheEvent) -> None:
        check.told(event)

    cache = AsyncCache(
        process.sessions, ROOT, depth=depth, skip=lambda path: path == "/r/no", on_event=tell
    )
    check = Mirror(process, cache, has)
    sim.checks.append(check)

    async def read() -> None:
        told, slow = check.reader(), Random(sim.seed + 1)
        async for event in cache.events():
            told(event)
            if slow.random() < 0.3:
                await outside.sleep(slow.random())

    async def live() -> None:
        for _ in range(25):
            change_at_random(sim, rng)
            pause = rng.random()
            if pause < 0.3:
                await outside.sleep(pause)
            elif pause < 0.7:
                await outside.turn()
        while not (check.fresh(sim) and check.shown() == check.truth(sim)):
            cache._check()
            await outside.sleep(1.0)
        for _ in range(60):
            if check.wrong_copy(sim) is None:
                break
            await outside.sleep(1.0)
        cache.close()
        process.end()

    outside.spawn(read())
    outside.spawn(live())


# --- a partitioner: members that come, leave and die ----------------------------------------------

PATH = "/p"
ITEMS = ("1", "2", "3", "4", "5")
SHARING = (*PASSING, "refuse", "expire", "delete")


class Worker(Process):
    """A member and its program: ``working`` is what that works on at this moment."""

    def __init__(self, sim: Simulation, name: str) -> None:
        super().__init__(sim, name)
        self.attention = self.rng.choice((0.0, 0.5, 1.0))  # how often it looks at its share
        self.working: dict[str, ItemOwnership] = {}
        self.share: AsyncShare | None = None
        self.too_early = ""  # an item that was given out anew
        items = self.rng.sample(ITEMS, len(ITEMS))  # in any order
        self.partitioning = AsyncPartitioner(self.sessions, PATH, items, name=name)
        self.begin(self.work, "work")

    @property
    def dead(self) -> bool:
        return self.newest.dead

    @property
    def excused(self) -> bool:
        """Whether it cannot know what has become of its session."""
        return self.dead or self.newest.killed or self.newest.paused

    def die(self) -> None:
        CLIENT_FAULTS["crash"](self.sim, self.newest)
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
            await self.newest.turn()
            if self.share is not None and looks:
                share = self.share
                await share.wait(self.rng.choice((None, 3.0)))
                for item in share.leaving:
                    await self.newest.turn()
                    self.working.pop(item, None)
            elif self.rng.random() < 0.3:
                await self.newest.sleep(self.rng.random())

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
        if any(client.world.active_locks for client in living(sim)):
            raise ViolationError("LEFT", "a client has a claim left")


@scenario
def shared_out(sim: Simulation, members: int = 3, changes: int = 4) -> None:
    """Members of which some come, leave and die; then all is quiet, and then all leave."""
    rng = Random(sim.seed)
    workers: list[Worker] = []
    check = OneOwner(workers)
    sim.checks.append(check)
    workers += [Worker(sim, f"m{number}") for number in range(members)]
    outside, names = sim.client("w"), iter(range(members, 1000))

    async def live() -> None:
        for _ in range(changes):
            for _ in range(rng.randrange(8)):
                await outside.sleep(rng.choice((0.0, 0.0, 0.3, 4.0)))
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
                await outside.sleep(1.0)
            await outside.sleep(3.0)
        for worker in [worker for worker in workers if not worker.dead]:
            await leave(worker)
        await outside.sleep(3.0)  # for clean-ups

    async def leave(worker: Worker) -> None:
        worker.working.clear()
        await worker.partitioning.close(None)
        worker.end()
        workers.remove(worker)

    outside.spawn(live())
