"""Which item a consumer tries next.

Consumers that try the same item disturb each other: each removal would cost the others a request.
So a consumer that has missed many takes one name of every two, four, ... of a listing instead, each
time at another offset; without misses it takes the next one again.  A listing is used for a tenth
of a second, and its items are read some at a time, the next ones together with the removal of the
last one.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from zlib import crc32

from zkwire.errors import ConnectionLossError, NoNodeError
from zkwire.recipes.classic.queue_items import is_item
from zkwire.recipes.runtime import answered, in_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Reply
    from zkwire.recipes.classic.queue_items import Layout
    from zkwire.recipes.runtime import Runtime
    from zkwire.session.watch import Watch
    from zkwire.wire.model import DataAndStat

WINDOW = 512  # names of a listing that are used
AHEAD = 8  # items that are read at once
FRESH = 0.1  # seconds for which a listing is used
MOST_APART = 16
FEW = 3  # misses that say nothing yet


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

    @property
    def _crowded(self) -> bool:
        """Whether other consumers have had many of the items that were tried."""
        return self._missed > FEW and 4 * self._missed > self._tried

    def missed(self) -> None:
        """Another consumer has the item that was tried."""
        self._missed += 1

    async def known(self, deadline: float | None) -> tuple[str, DataAndStat] | None:
        """The next item of the last listing; None if a new one is needed."""
        runtime, read = self._runtime, self._runtime.operations.get_data
        while runtime.now() < self._fresh_until and not self._crowded:
            try:
                name, reply = self._ahead.popleft()
            except IndexError:
                if not self._read_ahead():
                    return None
                continue
            if not self._ahead:
                self._read_ahead()
            self._tried += 1
            limit, path = in_time(runtime, deadline), f"{self._layout.items}/{name}"
            try:
                return name, await answered(runtime, limit, reply, read, path)
            except NoNodeError:
                self._missed += 1
        return None

    def _read_ahead(self) -> bool:
        """Ask for the next items; False if there is none."""
        read, layout = self._runtime.operations.get_data, self._layout
        names, self._names = self._names[:AHEAD], self._names[AHEAD:]
        self._ahead += [(name, read(f"{layout.items}/{name}")) for name in names]
        return bool(names)

    def share(self, names: list[str]) -> None:
        """Use these names."""
        if self._crowded:
            self._apart = min(2 * self._apart, MOST_APART)
            self._tried = self._missed = 0
        elif not self._missed:
            self._apart = max(1, self._apart - 1)
        self._tried, self._missed = self._tried // 2, self._missed // 2
        offset = crc32(self._runtime.unique().encode()) % self._apart
        self._names = names[offset :: self._apart] or names
        self._ahead.clear()
        self._fresh_until = self._runtime.now() + FRESH

    async def list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        """The names of the first items that no consumer has claimed, in order."""
        runtime, layout = self._runtime, self._layout
        read, limit = runtime.operations.get_children, in_time(runtime, deadline)
        while True:
            items, taken = read(layout.items, watch=watch), read(layout.taken, watch=watch)
            try:
                names = await runtime.until(items, limit)
                claimed = set(await runtime.until(taken, limit))
                free = (name for name in sorted(names) if name not in claimed and is_item(name))
                return list(islice(free, WINDOW))
            except NoNodeError:
                await layout.provide(runtime, self._acl, deadline)
            except ConnectionLossError:
                pass
