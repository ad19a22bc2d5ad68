"""A queue for those that have lost a race too often: a fair lock, for order and quiet only."""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import OperationTimeoutError
from zkwire.recipes.sequential import SequentialQueue
from zkwire.wire.paths import sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.lost import OwnNodeWatch
    from zkwire.recipes.runtime import Runtime


PATIENCE = 0.5  # seconds


class Turns(SequentialQueue):
    """One place in the queue; ``alone``: no other stood there when this one came."""

    alone = False

    def __init__(self, runtime: Runtime, path: str, acl: Sequence[ACL] | None) -> None:
        super().__init__(runtime, path, acl=acl)
        self._kept = path  # the node itself is to stay when the queue is gone

    async def come(self, deadline: float) -> None:
        """Wait for a turn, which ``_release_later`` ends; after ``PATIENCE`` go on without one.

        The one whose turn it is may have lost its connection, and then nothing moves in the queue.
        """
        with suppress(OperationTimeoutError):
            await self._acquire_by(min(deadline, self._runtime.now() + PATIENCE), True)

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        names = await super()._join(attempt, deadline)
        self.alone = sum(sequence_number(name) is not None for name in names) == 1
        return names

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """Its loss changes nothing."""
