"""The watch that a caller has: events arrive in it, and a caller waits on it.

It decides in which order a caller sees events, and what a wait raises when no event can arrive any
more.  It must not know which events concern it (:mod:`zkwire.session.watch_table`), how to send, or
how to wait: that is for its owner, the client.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from zkwire.errors import ClientClosedError, ZooKeeperError
from zkwire.session.waitable import Waitable, check_timeout
from zkwire.wire.model import Event, EventType, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterator
    from typing import Any, Protocol

    from zkwire.session.waitable import Waker
    from zkwire.wire.ops import WatchKind

    class WatchOwner(Protocol):
        """What a watch needs of the client that it is set on."""

        def wait(self, waitable: Waitable, timeout: float | None) -> bool: ...
        async def ready(self, waitable: Waitable) -> None: ...
        def close_watch(self, watch: Watch) -> None: ...
        def dispatch(self, function: Callable[[], object]) -> None: ...

        def await_delivery(self) -> None:
            """Wait, a moment at most, until no event is half delivered."""


class ClosedWatchError(ValueError):
    """A closed watch was passed to a read."""


# Most watches have no event yet, and a deque takes 760 bytes, a set 216.  These stay empty: a watch
# gets its own with the first element.
_NO_EVENTS: deque[Event] = deque(maxlen=0)
_NO_PLACES: Any = frozenset[object]()

# What a wait raises when the watch is closed or no longer set: an iteration ends then.
_OVER = (ClientClosedError, RuntimeError)


class Watch(Waitable):
    """Pass it as ``watch=`` to a read or to ``add_watch``, then :meth:`wait` for its events.

    Set by a read, it fires once, and the next read can set it again.  It is set when that read
    succeeds, and by ``exists`` also on a missing node.  A lost connection does not end it: it is
    set again on the next server, and a node that is different by then fires it.  A node that was
    created and deleted in between does not.

    Set by ``add_watch``, it is persistent and fires until it is closed.  A server does not report
    what happened while the connection was lost, so an event of type REREAD arrives then: a copy of
    what is watched must be read again.

    With a ``callback`` the events go to that function, in the client's callback thread; when the
    session ends, the callback gets one event of type NONE whose ``state`` says how.  Two watches
    with the same callback are called and closed independently; a callable that is itself passed as
    ``watch=`` to several reads of one path is called once for a change.
    """

    __slots__ = (
        "_armed", "_closed", "_error", "_events", "_lasting", "_latest", "_owner", "_places",
        "callback",
    )  # fmt: skip

    def __init__(self, callback: Callable[[Event], object] | None = None) -> None:
        super().__init__()
        if callback is not None and not callable(callback):
            raise TypeError(f"the callback of a watch must be callable: {callback!r}")
        #: The function that gets the events; None if they are waited for.
        self.callback: Callable[[Event], object] | None = callback
        self._owner: WatchOwner | None = None
        self._events: deque[Event] = _NO_EVENTS
        self._latest: Event | None = None
        self._error: Callable[[], ZooKeeperError] | None = None
        self._armed = 0  # how many reads have set it, or may set it, and it has not fired
        self._lasting = 0  # how many registrations are persistent
        self._closed = False
        self._places: set[tuple[WatchKind, str]] = _NO_PLACES  # where it stands in the table

    def __repr__(self) -> str:
        armed = self._armed + self._lasting
        return f"<Watch {armed} armed, {len(self._events)} events{' closed' * self._closed}>"

    @property
    def _identity(self) -> Hashable:
        """Two watches on one path with equal identities are one."""
        return id(self)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._closed

    @property
    def ready(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return bool(self._events) or self._closed or self._error is not None or not self._set

    @property
    def _set(self) -> bool:
        return self._armed > 0 or self._lasting > 0

    def wait(self, timeout: float | None = None) -> Event | None:
        """The next event; None when ``timeout`` seconds pass without one.

        Raises what ended the session (SessionExpiredError, AuthFailedError or ClientClosedError),
        ClientClosedError when the watch is closed, and RuntimeError when no read has set it since
        it fired last.  A time limit or an interrupt changes nothing: the watch stays set, and the
        next wait returns the event.
        """
        limit = check_timeout("timeout", timeout)
        while (event := self.take()) is None:
            if not self._client().wait(self, limit):
                return None
        return event

    def take(self) -> Event | None:
        """The next event if it has arrived, else None; raises what :meth:`wait` would."""
        try:
            return self._events.popleft()
        except IndexError:
            pass
        if self._error is not None:
            raise self._error()
        if self._closed:
            raise ClientClosedError("this watch has been closed")
        if not self._set:
            if self._has_arrived():
                return self.take()
            raise RuntimeError("the watch is not set: pass it to a read that succeeds first")
        return None

    def _has_arrived(self) -> bool:
        """Whether there is an event after all, though just now there was none and no watch set.

        Another thread may have delivered it meanwhile, or is delivering it.
        """
        if self._owner is not None:
            self._owner.await_delivery()
        return bool(self._events)

    def _client(self) -> WatchOwner:
        if self._owner is None:
            raise RuntimeError("the watch is not set: pass it to a read that succeeds first")
        return self._owner

    def __await__(self) -> Generator[Any, None, Event]:
        """Under asyncio: the next event; raises what :meth:`wait` would."""
        return self._next().__await__()

    async def _next(self) -> Event:
        while (event := self.take()) is None:
            await self._client().ready(self)
        return event

    @property
    def _lasts(self) -> bool:
        return self._set and not self._closed

    @property
    def _continues(self) -> bool:
        return bool(self._events) or self._lasts or self._has_arrived()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Under asyncio: events as they arrive, while the watch is set or events are left."""
        try:
            while self._continues:
                yield await self
        except _OVER:
            if self._lasts:
                raise

    def __iter__(self) -> Iterator[Event]:
        """Events as they arrive, while the watch is set or events are left."""
        try:
            while self._continues:
                if (event := self.wait()) is not None:
                    yield event
        except _OVER:
            if self._lasts:
                raise

    def close(self) -> None:
        """End the watch, here and (if no other watch needs it) on the server.  Idempotent.

        A read that it is passed to afterwards raises ValueError.
        """
        self._closed = True
        if self._owner is not None:
            self._owner.close_watch(self)

    # --- for the state machine, under the I/O layer's state lock ---

    def _arm(self, *, lasting: bool = False) -> None:
        """A request that may set the watch is submitted."""
        if lasting:
            self._lasting += 1
        else:
            self._armed += 1

    def _disarm(self, *, lasting: bool = False) -> None:
        """That request has failed, or the watch that it has set is removed."""
        if lasting:
            self._lasting = max(0, self._lasting - 1)
        else:
            self._armed = max(0, self._armed - 1)

    def _deliver(self, event: Event, spent: bool = True) -> None:
        """The watch fires; ``spent``: for a read, which set it once.  Idempotent."""
        if event is not self._latest:
            events = self._events or deque()
            # The one call comes last, so no interrupt separates these four: interrupt-safe.
            self._latest = event
            self._armed -= spent and self._armed > 0
            self._events = events
            events.append(event)

    def _end(self, state: State, error: Callable[[], ZooKeeperError]) -> None:
        """The session has ended in ``state``: no event can arrive any more.  Idempotent."""
        if self._error is None:
            event, events = Event(EventType.NONE, "", state), self._events or deque()
            self._error = error
            if self.callback is not None:
                self._events = events
                events.append(event)  # interrupt-safe: last

    def _take_wakers(self) -> tuple[Waker, ...]:
        """The wakers to call now; with a callback, one more for each event."""
        wakers = super()._take_wakers()
        if self.callback is not None and self._events:
            wakers += (self._dispatch,)
        return wakers

    def _dispatch(self) -> None:
        """Pass one event to the callback: events of several watches keep the order of the wire."""
        owner, callback = self._owner, self.callback
        if callback is not None and owner is not None and self._events:
            owner.dispatch(partial(callback, self._events.popleft()))


class CallbackWatch(Watch):
    """The watch of a callable that was passed itself: one change calls it once, however often."""

    __slots__ = ()

    def __init__(self, callback: Callable[[Event], object]) -> None:
        super().__init__(callback)
        hash(callback)  # TypeError here, in the caller, for what cannot be a key

    @property
    def _identity(self) -> Hashable:
        """The callable."""
        return self.callback
