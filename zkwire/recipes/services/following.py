"""A node's data, or its children, for ever: each newest state, without an older one behind it.

A read sets a watch and a reader gets what it returned; when the watch has fired and the reader asks
for more, the next read follows.  So a burst of changes costs one read, and for a reader that is
slow nothing is kept; only what comes behind a time limit is, for the next call.

What makes the last state certain is the server's own promise: a watch is set by the very read that
returned the state, and set again, after a lost connection, with the zxid up to which the client has
seen changes; the server fires it at once if the node is different (``DataTree.setWatches``).  That
zxid also keeps a session from servers that have seen less; a supervisor's next session begins
with a sync.

Which states lay between two that were read is known from their stats only.  ``skipped`` is False
where these prove that there was none, else True.
"""

from __future__ import annotations

from contextlib import closing
from operator import attrgetter

from zkwire.errors import BUSY, ConnectionLossError, NoNodeError
from zkwire.recipes.services.seen import SeenChildren, SeenData
from zkwire.recipes.services.state_reader import StateReader
from zkwire.recipes.view import ServiceView
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Background


class Follower(ServiceView, StateReader):
    """What data and children have in common."""

    _kind: Any  # of the states: SeenData or SeenChildren
    _zxid: Callable[[Stat], int]  # of the change that made the state: a later one has a higher one
    _count: Callable[[Stat], int]  # of the state's changes since the node was created
    _last: Any = None  # the state that was delivered last

    async def _read(self, operations: Operations, watch: Watch) -> tuple[Any, Stat]:
        """The state that a watch is set on."""
        raise NotImplementedError

    async def _serve(self, runtime: Background) -> None:
        refused = False
        while True:
            await runtime.wait_for(self._asked)
            try:
                with closing(Watch()) as watch:
                    if refused:
                        await runtime.operations.exists(self._path)
                        refused = False
                    if await self._look(runtime.operations, watch):
                        await runtime.event(watch, None)
            except (ConnectionLossError, *BUSY):
                pass  # only reads were asked for: they are repeated, each with a watch of its own
            except RuntimeError:
                # An add_watch of the program on this path has no answer yet; one that is asked for
                # now comes behind it.
                if refused:
                    raise
                refused = True

    async def _look(self, operations: Operations, watch: Watch) -> bool:
        """Read once; False if it must be read again, since the node was created in between."""
        try:
            value, stat = await self._read(operations, watch)
        except NoNodeError:
            if await operations.exists(self._path, watch=watch) is not None:
                return False
            self._arrived(None, None)
        else:
            self._arrived(value, stat)
        return True

    def _arrived(self, value: Any, stat: Stat | None) -> None:
        """Deliver the state unless it is the last one, or older: its watch tells of the next."""
        self._is_right()
        skipped = self._last is not None
        if self._last is not None:
            last = self._last.stat
            if stat is last:
                return  # still missing
            if stat is not None and last is not None:
                if self._zxid(stat) <= self._zxid(last):
                    return
                following = last.czxid, self._count(last) + 1
                skipped = (stat.czxid, self._count(stat)) != following
        self._last = self._next = self._kind(value, stat, skipped)
        if self._callback is None:
            self._changed()
        else:
            self._sessions.dispatch(self._call)


class AsyncDataWatch(Follower):
    """The data of a node for ever; see :meth:`zkwire.AsyncClient.watch_data`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            client: AsyncClientLike,
            path: str,
            callback: Callable[[SeenData], object] | None = None,
            on_problem: OnProblem | None = None,
        ) -> None: ...

    _called = "watch_data"
    _kind = SeenData
    _zxid = attrgetter("mzxid")
    _count = attrgetter("version")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[bytes, Stat]:
        return await operations.get_data(self._path, watch=watch)

    if TYPE_CHECKING:

        async def next(self, timeout: float | None = None) -> SeenData | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenData, None]: ...


class AsyncChildrenWatch(Follower):
    """The names of a node's children for ever; see :meth:`zkwire.AsyncClient.watch_children`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            client: AsyncClientLike,
            path: str,
            callback: Callable[[SeenChildren], object] | None = None,
            on_problem: OnProblem | None = None,
        ) -> None: ...

    _called = "watch_children"
    _kind = SeenChildren
    _zxid = attrgetter("pzxid")
    _count = attrgetter("cversion")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[list[str], Stat]:
        names, stat = await operations.get_children_with_stat(self._path, watch=watch)
        return sorted(names), stat

    if TYPE_CHECKING:

        async def next(self, timeout: float | None = None) -> SeenChildren | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenChildren, None]: ...
