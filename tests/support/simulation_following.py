"""A world for the simulation: a node that one client writes and another one watches forever.

The planted bugs are subclasses of the follower, beside what reveals each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeAlias

from zkwire.errors import BUSY, ConnectionLossError, ServerError, ZooKeeperError
from zkwire.jute.records import Stat
from zkwire.operations import Operations
from zkwire.recipes._service import Background, SeenData
from zkwire.recipes.runtime import SESSION_OVER, retry
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch, NodeWatcher
from zkwire.session.waitable import Watch
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, Step, ViolationError
from zkwire.testing.simulation.simulation import Simulation

PATH = "/f"
QUIET = 5
"""Session timeouts without a new state, after which none comes."""

FAULTS = ("cut", "unsent", "linger", "pause", "partition", "blip", "slow", "lag", "refuse",
          "expire", "close")  # fmt: skip

Kind: TypeAlias = type[NodeWatcher]
Change = Callable[[Operations], Any]


class State(NamedTuple):
    """A state of the node, or of its children; ``zxid`` 0: there is none."""

    zxid: int
    value: object

    def __str__(self) -> str:
        return f"{self.value!r} of {self.zxid}"


MISSING = State(0, None)


class Follows:
    """What has been seen is part of what was, in its order, and ends with what is.

    ORDER: an older state behind a newer one, or one that never was.  SKIPPED: a state that was
    skipped without a word.  LAST: the last state is missed.  LEFT: a watch stays behind.
    """

    def __init__(self, kind: Kind) -> None:
        self._children = issubclass(kind, AsyncChildrenWatch)
        self._was = [MISSING]
        self._at = -1  # in the history
        self._violation: ViolationError | None = None  # of a task, in which it would be an ERROR
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
        if self._violation is not None:
            raise self._violation

    def saw(self, sim: Simulation, seen: Any) -> None:
        """A reader has got this."""
        value, stat, skipped = seen
        zxid = 0 if stat is None else stat.pzxid if self._children else stat.mzxid
        state, before = State(zxid, value), self._at
        self.step(sim)
        if state not in self._was[before + 1 :]:
            story = ", ".join(map(str, self._was))
            self._violation = ViolationError("ORDER", f"{state} behind {self.last}, of {story}")
            return
        self._at, self.last = self._was.index(state, before + 1), state
        if not skipped and before >= 0 and self._at != before + 1:
            self._violation = ViolationError("SKIPPED", f"{self._was[before + 1]} before {state}")

    def end(self, sim: Simulation) -> None:
        if self.settled and self.last != self._was[-1]:
            raise ViolationError("LAST", f"{self._was[-1]} is not seen, only {self.last}")
        busy = any(step.kind == "refuse" for step in sim.done)  # perhaps to the removal of a watch
        if sim.watches_on_server and not busy:
            raise ViolationError("LEFT", f"{sim.watches_on_server} watches on the server")
        for client in sim.clients:
            if client.session.watch_count and not client.session.ended:
                raise ViolationError("LEFT", f"{client} has watches")


def changes(sim: Simulation, kind: Kind, number: int) -> list[Change]:
    """Writes and deletes, as they come; some of them are refused."""
    made: list[Change] = []
    for n in range(number):
        value = b"%d" % n
        child = f"{PATH}/{sim.rng.choice('abc')}"
        made += [
            sim.rng.choice(
                (
                    lambda o: o.create(PATH, b"new"),
                    lambda o: o.delete(PATH),
                    lambda o, child=child: o.create(child),
                    lambda o, child=child: o.delete(child),
                )
                if issubclass(kind, AsyncChildrenWatch)
                else (
                    lambda o: o.create(PATH, b"new"),
                    lambda o, value=value: o.set_data(PATH, value),
                    lambda o, value=value: o.set_data(PATH, value),
                    lambda o: o.delete(PATH),
                )
            )
        ]
    return made


class Reading:
    """One reader: how long it stays with each state, and when it goes to another session.

    ``synced``: that begins with a sync, as it does with a supervisor.
    """

    def __init__(
        self,
        sim: Simulation,
        kind: Kind,
        sessions: Sequence[Client],
        follows: Follows,
        synced: bool,
    ) -> None:
        self.sim, self.follows, self.sessions = sim, follows, list(sessions)
        self.synced = synced
        self.written = False
        self.follower = kind(self.sessions[0].world, PATH)

    async def write(self, client: Client, wanted: Sequence[Change]) -> None:
        """Make these changes one after the other."""
        try:
            for change in wanted:
                with suppress(ServerError):  # a delete of what is not there, and so on
                    await retry(client.world, None, partial(change, client.world.operations))
                if self.sim.rng.random() < 0.3:
                    await client.sleep(1.0)
        finally:
            self.written = True

    async def read(self) -> None:
        """Read until nothing has come for long; then close."""
        here, timeout = self.sessions[0], self.sim.timeout
        left = self.sim.rng.choice((0, 0, 1, 2))
        try:
            while True:
                try:
                    seen = await self.follower.next(QUIET * timeout)
                except SESSION_OVER:
                    here = await self._next_session(here)
                    continue
                if seen is not None:
                    self.follows.saw(self.sim, seen)
                    await self._stay(here)
                elif self.written and self.sim.now > self.sim.last_fault_at + QUIET * timeout - 1.0:
                    self.follows.settled = True
                    return
                left -= 1
                if left < 0 and len(self.sessions) > 1:
                    here = await self._next_session(here)
        finally:
            self.follower.close()

    async def _stay(self, here: Client) -> None:
        for _ in range(self.sim.rng.choice((0, 0, 1, 5))):
            await here.turn()
        if self.sim.rng.random() < 0.1:
            await here.sleep(2.0)

    async def _next_session(self, here: Client) -> Client:
        """What a supervisor does: end the work in this session, then begin in the next."""
        here.world.dismiss(self.follower)
        self.sessions.pop(0)
        if not self.sessions:
            raise _OVER
        world = self.sessions[0].world
        self.follower._sessions = world
        while self.synced:
            with suppress(*BUSY):
                await retry(world, None, world.operations.sync, "/")
                break
        world.serve(self.follower)
        return self.sessions[0]


_OVER = ZooKeeperError("there is no other session")


def following(
    kind: Kind = AsyncDataWatch, *, sessions: int = 1, number: int = 4, synced: bool = True
) -> Scenario:
    """One writer; one reader, in one session after another."""

    def scenario(sim: Simulation) -> None:
        follows = Follows(kind)
        sim.checks.append(follows)
        writer = sim.client()
        homes = [sim.client() for _ in range(sessions)]
        reading = Reading(sim, kind, homes, follows, synced)
        writer.spawn(reading.write(writer, changes(sim, kind, number)))
        homes[0].spawn(reading.read())

    return scenario


class StaysBehind:
    """A schedule at random, in which the servers of some clients are behind for as long as can be.

    By chance alone a server catches up before a reader comes to it.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def next(self, sim: Simulation) -> Step | None:
        """No server catches up while anything else is possible."""
        steps = sim.steps()
        lags = [fault for fault in sim.faults() if fault.kind == "lag" and fault.subject != "a"]
        if lags and len(sim.done) < len(sim.clients) - 1:
            return self._random.choice(lags)
        others = [step for step in steps if step.kind != "apply"]
        return self._random.choice(others or steps) if steps else None


