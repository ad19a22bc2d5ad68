"""Leader and followers: how the threads of one client share one connection.

Reading: a thread that waits for an answer takes the *read role* if it is free.  As the leader it
waits for bytes and takes in what comes for others, until its own answer is there (leader and
followers, after Schmidt et al.).  One request at a time then costs no switch between threads.  The
I/O thread reads when no thread waits (pings, unread pipelines), and in the place of a leader that
makes no progress.  Waiting is outside of all that threads share, and receiving is one step, for any
thread: an interrupted wait costs other threads nothing, and none of them waits for it.

A thread that waits for an event may wait for hours and would have to wake every other caller, so it
does not take the read role.  One such thread is the *listener*: the kernel wakes it for what comes
while no thread has that role (:mod:`zkwire.net.wakeup`), so an event costs no switch between
threads either.  The others sleep, and so does the listener when it finds a leader at work; the I/O
thread listens for them.

Writing: a thread that has submitted something sends it if the *write role* is free.  Sends never
block; what the kernel does not take is left to the I/O thread.

A thread that was woken will run soon, the client's own code first.  Until it does, the last one
that was woken is the *successor*: to it others leave what they have submitted, which so leaves in
one piece, and to wake another leader, since by then one of them has often come back and is one.

Invariants:

* The state lock ``mutex`` guards the session and is never held across a system call: Python's own
  lock is free meanwhile, so other threads would run on to the mutex and sleep.  No code of a user's
  runs under it.
* The lock ``fetching`` is held from the receive until what it has brought is taken in, so that the
  order of the bytes holds.  Only readers need it, and it is taken before the mutex.
* A thread that reads while another has the read role wakes it: its answer may have been read.
* Only the I/O thread, which no interrupt reaches, makes and ends connections and calls the
  session's callbacks.  Sleepers are the one exception: a reader wakes them itself, and because an
  interrupt could lose one of them, the end of a connection wakes all.
* The roles change hands under the mutex, and no thread waits for one.

Code of a user's (a finalizer, a signal handler, a trace function) can run on top of the client's
own work in the same thread.  What it finds is half done, and what it would wait for stands still
below it.  So the state lock knows its owner, and a wait is refused there.

The session's callbacks, and functions that others hand over, are called by the I/O thread in their
order, and once that has ended by the thread that brings them.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from zkwire.errors import ForkedError
from zkwire.net.background import Callbacks, report
from zkwire.net.connection import (
    GATHER,
    INTERRUPTED,
    LONG_LINE,
    LONG_LINE_OF_THREADS,
    LONGEST_PAUSE,
    PAUSE,
)
from zkwire.net.driver import Driver
from zkwire.net.timing import DEADLINES_EVERY, DEFER_SECONDS, FLUSH_AT
from zkwire.net.wakeup import Listener, Sleeper
from zkwire.session.waitable import Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from zkwire.net.connection import Connection
    from zkwire.operations import Reply
    from zkwire.session.request import Request
    from zkwire.session.waitable import Waker

    T = TypeVar("T")

LONGEST_WAIT = 1e6  # seconds; a system call takes no more


class LeaderFollower(Driver):
    """A driver whose threads share the connection; see the module's docstring."""

    __slots__ = (
        "_followers", "_main_thread", "_sleepers", "_successor", "callbacks", "ended", "fetching",
        "owned", "thread", "threads",
    )  # fmt: skip
    mutex: Any

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.use_present_threads()
        self.callbacks: deque[Waker] = deque()  # the session's, in order
        self.tasks: deque[Callable[[], object]] = deque()  # other functions for the I/O thread
        self.ended: bool = False  # the I/O thread is
        self._sleepers: dict[Sleeper, None] = {}  # that wait for an event
        self._followers: dict[Sleeper, None] = {}  # that wait for an answer
        self._successor: Sleeper = Sleeper(Waitable())  # the last that was woken; here: none
        self.detaching = False  # the session is to live on
        self.thread: threading.Thread | None = None  # for I/O

    # --- whether a thread may wait ----------------------------------------------------------------

    def check(self) -> None:
        """Raise ForkedError in a forked child."""
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make a Client in this process"
            )

    def use_present_threads(self) -> None:
        """Have threads and locks of the present kind: gevent replaces them, and sockets too."""
        self.threads: object = threading.get_ident
        self.renew_mutex()
        self._callbacks = Callbacks(f"{self.name}-callbacks")

    def renew_mutex(self) -> None:
        """Have locks of the present kind, which no thread holds."""
        self.mutex = threading.RLock()
        self.fetching: Any = threading.RLock()
        self.owned: Callable[[], bool] = self.mutex._is_owned
        self._main_thread = threading.main_thread().ident

    @property
    def elsewhere(self) -> bool:
        """Whether this is a user's code on top of the client's own work in the same thread."""
        return self.owned()

    def threads_replaced(self) -> None:
        """Use the new kind of threads and locks, if nothing has been used of the old."""
        if self.thread is not None:
            raise RuntimeError(
                "threads and sockets were replaced (by gevent's monkey.patch_all()) after the "
                "first use of this client, which could wait for itself: call monkey.patch_all() "
                "first in the program, or make the client after it (with gunicorn --preload: in "
                "the worker)"
            )
        self.use_present_threads()

    def check_thread(self) -> None:
        """Raise if the caller would wait for its own thread."""
        if self.threads is not threading.get_ident:
            self.threads_replaced()
        if self.interrupting:
            raise RuntimeError(
                "this signal handler (or finalizer) has interrupted the client's own work in this "
                "thread, and would wait for itself: leave the call to another thread, or set a "
                "flag here and make the call behind the signal"
            )

    @property
    def interrupting(self) -> bool:
        """Whether a wait in this thread would be a wait for the thread itself."""
        if self.owned():
            return True
        connection = self.current_connection
        writer = None if connection is None else connection.writer
        return writer is not None and writer == [threading.get_ident()]

    def after_fork(self) -> None:
        """In a forked child: close the parent's connection without a byte or a FIN."""
        self.renew_mutex()  # its holder may be a thread that does not exist here
        super().after_fork()

    # --- what the I/O thread is to call -----------------------------------------------------------

    def _collect(self) -> None:
        if self.session.callbacks:
            self.callbacks.extend(self.session.take_callbacks())

    def _schedule_callbacks(self) -> None:
        if self.callbacks:
            self.wake()
            if self.ended:  # no I/O thread will call them
                self.call_callbacks()

    def call_callbacks(self) -> None:
        """Call the session's callbacks, in order; by the I/O thread."""
        while True:
            with self.mutex:
                self._collect()
                callbacks, self.callbacks = self.callbacks, deque()
            if not callbacks:
                return
            for function in callbacks:
                try:
                    function()
                except Exception as error:
                    report(error)

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the I/O thread call ``function``, or call it here if that thread has ended."""
        self.tasks.append(function)
        self.wake()
        if self.ended and not self.elsewhere:
            self.run_tasks()
        return True

    def run_tasks(self) -> None:
        """Call what :meth:`call_soon` was given, in order; by the I/O thread."""
        while True:
            try:
                function = self.tasks.popleft()
            except IndexError:
                return
            function()

    def defer(self, function: Callable[[], object]) -> None:
        """Call ``function`` when the next request is submitted, or in DEFER_SECONDS seconds."""
        self.deferred.waiting.append(function)
        io = self.io
        if io is not None:
            if io.call_deferred_at is None:
                io.call_deferred_at = self.now() + DEFER_SECONDS
                io.wake()
            else:
                io.deferred_since = True

    def io_ended(self) -> None:
        """By the I/O thread, at its end."""
        raise NotImplementedError

    # --- requests ---------------------------------------------------------------------------------

    def submit(self, request: Request, eager: bool = False) -> None:
        """Put a request behind all earlier ones.

        The thread that waits for it sends it; with ``eager`` it leaves by itself, at once if
        nothing is unanswered, else together with what follows, at the next reply or when enough
        have gathered.
        """
        if self.owned() or self.threads is not threading.get_ident:
            self.check_thread()
        if self.deferred.waiting:
            self.deferred.call()
        connection, session = self.current_connection, self.session
        queued = 0
        if connection is not None and not connection.closed_because and self.closing is None:
            with self.mutex:
                queued = session.push(request)
        if not queued:
            self._submit(request, eager)
        elif eager and (queued >= FLUSH_AT or not session.in_flight):
            self.flush()

    def _submit(self, request: Request, eager: bool) -> None:
        """:meth:`submit` for a request that has to do with more than the queue."""
        if self.thread is None or self.forked:
            self.start()
        session = self.session
        with self.mutex:
            if not (self.detaching and self.thread is threading.current_thread()):
                self.check_open(request.op.name, request.path)
            connection = self.current_connection
            if connection is not None and connection.closed_because:
                session.stop_sending(self.now())  # else the request would be lost with it
                self.wake()
            session.submit(request, self.now())
            self._collect()  # remove_watches may have ended watches here already
            first = not session.usable and session.queued == 1
        if first:
            self.wake()  # it has a deadline, and those behind it have later ones
        elif eager and (not session.in_flight or session.queued >= FLUSH_AT):
            self.flush()
        self._schedule_callbacks()

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result; OperationTimeoutError when the deadline passes first."""
        request: Any = reply
        return request.result(self._left(deadline)) if request.outcome is None else request.value()

    async def exchange(self, deadline: float | None, *requests: Any) -> Any:
        """Submit drafts, and return the result of the first; see :meth:`Runtime.exchange`."""
        if self.interrupted:
            self._refuse_interrupted()
        request = requests[0]
        request.following = requests[1:]
        for each in requests:
            each.driver = self
        self.round_trip(request, deadline)
        if request.outcome is None:
            return await self.until(request, deadline)
        return request.value()

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self, waitable: Waitable, timeout: float | None = None, *, lead: bool = False) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

        ``lead``: an answer is on its way, so read it here unless another thread is reading.
        """
        if waitable.ready:
            return True
        # Only where it could raise: a property and a call less for nearly every wait.
        connection = self.current_connection
        writing = connection is not None and connection.writer is not None
        if writing or self.owned() or self.threads is not threading.get_ident:
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
                if not self._has_successor():
                    self.flush()
                self._sleep(waitable, deadline, lead)
            if waitable.ready:
                return True
            if deadline is not None and self.now() >= deadline:
                if lead:
                    self.wake_follower()  # it may have been this caller's turn to read
                return waitable.ready

    def _rouse(self, waiter: object) -> None:
        self.wake_all()  # those of other threads sleep on
        connection = self.current_connection
        if connection is not None:
            connection.wake_reader()

    def wake_all(self) -> None:
        """Wake all that sleep: an interrupt may have lost the one that was to wake them."""
        with self.mutex:
            sleepers = [*self._sleepers, *self._followers]
        for sleeper in sleepers:
            sleeper()

    def _sleep(self, waitable: Waitable, deadline: float | None, lead: bool) -> None:
        """Sleep until something may have changed for this waiter."""
        sleeper, sleepers = Sleeper(waitable), self._followers if lead else self._sleepers
        me = threading.get_ident()
        if me != self._main_thread:  # a signal handler could keep that one from running
            sleeper.thread = me
        try:
            with self.mutex:
                if waitable.ready or self.ended:
                    return
                waitable._add_waker(sleeper)
                sleepers[sleeper] = None
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
            sleeper.thread = None  # first: from now on others leave nothing to this thread
            try:
                self._slept(sleeper, sleepers)
            except BaseException:
                self._slept(sleeper, sleepers)  # what others have left to it
                raise

    def _slept(self, sleeper: Sleeper, sleepers: dict[Sleeper, None]) -> None:
        """Do what others have left to this thread, unless that is left to another one now."""
        with self.mutex:
            sleepers.pop(sleeper, None)
            sleeper.waitable._drop_waker(sleeper)
        if not self._has_successor():
            if self.session.queue:
                self.flush()
            connection = self.current_connection
            over = sleeper.waitable.ready or sleepers is self._sleepers  # else it reads itself
            if over and connection is not None and connection.reader is None:
                self._pass_on(connection)

    def _has_successor(self) -> bool:
        """Whether another thread will run soon, and do what is left to it."""
        thread = self._successor.thread
        return thread is not None and thread != threading.get_ident()

    def _listen(self, waitable: Waitable, deadline: float | None) -> bool:
        """As the listener, sleep once until something may have changed, and read what has come.

        False if this thread has to sleep in another way: without epolls, beside another listener,
        or because there is a leader, which may be held up.
        """
        connection = self.current_connection
        if connection is None or connection.epolls is None or connection.listener is not None:
            return False
        self.flush()
        me = Listener(waitable, connection.epolls)
        try:
            with self.mutex:
                if connection is not self.current_connection or connection.listener is not None:
                    return False
                if waitable.ready or self.ended:
                    return True
                connection.listener = me
                waitable._add_waker(me)
                self._sleepers[me] = None
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
                self._sleepers.pop(me, None)
                waitable._drop_waker(me)
            if connection.closed_because:
                self._done_with_connection()

    def round_trip(self, request: Request, deadline: float | None = None) -> None:
        """Submit a request; if no other thread uses the connection, send it and read the answer.

        What :meth:`submit` and :meth:`wait` do, with one check of the state instead of four.  The
        request need not have ended afterwards, as at the deadline.
        """
        if (
            self.deferred.waiting
            or self.closing is not None
            or self.owned()
            or self.threads is not threading.get_ident
            or not self._read_as_leader(request, deadline, request)
        ):
            for each in (request, *request.following):
                self.submit(each)

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
                connection.wait(None if deadline is None else self._wait_limit(deadline), 1)
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
                    # A signal handler may have read for what it interrupted.
                    connection.wake_reader()
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
            if self._successor.thread is not None and self._has_successor():
                return fresh is None or all(map(session.push, (fresh, *fresh.following)))
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
        session = self.session
        while not (waitable.ready or connection.closed_because):
            if self.interrupted and self.waiter() in self.interrupted:
                break
            expected = len(session.in_flight)
            left = None if deadline is None else self._wait_limit(deadline)
            if expected >= LONG_LINE and not connection.full:
                own = expected - len(self._followers)
                if own >= LONG_LINE or expected >= LONG_LINE_OF_THREADS:
                    time.sleep(min(expected * PAUSE, LONGEST_PAUSE))
            if not (connection.inbox or connection.wait(left, 1)):
                break
            self.read(connection)
            if not session.usable and session.challenge is not None:
                self.wake()
        if connection.full:
            self.read(connection)  # once more, rather than wake the I/O thread for it

    def _wait_limit(self, deadline: float) -> float:
        """Seconds until the deadline, as far as a system call takes them."""
        return min(max(0.0, deadline - self.now()), LONGEST_WAIT)

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
        """Wake one of the threads that found the read role taken, now that it is free.

        The last one: its answer comes last, so it reads the longest.
        """
        if self._followers:
            with self.mutex:
                while self._followers and not self._has_successor():
                    sleeper, _ = self._followers.popitem()
                    sleeper()
                    if not sleeper.waitable.ready:  # else it will not read, and another has to
                        self._successor = sleeper
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
            connection.wake_reader()
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
                        if session.broken:
                            connection.closed_because = session.broken
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
            self._successor = sleeper  # behind that: no interrupt may make it one that sleeps on
        if self.callbacks and self.thread is not threading.current_thread():
            self.wake()  # else that thread is about to call them

    def flush(self) -> None:
        """Send what there is to send, unless another thread does: that one checks once more."""
        session, connection = self.session, self.current_connection
        if connection is not None:
            while (session.control_frames or (session.queue and session.usable)) and (
                connection.writable and self._write(connection)
            ):
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
