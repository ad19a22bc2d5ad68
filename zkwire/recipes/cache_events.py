"""What a reader of a cache is told: each change once, the newest state of each path.

A change waits here as its path, with the node that the reader knows; what it has become is looked
up when it is handed over.  So a path waits once, however often it changes.  A reader that would get
more events than there are nodes is better off to read the cache: it gets ``resynced`` instead.

Invariant: only the background changes ``_waiting``; it hands over some events when all that it has
handed over before are taken.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from zkwire.errors import ClientClosedError
from zkwire.recipes.service import Condition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any, Literal, Protocol

    from zkwire.jute.records import Stat
    from zkwire.recipes.cache_tree import CachedNode, Tree
    from zkwire.recipes.service import Sessions

    Kind = Literal["added", "changed", "removed", "resynced"]

    class Owner(Protocol):
        """What a reader needs of its cache."""

        _path: str
        _tree: Tree
        _sessions: Sessions
        _wanted: Condition
        _closed: bool

        @property
        def _over(self) -> bool: ...
        async def _wait(self, condition: Condition, timeout: float | None) -> bool: ...
        def _drop(self, reader: CacheReader) -> None: ...


_AT_ONCE = 100
_FEW = 1000


class CacheEvent:
    """One change: its ``kind``, the ``path`` and the ``node``, after ``removed`` its last state.

    ``resynced``: the reader was too far behind.  What it has missed is not told; it finds the
    newest state in the cache, and the changes behind that follow.  The path is the cache's, and
    ``node`` is None.
    """

    __slots__ = ("kind", "node", "path")

    def __init__(self, kind: Kind, path: str, node: CachedNode | None) -> None:
        self.kind: Kind = kind
        self.path: str = path
        self.node: CachedNode | None = node

    def __repr__(self) -> str:
        return f"<CacheEvent {self.kind} {self.path}>"

    @property
    def data(self) -> bytes | None:
        """The node's data."""
        return None if self.node is None else self.node.data

    @property
    def stat(self) -> Stat | None:
        """The node's stat."""
        return None if self.node is None else self.node.stat

    @property
    def value(self) -> Any:
        """The node's value; see :attr:`CachedNode.value`."""
        return None if self.node is None else self.node.value


class CacheReader:
    """The changes of a cache for one reader; see :meth:`Cache.events`."""

    def __init__(
        self, cache: Owner, callback: Callable[[CacheEvent], object] | None = None
    ) -> None:
        self._cache = cache
        self._callback = callback
        self._waiting: dict[str, CachedNode | None] | None = None  # before it has begun
        self._behind = False
        self._handed: deque[CacheEvent] = deque()
        self._closed = False
        self._available = Condition(lambda: bool(self._handed) or self._closed or cache._over)

    # --- the background's side --------------------------------------------------------------------

    def tell(self, path: str, before: CachedNode | None) -> None:
        """A node has changed; ``before`` is what it was."""
        waiting = self._waiting
        if waiting is None:
            return  # all nodes will be new to the reader
        waiting.setdefault(path, before)
        if len(waiting) > max(_FEW, len(self._cache._tree.nodes)):
            waiting.clear()
            self._behind = True

    @property
    def wants(self) -> bool:
        """Whether there is something to hand over."""
        return not self._handed and (self._waiting is None or self._behind or bool(self._waiting))

    def hand_over(self) -> None:
        """Hand over what waits, but for what has come to nothing."""
        nodes = self._cache._tree.nodes
        if self._waiting is None:
            self._waiting = dict.fromkeys(nodes)
        events = list[CacheEvent]()
        if self._behind:
            self._behind = False
            events.append(CacheEvent("resynced", self._cache._path, None))
        while self._waiting and not events:
            for path in list(islice(self._waiting, _AT_ONCE)):
                event = _event(path, self._waiting.pop(path), nodes.get(path))
                events += [] if event is None else [event]
        if events:
            self._handed.extend(events)
            if self._callback is not None:
                self._cache._sessions.dispatch(self._call)
            self._available.notify()

    # --- the reader's side ------------------------------------------------------------------------

    def _call(self) -> Any:
        """Call the callback with one event; the next follows its end."""
        if self._callback is None or self._cache._closed or not self._handed:
            return None
        result: Any = None
        try:
            result = self._callback(self._take())
        finally:
            if not hasattr(result, "__await__"):
                self._next_call()
        return self._behind_call(result) if hasattr(result, "__await__") else None

    async def _behind_call(self, callback: Any) -> None:
        try:
            await callback
        finally:
            self._next_call()

    def _next_call(self) -> None:
        if self._handed:
            self._cache._sessions.dispatch(self._call)

    def _take(self) -> CacheEvent:
        event = self._handed.popleft()
        self._cache._wanted.notify()
        return event

    async def next(self, timeout: float | None = None) -> CacheEvent | None:
        """The next event; None if ``timeout`` seconds pass without one.

        A lost connection is no error.  Raises what ended the client, the supervisor or the cache;
        ClientClosedError behind ``close``.
        """
        while not self._handed:
            if self._closed:
                raise ClientClosedError("these events have been closed")
            if not await self._cache._wait(self._available, timeout):
                return None
        return self._take()

    async def __aiter__(self) -> AsyncGenerator[CacheEvent, None]:
        try:
            while not (self._closed or self._cache._closed):
                try:
                    event = await self.next()
                except ClientClosedError:
                    if self._closed or self._cache._closed:
                        return
                    raise
                if event is not None:
                    yield event
        finally:
            self.close()

    def close(self) -> None:
        """Events are kept no longer.  Idempotent."""
        self._closed = True
        self._cache._drop(self)
        self._available.notify()


def _event(path: str, before: CachedNode | None, now: CachedNode | None) -> CacheEvent | None:
    if now is None:
        return None if before is None else CacheEvent("removed", path, before)
    if before is None:
        return CacheEvent("added", path, now)
    if before.stat.mzxid == now.stat.mzxid:
        return None
    return CacheEvent("changed", path, now)
