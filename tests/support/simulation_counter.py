"""Scenarios of counters: clients that add to one number, and bugs.

Each addition has two binary digits of the number to itself, so the number says of each how often it
was made.
"""

from __future__ import annotations

from tests.support.simulation_parts import (
    NETWORK,
    Bug,
    Change,
    Judge,
    children,
    living,
    nothing,
    scenario,
    wrong,
)
from zkwire.errors import ZooKeeperError
from zkwire.recipes._node import TokenPool
from zkwire.recipes.counter import AsyncCounter, ContentionQueue
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

__all__ = ["BUGS", "NETWORK", "adding"]

PATH = "/counters/one"
LIMIT = 30.0


class Sums(Judge):
    """ONCE: what has succeeded was made once, what may have been at most once, the rest never.

    VALUE: what is returned has been the number.  ORPHAN: no queue is left, nor a token too many.
    """

    def __init__(self) -> None:
        self.ended: list[int | BaseException | None] = []  # of each addition, None: it is under way
        self._seen: dict[int, int] = {}  # numbers, with their zxids

    def step(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(PATH)
        if node is not None and node.data:
            self._seen[int(node.data)] = node.mzxid

    async def add(self, sim: Simulation, counter: AsyncCounter, times: int) -> None:
        """Add, again and again; what has failed is told and not repeated."""
        for _ in range(times):
            digit = len(self.ended)
            self.ended.append(None)
            try:
                value = self.ended[digit] = await counter.add(4**digit, LIMIT)
            except BaseException as error:
                self.ended[digit] = error
                if not isinstance(error, (ZooKeeperError, Cancelled)):
                    raise
            else:
                if self._seen.get(value) != counter.version or value >> 2 * digit & 3 != 1:
                    wrong(sim, "VALUE", f"{value:b} at {counter.version}, of {self._seen}")

    def end(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(PATH)
        number = int(node.data or b"0") if node is not None else 0
        for digit, end in enumerate(self.ended):
            made, allowed = number >> 2 * digit & 3, {1} if isinstance(end, int) else {0, 1}
            if isinstance(end, ZooKeeperError) and not end.maybe_applied:
                allowed = {0}
            if made not in allowed:
                raise ViolationError("ONCE", f"addition {digit} made {made} times: {end}")
        ours = tuple(f"{client.session.session_id:016x}" for client in living(sim))
        left = [name for name in children(sim, PATH) if name.startswith(ours)]
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
        counter = AsyncCounter(client.world, PATH)
        counter._contention.crowded = crowded
        client.spawn(sums.add(sim, counter, times))


def _bug(faults: str, invariants: str, home: type, name: str, *what: object) -> Bug:
    crowded = home is ContentionQueue
    return Bug(adding(2, 2, crowded=crowded), faults, invariants, (Change(home, name, *what),))


LOSS = "linger cut"
NOT_LOOKED = 'operations, node = self._runtime.operations, token.node or ""'
MADE = (
    "from zkwire.jute.records import Stat\n    "
    "return Stat(1, 1, 0, 0, token.version + 1, 0, 0, 0, 0, 0, 1)"
)
BUGS = {
    # A change that was not answered is made again.
    "repeats blindly": _bug(
        LOSS, "ONCE VALUE ORPHAN", TokenPool, "_look", NOT_LOOKED, "return None"
    ),
    # A change that was not answered was made.
    "believes in luck": _bug(" ".join(NETWORK), "ONCE VALUE", TokenPool, "_look", NOT_LOOKED, MADE),
    # Takes a token that is there for the change's own, whatever stands in it.
    "looks for anything": _bug(
        LOSS, "ONCE VALUE", TokenPool, "_look", "stat if data == value else None", "stat"
    ),
    # Does not say that what it could not look at may have been made.
    "keeps doubt": _bug(
        " ".join(NETWORK), "ONCE", TokenPool, "execute", "error.maybe_applied or doubt", "False"
    ),
    # Does not delete the token of a change that has ended in doubt.
    "leaves marks": _bug("cancel", "ORPHAN", TokenPool, "_clean_up_after", nothing),
    # Makes a token for each change, and deletes none.
    "keeps no mark": _bug("", "ORPHAN", TokenPool, "release", nothing),
    # Goes on with the token of a change that has ended in doubt, as if it had not been made.
    "keeps its mark": _bug(
        "linger cut cancel", "ONCE VALUE ORPHAN", TokenPool, "release", "token.in_doubt or ", ""
    ),
    # Sets the number whatever its version is by then.
    "blind set": _bug("", "ONCE VALUE", AsyncCounter, "_set", "data, max(version, 0))]", "data)]"),
    # Does not leave the queue.
    "stays in line": _bug(
        "", "LIVE ORPHAN ERROR", ContentionQueue, "end", "turn._release_in_background()", "pass"
    ),
}
