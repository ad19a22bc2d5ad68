"""The I/O thread of the blocking client: makes connections, and reads when no caller does.

It listens while callers read for themselves, too: the kernel wakes it only for what comes while
none of them waits (:mod:`zkwire.net.wakeup`).  A caller that has the read role then gets MOMENT to
continue: twice as long where that has just happened before, as on a busy machine, and at most
LONGEST_REARM seconds.  Without such epolls it listens from time to time, at last as seldom as that.
A socket that another thread still uses has been shut down before it is closed, so that thread is
about to leave it.

Invariants: it never waits for a caller, and it calls no code of a user's but the SASL mechanism.
It ends when the client is closed, or with the session: one that has expired needs no thread.
"""

from __future__ import annotations

import selectors
import threading

from zkwire.net.background import report
from zkwire.net.connection import LONG_LINE, STREAM, Connection
from zkwire.net.connector import Connector
from zkwire.net.dial import readable_within
from zkwire.net.lifetime import close_in_child
from zkwire.net.timing import DEFER_SECONDS, LONGEST_DEFER
from zkwire.net.wakeup import poller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.blocking.leader import LeaderFollower
    from zkwire.net.lifetime import OwnerRef
    from zkwire.net.wakeup import Poller, Ready

# Seconds after which it checks whether callers still read, where there are no epolls; doubled as
# long as they do.  A check is a switch of threads: one each 5 ms, with all else that the thread
# does, was a sixteenth of the CPU time of a caller that asks without a pause; this is a hundredth.
REARM, LONGEST_REARM = 0.005, 0.02
# Seconds within which a reader has to continue that was not waiting when this thread was woken.
MOMENT = 0.002
# What wakes it before it has listened for so many times its last pause counts as the same again.
AGAIN = 4
GRACES = 4  # receives before silence is judged
# Receives of events that come one by one before it looks at all else, a few milliseconds: that look
# costs as much as three events, and a receive brings a dozen.
TAKES = 5
_AT_ONCE = 0.0
NOTHING: Ready = []


