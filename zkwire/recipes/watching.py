"""A node's data, or its children, in each newest state, without an older one after it.

A read sets a watch, and the reader gets what the read returned.  When the watch has fired and the
reader asks for more, the next read follows.  So a burst of changes costs one read, and no states
pile up for a slow reader; only a state that comes after a time limit is kept, for the next call.
There is one reader at a time, or a callback.

What makes the last state certain is the server's own promise: a watch is set by the very read that
returned the state, and set again, after a lost connection, with the zxid up to which the client has
seen changes; the server fires it at once if the node is different (``DataTree.setWatches``).  That
zxid also keeps a session from servers that have seen less; a supervisor's next session begins
with a sync.

Whether there were states between two that were read is known only from their stats.  ``skipped`` is
False if these prove that there was none, else True.
"""

from __future__ import annotations

from contextlib import closing
from operator import attrgetter

from zkwire.errors import ClientClosedError, NoNodeError
from zkwire.jute.record import Record
from zkwire.operations.nodes import check_flag
from zkwire.recipes._service import Condition, Service, call_back, sessions_of, until_closed
from zkwire.recipes.runtime import REPEATABLE
from zkwire.session.waitable import Watch, check_timeout
from zkwire.wire.model import State
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.operations import Operations
    from zkwire.recipes._service import Background, OnProblem
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.wire.model import Event


class SeenData(Record):
    """A state of a node: its data and stat, None while it does not exist.

    ``skipped``: states between the one before and this one may have been missed.  With a watch that
    fires once a reader cannot see each of two changes that follow one another; False is a proof.
    """

    data: bytes | None
    stat: Stat | None
    skipped: bool


class SeenChildren(Record):
    """A state of a node's children: their names, sorted, and the node's stat.

    None while the node does not exist; ``skipped`` as in :class:`SeenData`.
    """

    children: list[str] | None
    stat: Stat | None
    skipped: bool


if TYPE_CHECKING:
    DataCallback = Callable[[SeenData], object] | Callable[[SeenData, Event | None], object]
    ChildrenCallback = (
        Callable[[SeenChildren], object] | Callable[[SeenChildren, Event | None], object]
    )


