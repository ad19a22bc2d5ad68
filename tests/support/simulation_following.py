"""Scenarios of a node that one client writes and another one watches forever, and bugs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeAlias

from tests.support.simulation_parts import Bug, Change, Judge, scenario, wrong
from zkwire.errors import BUSY, ServerError, ZooKeeperError
from zkwire.operations import Operations
from zkwire.recipes._service import SeenData
from zkwire.recipes.runtime import SESSION_OVER, retry
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch, NodeWatcher
from zkwire.session.watch_table import WatchTable
from zkwire.testing.simulation.client import Client, Step, ViolationError
from zkwire.testing.simulation.simulation import Simulation

PATH = "/f"
QUIET = 5
"""Session timeouts without a new state, after which none comes."""

FAULTS = ("cut", "unsent", "linger", "pause", "partition", "blip", "slow", "lag", "refuse",
          "expire", "close")  # fmt: skip

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
    """

    reducible = False

    def __init__(self, kind: Kind) -> None:
        self._children = issubclass(kind, AsyncChildrenWatch)
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
        busy = any(step.kind == "refuse" for step in sim.done)  # perhaps to the removal of a watch
        if sim.watches_on_server and not busy:
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

    async def write(self, client: Client, wanted: Sequence[Deed]) -> None:
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
        here, long = self.sessions[0], QUIET * self.sim.timeout
        left = self.sim.rng.choice((0, 0, 1, 2))
        try:
            while True:
                try:
                    seen = await self.follower.next(long)
                except SESSION_OVER:
                    here = await self._next_session(here)
                    continue
                if seen is not None:
                    self.follows.saw(self.sim, seen)
                    await self._stay(here)
                elif self.written and self.sim.now > self.sim.last_fault_at + long - 1.0:
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
            raise ZooKeeperError("there is no other session")
        world = self.sessions[0].world
        self.follower._sessions = world
        while self.synced:
            with suppress(*BUSY):
                await retry(world, None, world.operations.sync, "/")
                break
        world.serve(self.follower)
        return self.sessions[0]


@scenario
def following(
    sim: Simulation,
    kind: Kind = AsyncDataWatch,
    *,
    sessions: int = 1,
    number: int = 4,
    synced: bool = True,
) -> None:
    """One writer; one reader, in one session after another."""
    follows = Follows(kind)
    sim.checks.append(follows)
    writer = sim.client()
    homes = [sim.client() for _ in range(sessions)]
    reading = Reading(sim, kind, homes, follows, synced)
    writer.spawn(reading.write(writer, changes(sim, kind, number)))
    homes[0].spawn(reading.read())


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


# --- bugs -----------------------------------------------------------------------------------------


def _bug(faults: str, invariants: str, name: str, *what: object) -> Bug:
    return Bug(following(), faults, invariants, (Change(AsyncDataWatch, name, *what),))


_WATCH = "exists(self._path, watch=watch)"
BUGS = {
    # Reads, and sets the watch behind that.
    "reads, then watches": _bug(
        "",
        "LAST ORDER",
        *("_read", "return await operations.get_data(self._path, watch=watch)"),
        "state = await operations.get_data(self._path)\n"
        f"    await operations.{_WATCH}\n    return state",
    ),
    # Takes an event that comes while no reader waits as read.
    "drops what a slow reader misses": _bug(
        "",
        "LAST",
        *("_serve", "await runtime.wait_for(self._asked)"),
        *("self._last or await runtime.wait_for(self._asked)", "await self._look("),
        f"await runtime.operations.{_WATCH} or True if self._next else await self._look(",
    ),
    # Reads once; where that was lost it has a watch set, and waits for its event.
    "waits behind a loss": _bug(
        "cut linger",
        "LAST",
        *("_look", "except NoNodeError:"),
        f"except REPEATABLE:\n        await operations.{_WATCH}\n    except NoNodeError:",
    ),
    # Does not read again where the node was created between its two looks.
    "missing is missing": _bug("", "LAST ORDER", "_look", "return False", "pass"),
    # Says that it has seen every state.
    "skips nothing": _bug(
        "", "SKIPPED", "_kind", staticmethod(lambda data, stat, _: SeenData(data, stat, False))
    ),
    # Does not look whether it is the same node.
    "counts versions only": _bug(
        "",
        "SKIPPED",
        *("_arrived", "(stat.czxid, self._count(stat)) != following"),
        "self._count(stat) != following[1]",
    ),
    # Does not take its watch back when it is closed.
    "leaves its watch": _bug(
        "", "LEFT", "_serve", "closing(Watch())", "__import__('contextlib').nullcontext(Watch())"
    ),
    "watches are not set again": Bug(
        following(), "cut", "LAST", (Change(WatchTable, "frames", lambda *_: iter(())),)
    ),
}
