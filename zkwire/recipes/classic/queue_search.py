"""How a consumer waits for an item.

Consumers that find nothing stand in a line, a fair lock, and only the first one watches: an item
that comes wakes one consumer, which leaves the line when the item is its own.  The lock is for
quiet alone: to lose it does no harm.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import LockLostError, OperationTimeoutError
from zkwire.recipes.classic.queue_items import QueueEmptyError
from zkwire.recipes.locks.sequential import OrderQueue
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.classic.queue_choice import Choice
    from zkwire.wire.model import DataAndStat


class Search:
    """One consumer's search for an item; ``end`` is to follow.

    QueueEmptyError when there is none at the ``deadline``, or at once if it does not ``wait``.
    """

    def __init__(self, choice: Choice, deadline: float | None, wait: bool) -> None:
        self._choice = choice
        self._deadline = deadline
        self._wait = wait
        self._line: OrderQueue | None = None

    async def next(self) -> tuple[str, DataAndStat]:
        """An item that may be free."""
        choice, found = self._choice, None
        while found is None:
            self._check_time()
            found = await choice.known(self._deadline)
            if found is None:
                names = await choice.list(self._deadline)
                choice.share(names or await self._arrival())
        self._check_time()
        return found

    def _check_time(self) -> None:
        """No request begins that cannot be answered in time: it would end in doubt."""
        if self._deadline is not None and self._choice._runtime.now() >= self._deadline:
            raise self._empty()

    def end(self) -> None:
        if self._line is not None:
            self._line._release_later()

    async def _arrival(self) -> list[str]:
        """The names, as soon as there are any and it is this consumer's turn."""
        if not self._wait:
            raise self._empty()
        choice, deadline = self._choice, self._deadline
        try:
            await self._stand_in_line()
            while True:
                with closing(Watch()) as watch:
                    names = await choice.list(deadline, watch)
                    if names or await choice._runtime.event(watch, deadline) is None:
                        return names
        except OperationTimeoutError:
            raise self._empty() from None  # it was, when it was seen last

    async def _stand_in_line(self) -> None:
        """Be the first of the consumers that wait."""
        choice = self._choice
        while self._line is None or not self._line._owned:
            line = self._line = OrderQueue(choice._runtime, choice._layout.waiting, "", choice._acl)
            line._kept = choice._layout.path
            with suppress(LockLostError):  # nothing of this attempt is left
                await line._acquire_by(self._deadline, True)

    def _empty(self) -> QueueEmptyError:
        path = self._choice._layout.path
        return QueueEmptyError("there is no item to take", op="get", path=path)
