"""Scenarios for the simulation: clients that add to one counter, and counters with planted bugs.

Each addition has two binary digits of the number to itself, so the number says of each how often it
was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkwire.errors import ZooKeeperError
from zkwire.jute.records import Stat
from zkwire.operations.multi import Operation, SetData
from zkwire.recipes._node import Token, TokenPool
from zkwire.recipes.counter import AsyncCounter, ContentionQueue
from zkwire.recipes.runtime import within
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.simulation import Simulation

PATH = "/counters/one"
OUTSIDERS = ("delete", "touch", "uproot", "wrap", "refuse")
"""Faults under which nothing is promised, or an error is: others delete tokens, servers refuse."""
NETWORK = tuple(fault for fault in FAULTS if fault not in OUTSIDERS)
LIMIT = 30.0


class Sums:
    """ONCE: what has succeeded was made once, what may have been at most once, the rest never.

    VALUE: what is returned has been the number.  ORPHAN: no queue is left, nor a token too many.
    """

    reducible = True

    def __init__(self) -> None:
        self.started: dict[int, Client] = {}
        self.ended: dict[int, int | BaseException] = {}
        self._seen: dict[int, int] = {}  # numbers, with their zxids
        self._wrong: list[str] = []

    def number(self, client: Client) -> int:
        """What the next addition adds."""
        self.started[len(self.started)] = client
        return int(4 ** (len(self.started) - 1))

    def step(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(PATH)
        if node is not None and node.data:
            self._seen[int(node.data)] = node.mzxid

    def comparison_key(self) -> tuple[object, ...]:
        return tuple(sorted(self._seen)), tuple(map(str, self.ended.items()))

    def returned(self, digit: int, value: int, version: int) -> None:
        """An addition has succeeded."""
        self.ended[digit] = value
        if self._seen.get(value) != version or value >> 2 * digit & 3 != 1:
            self._wrong.append(f"{value:b} at {version}, of {self._seen}")

    def end(self, sim: Simulation) -> None:
        if self._wrong:
            raise ViolationError("VALUE", ", ".join(self._wrong))
        node = sim.tree.nodes.get(PATH)
        number = int(node.data or b"0") if node is not None else 0
        for digit, client in self.started.items():
            made, end = number >> 2 * digit & 3, self.ended.get(digit)
            allowed = {1} if isinstance(end, int) else {0, 1}
            if isinstance(end, ZooKeeperError) and not end.maybe_applied:
                allowed = {0}
            if made not in allowed:
                raise ViolationError("ONCE", f"{client}: addition {digit} made {made} times: {end}")
        alive = [c for c in sim.clients if not (c.dead or c.session.ended)]
        ours = tuple(f"{client.session.session_id:016x}" for client in alive)
        left = [name for name in (node and node.children) or () if name.startswith(ours)]
        sessions = [name[:16] for name in left]
        if any("lock" in name for name in left) or len(sessions) > len(set(sessions)):
            raise ViolationError("ORPHAN", f"left: {left}")


async def add(client: Client, counter: AsyncCounter, sums: Sums, times: int) -> None:
    """Add, again and again; what has failed is told and not repeated."""
    for _ in range(times):
        number = sums.number(client)
        digit = len(sums.started) - 1
        try:
            value = await counter.add(number, LIMIT)
        except BaseException as error:
            sums.ended[digit] = error
            if not isinstance(error, (ZooKeeperError, Cancelled)):
                raise
        else:
            sums.returned(digit, value, counter.version)


def adding(
    number: int = 2,
    times: int = 2,
    core: Callable[..., AsyncCounter] = AsyncCounter,
    *,
    crowded: bool = False,
) -> Scenario:
    """So many clients that add so many times each; ``crowded``: they queue from the beginning."""

    def scenario(sim: Simulation) -> None:
        sums = Sums()
        sim.checks.append(sums)
        for _ in range(number):
            client = sim.client()
            counter = core(client.world, PATH)
            counter._contention.crowded = crowded
            client.spawn(add(client, counter, sums, times))

    return scenario


# --- counters with planted bugs -------------------------------------------------------------------


class BuggyMarks(TokenPool):
    """TokenPool of a counter that is told which."""


def with_marks(kind: type[TokenPool]) -> Callable[..., AsyncCounter]:
    """A counter that has such tokens."""

    def make(world: Any, path: str) -> AsyncCounter:
        counter = AsyncCounter(world, path)
        counter._tokens = kind(world, path)
        return counter

    return make


class RepeatsBlindly(TokenPool):
    """A change that was not answered is made again."""

    async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
        return None


class BelievesInLuck(TokenPool):
    """A change that was not answered was made."""

    async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
        return Stat(1, 1, 0, 0, token.version + 1, 0, 0, 0, 0, 0, 1)


class LooksForAnything(TokenPool):
    """Takes a token that is there for the change's own, whatever stands in it."""

    async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
        return await self._runtime.until(
            self._runtime.operations.exists(token.node or ""), deadline
        )


