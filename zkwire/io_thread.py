"""The I/O thread: the engine's driver for the blocking client, and its reader when nobody else is.

It stops listening to the connection while callers read for themselves and always comes back within
LONGEST_REARM seconds, so no way out of a reading caller can lose the connection.  A socket that
another thread still uses has been shut down before it is closed, so that thread is on its way out.
It never waits for a caller, and it must not call anything of a user's but the SASL mechanism.  It
ends when the client is closed, or with the session: one that has expired needs no thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

from zkwire.background import report
from zkwire.dial import kernel_says, readable_within
from zkwire.engine import Engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.link import Link
    from zkwire.pump import Pump

# Seconds after which it looks whether callers still read, doubled as long as they do.  A look
# is a switch of threads: one each 5 ms, with all else that the thread does, was a sixteenth of the
# CPU time of a caller who asks without a pause; this is a hundredth.
REARM, LONGEST_REARM = 0.005, 0.02
GRACE, GRACES = 0.005, 4  # seconds, and how often
_AT_ONCE = 0.0


class IOThread:
    """The loop around the engine; see the module's docstring."""

    def __init__(self, pump: Pump) -> None:
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
        self._engine = Engine(pump, pump.mutex, self._selector, self.wake)
        self.call_late_at: float | None = None
        self._rearm_at: float | None = None
        self._rearm = REARM
        self._reads_seen = 0
        self._cancelled = False
        self._close_at: float | None = None

    def wake(self) -> None:
        """From any thread: come back from select."""
        with self._waking_lock:
            try:
                self._waking.send(b"\0")
            except OSError as error:
                kernel_says(error)  # it is full, so the thread is awake anyway; or closed

    def listen(self) -> None:
        """From any thread: somebody waits for an event, so listen, if nobody else reads."""
        if self._rearm_at is not None:
            self._rearm_at = _AT_ONCE
            self.wake()

    def run(self) -> None:
        """The thread's function."""
        try:
            if self._begin():
                while not self._finished():
                    self._turn()
        finally:
            if not self._cancelled:
                self._shut_down()

    def _begin(self) -> bool:
        """Start the session, unless whoever has started this thread was interrupted over it."""
        pump = self._pump
        with self._mutex:
            if not (self._cancelled or pump.session.over):
                pump.session.start(pump.now())
        return not self._cancelled

    def cancel(self) -> None:
        """Do not run; under the mutex, for which :meth:`run` waits before it does anything."""
        self._cancelled = True
        self.close_descriptors()

    def _turn(self) -> None:
        pump = self._pump
        due = self._engine.prepare()
        self._listen_again()
        for key, events in self._select(due):
            if key.fileobj is self._listening:
                self._drain()
            elif key.data is not None:
                key.data.ready(events)
            elif pump.link is not None and key.fileobj is pump.link.sock:
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
            self._wake_all()
        if self.call_late_at is not None and now >= self.call_late_at:
            self.call_late_at = None  # first: what comes from now on asks for it anew
            pump.late.call()
            pump.flush()
        pump.call_soon()

    def _pause(self, due: float | None) -> float | None:
        alarms = due, self._rearm_at, self._close_at, self.call_late_at
        times = [alarm for alarm in alarms if alarm is not None]
        return max(0.0, min(times) - self._pump.now()) if times else None

    def _select(self, due: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for something to do; callers that go on reading are nothing."""
        while True:
            events = self._selector.select(self._pause(due))
            if events or not self._stay_away(due):
                return events

    def _stay_away(self, due: float | None) -> bool:
        """Whether there was nothing to do but to see that callers have read meanwhile."""
        link, at, now = self._pump.link, self._rearm_at, self._pump.now()
        others = due, self._close_at, self.call_late_at
        if link is None or at is None or now < at or at == _AT_ONCE or link.end:
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

    def _finished(self) -> bool:
        """Whether nothing can come any more, or the time for the close is over."""
        pump = self._pump
        if pump.closing is None:
            return pump.session.over and pump.link is None and not pump.tasks
        with self._mutex:
            if self._close_at is None:
                self._close_at = pump.now() + pump.closing
                if not pump.detaching:
                    pump.session.close(pump.now())
            if pump.detaching and not pump.tasks:
                pump.session.closed()
        pump.flush()
        return pump.session.over or pump.now() >= self._close_at

    def _listen_again(self) -> None:
        """Read again if no caller does any more; write again if something was left over."""
        pump, link = self._pump, self._pump.link
        if link is None:
            return
        if self._rearm_at is not None and pump.now() >= self._rearm_at:
            quiet = link.reads == self._reads_seen or self._rearm_at == _AT_ONCE
            self._reads_seen = link.reads
            self._rearm_at = None if quiet else pump.now() + self._rearm
        reading = selectors.EVENT_READ if self._rearm_at is None else 0
        self._engine.listen(reading | (selectors.EVENT_WRITE if link.pending else 0))

    def _read(self, link: Link) -> None:
        """Read, or stand back from a caller who does."""
        pump = self._pump
        with self._mutex:
            free = link.reader is None
            if free:
                link.reader = self
        if free:
            try:
                pump.read(link, block=False)
            finally:
                link.reader = None
            pump.hand_over()
        else:
            self._rearm = REARM
            self._rearm_at = pump.now() + REARM
            self._reads_seen = link.reads

    def _catch_up(self, link: Link) -> None:
        """Take in what has come, before silence is judged.

        Code that keeps the interpreter to itself for long keeps it from being read.  A caller who
        has the read role gets a moment to do it.
        """
        pump = self._pump
        for _ in range(GRACES):
            due = not link.end and pump.now() >= pump.session.give_up_at
            if not due or not readable_within(link.sock, 0):
                break
            self._read(link)
            if link.reader is not None:
                time.sleep(GRACE)

    def _wake_all(self) -> None:
        """Whoever sleeps looks again: an interrupt may have lost the one that wakes it."""
        with self._mutex:
            sleepers = list(self._pump.sleepers)
        for sleeper in sleepers:
            sleeper()

    def bury(self) -> None:
        """Close the sockets that no thread uses any more."""
        self._engine.bury()

    def _shut_down(self) -> None:
        """Whatever fails on the way: who waits must learn that nothing will come."""
        pump, engine = self._pump, self._engine
        try:
            engine.stop("the client is closed")
        finally:
            pump.ended = True
            rest = (pump.call_due, pump.call_soon, self._wake_all, engine.bury)
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
