"""A mirror of a node, its children or its whole tree, kept up to date by watches.

Where the server knows persistent watches (since 3.6) one recursive watch tells of every change;
elsewhere, or for a node alone, each read sets a watch again.  What a reader sees is the same.
After a gap only what differs by its stat is read again.  Watches that fire once need that in a new
session only: setting them again compares.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import UnimplementedError
from zkwire.recipes.services.cache_events import AsyncCacheEvents
from zkwire.recipes.services.cache_reading import AGAIN, Reading
from zkwire.recipes.services.cache_scope import Scope, check_function, check_limit
from zkwire.recipes.services.cache_tree import Tree
from zkwire.recipes.services.service import Condition, Service, sessions_of
from zkwire.recipes.view import PathView, ServiceView
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.cache_event import CacheEvent
    from zkwire.recipes.services.cache_tree import CachedNode
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Background


class CacheView(PathView, ServiceView):
    """What a cache shows, for threads and for asyncio.  Nothing here waits or reads.

    While it is not ``fresh`` a look (``get``, ``children``, ``in``, ``len``, the paths) finds what
    was read last: so it is while the connection is lost, between two sessions of a supervisor, and
    after a refusal.  Before it is ``ready`` it finds what has been read so far, or raises the
    refusal.  When nothing will be read any more it raises: ClientClosedError after ``close`` (and
    ForkedError, one of those, in a forked child), else what has ended the cache, its client or its
    supervisor.
    """

    def get(self, path: str) -> CachedNode | None:
        """The node as it was read last; None if there is none.

        ValueError if the path is not the cache's or below it.  Raises what has ended the cache.
        """
        self._algorithm._check_memory()
        node: CachedNode | None = self._algorithm._tree.nodes.get(path)
        if node is None:
            self._algorithm._scope.check(path)
        return node

    def children(self, path: str) -> list[str]:
        """The names of the node's children in the cache, sorted; none if there is no such node."""
        self._algorithm._check_memory()
        self._algorithm._scope.check(path)
        below = self._algorithm._tree.below(path)
        return sorted(child[child.rindex("/") + 1 :] for child in below)

    def __contains__(self, path: object) -> bool:
        self._algorithm._check_memory()
        return path in self._algorithm._tree.nodes

    def __len__(self) -> int:
        self._algorithm._check_memory()
        return len(self._algorithm._tree.nodes)

    def __iter__(self) -> Iterator[str]:
        self._algorithm._check_memory()
        return iter(list(self._algorithm._tree.nodes))

    def __bool__(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        """Whether the tree has been read once; from then on the cache is never half empty."""
        return self._algorithm._is_ready and not self._algorithm._sessions.forked

    @property
    def fresh(self) -> bool:
        """Whether the cache shows what the connected server has told, and nothing is to be read.

        False while the connection is lost, between two sessions, and until all differences are
        read again; while the server refuses that (``problem``); and when the cache has ended.  The
        nodes stay readable meanwhile.  ``wait_fresh`` waits for it.
        """
        return self._algorithm._is_fresh


class AsyncCache(CacheView, Service):
    """A mirror of a node (``depth=0``), its children (1) or its whole tree (None).

        async with AsyncCache(client, "/services") as services:
            await services.wait_ready(10)
            print(services.children("/services"))
            async for event in services.events():
                print(event.kind, event.path, event.data)

    It starts at once, reads in the background, and is kept up to date by watches: a lost connection
    is no error, and with a supervisor neither is the end of a session.  It shows what its server
    has told, a moment behind the ensemble.  A node's ``data`` and ``stat`` are of one moment, two
    nodes may be of two.

    ``skip(path)`` leaves out a node below ``path`` and all below it where it returns true.  It is
    called by the thread that does I/O: it must be quick and ask no client.  ``max_bytes`` is a
    limit to the bytes of all paths and data: CacheFullError ends the cache.  ``decode`` makes
    ``value`` of a node's data, when that is asked for.  ``on_event`` is called with each
    :class:`CacheEvent`, one call at a time, in the callback thread (under asyncio in the loop; it
    may be a coroutine function).  ``on_problem``, ``problem``: see docs/supervisor.md#refusals.

    A node that the client may not read is left out.  A new access list alone is no change.  The
    number of children in a stat is right where the children belong to the cache.

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
        check_function("decode", decode)
        check_function("on_event", on_event)
        sessions = sessions_of(client)
        sessions.check_callback(on_event)
        super().__init__(sessions, on_problem)
        self._scope = Scope(path, depth, skip)
        self._path = self._scope.root
        self._tree = Tree(self._tell, decode, max_bytes)
        self._reading = Reading(self._tree, self._scope)
        self._readers: list[AsyncCacheEvents] = []
        self._runtime: Any = None  # that it runs in at this moment
        self._watch: Any = None
        self._is_ready = False
        self._fresh_asked = False
        self._asked = Condition(lambda: self._fresh_asked)
        self._wanted = Condition(lambda: any(reader._wants for reader in list(self._readers)))
        if on_event is not None:
            self._readers.append(AsyncCacheEvents(self, on_event))
        self._begin()

    # --- the session's side -----------------------------------------------------------------------

    async def _serve(self, runtime: Background) -> None:
        reading = self._reading
        while True:
            self._watch = watch = Watch()
            try:
                recursive = await self._watch_tree(runtime, watch)
                reading.begin(runtime.operations, watch, recursive=recursive)
                self._runtime = runtime
                while not reading.unwatched:
                    for reader in list(self._readers):
                        reader._hand_over()
                    if reading.done:
                        self._is_right()
                        reading.quiet = self._is_ready = True
                        self._changed()
                        await self._idle(runtime, watch)
                        reading.listen()
                    else:
                        await reading.step()
            finally:
                reading.end()
                self._runtime = None
                watch.close()

    async def _idle(self, runtime: Background, watch: Watch) -> None:
        """Wait for something to do, or for the connection without which nothing is fresh."""
        connected = self._asked if runtime.usable else runtime.session.change
        await runtime.any_of(watch, self._wanted, connected)
        self._fresh_asked = False

    async def _watch_tree(self, runtime: Background, watch: Watch) -> bool:
        """Set a recursive watch; False where there can be none.

        Some servers answer what they do not know by ending the connection, and by nothing else.
        """
        with suppress(UnimplementedError, RuntimeError):
            for _ in range(2 if self._scope.deep else 0):
                with suppress(*AGAIN):
                    await runtime.operations.add_watch(self._path, watch, recursive=True)
                    return True
        return False

    def _tell(self, path: str, before: CachedNode | None) -> None:
        for reader in list(self._readers):
            reader._note(path, before)

    # --- the reader's side ------------------------------------------------------------------------

    @property
    def _is_fresh(self) -> bool:
        runtime, watch = self._runtime, self._watch
        if runtime is None or self._over or self._sessions.forked:
            return False
        return self._reading.quiet and runtime.usable and not watch.ready

    def _check_memory(self) -> None:
        super()._check_memory()
        if self._problem is not None and not self._is_ready:
            raise self._problem

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        self.close()

    def _abandon(self) -> None:
        self.close()

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
        return await self._until(lambda: self._is_fresh, timeout)

    def events(self) -> AsyncCacheEvents:
        """The changes, for ever: an iterator of :class:`CacheEvent`.

        First each node that is there is ``added``; then follows what changes.  Changes of a path
        that are not taken yet become one; a reader that is too far behind gets ``resynced``.  Each
        iterator gets all events, and ends with the cache.  ``next(timeout)`` waits for one event.
        """
        self._check()
        reader = AsyncCacheEvents(self)
        self._readers.append(reader)
        self._wanted.notify()
        return reader

    def _drop(self, reader: AsyncCacheEvents) -> None:
        with suppress(ValueError):
            self._readers.remove(reader)

    def close(self) -> None:
        """Stop: no watch stays on the server, iterators end, and nothing is answered any more.

        Idempotent.
        """
        self._end_well()
