"""Leader and followers: how the threads of one client share one connection.

Reading: a thread that waits for an answer takes the *read role* if it is free.  As the leader it
waits for bytes and takes in what comes for others, until its own answer is there (leader and
followers, after Schmidt et al.).  One request at a time then costs no switch between threads.  The
I/O thread reads when no thread waits (pings, unread pipelines), and in the place of a leader that
makes no progress.  Waiting is outside of all that threads share, and receiving is one step, for any
thread: an interrupted wait costs other threads nothing, and none of them waits for it.

A thread that waits for an event may wait for hours and would have to wake every other caller, so it
does not take the read role.  One such thread is the *listener*: the kernel wakes it for what comes
while no thread has that role (:mod:`zkwire.net.bell`), so an event costs no switch between threads
either.  The others sleep, and so does the listener when it finds a leader at work; the I/O thread
listens for them.

Writing: a thread that has submitted something sends it if the *write role* is free.  Sends never
block; what the kernel does not take is left to the I/O thread.

Invariants:

* The state lock ``mutex`` guards the session and is never held across a system call: Python's own
  lock is free meanwhile, so other threads would run on to the mutex and sleep.  No code of a user's
  runs under it.
* The lock ``fetching`` is held from the receive until what it has brought is taken in, so that the
  order of the bytes holds.  Only readers need it, and it is taken before the mutex.
* A thread that reads while another has the read role rings for it: its answer may have been read.
* Only the I/O thread, which no interrupt reaches, makes and ends connections and calls the
  session's callbacks.  Sleepers are the one exception: a reader wakes them itself, and because an
  interrupt could lose one of them, the end of a connection wakes all.
* The roles change hands under the mutex, and no thread waits for one.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from zkwire.blocking.calls import CallingDriver
from zkwire.blocking.waiting import Listener, Sleeper
from zkwire.net.connection import GATHER, INTERRUPTED, LONG_LINE, LONGEST_PAUSE, PAUSE, SPARSE
from zkwire.net.pacing import DEADLINES_EVERY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from zkwire.net.connection import Connection
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable

LONGEST_WAIT = 1e6  # seconds; a system call takes no more


class LeaderFollower(CallingDriver):
    """See the module's docstring."""

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.sleepers: set[Sleeper] = set()
        self._followers: deque[Sleeper] = deque()
        self.detaching = False  # the session is to live on
        self.thread: threading.Thread | None = None  # for I/O

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self, waitable: Waitable, timeout: float | None = None, *, lead: bool = False) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

        ``lead``: an answer is on its way, so read it here unless another thread is reading.
        """
        if waitable.ready:
            return True
        self.check_thread()
        deadline = None if timeout is None else self.now() + timeout
        while True:
            if self.interrupted:
                self._refuse_interrupted()
            if (self.ended or self.forked) and not waitable.ready:
                self.check()
                raise self.session.ending()
            read = self._read_as_leader if lead else self._listen
            if not read(waitable, deadline):
                self.flush()
                self._sleep(waitable, deadline, lead)
            if waitable.ready:
                return True
            if deadline is not None and self.now() >= deadline:
                if lead:
                    self.wake_follower()  # it may have been this caller's turn to read
                return waitable.ready

    def _rouse(self, waiter: object) -> None:
        with self.mutex:
            sleepers = list(self.sleepers)
        for sleeper in sleepers:  # all of them: those of other threads sleep on
            sleeper()

    def _sleep(self, waitable: Waitable, deadline: float | None, lead: bool) -> None:
        """Sleep until something may have changed for this waiter."""
        sleeper = Sleeper(waitable)
        try:
            with self.mutex:
                if waitable.ready or self.ended:
                    return
                waitable._add_waker(sleeper)
                self.sleepers.add(sleeper)
                if lead:
                    self._followers.append(sleeper)
                connection = self.current_connection
            if not lead and self.io is not None:
                self.io.listen()
            # The role may have become free before this sleeper was known to its holder.
            if (
                not lead
                or connection is None
                or connection.closed_because
                or connection.reader is not None
            ):
                sleeper.sleep(None if deadline is None else deadline - self.now())
        finally:
            with self.mutex:
                self.sleepers.discard(sleeper)
                if sleeper in self._followers:
                    self._followers.remove(sleeper)
                waitable._drop_waker(sleeper)

    def _listen(self, waitable: Waitable, deadline: float | None) -> bool:
        """As the listener, sleep once until something may have changed, and read what has come.

        False if this thread has to sleep in another way: without a bell, beside another listener,
        or because there is a leader, which may be held up.
        """
        connection = self.current_connection
        if connection is None or connection.bell is None or connection.listener is not None:
            return False
        self.flush()
        me = Listener(waitable, connection.bell)
        try:
            with self.mutex:
                if connection is not self.current_connection or connection.listener is not None:
                    return False
                if waitable.ready or self.ended:
                    return True
                connection.listener = me
                waitable._add_waker(me)
                self.sleepers.add(me)
            if not me.sleep(None if deadline is None else deadline - self.now()):
                return True
            if connection.reader is not None:
                self._have_it_read(connection)
                return False
            self.take(connection)
            if connection.full:
                self._have_it_read(connection)
            return True
        except BaseException:
            self._have_it_read(connection)  # the kernel may have told only this thread
            raise
        finally:
            if connection.listener is me:
                connection.listener = None
            with self.mutex:
                self.sleepers.discard(me)
                waitable._drop_waker(me)
            if connection.closed_because:
                self._done_with_connection()

    def _read_as_leader(
        self, waitable: Waitable, deadline: float | None, fresh: Request | None = None
    ) -> bool:
        """Send what there is to send, then read until ``waitable`` is ready, the connection ends or
        the deadline has passed.

        ``fresh`` is ``waitable`` if that is a request that has not been submitted.  False, and
        nothing has happened, without a connection, if another thread reads, or if something must
        be sent before that request.  A signal handler reads on top of its own thread.
        """
        connection = self.current_connection
        me: list[object] = [threading.get_ident()]
        if connection is None or not ((before := connection.reader) is None or before == me):
            return False
        try:
            if not self._take_roles(connection, me, before, fresh):
                return False
            if fresh is not None:
                connection.wait(None, 1)
                self.read(connection)
            if fresh is None or fresh.outcome is None:
                self._read_until(connection, waitable, deadline)
        except BaseException:
            if connection.writer is me:
                connection.closed_because = connection.closed_because or INTERRUPTED
                connection.writer = None
            # The kernel may have told only this thread, and others have left it their requests.
            self._have_it_read(connection)
            raise
        finally:
            if connection.reader is me:
                connection.reader = before
                if before is not None:
                    connection.ring()  # a signal handler may have read for what it interrupted
            if connection.closed_because or connection.broken_pipe:
                self._done_with_connection()
        if self._followers or connection.full:
            self._pass_on(connection)
        return True

    def _pass_on(self, connection: Connection) -> None:
        """The read role is free now: another thread has to continue."""
        if self._followers:
            self.wake_follower()
        elif connection.full:
            self._have_it_read(connection)

    def _take_roles(
        self, connection: Connection, me: object, before: object, fresh: Request | None
    ) -> bool:
        """See :meth:`_read_as_leader`: take the read role and, if it is free, the write role once.

        False, without a role, if another thread was faster; or if ``fresh`` cannot be sent alone.
        """
        session, data = self.session, b""
        with self.mutex:
            if connection.closed_because or connection.reader is not before:
                return False
            connection.reader = me
            if connection.writer is None and connection.writable:
                connection.writer = me
                if fresh is not None:
                    data = session.send_alone(fresh, self.now())
                else:
                    data = session.data_to_send(self.now())
                connection.written += len(data)
        if data:
            connection.send(data)
        if connection.writer is me:
            connection.writer = None
        if session.queue or session.control_frames:
            self.flush()  # what others have submitted meanwhile
        if not connection.writable:
            self._done_with_connection()  # it must leave before the answer can come
        return fresh is None or data != b""

    def _read_until(
        self, connection: Connection, waitable: Waitable, deadline: float | None
    ) -> None:
        """See :meth:`_read_as_leader`; with the read role.  All waiting of a leader is here."""
        session, left = self.session, None
        while not (waitable.ready or connection.closed_because):
            expected = len(session.in_flight) - len(self._followers)  # those have others to read
            if expected >= LONG_LINE and connection.got < SPARSE:
                time.sleep(min(expected * PAUSE, LONGEST_PAUSE))
            if deadline is not None:
                left = min(max(0.0, deadline - self.now()), LONGEST_WAIT)
            if not (connection.inbox or connection.wait(left, 1)):
                break
            self.read(connection)
            if not session.usable and session.challenge is not None:
                self.wake()

    def _have_it_read(self, connection: Connection) -> None:
        """Have the I/O thread take in what may be there without any thread being told."""
        io = self.io
        if io is not None and connection is self.current_connection:
            io.read_soon()

    def _done_with_connection(self) -> None:
        """This thread no longer uses a connection, which is perhaps to be ended or closed now."""
        self.wake()
        if self.ended and self.io is not None:
            self.io.close_unused()  # no I/O thread will

    def wake_follower(self) -> None:
        """Wake one of the threads that found the read role taken, now that it is free."""
        if self._followers:
            with self.mutex:
                while self._followers:
                    sleeper = self._followers.popleft()
                    if not sleeper.waitable.ready:  # else it will not read, and wake no other
                        sleeper()
                        return

    # --- bytes ------------------------------------------------------------------------------------

    def take(self, connection: Connection) -> None:
        """Read, even if a leader is about to: what it has not received, it gets from here.

        Where events come one by one, and nothing else is expected, let more of them arrive first.
        """
        session = self.session
        if session.in_flight:
            connection.stream = 0
        elif connection.streams(self.now()):
            connection.gathering = True
            time.sleep(GATHER)
        self.read(connection)
        connection.gathering = False
        connection.taken = connection.read_at, self.now()
        if connection.reader is not None:
            connection.ring()
        if not session.usable and session.challenge is not None:
            self.wake()
        self.wake_follower()

    def read(self, connection: Connection) -> None:
        """One receive, of what has come, and all that follows from it; by any thread."""
        session, sleepers, data = self.session, None, None
        with self.fetching:
            if connection.closed_because:
                return
            connection.fetch()
            with self.mutex:
                try:
                    if inbox := connection.inbox:
                        data = inbox[0] if connection.exact else connection.opened()
                    if data and not connection.closed_because:
                        now = self.now()
                        session.receive_data(data, now)
                        if connection.deadlines_at <= now and (
                            session.in_flight or connection.full
                        ):
                            # In a flood the I/O thread may not get the mutex in time for its pings.
                            connection.deadlines_at = now + DEADLINES_EVERY
                            session.on_deadline(now)
                        connection.read_at = now
                        if session.broken or session.ended:
                            connection.closed_because = session.broken or "the session is over"
                    if inbox:
                        del inbox[0]
                        if inbox:
                            connection.full = True
                except BaseException:
                    if data or (connection.inbox and not connection.exact):
                        connection.closed_because = connection.closed_because or INTERRUPTED
                    raise
                if session.callbacks:
                    sleepers = self._take_sleepers()
        if sleepers is not None:
            self._wake_sleepers(sleepers)
        if session.queue or session.control_frames:
            self.flush()

    def _take_sleepers(self) -> list[Sleeper]:
        """Collect the callbacks, and take those sleepers that stand before all others."""
        self._collect()
        sleepers: list[Sleeper] = []
        while self.callbacks and isinstance(self.callbacks[0], Sleeper):
            sleepers.append(self.callbacks[0])
            self.callbacks.popleft()
        return sleepers

    def _wake_sleepers(self, sleepers: list[Sleeper]) -> None:
        """Wake them, and have the callbacks behind them called."""
        for sleeper in sleepers:
            sleeper()
        if self.callbacks and self.thread is not threading.current_thread():
            self.wake()  # else that thread is about to call them

    def flush(self) -> None:
        """Send what there is to send, unless another thread does: that one checks once more."""
        connection = self.current_connection
        if connection is not None:
            while self.session.has_output and connection.writable and self._write(connection):
                pass

    def _write(self, connection: Connection) -> bool:
        """Send one batch; False if another thread has to."""
        me: list[object] = [threading.get_ident()]
        try:
            with self.mutex:
                free = connection.writer is None and connection.writable
                if not free or connection.closed_because:
                    return False
                connection.writer = me
                data = self.session.data_to_send(self.now())
                connection.written += len(data)
            if data:
                connection.send(data)
        except BaseException:
            if connection.writer is me:
                connection.closed_because = connection.closed_because or INTERRUPTED
            self.wake()  # others may have submitted something, which this thread was to send
            raise
        finally:
            if connection.writer is me:
                connection.writer = None
            if connection.closed_because or not connection.writable:
                self._done_with_connection()
        return True