class KeepsDoubt(TokenPool):
    """Does not say that what it could not look at may have been made."""

    async def execute(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        try:
            return await super().execute(token, operations, deadline)
        except ZooKeeperError as error:
            error.maybe_applied = False
            raise


class LeavesMarks(TokenPool):
    """Does not delete the token of a change that has ended in doubt."""

    def drop(self, token: Token) -> None:
        pass


class KeepsNoMark(TokenPool):
    """Makes a token for each change, and deletes none."""

    def release(self, token: Token) -> None:
        pass


class KeepsMark(TokenPool):
    """Goes on with the token of a change that has ended in doubt, as if it had not been made."""

    def release(self, token: Token) -> None:
        token.in_doubt = False
        super().release(token)


class BlindSet(AsyncCounter):
    """Sets the number whatever its version is by then."""

    async def _set(
        self, token: Token, change: Callable[[int], int | None], deadline: float
    ) -> int | None:
        data, version = token.seen or await self._read(deadline)
        new = change(self._format.decode(data))
        assert new is not None
        step = SetData(PATH, self._format.encode(new))
        if version < 0:
            return await super()._set(token, change, deadline)
        _, self._version = await self._tokens.execute(token, [step], deadline)
        return new


class StaysInLine(AsyncCounter):
    """Does not leave the queue."""

    async def _change(
        self, change: Callable[[int], int | None], timeout: float | None
    ) -> int | None:
        queue = ContentionQueue(self._runtime, self._path, None)
        await queue.come(queue.begin(), within(self._runtime, timeout))
        return await super()._change(change, timeout)


PLANTED: dict[str, tuple[Callable[..., AsyncCounter], set[str]]] = {
    kind.__name__: (with_marks(kind), invariants)
    for kind, invariants in {
        RepeatsBlindly: {"ONCE", "VALUE", "ORPHAN"},
        BelievesInLuck: {"ONCE", "VALUE"},
        LooksForAnything: {"ONCE", "VALUE"},
        KeepsDoubt: {"ONCE"},
        LeavesMarks: {"ORPHAN"},
        KeepsNoMark: {"ORPHAN"},
        KeepsMark: {"ONCE", "VALUE", "ORPHAN"},
    }.items()
} | {
    "BlindSet": (BlindSet, {"ONCE", "VALUE"}),
    "StaysInLine": (StaysInLine, {"LIVE", "ORPHAN", "ERROR"}),
}

REVEALING: dict[str, tuple[str, ...]] = {
    "BlindSet": (),
    "StaysInLine": (),
    "KeepsNoMark": (),
    "KeepsMark": ("linger", "cut", "cancel"),
    "LeavesMarks": ("cancel",),
    "LooksForAnything": ("linger", "cut"),
    "RepeatsBlindly": ("linger", "cut"),
}
"""What reveals those that few of all faults do."""
