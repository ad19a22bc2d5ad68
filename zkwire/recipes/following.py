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

from operator import attrgetter

from zkwire.errors import BUSY, ClientClosedError, ConnectionLossError, NoNodeError
from zkwire.recipes.seen import SeenChildren, SeenData
from zkwire.recipes.service import Condition, Service
from zkwire.session.waitable import check_timeout
from zkwire.session.watch import Watch
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.operations import Operations
    from zkwire.recipes.service import Background, Sessions


class _Reader:
    """A call of ``next``, as long as it waits."""


class Follower(Service):
    """What data and children have in common.  One reader at a time, or a callback."""

    _kind: Any  # of the states: SeenData or SeenChildren
    _zxid: Callable[[Stat], int]  # of the change that made the state: a later one has a higher one
    _count: Callable[[Stat], int]  # of the state's changes since the node was created

    def __init__(
        self, sessions: Sessions, path: str, callback: Callable[[Any], object] | None = None
    ) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"the callback must be callable: {callback!r}")
        super().__init__(sessions)
        self._path = check_path(path)
        self._callback: Any = callback
        self._readers: list[object] = [] if callback is None else [callback]
        self._last: Any = None  # the state that was delivered last
        self._next: Any = None  # the same, until the reader has taken it
        self._wanted = self._started = callback is not None
        self._asked = Condition(lambda: self._wanted and self._next is None)
        self._answered = Condition(
            lambda: self._next is not None or self._closed or self._error is not None
        )
        if self._started:
            sessions.serve(self)

    async def _read(self, operations: Operations, watch: Watch) -> tuple[Any, Stat]:
        """The state that a watch is set on."""
        raise NotImplementedError

    # --- the session's side -----------------------------------------------------------------------

    async def _serve(self, runtime: Background) -> None:
        refused = False
        while True:
            await runtime.wait_for(self._asked)
            watch = Watch()
            try:
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
            finally:
                watch.close()

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
            self._answered.notify()
        else:
            self._sessions.dispatch(self._call)

    # --- the reader's side ------------------------------------------------------------------------

    def _changed(self) -> None:
        self._answered.notify()
        if self._callback is not None and self._error is not None and not self._closed:
            self._sessions.dispatch(self._check)  # reported like an exception of the callback

    def _call(self) -> object:
        """Call the callback; the next read follows its end."""
        if self._closed:
            return None
        try:
            return self._callback(self._next)
        finally:
            self._take()

    def _take(self) -> Any:
        self._wanted = self._callback is not None
        taken, self._next = self._next, None
        self._asked.notify()
        return taken

    async def next(self, timeout: float | None = None) -> Any:
        """The next state, the first one at once; None if ``timeout`` seconds pass without one.

        A state that comes behind the time limit is kept for the next call.  A lost connection is no
        error: the state is read again on the next one.  Raises what ended the client, or the
        supervisor; NoAuthError if the node may not be read; ClientClosedError behind :meth:`close`;
        RuntimeError while another reader waits, or if there is a callback.
        """
        limit, reader = check_timeout("timeout", timeout), _Reader()
        try:
            self._readers.append(reader)
            if self._readers[0] is not reader:
                raise RuntimeError("a state goes to one reader: make another watch for this one")
            self._check()
            if not self._started:
                self._sessions.serve(self)
                self._started = True  # last: it may be refused here and now alone
            self._wanted = True
            self._asked.notify()
            return self._take() if await self._wait(self._answered, limit) else None
        finally:
            if reader in self._readers:  # else an interrupt came before
                self._readers.remove(reader)

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        try:
            while not self._closed:
                try:
                    state = await self.next()
                except ClientClosedError:
                    if self._closed:
                        return
                    raise
                yield state
        finally:
            if not self._readers:  # else this was the second one
                self.close()

    def close(self) -> None:
        """Watch no longer: no watch stays on the server, no callback is called.  Idempotent."""
        self._end()


class DataFollower(Follower):
    """The data of one node."""

    _kind = SeenData
    _zxid = attrgetter("mzxid")
    _count = attrgetter("version")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[bytes, Stat]:
        return await operations.get_data(self._path, watch=watch)

    if TYPE_CHECKING:

        async def next(self, timeout: float | None = None) -> SeenData | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenData, None]: ...


class ChildrenFollower(Follower):
    """The names of one node's children."""

    _kind = SeenChildren
    _zxid = attrgetter("pzxid")
    _count = attrgetter("cversion")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[list[str], Stat]:
        names, stat = await operations.get_children_with_stat(self._path, watch=watch)
        return sorted(names), stat

    if TYPE_CHECKING:

        async def next(self, timeout: float | None = None) -> SeenChildren | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenChildren, None]: ...
