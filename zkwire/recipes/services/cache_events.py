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
from zkwire.recipes.services.cache_event import CacheEvent, between
from zkwire.recipes.services.service import until_closed
from zkwire.session.waitable import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from zkwire.recipes.services.cache_tree import CachedNode

_AT_ONCE = 100
_FEW = 1000


class AsyncCacheEvents(Bound):
    """The changes of a cache for one reader; see :meth:`AsyncCache.events`."""

    def __init__(self, cache: Any, callback: Callable[[CacheEvent], object] | None = None) -> None:
        self._cache = cache  # a AsyncCache
        self._callback = callback
        self._waiting: dict[str, CachedNode | None] | None = None  # before it has begun
        self._behind = False
        self._handed: deque[CacheEvent] = deque()
        self._closed = False

    # --- the background's side --------------------------------------------------------------------

    def _note(self, path: str, before: CachedNode | None) -> None:
        """A node has changed; ``before`` is what it was."""
        waiting = self._waiting
        if waiting is None:
            return  # all nodes will be new to the reader
        waiting.setdefault(path, before)
        if len(waiting) > max(_FEW, len(self._cache._tree.nodes)):
            waiting.clear()
            self._behind = True

    @property
    def _wants(self) -> bool:
        """Whether there is something to hand over."""
        return not self._handed and (self._waiting is None or self._behind or bool(self._waiting))

    def _hand_over(self) -> None:
        """Hand over what waits, but for what has come to nothing, if it is wanted."""
        if not self._wants:
            return
        nodes = self._cache._tree.nodes
        if self._waiting is None:
            self._waiting = dict.fromkeys(nodes)
        events = list[CacheEvent]()
        if self._behind:
            self._behind = False
            events.append(CacheEvent("resynced", self._cache._path, None))
        while self._waiting and not events:
            paths = list(islice(self._waiting, _AT_ONCE))
            found = [between(path, self._waiting.pop(path), nodes.get(path)) for path in paths]
            events += [event for event in found if event is not None]
        if events:
            self._handed.extend(events)
            if self._callback is not None:
                self._cache._sessions.dispatch(self._call)
            self._cache._changed()

    # --- the reader's side ------------------------------------------------------------------------

    def _call(self) -> Any:
        """Call the callback with one event; the next follows its end."""
        if self._callback is None or self._cache._closed or not self._handed:
            return None
        result: Any = None
        try:
            result = self._callback(self._take())
        finally:
            awaited = self._cache._sessions.awaits and hasattr(result, "__await__")
            if not awaited:
                self._next_call()
        return self._behind_call(result) if awaited else result

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
        NoAuthError if the cache's own node may not be read, and a later call may succeed;
        ClientClosedError behind ``close``.
        """
        if self._cache._sessions.forked:
            self._cache._check_memory()
        while not self._handed:
            if self._closed:
                raise ClientClosedError("these events have been closed")
            if not await self._cache._until(lambda: bool(self._handed) or self._closed, timeout):
                return None
        return self._take()

    def __aiter__(self) -> AsyncGenerator[CacheEvent, None]:
        return until_closed(self.next, lambda: self._closed or self._cache._closed, self.close)

    def close(self) -> None:
        """Events are kept no longer.  Idempotent."""
        self._closed = True
        self._cache._drop(self)
        self._cache._changed()
