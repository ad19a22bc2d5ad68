"""Turns for those that have lost a race too often: a fair lock, for order and quiet only.

A turn costs some six requests, and what it is for one.  So an object whose calls follow one another
at once keeps its turn for ``SLICE`` seconds, and the next one in the queue waits for that long.
Where the next call does not come at once, the turn ends with the call.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from zkwire.errors import OperationTimeoutError
from zkwire.recipes.locks.sequential import OrderQueue
from zkwire.wire.paths import sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.runtime import Runtime

PATIENCE = 3.0  # seconds to wait for a turn: the one that has it may be cut off
SLICE = 0.03
AT_ONCE = 0.002  # seconds between two calls


class Turn(OrderQueue):
    """One place in the queue; ``alone``: no other stood there when this one came."""

    alone: bool = False
    until: float = 0.0  # the end of its slice

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        names = await super()._join(attempt, deadline)
        self.alone = sum(sequence_number(name) is not None for name in names) == 1
        return names


class Turns:
    """The turns of one object, which threads may share; ``crowded``: others have waited, too."""

    def __init__(self, runtime: Runtime, path: str, acl: Sequence[ACL] | None) -> None:
        self._runtime = runtime
        self._path = path
        self._acl = acl
        self.crowded: bool = False
        self._kept: list[Turn] = []
        self._unused: list[Turn] = []  # made for calls that did without
        self._ended = -AT_ONCE

    def begin(self) -> Turn:
        """The turn of a call: one that was kept, or one that is still to come."""
        for turns in (self._kept, self._unused):
            with suppress(IndexError):  # of threads each gets another
                return turns.pop()
        turn = Turn(self._runtime, self._path, acl=self._acl)
        turn._kept = self._path  # the node itself is to stay when the queue is gone
        return turn

    async def come(self, turn: Turn, deadline: float) -> None:
        """Wait for the turn; without it go on after ``PATIENCE`` seconds."""
        with suppress(OperationTimeoutError):
            await turn._acquire_by(min(deadline, self._runtime.now() + PATIENCE), True)
        self.crowded = not turn.alone
        turn.until = self._runtime.now() + SLICE

    def end(self, turn: Turn, begun: float) -> None:
        """The call is over."""
        now, steady = self._runtime.now(), begun - self._ended < AT_ONCE
        self._ended = now
        if turn._owned and steady and now < turn.until:
            self._kept.append(turn)
            self._runtime.defer(partial(self._release, turn))
        elif turn._engaged:
            turn._release_later()
        elif not turn.until:
            self._unused.append(turn)

    def _release(self, turn: Turn) -> None:
        with suppress(ValueError):  # another call has it
            self._kept.remove(turn)
            turn._release_later()
