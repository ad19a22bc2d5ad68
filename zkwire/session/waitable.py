"""What can be waited for: a watch and other waitables, alarms, and the time limits of waits.

Decides when a wait may end and which functions to call then.  It must not know how the I/O layer
waits: that puts wakers into a :class:`Waitable`, and calls them after the state machine has
returned them.

Events arrive in a :class:`Watch`, and a caller waits on it.  It decides in which order a caller
sees events, and what a wait raises when no event can arrive any more.  It must not know which
events concern it (:mod:`zkwire.session.watch_table`) or how to send: that is for its owner, the
client.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from zkwire.errors import ClientClosedError, ZooKeeperError
from zkwire.wire.model import Event, EventType, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterator
    from typing import Any, Never, Protocol

    from zkwire.wire.ops import WatchKind

    Waker = Callable[[], object]

    class WatchOwner(Protocol):
        """What a watch needs of the client that it is set on."""

        def wait(self, waitable: Waitable, timeout: float | None) -> bool: ...
        async def ready(self, waitable: Waitable) -> None: ...
        def close_watch(self, watch: Watch) -> None: ...
        def dispatch(self, function: Callable[[], object]) -> None: ...

        def await_delivery(self) -> None:
            """Wait, a moment at most, until no event is half delivered."""


class Bound:
    """A client, or an object made with a client: it refuses to be copied or pickled.

    The copy of a client would be a second owner of its connection, and the end of either would end
    the session.  The copy of a lock would say that it is held after the lock has been released.
    """

    __slots__ = ()

    def __reduce__(self) -> Never:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it belongs to this process. Give "
            "another process the hosts, to make a client of its own there; to hand a session over, "
            "give it also the credentials that detach() returns, for Client(hosts, resume=...)"
        )


class Waitable(Bound):
    """Something that becomes ready.

    ``_wakers`` are functions that the I/O layer calls once, soon after ``ready`` has turned true,
    outside all locks.  Adding one, and turning ready, happens under the I/O layer's state lock.
    Most waitables have one waker at most, a tuple; for thousands of them a dict is faster.
    """

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: tuple[Waker, ...] | dict[Waker, None] = ()  # in the order of arrival

    @property
    def ready(self) -> bool:
        """Whether a wait for this ends at once."""
        raise NotImplementedError

    def _add_waker(self, waker: Waker) -> None:
        """Have ``waker`` called when this turns ready."""
        if not self._wakers:
            self._wakers = (waker,)
        elif isinstance(self._wakers, tuple):
            self._wakers = dict.fromkeys((*self._wakers, waker))
        else:
            self._wakers[waker] = None

    def _drop_waker(self, waker: Waker) -> None:
        """Forget ``waker``.  Idempotent."""
        if isinstance(self._wakers, dict):
            self._wakers.pop(waker, None)
        elif waker in self._wakers:
            self._wakers = ()

    def _take_wakers(self) -> tuple[Waker, ...]:
        """The wakers to call now; each is returned once."""
        wakers = tuple(self._wakers)  # interrupt-safe: before the store
        self._wakers = ()
        return wakers


class Either(Waitable):
    """Ready once one of several is.  For one wait."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: Waitable) -> None:
        super().__init__()
        self._parts = parts

    @property
    def ready(self) -> bool:
        """Whether one is."""
        return any(part.ready for part in self._parts)

    def _add_waker(self, waker: Waker) -> None:
        super()._add_waker(waker)
        for part in self._parts:
            part._add_waker(self._wake)

    def _drop_waker(self, waker: Waker) -> None:
        for part in self._parts:
            part._drop_waker(self._wake)

    def _wake(self) -> None:
        for waker in tuple(self._wakers):  # none if another part has been ready before
            waker()  # interrupt-safe: before it is forgotten, so perhaps twice
        self._wakers = ()


def check_timeout(name: str, seconds: float | None) -> float | None:
    """``seconds`` if it is a time limit: a number not below 0, or None.

    Raises TypeError or ValueError, which call the argument ``name``.
    """
    if seconds is None:
        return None
    if type(seconds) is float and seconds >= 0.0:
        return seconds  # the usual case first, for speed
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    try:
        limit = float(seconds)
    except OverflowError:
        raise ValueError(f"{name} is out of the range of a float") from None
    if limit < 0:
        raise ValueError(f"{name} must not be negative: {seconds}")
    if not limit >= 0:
        raise ValueError(f"{name} must be a number of seconds, not nan")
    return limit


class Awaited:
    """What a :class:`zkwire.net.background.BackgroundTask` awaits until it is ready."""

    __slots__ = ("_waitable",)

    def __init__(self, waitable: Waitable) -> None:
        self._waitable = waitable

    def __await__(self) -> Generator[Waitable, None, None]:
        if not self._waitable.ready:
            yield self._waitable


class Alarm(Waitable):
    """Ready from the moment ``at`` on, in seconds on the I/O layer's clock, once it has rung.

    A session keeps the alarms that have not rung among its other deadlines, so that they ring in
    virtual time, too.
    """

    __slots__ = ("_rung", "at")

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at: float = at
        self._rung = False

    @property
    def ready(self) -> bool:
        """Whether the moment has come."""
        return self._rung

    def _ring(self) -> tuple[Waker, ...]:
        """The moment has come; returns the wakers to call."""
        self._rung = True
        return self._take_wakers()


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
    succeeds; ``exists`` sets it on a missing node, too.  A lost connection does not end it: it is
    set again on the next server, and fires if the node is different by then.  It does not fire for
    a node that was created and deleted in between.

    Set by ``add_watch``, it is persistent and fires until it is closed.  A server does not report
    what happened while the connection was lost, so an event of type REREAD arrives then: a copy of
    what is watched must be read again.

    With a ``callback`` the events go to that function, in the client's callback thread; when the
    session ends, the callback gets one event of type NONE whose ``state`` says how.  Two watches
    with the same callback are called and closed independently.  But if a callable itself is passed
    as ``watch=`` to several reads of one path, it is called once for a change.
    """

    __slots__ = (
        "_closed", "_error", "_events", "_latest", "_owner", "_pending", "_places", "callback",
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
        self._pending = 0  # how many requests that may set it are under way
        self._closed = False
        self._places: set[tuple[WatchKind, str]] = _NO_PLACES  # where it stands in the table

    def __repr__(self) -> str:
        armed = self._pending + len(self._places)
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
        return self._pending > 0 or bool(self._places)

    def wait(self, timeout: float | None = None) -> Event | None:
        """The next event; None when ``timeout`` seconds pass without one.

        Raises what ended the session (SessionExpiredError, AuthFailedError or ClientClosedError),
        ClientClosedError when the watch is closed, and RuntimeError when no read has set it since
        it last fired.  A time limit or an interrupt changes nothing: the watch stays set, and the
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
        """Whether there is an event by now, or one may come; a moment ago neither was so.

        Another thread may have delivered the event since then, or is delivering it, or is just
        taking in the answer to the read that sets this.
        """
        if self._owner is not None:
            self._owner.await_delivery()
        return bool(self._events) or self._set

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

    def _deliver(self, event: Event) -> None:
        """The watch fires.  Idempotent."""
        if event is not self._latest:
            events = self._events or deque()
            # The one call comes last, so no interrupt separates these three: interrupt-safe.
            self._latest = event
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