class IOThread(Connector):
    """The loop around the connector; see the module's docstring."""

    _driver: LeaderFollower  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, driver: LeaderFollower) -> None:
        super().__init__(driver)
        self._selector: Poller = poller()  # pyright: ignore[reportIncompatibleVariableOverride]
        # Re-entrant, for a signal handler; held over the end, so that no byte goes to another file
        # that has got the descriptor's number.
        self._waking_lock = threading.RLock()
        self.select: Callable[[float | None], Ready] = self._selector.select
        self.call_deferred_at: float | None = None
        self.deferred_since: bool = False
        self._defer_pause = DEFER_SECONDS
        self._rearm_at: float | None = None
        self._rearm = REARM
        self._away_until = -1e9  # long ago on any clock
        self._read_seen_at: float = 0.0
        self._cancelled = False
        self._close_at: float | None = None

    # --- from any thread --------------------------------------------------------------------------

    def wake(self) -> None:
        """Return from select, and keep the client alive until then."""
        self.owner_ref.hold(self)
        with self._waking_lock:
            self._selector.wake()

    def listen(self) -> None:
        """A thread waits for an event, so listen, unless another one reads."""
        if self._rearm_at is not None:
            self.read_soon()

    def read_soon(self) -> None:
        """Take in what may have come."""
        self._rearm_at = _AT_ONCE
        self.wake()

    # --- the loop ---------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Start the session, unless the thread that has started this one was interrupted."""
        driver = self._driver
        driver.run_tasks()  # of the time before there was this thread
        with self._mutex:
            if not (self._cancelled or driver.session.ended):
                driver.session.start(driver.now())
        return not self._cancelled

    def cancel(self) -> None:
        """Do not run; under the mutex, for which :meth:`begin` waits before it does anything."""
        self._cancelled = True
        self.close_descriptors()

    def release_client(self) -> None:
        """Leave it to others to keep the client alive, unless it is being closed."""
        if self._driver.closing is None:
            self.owner_ref.release()

    def prepare(self) -> float | None:
        """Do what can be done without waiting; returns when to be called again at the latest."""
        due = super().prepare()
        if self._driver.current_connection is not None:
            self._listen_again(self._driver.current_connection)
        return due

    def turn(self, ready: Ready) -> None:
        """Do what is due, and what can be done on the sockets that are ready."""
        driver = self._driver
        for sock, events in ready:
            connection = driver.current_connection
            if connection is None or sock is not connection.sock:
                self._go_on(sock, events)
                continue
            if events & selectors.EVENT_READ:
                self._read(connection)
            if events & selectors.EVENT_WRITE:
                driver.send_rest(connection)
        connection, now = driver.current_connection, driver.now()
        if connection is not None and now >= driver.session.give_up_at:
            self._catch_up(connection)
        self.conclude(now)
        if connection is not None and driver.current_connection is not connection:
            self._rearm_at = None
            driver.wake_all()
        if self.call_deferred_at is not None and now >= self.call_deferred_at:
            self._call_deferred()
        driver.run_tasks()

    def _call_deferred(self) -> None:
        driver = self._driver
        # In a burst, as of a lock that is acquired and released without a pause, nothing is left to
        # call, and what is deferred next need not wake this thread.  So it looks again by itself,
        # more and more seldom.
        burst = self.deferred_since and not driver.deferred.waiting
        self._defer_pause = min(2 * self._defer_pause, LONGEST_DEFER) if burst else DEFER_SECONDS
        # First: what comes from now on asks for it anew.
        self.call_deferred_at = driver.now() + self._defer_pause if self.deferred_since else None
        self.deferred_since = False
        try:
            driver.deferred.call()
        except Exception as error:  # no interrupt comes here, so it would fail again
            driver.deferred.waiting.clear()
            report(error)
        if driver.deferred.waiting and self.call_deferred_at is None:
            self.call_deferred_at = driver.now() + DEFER_SECONDS  # another thread is calling some
        driver.flush()

    def pause(self, due: float | None) -> float | None:
        """Seconds to wait at most."""
        alarms = due, self._rearm_at, self._close_at, self.call_deferred_at
        times = [alarm for alarm in alarms if alarm is not None]
        return max(0.0, min(times) - self._driver.now()) if times else None

    def stay_away(self, due: float | None) -> bool:
        """Whether there was nothing to do but to see that callers have read meanwhile."""
        connection, at, now = self._driver.current_connection, self._rearm_at, self._driver.now()
        others = due, self._close_at, self.call_deferred_at
        if connection is None or connection.closed_because:
            return False
        if connection.epolls and not self._long_line:
            return False
        if at is None or now < at or at == _AT_ONCE or connection.read_at == self._read_seen_at:
            return False
        if any(t is not None and now >= t for t in others):
            return False
        self._read_seen_at = connection.read_at
        self._rearm = min(2 * self._rearm, LONGEST_REARM)
        again = now + self._rearm
        if self._rearm_at == at:  # else a thread waits for an event by now
            self._rearm_at = again
        return True

    def finished(self) -> bool:
        """Whether nothing can come any more, or the time for the close is over."""
        driver = self._driver
        if driver.closing is None:
            idle = driver.current_connection is None and not driver.background_tasks
            return driver.session.ended and idle
        with self._mutex:
            if self._close_at is None:
                self._close_at = driver.now() + driver.closing
                close_in_child(driver)  # its finalizer may have run, which ends weak references
                if not driver.detaching:
                    driver.session.close(driver.now())
            if driver.detaching and not driver.background_tasks:
                driver.session.closed()
        driver.flush()
        return driver.session.ended or driver.now() >= self._close_at

    # --- the connection ---------------------------------------------------------------------------

    def _listen_again(self, connection: Connection) -> None:
        """Read again unless a caller does so; write again if something was left over."""
        at, now = self._rearm_at, self._driver.now()
        if at is not None and now >= at:
            progress = connection.read_at != self._read_seen_at and at != _AT_ONCE
            self._read_seen_at = connection.read_at
            self._rearm_at = now + self._rearm if progress and not connection.epolls else None
            if not progress:
                self._take(connection)
                self._driver.call_callbacks()
        interest = selectors.EVENT_READ if self._rearm_at is None else 0
        writing = selectors.EVENT_WRITE if connection.pending else 0
        self._listen_to_connection(interest | writing)

    def _read(self, connection: Connection) -> None:
        """Read, a few times where events come one by one; or leave that to a caller that does."""
        if connection.reader is None and not connection.gathering:
            for _ in range(TAKES):
                seen = connection.read_at
                self._take(connection)
                if connection.stream < STREAM or connection.read_at == seen:
                    break
                self._driver.call_callbacks()
                if connection.reader is not None or self._driver.tasks:
                    break
        else:
            self._leave_to_reader(connection)

    def _leave_to_reader(self, connection: Connection) -> None:
        """Give time to a caller that reads but was not waiting.

        More where this happens again and again: each time costs two switches of threads.
        """
        now = self._driver.now()
        again = now - self._away_until < AGAIN * self._rearm
        if self._long_line:
            self._rearm = LONGEST_REARM
        elif not connection.epolls:
            self._rearm = REARM
        else:
            self._rearm = min(2 * self._rearm, LONGEST_REARM) if again else MOMENT
        self._rearm_at = self._away_until = now + self._rearm
        self._read_seen_at = connection.read_at

    @property
    def _long_line(self) -> bool:
        """Whether so many answers are due that a reader pauses, and the kernel wakes this one."""
        return len(self._driver.session.in_flight) >= LONG_LINE

    def _take(self, connection: Connection) -> None:
        """Read, and go on with what that leaves undone."""
        self._driver.take(connection)
        if connection.full:
            self._rearm_at = _AT_ONCE
        if connection.closed_because:
            self.wake()  # to end it, and not to wait for what else comes

    def _catch_up(self, connection: Connection) -> None:
        """Take in what has come, before silence is judged.

        Code that keeps the interpreter to itself for long keeps it from being read.
        """
        driver = self._driver
        for _ in range(GRACES):
            silent = not connection.closed_because and driver.now() >= driver.session.give_up_at
            if not silent or not readable_within(connection.sock, 0):
                break
            self._take(connection)

    # --- the end ----------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Whatever fails on the way: all waiters must learn that nothing will come."""
        driver = self._driver
        if self._cancelled:
            return
        try:
            self.stop()
        finally:
            driver.ended = True
            rest = (driver.call_callbacks, driver.run_tasks, driver.wake_all)
            for step in (*rest, self.close_unused, driver.io_ended, self.close_descriptors):
                try:
                    step()
                except Exception as error:
                    report(error)

    def close_descriptors(self) -> None:
        """Close what it waits for."""
        with self._waking_lock:
            self._selector.close()

    def after_fork(self) -> None:
        """In a forked child: close everything, without a byte or a FIN."""
        self._waking_lock = threading.RLock()
        super().after_fork()
        self.close_descriptors()


def serve(owner_ref: OwnerRef, select: Callable[[float | None], Ready]) -> None:
    """The thread's function.  Nothing here keeps the client alive while it waits."""
    io: IOThread | None = owner_ref.get()
    assert io is not None
    try:
        begun = io.begin()
        while begun and not io.finished():
            due, ready = io.prepare(), NOTHING
            while not ready:
                seconds = io.pause(due)
                io.release_client()
                io = None
                ready = select(seconds)
                while (io := owner_ref.get()) is None:
                    select(None)  # until its finalizer wakes this thread
                if not (ready or io.stay_away(due)):
                    break  # the time has come
            io.turn(ready)
    finally:
        io = owner_ref.get()
        if io is not None:
            io.shut_down()
