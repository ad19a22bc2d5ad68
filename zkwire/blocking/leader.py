"""Who reads, who writes and who sleeps: the threads of one client around one connection.

Who reads: a thread that waits for an answer takes the *read role* if it is free: it waits for bytes
and hands out what comes for others, until its own answer is there (leader and followers, after
Schmidt et al.).  One request at a time then costs no switch between threads.  The I/O thread reads
when no thread waits for an answer (watch events, pings, unread pipelines), and in the place of one
that has the role and does not get on.  To wait is outside of all that threads share, and to receive
is one step under the mutex, for any thread: so an interrupted wait costs other threads nothing, and
none of them waits for it.  A thread that waits for an event may wait for hours and would have to
wake every other caller, so it does not read; but it has the I/O thread listen at once.

Who writes: whoever has submitted something and finds the *write role* free.  Sends never block;
what the kernel does not take is left to the I/O thread.

Invariants:

* The state lock ``mutex`` guards the automaton and is never held across a system call that can
  block.  Nothing that belongs to a user runs under it.
* A thread that reads while another has the read role rings for it: its answer may have been read.
* Only the I/O thread, which no interrupt reaches, makes and ends connections and calls what the
  automaton wants called.  The one exception are sleepers: a reader wakes them itself, and because
  an interrupt could lose one of them, the end of a connection wakes all.
* The roles change hands under the mutex, and nobody waits for one.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from zkwire.blocking.waiting import Sleeper
from zkwire.errors import ForkedError
from zkwire.net.background import Late, report
from zkwire.net.connection import INTERRUPTED, LONG_LINE, LONGEST_PAUSE, PAUSE, SPARSE
from zkwire.net.pacing import LINGER, LOOK, clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from zkwire.blocking.io_thread import IOThread
    from zkwire.net.connection import Connection
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable, Waker

LONGEST_WAIT = 1e6  # seconds; a system call takes no more


class LeaderFollower:
    """See the module's docstring."""

    def __init__(self, session: Session, now: Callable[[], float] | None) -> None:
        self.session = session
        self.now: Callable[[], float] = now or clock
        self.threads: object = threading.get_ident  # gevent replaces it, and locks and sockets too
        self.renew_mutex()
        self.link: Connection | None = None
        self.io: IOThread | None = None
        self.due: deque[Waker] = deque()  # what the automaton wants called
        self.soon: deque[Callable[[], None]] = deque()  # what others want called
        self.late: Late = Late()
        self.sleepers: set[Sleeper] = set()
        self._followers: deque[Sleeper] = deque()
        self.ended = False
        self.forked: bool = False

    def check(self) -> None:
        """Raise in a forked child, and when nothing can happen any more."""
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make a Client in this process"
            )
        if self.ended:
            raise self.session.ending()

    def renew_mutex(self) -> None:
        """Have a state lock of the present kind, which no thread holds."""
        self.mutex: threading.RLock = threading.RLock()
        self.owned: Callable[[], bool] = self.mutex._is_owned  # type: ignore[attr-defined]

    @property
    def nested(self) -> bool:
        """Whether this is a user's code on top of the client's own work in the same thread.

        A finalizer, a signal handler or a trace function: what it finds is half done, and what it
        would wait for stands still below it.
        """
        return self.owned()

    def threads_replaced(self) -> None:
        """Threads and locks are others than those that the client was made with."""
        raise RuntimeError(
            "threads and sockets were replaced (by gevent's monkey.patch_all()) after the first "
            "use of this client, which could wait for itself: call monkey.patch_all() first in "
            "the program, or make the client after it (with gunicorn --preload: in the worker)"
        )

    def check_thread(self) -> None:
        """Raise if the caller would wait for its own thread."""
        if self.threads is not threading.get_ident:
            self.threads_replaced()
        self.refuse_nested()

    @property
    def interrupting(self) -> bool:
        """Whether somebody who waits here would wait for its own thread."""
        if self.owned():
            return True
        writer = None if self.link is None else self.link.writer
        return writer is not None and writer == [threading.get_ident()]

    def refuse_nested(self) -> None:
        """Raise where somebody would wait for its own thread."""
        if self.interrupting:
            raise RuntimeError(
                "this signal handler (or finalizer) has interrupted the client's own work in this "
                "thread, and would wait for itself: leave the call to another thread, or set a "
                "flag here and make the call behind the signal"
            )

    def wake(self) -> None:
        """Make the I/O thread look at what there is to do."""
        io = self.io
        if io is not None:
            io.wake()

    def wait(self, waitable: Waitable, timeout: float | None = None, *, lead: bool = False) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

        ``lead``: an answer is on its way, so read it here if nobody else is reading.
        """
        deadline = None if timeout is None else self.now() + timeout
        if not waitable.ready:
            self.check_thread()
        while not waitable.ready:
            if (self.ended or self.forked) and not waitable.ready:
                self.check()
            if not (lead and self._lead(waitable, deadline)):
                self.flush()
                self._sleep(waitable, deadline, lead)
            if deadline is not None and self.now() >= deadline:
                if lead:
                    self.hand_over()  # it may have been this caller's turn to read
                return waitable.ready
        return True

    # --- what is to be called ---------------------------------------------------------------------

    def _collect(self) -> None:
        """Take over what the automaton wants called; under the mutex, so that the order holds."""
        if self.session.callbacks:
            self.due.extend(self.session.take_callbacks())

    def _have_called(self) -> None:
        """Have the I/O thread call what is due, or what it will not come by to call any more."""
        if self.due:
            self.wake()
            if self.ended:
                self.call_due()

    def call_due(self) -> None:
        """Call what the automaton wants called, in order; by the I/O thread."""
        while True:
            with self.mutex:
                self._collect()
                due, self.due = self.due, deque()
            if not due:
                return
            for function in due:
                try:
                    function()
                except Exception as error:
                    report(error)

    def _call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)
        self.wake()
        if self.ended and not self.nested:
            self.call_soon()  # the I/O thread may not come by any more

    def shortly(self, function: Callable[[], object]) -> None:
        """Have ``function`` called by who submits the next request, or in LINGER seconds."""
        self.late.waiting.append(function)
        io = self.io
        if io is not None and io.call_late_at is None:
            io.call_late_at = self.now() + LINGER
            io.wake()

    def call_soon(self) -> None:
        """Call what has been put off, by the I/O thread."""
        while True:
            try:
                function = self.soon.popleft()
            except IndexError:
                return
            function()

    # --- waiting ----------------------------------------------------------------------------------

    def _sleep(self, waitable: Waitable, deadline: float | None, lead: bool) -> None:
        """Sleep until something may have changed for this waiter."""
        sleeper = Sleeper(waitable)
        try:
            with self.mutex:
                if waitable.ready or self.ended:
                    return
                waitable.add_waker(sleeper)
                self.sleepers.add(sleeper)
                if lead:
                    self._followers.append(sleeper)
                link = self.link
            if not lead and self.io is not None:
                self.io.listen()
            # The role may have become free before this sleeper was known to its holder.
            if not lead or link is None or link.end or link.reader is not None:
                sleeper.sleep(None if deadline is None else deadline - self.now())
        finally:
            with self.mutex:
                self.sleepers.discard(sleeper)
                if sleeper in self._followers:
                    self._followers.remove(sleeper)
                waitable.drop_waker(sleeper)

    def _lead(
        self, waitable: Waitable, deadline: float | None, fresh: Request | None = None
    ) -> bool:
        """Send what there is to send, then read until ``waitable`` is ready, the connection ends or
        the deadline has passed.

        ``fresh`` is ``waitable`` if that is a call that has not been submitted.  False, and nothing
        has happened, if there is nothing to read from, if another thread reads, or if something
        must go before that call.  A signal handler reads on top of its own thread.
        """
        link = self.link
        me: list[object] = [threading.get_ident()]
        if link is None or link.end or not ((before := link.reader) is None or before == me):
            return False
        try:
            if not self._take_roles(link, me, before, fresh):
                return False
            if fresh is not None:
                link.wait(None, 1)
                self.read(link)
            if fresh is None or fresh.outcome is None:
                self._read_until(link, waitable, deadline)
        except BaseException:
            if link.writer is me:
                link.end = link.end or INTERRUPTED
            # The kernel may have told only this thread, and others have left it their requests.
            self._have_read(link)
            raise
        finally:
            if link.writer is me:
                link.writer = None
            if link.reader is me:
                link.reader = before
                if before is not None:
                    link.ring()  # this was a signal handler, and may have read for what it was in
            if link.end or link.broken_pipe:
                self._let_go()
        if self._followers or link.full:
            self._pass_on(link)
        return True

    def _pass_on(self, link: Connection) -> None:
        """The read role is free now: somebody else has to go on."""
        if self._followers:
            self.hand_over()
        elif link.full:
            self._have_read(link)

    def _take_roles(
        self, link: Connection, me: object, before: object, fresh: Request | None
    ) -> bool:
        """See :meth:`_lead`: take the read role and, if it is free, for once the write role."""
        session, data = self.session, b""
        with self.mutex:
            if link is not self.link or link.reader is not before:
                return False
            link.reader = me
            if link.writer is None and link.writable:
                link.writer = me
                if fresh is not None:
                    data = session.send_alone(fresh, self.now())
                elif session.has_output:
                    data = session.data_to_send(self.now())
                link.written += len(data)
        if data:
            link.send(data)
        if link.writer is me:
            link.writer = None
        if session.has_output:
            self.flush()  # what others have submitted meanwhile
        if link.unsent:
            self._let_go()  # it must leave before the answer can come
        return bool(data) or fresh is None

    def _read_until(self, link: Connection, waitable: Waitable, deadline: float | None) -> None:
        """See :meth:`_lead`; with the read role.  Here everything waits that can wait."""
        session, left = self.session, None
        while not (waitable.ready or link.end):
            if link.got < SPARSE and (expected := session.unanswered) >= LONG_LINE:
                time.sleep(min(expected * PAUSE, LONGEST_PAUSE))
            if deadline is not None:
                left = min(max(0.0, deadline - self.now()), LONGEST_WAIT)
            if not (link.inbox or link.wait(left, 1)):
                break
            self.read(link)
            if not session.usable and session.challenge is not None:
                self.wake()

    def _have_read(self, link: Connection) -> None:
        """Have the I/O thread take in what may be there without anybody being told."""
        io = self.io
        if io is not None and link is self.link:
            io.look()

    def _let_go(self) -> None:
        """A connection is not in use here any more, and perhaps to be ended or closed now."""
        self.wake()
        if self.ended and self.io is not None:
            self.io.bury()  # the I/O thread will not come by

    def hand_over(self) -> None:
        """Wake one of those who found the read role taken, now that it is free."""
        if self._followers:
            with self.mutex:
                while self._followers:
                    sleeper = self._followers.popleft()
                    if not sleeper.waitable.ready:  # else it will not read, and wake nobody
                        sleeper()
                        return

    # --- bytes ------------------------------------------------------------------------------------

    def read(self, link: Connection) -> None:
        """One receive, of what has come, and all that it brings; by any thread."""
        session, sleepers, begun = self.session, None, False
        with self.mutex:
            if link.end or link is not self.link:
                return
            try:
                data = link.receive()
                if data and not link.end:
                    begun = True
                    now = self.now()
                    session.receive_data(data, now)
                    if now >= link.look_at:
                        # In a flood the I/O thread may not get the mutex in time for its pings.
                        link.look_at = now + LOOK
                        session.on_deadline(now)
                    link.reads += 1
                    if session.broken or session.ended:
                        link.end = session.broken or "the session is over"
                begun = False
                if link.inbox:
                    del link.inbox[0]
                    link.full = link.full or bool(link.inbox)
            except BaseException:
                if begun or (link.inbox and not link.exact):
                    link.end = link.end or INTERRUPTED
                raise
            if session.callbacks:
                sleepers = self._take_sleepers()
        if sleepers is not None:
            for sleeper in sleepers:
                sleeper()
            if self.due:
                self.wake()
        if session.has_output:
            self.flush()

    def _take_sleepers(self) -> list[Sleeper]:
        """Collect, and take out of what is due the sleepers that nothing else stands before."""
        self._collect()
        sleepers: list[Sleeper] = []
        while self.due and isinstance(self.due[0], Sleeper):
            sleepers.append(self.due[0])
            self.due.popleft()
        return sleepers

    def flush(self) -> None:
        """Send what there is to send, unless another thread is at it: that one looks again."""
        link = self.link
        while link is not None and self.session.has_output and link.writable and self._write(link):
            pass

    def _write(self, link: Connection) -> bool:
        """Send one batch; False if that is for somebody else to do."""
        me: list[object] = [threading.get_ident()]
        try:
            with self.mutex:
                if link is not self.link or link.writer is not None or not link.writable:
                    return False
                link.writer = me
                data = self.session.data_to_send(self.now())
                link.written += len(data)
            if data:
                link.send(data)
        except BaseException:
            if link.writer is me:
                link.end = link.end or INTERRUPTED
            self.wake()  # others may have submitted something, which this thread was to send
            raise
        finally:
            if link.writer is me:
                link.writer = None
            if not link.writable:
                self._let_go()
        return True

    def send_rest(self, link: Connection) -> None:
        """The socket takes bytes again; by the I/O thread only."""
        with self.mutex:
            mine = link.pending and not link.end and link.writer is None
            if mine:
                link.writer = self
        if mine:
            try:
                data, link.unsent = link.unsent, memoryview(b"")
                link.written += len(data)
                link.send(data)
            finally:
                link.writer = None
        self.flush()

    # --- after a fork -----------------------------------------------------------------------------

    def abandon_process(self) -> None:
        """In a forked child: let go of the parent's connection without a byte or a FIN."""
        self.forked = True
        self.renew_mutex()  # its holder may be a thread that does not exist here
        self.owned = self.mutex._is_owned  # type: ignore[attr-defined]
        link, io = self.link, self.io
        self.link = self.io = None
        if link is not None:
            link.close()
        if io is not None:
            io.abandon()
