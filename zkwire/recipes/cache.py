"""A mirror of a node, its children or its whole tree, kept up to date by watches.

If the server knows persistent watches (since 3.6), one recursive watch tells of every change.
Otherwise, or for a single node, each read sets a watch again.  A reader sees the same in both
cases.  After a gap, only nodes whose stat differs are read again.  Watches that fire once need that
only in a new session: when they are set again, the server compares.  See
:mod:`zkwire.recipes._cache_tree`.

**Events.**  A reader is told each change once, with the newest state of each path.  A change waits
as its path, with the node that the reader knows; the new state is looked up when the event is
handed over.  So a path waits once, however often it changes.  If a reader would get more events
than there are nodes, it is better for it to read the cache: it gets ``resynced`` instead.

Invariant: only the background changes ``_waiting``; it hands over more events when the reader has
taken all earlier ones.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice

from zkwire.errors import ClientClosedError, ForkedError, UnimplementedError
from zkwire.recipes import _service
from zkwire.recipes._cache_tree import CachedNode, Reading, Scope, Tree, check_limit
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.runtime import REPEATABLE
from zkwire.session.waitable import Bound, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from typing import Any, Literal

    from zkwire.jute.records import Stat
    from zkwire.recipes._service import Background, OnProblem
    from zkwire.recipes.runtime import AsyncClientLike

    Kind = Literal["added", "changed", "removed", "resynced"]


class CacheEvent:
    """One change: its ``kind``, the ``path`` and the ``node``, after ``removed`` its last state.

    ``resynced``: the reader was too slow.  It is not told what it has missed; it finds the newest
    state in the cache, and the changes after that follow.  The path is the cache's, and
    ``node`` is None.
    """

    __slots__ = ("kind", "node", "path")

    def __init__(self, kind: Kind, path: str, node: CachedNode | None) -> None:
        #: "added", "changed", "removed" or "resynced".
        self.kind: Kind = kind
        #: The node's path, as the client names it.
        self.path: str = path
        #: The node as it is now; if it was removed, as it was last.
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


def between(path: str, before: CachedNode | None, now: CachedNode | None) -> CacheEvent | None:
    """What has become of the node that was ``before``; None if nothing."""
    if now is None:
        return None if before is None else CacheEvent("removed", path, before)
    if before is not None and before._is_of(now.stat):
        return None
    return CacheEvent("added" if before is None else "changed", path, now)


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
        """Hand over the events that wait, if they are wanted; not a change that was undone."""
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
        sessions, arguments = self._cache._sessions, (self._take(),)
        return _service.call_back(sessions, self._callback, arguments, self._next_call)

    def _next_call(self, _: object) -> None:
        if self._handed:
            self._cache._sessions.dispatch(self._call)

    def _take(self) -> CacheEvent:
        event = self._handed.popleft()
        self._cache._wanted.notify()
        return event

    async def next(self, timeout: float | None = None) -> CacheEvent | None:
        """The next event; None if ``timeout`` seconds pass without one.

        A lost connection is not an error.  Raises what ended the client, the supervisor or the
        cache; NoAuthError if the cache's own node may not be read, and a later call may succeed;
        ClientClosedError after ``close``.
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
        return _service.until_closed(
            self.next, lambda: self._closed or self._cache._closed, self.close
        )

    def close(self) -> None:
        """Events are kept no longer.  Idempotent."""
        self._closed = True
        with suppress(ValueError):
            self._cache._readers.remove(self)
        self._cache._changed()