# --- followers with planted bugs ------------------------------------------------------------------


class ReadsThenWatches(AsyncDataWatch):
    """Reads, and sets the watch behind that."""

    async def _read(self, operations: Operations, watch: Watch) -> tuple[bytes, Stat]:
        state = await operations.get_data(self._path)
        await operations.exists(self._path, watch=watch)
        return state


class DropsWhatASlowReaderMisses(AsyncDataWatch):
    """Takes an event that comes while no reader waits as read."""

    async def _serve(self, runtime: Background) -> None:
        await runtime.wait_for(self._asked)
        while True:
            watch = Watch()
            try:
                with suppress(ConnectionLossError):
                    if self._asked.ready:
                        await self._look(runtime.operations, watch)
                    else:
                        await runtime.operations.exists(self._path, watch=watch)
                    await runtime.event(watch, None)
            finally:
                watch.close()


class WaitsBehindALoss(AsyncDataWatch):
    """Reads once; where that was lost it has a watch set, and waits for its event."""

    async def _look(self, operations: Operations, watch: Watch) -> bool:
        try:
            return await super()._look(operations, watch)
        except ConnectionLossError:
            await operations.exists(self._path, watch=watch)
            return True


class MissingIsMissing(AsyncDataWatch):
    """Does not read again where the node was created between its two looks."""

    async def _look(self, operations: Operations, watch: Watch) -> bool:
        if not await super()._look(operations, watch):
            self._arrived(None, None)
        return True


class SkipsNothing(AsyncDataWatch):
    """Says that it has seen every state."""

    _kind: Any = staticmethod(lambda data, stat, _: SeenData(data, stat, False))


class CountsVersionsOnly(AsyncDataWatch):
    """Does not look whether it is the same node."""

    def _arrived(self, value: Any, stat: Stat | None) -> None:
        super()._arrived(value, stat)
        before, self._before = getattr(self, "_before", None), stat
        if before is not None and stat is not None and stat.version == before.version + 1:
            self._last = self._next = SeenData(value, stat, False)


class LeavesItsWatch(AsyncDataWatch):
    """Does not take its watch back when it is closed."""

    async def _serve(self, runtime: Background) -> None:
        while True:
            await runtime.wait_for(self._asked)
            watch = Watch()
            with suppress(ConnectionLossError):
                if await self._look(runtime.operations, watch):
                    await runtime.event(watch, None)


PLANTED: dict[Kind, tuple[tuple[str, ...], set[str]]] = {
    ReadsThenWatches: ((), {"LAST", "ORDER"}),
    DropsWhatASlowReaderMisses: ((), {"LAST"}),
    WaitsBehindALoss: (("cut", "linger"), {"LAST"}),
    MissingIsMissing: ((), {"LAST", "ORDER"}),
    SkipsNothing: ((), {"SKIPPED"}),
    CountsVersionsOnly: ((), {"SKIPPED"}),
    LeavesItsWatch: ((), {"LEFT"}),
}
"""Each with the faults that reveal it, and what it may break."""
