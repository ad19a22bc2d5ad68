"""The watch that a caller holds: where events arrive, and where one waits for them.

It decides in which order a caller sees events and what a caller is told when none can come any
more.  It must not know which events concern it (:mod:`zkwire.session.watch_table`), how to send, or
how to wait: that is its owner, the client.
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
        async def until(self, waitable: Waitable) -> bool: ...
        def close_watch(self, watch: Watch) -> None: ...
        def dispatch(self, function: Callable[[], object]) -> None: ...

        def await_delivery(self) -> None:
            """Wait, for a moment at most, until no event is half delivered."""


class ClosedWatchError(ValueError):
    """A watch that has been closed was passed to a read."""


# What who waits is told when a watch is closed or not set any more: an iteration over it ends.
_OVER = (ClientClosedError, RuntimeError)


class Watch(Waitable):
    """Pass it as ``watch=`` to a read or to ``add_watch``, then :meth:`wait` for its events.

    Set by a read it fires once, and can be set again by the next read.  It is set when that read
    succeeds, and by ``exists`` also on a node that is not there.  A lost connection does not lose
    it: it is set again on the next server, and what is different then fires it.  A node that came
    and went in between does not.

    Set by ``add_watch`` it is persistent and fires until it is closed.  A server says nothing about
    what happened while the connection was lost, so an event of type REREAD comes then: whoever
    keeps a copy of what is watched must read it again.

    With a ``callback`` the event goes there, in the client's callback thread; when the session
    ends the callback gets one event of type NONE whose ``state`` says how.  Two watches with the
    same callback are two, which are called and closed each by itself; a callable that is passed as
    ``watch=`` itself, to several reads of one path, is called once for a change.
    """

    __slots__ = (
        "_armed", "_closed", "_error", "_events", "_lasting", "_latest", "callback", "owner",
        "places",
    )  # fmt: skip

    def __init__(self, callback: Callable[[Event], object] | None = None) -> None:
        super().__init__()
        if callback is not None and not callable(callback):
            raise TypeError(f"the callback of a watch must be callable: {callback!r}")
        self.callback = callback
        self.owner: WatchOwner | None = None
        self._events: deque[Event] = deque()
        self._latest: Event | None = None
        self._error: Callable[[], ZooKeeperError] | None = None
        self._armed = 0  # reads whose watch has not fired yet
        self._lasting = 0  # registrations that firing does not end
        self._closed = False
        self.places: set[tuple[WatchKind, str]] = set()  # where the table has it

    def __repr__(self) -> str:
        armed = self._armed + self._lasting
        return f"<Watch {armed} armed, {len(self._events)} events{' closed' * self._closed}>"

    @property
    def identity(self) -> Hashable:
        """What makes two watches on one path the same."""
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
        """The next event; None when ``timeout`` seconds passed without one.

        Raises SessionExpiredError or ClientClosedError when no event can come any more because the
        session is over, and RuntimeError when no read has set the watch since it fired last.
        """
        limit = check_timeout("timeout", timeout)
        while (event := self.take()) is None:
            if not self._owner().wait(self, limit):
                return None
        return event

    def take(self) -> Event | None:
        """The next event if it has come, else None; raises what :meth:`wait` would."""
        try:
            return self._events.popleft()
        except IndexError:
            pass
        if self._error is not None:
            raise self._error()
        if self._closed:
            raise ClientClosedError("this watch has been closed")
        if not self._set:
            if self._has_come():
                return self.take()
            raise RuntimeError("the watch is not set: pass it to a read that succeeds first")
        return None

    def _has_come(self) -> bool:
        """Whether there is an event after all, where just now neither it nor a watch was seen.

        Another thread may have delivered it meanwhile, or be between the two.
        """
        if self.owner is not None:
            self.owner.await_delivery()
        return bool(self._events)

    def _owner(self) -> WatchOwner:
        if self.owner is None:
            raise RuntimeError("the watch is not set: pass it to a read that succeeds first")
        return self.owner

    def __await__(self) -> Generator[Any, None, Event]:
        """Under asyncio: the next event; raises what :meth:`wait` would."""
        return self._next().__await__()

    async def _next(self) -> Event:
        while (event := self.take()) is None:
            await self._owner().until(self)
        return event

    @property
    def _lasts(self) -> bool:
        return self._set and not self._closed

    @property
    def _goes_on(self) -> bool:
        return bool(self._events) or self._lasts or self._has_come()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Under asyncio: events as they come, for as long as the watch is set or has some left."""
        while self._goes_on:
            try:
                event = await self
            except _OVER:
                if self._lasts:
                    raise
                return
            yield event

    def __iter__(self) -> Iterator[Event]:
        """Events as they come, for as long as the watch is set or has some left."""
        while self._goes_on:
            try:
                event = self.wait()
            except _OVER:
                if self._lasts:
                    raise
                return
            if event is not None:
                yield event

    def close(self) -> None:
        """Give the watch up, here and (if no other watch needs it) on the server.  Idempotent."""
        self._closed = True
        if self.owner is not None:
            self.owner.close_watch(self)

    # --- for the automaton, under the shell's state lock ---

    def arm(self, *, lasting: bool = False) -> None:
        """A request that may set the watch has been submitted."""
        if lasting:
            self._lasting += 1
        else:
            self._armed += 1

    def disarm(self, *, lasting: bool = False) -> None:
        """That request has failed, or what it had set is gone."""
        if lasting:
            self._lasting = max(0, self._lasting - 1)
        else:
            self._armed = max(0, self._armed - 1)

    def deliver(self, event: Event, spent: bool = True) -> None:
        """The watch has fired, which has ``spent`` what a read had set.

        Idempotent: an interrupt may make the automaton begin anew.
        """
        if event is not self._latest:
            # One call and it is the last thing, so no interrupt comes between these three.
            self._latest = event
            self._armed -= spent and self._armed > 0
            self._events.append(event)

    def end(self, state: State, error: Callable[[], ZooKeeperError]) -> None:
        """The session is over in ``state``: no event can come any more.  Idempotent."""
        if self._error is None:
            event = Event(EventType.NONE, "", state)
            self._error = error
            if self.callback is not None:
                self._events.append(event)  # the one call behind the store, as in `deliver`

    def take_wakers(self) -> tuple[Waker, ...]:
        """The wakers to call now; for a callback, behind each event, one that hands it on."""
        wakers = super().take_wakers()
        if self.callback is not None and self._events:
            wakers += (self._hand_on,)
        return wakers

    def _hand_on(self) -> None:
        """Dispatch one event: so those of several watches keep the order of the wire."""
        owner, callback = self.owner, self.callback
        if callback is not None and owner is not None and self._events:
            owner.dispatch(partial(callback, self._events.popleft()))


class CallbackWatch(Watch):
    """The watch of a callable that was given itself: given twice, one change calls it once."""

    __slots__ = ()

    def __init__(self, callback: Callable[[Event], object]) -> None:
        super().__init__(callback)
        hash(callback)  # it will be a key: what cannot be one is refused here, in the caller

    @property
    def identity(self) -> Hashable:
        """The callable."""
        return self.callback
