"""A queue for those that have lost a race too often: a fair lock, for order and quiet only."""

from __future__ import annotations

from zkwire.errors import LockTimeoutError, OperationTimeoutError
from zkwire.recipes.sequential import SequentialQueue
from zkwire.wire.paths import sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.lost import OwnNodeWatch
    from zkwire.recipes.runtime import Runtime


class Turns(SequentialQueue):
    """One place in the queue."""

    alone = False  # no other stood there when this one came

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        names = await super()._join(attempt, deadline)
        self.alone = sum(sequence_number(name) is not None for name in names) == 1
        return names

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """Its loss changes nothing."""


async def stand_in_line(
    runtime: Runtime, path: str, acl: Sequence[ACL] | None, deadline: float
) -> Turns:
    """Wait for a turn, which ``_release_later`` ends."""
    turns = Turns(runtime, path, acl=acl)
    turns._kept = path  # the node itself is to stay when the queue is gone
    try:
        await turns._acquire_by(deadline, True)
    except LockTimeoutError:
        raise OperationTimeoutError(
            "too many others change it at once; nothing was changed", path=path
        ) from None
    return turns
