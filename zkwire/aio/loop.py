"""The event loop that a client belongs to, how what comes from elsewhere gets there, and its I/O.

The client is the loop's from its first use on.  Only the loop's thread may touch the session, and
not while it is in the middle of that; a finalizer runs in any thread and at any moment.

The loop is the connector's selector, a timer keeps its deadlines.  Everything happens in the loop's
thread, so nothing is locked.  Sockets are used directly and not through a transport: only so is it
known what of a broken connection had been sent.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from contextlib import suppress
from functools import partial

from zkwire.net.connection import LONGER_LINE, LONGEST_PAUSE, PAUSE, SPARSE
from zkwire.net.connector import Connector

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import TypeVar

    from zkwire.net.driver import Driver
    from zkwire.net.lifetime import OwnerRef

    Function = TypeVar("Function", bound=Callable[..., object])


# Seconds; the event loop knows no shorter ones.
SHORTEST_PAUSE = 0.001


_work: set[CodeType] = set()  # of what is uninterruptible


def uninterruptible(function: Function) -> Function:
    """A function in the middle of which the session must not be touched."""
    _work.add(function.__code__)
    return function


def in_the_middle() -> bool:
    """Whether the caller's caller interrupts the work of this thread for a client.

    A finalizer does, when the collector runs it there.  The stack shows that; to keep a note of it
    would make each operation slower.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in _work:
        frame = frame.f_back
    return frame is not None


class LoopSelector:
    """An event loop in the shape of a selector."""

    def __init__(self, loop: asyncio.AbstractEventLoop, io: OwnerRef) -> None:
        self._loop = loop
        self._io = io

    def register(self, sock: socket.socket, events: int, /) -> None:
        """Have the LoopIO told when something can be done on the socket."""
        ready = partial(_ready, self._io, sock)
        if events & selectors.EVENT_READ:
            self._loop.add_reader(sock, ready, selectors.EVENT_READ)
        if events & selectors.EVENT_WRITE:
            self._loop.add_writer(sock, ready, selectors.EVENT_WRITE)

    def unregister(self, sock: socket.socket, /) -> None:
        """Stop listening to a socket."""
        self._loop.remove_reader(sock)
        self._loop.remove_writer(sock)

    def epolls_for(self, sock: socket.socket, /) -> None:
        """None: there is one thread, and nothing to choose."""


def _ready(owner_ref: OwnerRef, sock: socket.socket, events: int) -> None:
    """Something can be done on a socket.  The loop holds nothing of the client for that."""
    io: LoopIO | None = owner_ref.get()
    if io is not None:
        io.ready(sock, events)


def _on_timer(owner_ref: OwnerRef) -> None:
    io: LoopIO | None = owner_ref.get()
    if io is not None:
        io.on_timer()


class LoopIO(Connector):
    """Turns the connector whenever something has happened or is due."""

    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(driver)
        self._loop = loop
        self.owner_ref.release()
        self._selector = LoopSelector(loop, self.owner_ref)
        self._timer: asyncio.TimerHandle | None = None
        self._turning: asyncio.Handle | None = None
        self._pausing: asyncio.TimerHandle | None = None
        self._in_turn = False  # at this moment
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
        if self._turning is None and not (self._in_turn or self._stopped):
            self._turning = self._loop.call_soon(self.turn, context=self._driver.context.copy())

    def ready(self, sock: socket.socket, events: int) -> None:
        """Something can be done on the socket."""
        driver, connection = self._driver, self._driver.current_connection
        if connection is None or sock is not connection.sock:
            self._go_on(sock, events)
            self.turn()
            return
        if events & selectors.EVENT_READ:
            driver.read(connection)
            expected = 0 if connection.closed_because else driver.session.unanswered
            if connection.got < SPARSE and expected >= LONGER_LINE:
                self._pause(max(min(expected * PAUSE, LONGEST_PAUSE), SHORTEST_PAUSE))
        if events & selectors.EVENT_WRITE:
            driver.send_rest(connection)
            self.turn_soon()
        if driver.unfinished:
            self.turn_soon()

    def _pause(self, seconds: float) -> None:
        """Let more answers arrive; see :data:`zkwire.net.connection.LONGER_LINE`."""
        if self._pausing is None and not self._stopped:
            self._pausing = self._loop.call_later(seconds, self._read_on)
            self._listen()

    def _read_on(self) -> None:
        self._pausing = None
        self._listen()

    def _listen(self) -> None:
        connection = self._driver.current_connection
        if connection is not None:
            reading = selectors.EVENT_READ if self._pausing is None else 0
            writing = selectors.EVENT_WRITE if connection.pending else 0
            self._listen_to_connection(reading | writing)

    @uninterruptible
    def turn(self) -> None:
        """Do what is to be done, and again when the next thing is due."""
        if self._turning is not None:
            self._turning.cancel()
            self._turning = None
        if self._stopped or self._in_turn:
            return
        self._in_turn, driver = True, self._driver
        try:
            connection = driver.current_connection
            while connection is not None and connection.broken_pipe:
                if connection.closed_because:
                    break
                driver.read(connection)  # to the end, which uvloop does not report behind an error
            due, now = driver.session.next_deadline(), driver.now()
            if connection is not None and due is not None and due <= now:
                driver.read(connection)  # a loop that was blocked may have answers there unread
            self.conclude(now)
            due = self.prepare()
        finally:
            self._in_turn = False
        self._listen()
        self._set_timer(due)

    def _set_timer(self, due: float | None) -> None:
        """Deadlines move away all the time; a timer that comes too early finds the new one."""
        if due is None:
            return
        when = self._loop.time() + max(0.0, due - self._driver.now())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, _on_timer, self.owner_ref)

    def on_timer(self) -> None:
        """The next thing is due."""
        self._timer = None
        self.turn()

    def _cancel_timers(self) -> None:
        self._stopped = True
        for handle in (self._timer, self._turning, self._pausing):
            if handle is not None:
                handle.cancel()
        self._timer = self._turning = self._pausing = None

    def after_fork(self) -> None:
        """In a forked child: nothing happens any more, even if the loop runs on there."""
        self._cancel_timers()
        super().after_fork()

    def stop(self) -> None:
        """End everything.  Idempotent."""
        self._cancel_timers()
        super().stop()
        self.close_unused()
