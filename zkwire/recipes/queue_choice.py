"""Which item a consumer tries next, and how it waits when there is none.

Consumers that try the same item disturb each other: each removal would cost the others a request.
So a consumer that has missed many takes one name of every two, four, ... of a listing instead, each
time at another offset; without misses it takes the next one again.  A listing is used for a tenth
of a second, and its items are read some at a time.

Consumers that find nothing stand in a line, a fair lock, and only the first one watches: an item
that comes wakes one consumer, which leaves the line when the item is its own.  The lock is for
quiet alone: to lose it does no harm.
"""

from __future__ import annotations

from collections import deque
from heapq import nsmallest
from zlib import crc32

from zkwire.errors import ConnectionLossError, LockLostError, LockTimeoutError, NoNodeError
from zkwire.recipes.queue_items import QueueEmptyError, is_item
from zkwire.recipes.runtime import in_time, persist
from zkwire.recipes.sequential import SequentialQueue
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Reply
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.lost import OwnNodeWatch
    from zkwire.recipes.queue_items import Layout
    from zkwire.recipes.runtime import Runtime
    from zkwire.wire.model import DataAndStat

WINDOW = 512  # names of a listing that are used
AHEAD = 8  # items that are read at once
FRESH = 0.1  # seconds for which a listing is used
MOST_APART = 16


class Line(SequentialQueue):
    """The lock ``waiting``: no guard stands for it, since its loss changes nothing."""

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        pass


class Choice:
    """What the consumers of one object know of the items."""

    def __init__(self, runtime: Runtime, layout: Layout, acl: Sequence[ACL] | None) -> None:
        self._runtime = runtime
        self._layout = layout
        self._acl = acl
        self._names: list[str] = []
        self._ahead: deque[tuple[str, Reply[DataAndStat]]] = deque()
        self._fresh_until = 0.0
        self._apart = 1
        self._tried = self._missed = 0

    def forget(self) -> None:
        """What is known is no longer what is to be used."""
        self._fresh_until = 0.0

    def missed(self) -> None:
        """Another consumer has the item that was tried."""
        self._missed += 1

    async def known(self, deadline: float | None) -> tuple[str, DataAndStat] | None:
        """The next item of the last listing; None if a new one is needed."""
        runtime, read = self._runtime, self._runtime.operations.get_data
        while runtime.now() < self._fresh_until:
            try:
                name, reply = self._ahead.popleft()
            except IndexError:
                names, self._names = self._names[:AHEAD], self._names[AHEAD:]
                if not names:
                    return None
                for name in names:
                    self._ahead.append((name, read(f"{self._layout.items}/{name}")))
                continue
            self._tried += 1
            limit = in_time(runtime, deadline)
            try:
                return name, await runtime.until(reply, limit)
            except NoNodeError:
                self._missed += 1
            except ConnectionLossError:
                try:
                    path = f"{self._layout.items}/{name}"
                    return name, await persist(runtime, limit, read, path)
                except NoNodeError:
                    self._missed += 1
        return None

    def share(self, names: list[str]) -> None:
        """Use these names."""
        if 4 * self._missed > self._tried:
            self._apart = min(2 * self._apart, MOST_APART)
        elif not self._missed:
            self._apart = max(1, self._apart - 1)
        self._tried = self._missed = 0
        window = nsmallest(WINDOW, names)
        offset = crc32(self._runtime.unique().encode()) % self._apart
        self._names = window[offset :: self._apart] or window
        self._ahead.clear()
        self._fresh_until = self._runtime.now() + FRESH

    async def list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        """The names of the items that no consumer has claimed."""
        runtime, layout = self._runtime, self._layout
        read, limit = runtime.operations.get_children, in_time(runtime, deadline)
        while True:
            items, taken = read(layout.items, watch=watch), read(layout.taken, watch=watch)
            try:
                names = await runtime.until(items, limit)
                claimed = set(await runtime.until(taken, limit))
                return [name for name in names if name not in claimed and is_item(name)]
            except NoNodeError:
                await layout.provide(runtime, self._acl, deadline)
            except ConnectionLossError:
                pass


class Search:
    """One consumer's search for an item; ``end`` is to follow.

    QueueEmptyError when there is none at the ``deadline``, or at once if it does not ``wait``.
    """

    def __init__(self, choice: Choice, deadline: float | None, wait: bool) -> None:
        self._choice = choice
        self._deadline = deadline
        self._wait = wait
        self._line: Line | None = None

    async def next(self) -> tuple[str, DataAndStat]:
        """An item that may be free."""
        choice = self._choice
        while (found := await choice.known(self._deadline)) is None:
            names = await choice.list(self._deadline)
            choice.share(names or await self._arrival())
        return found

    def end(self) -> None:
        if self._line is not None:
            self._line._release_later()

    async def _arrival(self) -> list[str]:
        """The names, as soon as there are any and it is this consumer's turn."""
        if not self._wait:
            raise self._empty()
        choice, deadline = self._choice, self._deadline
        while self._line is None or not self._line._owned:
            line = self._line = Line(choice._runtime, choice._layout.waiting, "", choice._acl)
            line._kept = choice._layout.kept
            try:
                await line._acquire_by(deadline, True)
            except LockTimeoutError:
                raise self._empty() from None
            except LockLostError:
                pass  # of this attempt nothing is left
        while True:
            watch = Watch()
            try:
                names = await choice.list(deadline, watch)
                if names:
                    return names
                if await choice._runtime.event(watch, deadline) is None:
                    raise self._empty()
            finally:
                watch.close()

    def _empty(self) -> QueueEmptyError:
        path = self._choice._layout.path
        return QueueEmptyError("there is no item to take", op="get", path=path)
