"""The engine's driver under asyncio: the event loop is its selector, a timer keeps its deadlines.

Everything happens in the loop's thread, so nothing is locked.  Sockets are used directly and not
through a transport: only so is it known what of a broken connection had been sent.
"""

from __future__ import annotations

import selectors
from contextlib import nullcontext, suppress
from functools import partial

from zkwire.aio.home import uninterruptible
from zkwire.net.connection import LONG_LINE, LONGEST_PAUSE, PAUSE, SPARSE
from zkwire.net.connector import Connector
from zkwire.net.held import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    from typing import Any, Protocol
    from weakref import ref

    from zkwire.net import connector
    from zkwire.net.connection import Connection

    class Owner(connector.Owner, Protocol):
        """What the loop's driver needs of the pump that it works for."""

        def read(self, link: Connection) -> None: ...
        def send_rest(self, link: Connection) -> None: ...


# Seconds; the event loop knows no shorter ones.
SHORTEST_PAUSE = 0.001


class LoopSelector:
    """An event loop in the shape of a selector: calls ``ready(events)`` of what is registered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, driver: Held) -> None:
        self._loop = loop
        self._driver = driver
        self._events: dict[socket.socket, int] = {}

    def register(self, sock: socket.socket, events: int, data: Any = None, /) -> None:
        """Call ``data().ready``, or the driver's if there is none, when the socket is."""
        old = self._events.get(sock, 0)
        self._events[sock] = events
        ready = partial(_ready, self._driver, data)
        if events & selectors.EVENT_READ:
            self._loop.add_reader(sock, ready, selectors.EVENT_READ)
        elif old & selectors.EVENT_READ:
            self._loop.remove_reader(sock)
        if events & selectors.EVENT_WRITE:
            self._loop.add_writer(sock, ready, selectors.EVENT_WRITE)
        elif old & selectors.EVENT_WRITE:
            self._loop.remove_writer(sock)

    modify = register

    def unregister(self, sock: socket.socket, /) -> None:
        """Stop listening to a socket."""
        self.register(sock, 0)
        del self._events[sock]


def _ready(held: Held, attempt: ref[Any] | None, events: int) -> None:
    """Something can be done on a socket.  The loop holds nothing of the client for that."""
    driver: LoopIO | None = held.get()
    if driver is None:
        return
    if attempt is None:
        driver.ready(events)
        return
    trying = attempt()
    if trying is not None:
        trying.ready(events)
    driver.turn()


def _on_timer(held: Held) -> None:
    driver: LoopIO | None = held.get()
    if driver is not None:
        driver.on_timer()


class LoopIO:
    """Turns the engine whenever something has happened or is due."""

    def __init__(self, pump: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._pump = pump
        self._loop = loop
        sockets: set[socket.socket] = set()
        self.held: Held = Held(self, sockets)
        self.held.let_go()
        self.engine: Connector = Connector(
            pump, nullcontext(), LoopSelector(loop, self.held), self.wake
        )
        self.engine.sockets = sockets
        self._timer: asyncio.TimerHandle | None = None
        self._turning: asyncio.Handle | None = None
        self._pausing: asyncio.TimerHandle | None = None
        self._turns = False  # at this moment
        self._stopped = False

    def wake(self) -> None:
        """From any thread (a look-up of a name has one): turn soon."""
        if not self._stopped:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.turn_soon)

    def turn_soon(self) -> None:
        """Turn once, after what is due in the loop already.

        What comes up during a turn is done at its end: turning for it again would never end while a
        server does not read.
        """
        if self._turning is None and not (self._turns or self._stopped):
            self._turning = self._loop.call_soon(self.turn)

    def ready(self, events: int) -> None:
        """Something can be done on the connection."""
        pump, link = self._pump, self._pump.link
        if link is None:
            return
        if events & selectors.EVENT_READ:
            pump.read(link)
            expected = pump.session.unanswered
            if link.got < SPARSE and expected >= LONG_LINE and not link.end:
                self._pause(max(min(expected * PAUSE, LONGEST_PAUSE), SHORTEST_PAUSE))
        if events & selectors.EVENT_WRITE:
            pump.send_rest(link)

    def _pause(self, seconds: float) -> None:
        """Let more answers arrive; see :data:`zkwire.net.connection.LONG_LINE`."""
        if self._pausing is None and not self._stopped:
            self._pausing = self._loop.call_later(seconds, self._read_on)
            self._listen()

    def _read_on(self) -> None:
        self._pausing = None
        self._listen()

    def _listen(self) -> None:
        link = self._pump.link
        if link is not None:
            reading = selectors.EVENT_READ if self._pausing is None else 0
            self.engine.listen(reading | (selectors.EVENT_WRITE if link.pending else 0))

    @uninterruptible
    def turn(self) -> None:
        """Let the engine do what is to be done, and come back when the next thing is due."""
        if self._turning is not None:
            self._turning.cancel()
            self._turning = None
        if self._stopped or self._turns:
            return
        self._turns = True
        try:
            link = self._pump.link
            while link is not None and link.broken_pipe and not link.end:
                self._pump.read(link)  # to the end, of which uvloop tells nobody behind an error
            due, now = self._pump.session.next_deadline(), self._pump.now()
            if link is not None and due is not None and due <= now:
                self._pump.read(link)  # a loop that was blocked may have answers there unread
            self.engine.conclude(now)
            due = self.engine.prepare()
        finally:
            self._turns = False
        self._listen()
        self._set_timer(due)

    def _set_timer(self, due: float | None) -> None:
        """Deadlines move away all the time; a timer that comes too early finds the new one."""
        if due is None:
            return
        when = self._loop.time() + max(0.0, due - self._pump.now())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, _on_timer, self.held)

    def on_timer(self) -> None:
        """The next thing is due."""
        self._timer = None
        self.turn()

    def _rest(self) -> None:
        self._stopped = True
        for handle in (self._timer, self._turning, self._pausing):
            if handle is not None:
                handle.cancel()
        self._timer = self._turning = self._pausing = None

    def abandon(self) -> None:
        """In a forked child: nothing happens any more, even if the loop goes on there."""
        self._rest()
        self.engine.abandon()

    def stop(self) -> None:
        """End everything.  Idempotent."""
        self._rest()
        self.engine.stop("the client is closed")
        self.engine.bury()