class NodeWatcher(Service):
    """What data and children have in common: one reader at a time, or a callback.

    A state is kept until the reader has taken it, and there is one at most.
    """

    _kind: Any  # of the states: SeenData or SeenChildren
    _zxid: Callable[[Stat], int]  # of the change that made the state: a later one has a higher one
    _count: Callable[[Stat], int]  # of the state's changes since the node was created
    _last: Any = None  # the state that was delivered last
    _fired: Event | None = None  # the event that leads to the next read

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        callback: Callable[..., object] | None = None,
        on_problem: OnProblem | None = None,
        with_event: bool = False,
    ) -> None:
        self._with_event = check_flag("with_event", with_event)
        if callback is not None:
            _check_parameters(callback, with_event)
        elif with_event:
            raise TypeError("with_event needs a callback, which is called with the event")
        sessions = sessions_of(client)
        sessions.check_callback(callback)
        super().__init__(sessions, on_problem)
        self._path = check_path(path)
        self._callback: Any = callback
        self._readers: list[object] = [] if callback is None else [callback]  # calls of ``next``
        self._next: Any = None  # the state that was delivered last, until the reader has taken it
        self._event: Event | None = None  # the one that has led to the last read
        self._was_called = False  # the callback was, and has returned
        self._wanted = callback is not None
        self._asked = Condition(lambda: self._wanted and self._next is None)
        if callback is not None:
            self._begin()

    def _call(self) -> object:
        """Call the callback; the next read follows its end."""
        if self._closed:
            return None
        arguments = (self._next, self._event) if self._with_event else (self._next,)
        return call_back(self._sessions, self._callback, arguments, self._returned)

    def _returned(self, result: object) -> None:
        """The callback has returned this; False ends the watch."""
        self._was_called = True
        self._take()
        if result is False:
            self.close()
        self._changed()

    async def wait_called(self, timeout: float | None = None) -> bool:
        """Wait until the callback has returned for the first time; False after ``timeout`` seconds.

            watch = client.watch_data("/config", configure)  # yours to write
            watch.wait_called(5.0)  # from here on it is configured

        Raises what ended the client, or the supervisor; NoAuthError if the node may not be read;
        RuntimeError if there is no callback.
        """
        if self._callback is None:
            raise RuntimeError("there is no callback: next() waits for a state")
        limit = check_timeout("timeout", timeout)
        if self._was_called:  # it may have ended the watch
            return True
        try:
            return await self._until(lambda: self._was_called, limit)
        except ClientClosedError:
            if self._was_called:
                return True
            raise

    def _take(self) -> Any:
        self._wanted = self._callback is not None
        taken, self._next = self._next, None
        self._asked.notify()
        return taken

    async def next(self, timeout: float | None = None) -> Any:
        """The next state, the first one at once; None if ``timeout`` seconds pass without one.

        A state that comes after the time limit is kept for the next call.  A lost connection is not
        an error: the state is read again on the next one.  Raises what ended the client, or the
        supervisor; NoAuthError if the node may not be read, and a later call may succeed;
        ClientClosedError after :meth:`close`; RuntimeError while another reader waits, or if there
        is a callback.
        """
        limit, reader = check_timeout("timeout", timeout), object()
        try:
            self._readers.append(reader)
            if self._readers[0] is not reader:
                raise RuntimeError("a state goes to one reader: make another watch for this one")
            self._begin()
            self._wanted = True
            self._asked.notify()
            there = await self._until(lambda: self._next is not None, limit)
            return self._take() if there else None
        finally:
            if reader in self._readers:  # else an interrupt came before
                self._readers.remove(reader)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        # The second reader, which is refused, leaves the first its watch.
        return until_closed(
            self.next, lambda: self._closed, lambda: None if self._readers else self.close()
        )

    def close(self) -> None:
        """Watch no longer: no watch stays on the server, no callback is called.  Idempotent."""
        self._end_well()

    def _id(self, stat: Stat) -> tuple[int, ...]:
        """What no other state of the node has, not even one with the same zxid in lost data."""
        return self._zxid(stat), self._count(stat), stat.ctime

    async def _read(self, operations: Operations, watch: Watch) -> tuple[Any, Stat]:
        """The state that a watch is set on."""
        raise NotImplementedError

    async def _serve(self, runtime: Background) -> None:
        refused = False
        while True:
            await runtime.wait_for(self._asked)
            self._event, self._fired = self._fired, None
            try:
                with closing(Watch()) as watch:
                    if refused:
                        await runtime.operations.exists(self._path)
                        refused = False
                    if await self._look(runtime, watch):
                        self._fired = await runtime.event(watch, None)
            except REPEATABLE:
                pass  # only reads were asked for: they are repeated, each with a watch of its own
            except RuntimeError:
                # An add_watch of the program on this path has no answer yet; one that is asked for
                # now comes after it.
                if refused:
                    raise
                refused = True

    async def _look(self, runtime: Background, watch: Watch) -> bool:
        """Read once; False if it must be read again, since the node was created in between."""
        operations = runtime.operations
        try:
            value, stat = await self._read(operations, watch)
        except NoNodeError:
            if await operations.exists(self._path, watch=watch) is not None:
                return False
            self._arrived(None, None)
        else:
            behind = runtime.session.state is State.CONNECTED_READ_ONLY
            self._arrived(value, stat, behind)
        return True

    def _arrived(self, value: Any, stat: Stat | None, behind: bool = False) -> None:
        """Deliver the state unless it is the last one: its watch tells of the next.

        A server that is ``behind`` may have an older one.  Of any other a lower zxid says that the
        ensemble has lost its data, or got back old ones, and counts anew.
        """
        self._is_right()
        skipped = self._last is not None
        if self._last is not None:
            last = self._last.stat
            if stat is last:
                return  # still missing
            if stat is not None and last is not None:
                if behind and self._zxid(stat) < self._zxid(last):
                    return
                if self._id(stat) == self._id(last):
                    return
                following = last.czxid, self._count(last) + 1
                skipped = (stat.czxid, self._count(stat)) != following
        self._last = self._next = self._kind(value, stat, skipped)
        if self._callback is None:
            self._changed()
        else:
            self._sessions.dispatch(self._call)


def _check_parameters(callback: Any, with_event: bool) -> None:
    """TypeError for what cannot be called with a state, or a state and an event."""
    from inspect import signature  # not at the top: an import of zkwire is to be quick

    if not callable(callback):
        raise TypeError(f"the callback must be callable: {callback!r}")
    given = "the state and the event" if with_event else "the state alone, without with_event=True"
    try:
        parameters = signature(callback)
    except (TypeError, ValueError):
        return  # of a function in C, which tells nothing of itself
    try:
        parameters.bind(*((None, None) if with_event else (None,)))
    except TypeError as error:
        raise TypeError(f"the callback is called with {given}: {callback!r}: {error}") from None


class AsyncDataWatch(NodeWatcher):
    """The data of a node forever; see :meth:`zkwire.AsyncClient.watch_data`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            client: AsyncClientLike,
            path: str,
            callback: DataCallback | None = None,
            on_problem: OnProblem | None = None,
            with_event: bool = False,
        ) -> None: ...

        async def next(self, timeout: float | None = None) -> SeenData | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenData, None]: ...

    _called = "watch_data"
    _kind = SeenData
    _zxid = attrgetter("mzxid")
    _count = attrgetter("version")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[bytes, Stat]:
        return await operations.get_data(self._path, watch=watch)


class AsyncChildrenWatch(NodeWatcher):
    """The names of a node's children forever; see :meth:`zkwire.AsyncClient.watch_children`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            client: AsyncClientLike,
            path: str,
            callback: ChildrenCallback | None = None,
            on_problem: OnProblem | None = None,
            with_event: bool = False,
        ) -> None: ...

        async def next(self, timeout: float | None = None) -> SeenChildren | None: ...
        def __aiter__(self) -> AsyncGenerator[SeenChildren, None]: ...

    _called = "watch_children"
    _kind = SeenChildren
    _zxid = attrgetter("pzxid")
    _count = attrgetter("cversion")

    async def _read(self, operations: Operations, watch: Watch) -> tuple[list[str], Stat]:
        names, stat = await operations.get_children_with_stat(self._path, watch=watch)
        return sorted(names), stat