class AsyncCache(HasPath, _service.Service):
    """A mirror of a node (``depth=0``), its children (1) or its whole tree (None).

        async with AsyncCache(client, "/services") as services:
            await services.wait_ready(10)
            print(services.children("/services"))
            async for event in services.events():
                print(event.kind, event.path, event.data)

    It starts at once, reads in the background, and is kept up to date by watches: a lost connection
    is not an error, and with a supervisor neither is the end of a session.  It shows what its
    server has told, a moment later than the ensemble.  A node's ``data`` and ``stat`` are of one
    moment; two nodes may be of different moments.

    Where ``skip(path)`` returns true, the cache leaves out that node and all nodes below it.  The
    thread that does I/O calls it, so it must be quick and use no client.  ``max_bytes`` is a limit
    to the bytes of all paths and data: CacheFullError ends the cache.  ``decode`` makes ``value``
    of a node's data, when that is asked for.  ``on_event`` is called with each :class:`CacheEvent`,
    one call at a time, in the callback thread (under asyncio in the loop; it may be a coroutine
    function).  ``on_problem``, ``problem``: see docs/supervisor.md#refusals.

    A node that the client may not read is left out.  A new access list alone does not count as a
    change.  The number of children in a stat is right if the children belong to the cache.

    While the cache is not ``fresh``, a look (``get``, ``children``, ``in``, ``len``, the paths)
    finds what was read last.  It is not fresh while the connection is lost, between two sessions of
    a supervisor, and after a refusal.  Before the cache is ``ready``, a look finds what has been
    read so far, or raises the refusal.  When nothing will be read any more, a look raises
    ClientClosedError after ``close`` (in a forked child ForkedError, a subclass of it), else what
    has ended the cache, its client or its supervisor.  No look waits for a server.

    Raises ValueError for a path that is not absolute or a negative limit, TypeError for what is no
    function, ClientClosedError or the like if the client has ended.
    """

    _called = "Cache"

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        *,
        depth: int | None = None,
        skip: Callable[[str], object] | None = None,
        max_bytes: int | None = None,
        decode: Callable[[bytes], Any] | None = None,
        on_event: Callable[[CacheEvent], object] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        check_limit("max_bytes", max_bytes)
        _service.check_function("decode", decode)
        _service.check_function("on_event", on_event)
        sessions = _service.sessions_of(client)
        sessions.check_callback(on_event)
        super().__init__(sessions, on_problem)
        self._scope = Scope(path, depth, skip)
        self._path = self._scope.root
        self._tree = Tree(self._note_change, decode, max_bytes)
        self._reading = Reading(self._tree, self._scope)
        self._readers: list[AsyncCacheEvents] = []
        self._runtime: Any = None  # that it runs in at this moment
        self._watch: Any = None
        self._is_ready = False
        self._fresh_asked = False
        self._asked = _service.Condition(lambda: self._fresh_asked)
        self._wanted = _service.Condition(
            lambda: any(reader._wants for reader in list(self._readers))
        )
        if on_event is not None:
            self._readers.append(AsyncCacheEvents(self, on_event))
        self._begin()

    # --- the session's side -----------------------------------------------------------------------

    async def _serve(self, runtime: Background) -> None:
        reading = self._reading
        while True:
            self._watch = watch = Watch()
            self._again_at = None
            try:
                recursive = await self._watch_tree(runtime, watch)
                reading.begin(runtime.operations, watch, recursive=recursive)
                self._runtime = runtime
                while not reading.unwatched:
                    for reader in list(self._readers):
                        reader._hand_over()
                    if reading.done:
                        refusals = list(reading.left_out.values())
                        self._is_right_but(refusals[0] if refusals else None, runtime)
                        reading.quiet = self._is_ready = True
                        self._changed()
                        # Or for the connection without which nothing is fresh.
                        connected = self._asked if runtime.usable else runtime.session.change
                        if await self._idle(runtime, watch, self._wanted, connected):
                            reading.begin_left_out()
                        self._fresh_asked = False
                        reading.listen()
                    else:
                        await reading.step()
            finally:
                reading.end()
                self._runtime = None
                watch.close()

    async def _watch_tree(self, runtime: Background, watch: Watch) -> bool:
        """Set a recursive watch; False where there can be none.

        Some servers answer what they do not know by ending the connection, and by nothing else.
        """
        with suppress(UnimplementedError, RuntimeError):
            for _ in range(2 if self._scope.lists(self._path) else 0):
                with suppress(*REPEATABLE):
                    await runtime.operations.add_watch(self._path, watch, recursive=True)
                    return True
        return False

    def _note_change(self, path: str, before: CachedNode | None) -> None:
        for reader in list(self._readers):
            reader._note(path, before)

    # --- the reader's side ------------------------------------------------------------------------

    def get(self, path: str) -> CachedNode | None:
        """The node as it was read last; None if there is none.

        ValueError if the path is not the cache's or below it.  Raises what has ended the cache.
        """
        self._check_memory()
        node = self._tree.nodes.get(path)
        if node is None:
            self._scope.check(path)
        return node

    def children(self, path: str) -> list[str]:
        """The names of the node's children in the cache, sorted; none if there is no such node."""
        self._check_memory()
        self._scope.check(path)
        below = self._tree.below(path)
        return sorted(child[child.rindex("/") + 1 :] for child in below)

    def __contains__(self, path: object) -> bool:
        self._check_memory()
        return path in self._tree.nodes

    def __len__(self) -> int:
        self._check_memory()
        return len(self._tree.nodes)

    def __iter__(self) -> Iterator[str]:
        self._check_memory()
        return iter(list(self._tree.nodes))

    def __bool__(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        """Whether the tree has been read once; from then on the cache is never half empty."""
        return self._is_ready and not self._sessions.forked

    @property
    def fresh(self) -> bool:
        """Whether the cache shows what the connected server has told, and nothing is to be read.

        False while the connection is lost, between two sessions, and until all differences are
        read again; while the server refuses that (``problem``); and when the cache has ended.  The
        nodes stay readable meanwhile.  ``wait_fresh`` waits for it.
        """
        runtime, watch = self._runtime, self._watch
        if runtime is None or self._over or self._sessions.forked:
            return False
        return self._reading.quiet and runtime.usable and not watch.ready

    def _check_memory(self) -> None:
        """Raise if what is remembered here must not be taken for an answer."""
        if self._sessions.forked:
            raise ForkedError(f"{self._what} belongs to the parent process; make one in this one")
        self._check_ended()
        self._sessions.check_open()
        if self._problem is not None and not self._is_ready:
            raise self._problem

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the tree has been read once, at most ``timeout`` seconds; whether it has.

        Raises NoAuthError if the cache's own node may not be read, and a later call may succeed;
        what has ended the cache (ClientClosedError, CacheFullError), and what has ended the client
        or the supervisor before that.
        """
        return await self._until(lambda: self._is_ready, timeout)

    async def wait_fresh(self, timeout: float | None = None) -> bool:
        """Wait until the cache is ``fresh``, at most ``timeout`` seconds; whether it is.

        After an outage: until the differences have been read.  Raises what :meth:`wait_ready`
        raises.
        """
        self._fresh_asked = True
        self._asked.notify()
        return await self._until(lambda: self.fresh, timeout)

    def events(self) -> AsyncCacheEvents:
        """The changes, forever: an iterator of :class:`CacheEvent`.

        First each node that is there is ``added``; then follows what changes.  Changes of a path
        that are not taken yet become one; a reader that is too slow gets ``resynced``.  Each
        iterator gets all events, and ends with the cache.  ``next(timeout)`` waits for one event.
        """
        self._check()
        reader = AsyncCacheEvents(self)
        self._readers.append(reader)
        self._wanted.notify()
        return reader

    def close(self) -> None:
        """Stop: no watch stays on the server, iterators end, and nothing is answered any more.

        Idempotent.
        """
        self._end_well()
