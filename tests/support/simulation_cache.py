"""Scenarios of a cache: a tree that changes at random, and versions of the cache with planted bugs.

The cache lives through lost connections, other and stale servers, pauses and the ends of sessions.
Whenever nothing is under way and the cache says that it is fresh, it is the tree; and each reader's
events, applied to an empty dict, give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from tests.support.simulation_parts import (
    Judge,
    change,
    has_been_refused,
    is_still,
    nobody_failed,
    scenario,
)
from zkwire.errors import NodeExistsError, NoNodeError, NotEmptyError
from zkwire.jute.records import Stat
from zkwire.recipes._service import Condition, Service
from zkwire.recipes.cache import AsyncCache, CacheEvent
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.tree import DataTree, Event, NewNode
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import OPEN_ACL_UNSAFE

ROOT = "/r"
PATHS = ("/r", "/r/a", "/r/a/x", "/r/a/x/1", "/r/a/y", "/r/b", "/r/b/x", "/r/no", "/r/no/x")
NETWORK = ("cut", "unsent", "linger", "pause", "partition", "blip", "slow", "lag", "refuse")
FAULTS = (*NETWORK, "expire")
Content = dict[str, tuple[bytes, Stat]]


class OneAfterAnother:
    """The sessions of a supervisor, as far as a service sees them."""

    forked = awaits = False

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.client: Client = sim.client()
        self.service: Service | None = None

    @property
    def operations(self) -> Any:
        return self.client.world.operations

    @property
    def _sessions(self) -> Any:
        return self

    _recipe_runtime = _sessions

    def check_callback(self, function: object) -> None:
        pass

    def check(self) -> None:
        pass

    check_open = check

    def serve(self, service: Service) -> None:
        self.service = service
        self.client.world.serve(service)

    def dismiss(self, service: Service) -> None:
        self.service = None
        self.client.world.dismiss(service)

    async def holds(self, condition: Condition, timeout: float | None) -> bool:
        return await self.client.world.within(condition, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        self.client.world.dispatch(function)

    def go_on(self) -> None:
        """Serve in a new session if the last has ended, and the service's work in it."""
        service: Any = self.service
        task: Any = self.client.world.services.get(service)
        if task is not None and task.done and self.client.session.ended:
            self.client = self.sim.client()
            self.client.world.serve(service)


class Mirror(Judge):
    """What the cache and its readers show.

    MIRROR: while nothing is under way, the tree.  EVENTS: what a reader is told makes the same of
    an empty dict.  WATCH: none is left.
    """

    reducible = False

    def __init__(
        self, sessions: OneAfterAnother, cache: AsyncCache, has: Callable[[str], bool]
    ) -> None:
        self.sessions = sessions
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
        return self.cache.fresh and is_still(sim, self.sessions.client)

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
    sessions, outside = OneAfterAnother(sim), sim.client("w")

    def tell(event: CacheEvent) -> None:
        check.told(event)

    cache = AsyncCache(
        sessions, ROOT, depth=depth, skip=lambda path: path == "/r/no", on_event=tell
    )
    check = Mirror(sessions, cache, has)
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
            sessions.go_on()
        while not (check.fresh(sim) and check.shown() == check.truth(sim)):
            cache._check()
            sessions.go_on()
            await outside.sleep(1.0)
        for _ in range(60):
            if check.wrong_copy(sim) is None:
                break
            sessions.go_on()  # the last session may have ended before all was told
            await outside.sleep(1.0)
        cache.close()

    outside.spawn(read())
    outside.spawn(live())
