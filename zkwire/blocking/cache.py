"""A mirror of a node, its children or its tree, for threads."""

from __future__ import annotations

from zkwire.blocking.following import check_callback
from zkwire.blocking.run import blocking, iterate
from zkwire.blocking.watching import sessions_of
from zkwire.recipes.services.cache import CacheView, TreeCache
from zkwire.recipes.services.cache_events import CacheReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, Self

    from zkwire.blocking.watching import ThreadNodeWatches
    from zkwire.recipes.services.cache_event import CacheEvent
    from zkwire.recipes.services.problem import OnProblem


class CacheEvents:
    """The changes of a cache for one reader; see :meth:`Cache.events`."""

    def __init__(self, events: CacheReader) -> None:
        self._algorithm = events

    next: Final = blocking(CacheReader.next)

    def __iter__(self) -> Iterator[CacheEvent]:
        return iterate(self._algorithm.__aiter__())

    def close(self) -> None:
        self._algorithm.close()

    close.__doc__ = CacheReader.close.__doc__


class Cache(CacheView):
    """A mirror of a node (``depth=0``), its children (1) or its whole tree (None).

        with Cache(client, "/services") as services:
            services.wait_ready(10)
            print(services.children("/services"))
            for event in services.events():
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

    def __init__(
        self,
        client: ThreadNodeWatches,
        path: str,
        *,
        depth: int | None = None,
        skip: Callable[[str], object] | None = None,
        max_bytes: int | None = None,
        decode: Callable[[bytes], Any] | None = None,
        on_event: Callable[[CacheEvent], object] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        check_callback(on_event)
        check_callback(on_problem)
        self._algorithm = TreeCache(
            sessions_of(client),
            path,
            depth=depth,
            skip=skip,
            max_bytes=max_bytes,
            decode=decode,
            on_event=on_event,
            on_problem=on_problem,
        )

    wait_ready: Final = blocking(TreeCache.wait_ready)
    wait_fresh: Final = blocking(TreeCache.wait_fresh)

    def events(self) -> CacheEvents:
        return CacheEvents(self._algorithm.events())

    def close(self) -> None:
        self._algorithm.close()

    events.__doc__ = TreeCache.events.__doc__
    close.__doc__ = TreeCache.close.__doc__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except BaseException:  # an interrupt
            self.close()
            raise
