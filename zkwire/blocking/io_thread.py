"""The I/O thread: the engine's driver for the blocking client, and its reader when nobody else is.

It listens as long as callers read for themselves, too: the kernel tells it only what comes while
none of them waits (:mod:`zkwire.net.bell`).  A caller that has the read role then gets MOMENT to go
on, in a long pipeline up to LONGEST_REARM seconds.  Without a bell it looks from time to time, at
last as seldom as that. A socket that another thread still uses has been shut down before it is
closed, so that thread is on its way out. It never waits for a caller, and it must not call anything
of a user's but the SASL mechanism.  It ends when the client is closed, or with the session: one
that has expired needs no thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading

from zkwire.net.background import report
from zkwire.net.bell import bell_for
from zkwire.net.connector import Connector
from zkwire.net.dial import kernel_says, readable_within
from zkwire.net.forking import remember
from zkwire.net.held import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Callable
    from typing import Final, Protocol

    from zkwire.blocking.waiting import Sleeper
    from zkwire.net import connector
    from zkwire.net.background import Late, Task
    from zkwire.net.connection import Connection

    class Owner(connector.Owner, Protocol):
        """What the I/O thread needs of the pump that it works for."""

        mutex: threading.RLock
        late: Late
        sleepers: set[Sleeper]
        tasks: set[Task]
        closing: float | None
        detaching: bool
        ended: bool

        def read(self, link: Connection) -> None: ...
        def send_rest(self, link: Connection) -> None: ...
        def hand_over(self) -> None: ...
        def call_soon(self) -> None: ...
        def part(self) -> None: ...
        def abandon_process(self) -> None: ...

    Ready = list[tuple[selectors.SelectorKey, int]]

# Seconds after which it looks whether callers still read, where there is no bell; doubled as long
# as they do.  A look is a switch of threads: one each 5 ms, with all else that the thread does, was
# a sixteenth of the CPU time of a caller that asks without a pause; this is a hundredth.
REARM, LONGEST_REARM = 0.005, 0.02
# Seconds within which a reader has to get on that was not waiting when the bell rang.
MOMENT = 0.002
GRACES = 4  # receives before silence is judged
_AT_ONCE = 0.0
NOTHING: Ready = []


class IOThread:
    """The loop around the engine; see the module's docstring."""

    def __init__(self, pump: Owner) -> None:
        self._pump = pump
        self._mutex = pump.mutex
        self._selector = selectors.DefaultSelector()
        self._listening, self._waking = socket.socketpair()
        self._listening.setblocking(False)
        self._waking.setblocking(False)
        # Re-entrant, for a signal handler; held over the end, so that no byte goes to a stranger
        # who has got the descriptor's number.
        self._waking_lock = threading.RLock()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self.select: Final = self._selector.select
        self._engine = Connector(pump, pump.mutex, self._selector, self.wake)
        self._engine.sockets.add(self._waking)
        self.held: Held = Held(self, self._engine.sockets)
        self.call_late_at: float | None = None
        self._rearm_at: float | None = None
        self._rearm = REARM
        self._reads_seen = 0
        self._calm_at = 0.0  # a reader that has not made it stand back again by then reads no flood
        self._bell: select.epoll | None = None  # what the selector listens to of a bell
        self._heard: Connection | None = (
            None  # the connection that has got its bell, if it can have one
        )
        self._cancelled = False
        self._close_at: float | None = None

    def wake(self) -> None:
        """From any thread: come back from select, and keep the client alive until then."""
        self.held.hold(self)
        with self._waking_lock:
            try:
                self._waking.send(b"\0")
            except OSError as error:
                kernel_says(error)  # it is full, so the thread is awake anyway; or closed

    def let_go(self) -> None:
        """Leave it to others to keep the client alive, unless it is being closed."""
        if self._pump.closing is None:
            self.held.let_go()

    def listen(self) -> None:
        """From any thread: somebody waits for an event, so listen, if nobody else reads."""
        if self._rearm_at is not None:
            self._rearm_at = _AT_ONCE
            self.wake()

    def look(self) -> None:
        """From any thread: take in what may have come."""
        self._rearm_at = _AT_ONCE
        self.wake()

    def begin(self) -> bool:
        """Start the session, unless whoever has started this thread was interrupted over it."""
        pump = self._pump
        pump.call_soon()  # what was put off before there was this thread
        with self._mutex:
            if not (self._cancelled or pump.session.ended):
                pump.session.start(pump.now())
        return not self._cancelled

    def cancel(self) -> None:
        """Do not run; under the mutex, for which :meth:`run` waits before it does anything."""
        self._cancelled = True
        self.close_descriptors()

    def prepare(self) -> float | None:
        """Do what can be done without waiting; returns when to be called again at the latest."""
        due = self._engine.prepare()
        if self._pump.link is not None:
            self._listen_again(self._pump.link)
        return due

    def turn(self, ready: Ready) -> None:
        """Do what is due, and what can be done on the sockets that are ready."""
        pump = self._pump
        for key, events in ready:
            if key.fileobj is self._listening:
                self._drain()
            elif key.data is not None:
                attempt = key.data()
                if attempt is not None:
                    attempt.ready(events)
            elif pump.link is not None and key.fileobj in (pump.link.sock, self._bell):
                if events & selectors.EVENT_READ:
                    self._read(pump.link)
                if events & selectors.EVENT_WRITE:
                    pump.send_rest(pump.link)
        link, now = pump.link, pump.now()
        if link is not None and now >= pump.session.give_up_at:
            self._catch_up(link)
        self._engine.conclude(now)
        if link is not None and pump.link is not link:
            self._rearm_at = None
            self._hear(None)
            self._wake_all()
        if self.call_late_at is not None and now >= self.call_late_at:
            self.call_late_at = None  # first: what comes from now on asks for it anew
            try:
                pump.late.call()
            except Exception as error:  # no interrupt comes here, so it would fail again
                pump.late.waiting.clear()
                report(error)
            pump.flush()
        pump.call_soon()

    def pause(self, due: float | None) -> float | None:
        """Seconds to wait at most."""
        alarms = due, self._rearm_at, self._close_at, self.call_late_at
        times = [alarm for alarm in alarms if alarm is not None]
        return max(0.0, min(times) - self._pump.now()) if times else None

    def stay_away(self, due: float | None) -> bool:
        """Whether there was nothing to do but to see that callers have read meanwhile."""
        link, at, now = self._pump.link, self._rearm_at, self._pump.now()
        others = due, self._close_at, self.call_late_at
        if link is None or at is None or now < at or at == _AT_ONCE or link.end or link.bell:
            return False
        if link.reads == self._reads_seen or any(t is not None and now >= t for t in others):
            return False
        self._reads_seen = link.reads
        self._rearm = min(2 * self._rearm, LONGEST_REARM)
        again = now + self._rearm
        if self._rearm_at == at:  # else somebody waits for an event by now
            self._rearm_at = again
        return True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._listening.recv(4096)

    def finished(self) -> bool:
        """Whether nothing can come any more, or the time for the close is over."""
        pump = self._pump
        if pump.closing is None:
            return pump.session.ended and pump.link is None and not pump.tasks
        with self._mutex:
            if self._close_at is None:
                self._close_at = pump.now() + pump.closing
                remember(pump)  # its finalizer may have run, which ends weak references
                if not pump.detaching:
                    pump.session.close(pump.now())
            if pump.detaching and not pump.tasks:
                pump.session.closed()
        pump.flush()
        return pump.session.ended or pump.now() >= self._close_at

    def _listen_again(self, link: Connection) -> None:
        """Read again if no caller does or gets on; write again if something was left over."""
        if link is not self._heard:
            self._heard = link
            link.hang(bell_for(link.sock))
        at, now = self._rearm_at, self._pump.now()
        if at is not None and now >= at:
            getting_on = link.reads != self._reads_seen and at != _AT_ONCE
            self._reads_seen = link.reads
            self._rearm_at = now + self._rearm if getting_on and not link.bell else None
            if not getting_on:
                self._take(link)
        reading = self._rearm_at is None
        self._hear(link.bell.io if link.bell and reading else None)
        interest = selectors.EVENT_READ if reading and not link.bell else 0
        self._engine.listen(interest | (selectors.EVENT_WRITE if link.pending else 0))

    def _hear(self, bell: select.epoll | None) -> None:
        """Listen to this one."""
        if self._bell is not bell:
            if self._bell is not None:
                self._selector.unregister(self._bell)
            if bell is not None:
                self._selector.register(bell, selectors.EVENT_READ)
            self._bell = bell

    def _read(self, link: Connection) -> None:
        """Read, or stand back from a caller that does."""
        if link.reader is None:
            self._take(link)
        else:
            now, first = self._pump.now(), MOMENT if link.bell else REARM
            again = link.bell and now < self._calm_at  # as in a long pipeline: look less often
            self._rearm = min(2 * self._rearm, LONGEST_REARM) if again else first
            self._rearm_at = now + self._rearm
            self._calm_at = self._rearm_at + MOMENT
            self._reads_seen = link.reads

    def _take(self, link: Connection) -> None:
        """Read, whoever else may be about to: what a caller has not received, it gets from here."""
        self._pump.read(link)
        if link.reader is not None:
            link.ring()
        if link.full:
            self._rearm_at = _AT_ONCE
        if link.end:
            self.wake()  # to end it, and not to wait for what else comes
        self._pump.hand_over()

    def _catch_up(self, link: Connection) -> None:
        """Take in what has come, before silence is judged.

        Code that keeps the interpreter to itself for long keeps it from being read.
        """
        pump = self._pump
        for _ in range(GRACES):
            due = not link.end and pump.now() >= pump.session.give_up_at
            if not due or not readable_within(link.sock, 0):
                break
            self._take(link)

    def _wake_all(self) -> None:
        """Whoever sleeps looks again: an interrupt may have lost the one that wakes it."""
        with self._mutex:
            sleepers = list(self._pump.sleepers)
        for sleeper in sleepers:
            sleeper()

    def bury(self) -> None:
        """Close the sockets that no thread uses any more."""
        self._engine.bury()

    def shut_down(self) -> None:
        """Whatever fails on the way: who waits must learn that nothing will come."""
        pump, connector = self._pump, self._engine
        if self._cancelled:
            return
        try:
            connector.stop("the client is closed")
        finally:
            pump.ended = True
            rest = (pump.call_due, pump.call_soon, self._wake_all, connector.bury, pump.part)
            for step in (*rest, self.close_descriptors):
                try:
                    step()
                except Exception as error:
                    report(error)

    def close_descriptors(self) -> None:
        """Close the selector and the wake-up pair."""
        with self._waking_lock:
            self._selector.close()
            self._listening.close()
            self._waking.close()

    def abandon(self) -> None:
        """In a forked child: close everything, without a byte or a FIN."""
        self._waking_lock = threading.RLock()
        self._engine.abandon()
        self.close_descriptors()


def serve(held: Held, select: Callable[[float | None], Ready]) -> None:
    """The thread's function.  Nothing here keeps the client alive while it waits."""
    io: IOThread | None = held.get()
    assert io is not None
    try:
        begun = io.begin()
        while begun and not io.finished():
            due, ready = io.prepare(), NOTHING
            while not ready:
                seconds = io.pause(due)
                io.let_go()
                io = None
                ready = select(seconds)
                while (io := held.get()) is None:
                    select(None)  # until its finalizer wakes this thread
                if not (ready or io.stay_away(due)):
                    break  # the time has come
            io.turn(ready)
            del ready  # what is registered leads back to the client
    finally:
        io = held.get()
        if io is not None:
            io.shut_down()
