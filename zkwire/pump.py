"""Moves bytes between a socket and the automaton: the threads, locks and clock of the client.

Who reads: a thread that waits for an answer takes the *read role* if it is free and reads the
socket itself, handing out what comes for others, until its own answer is there (leader and
followers, after Schmidt et al.).  One request at a time then costs one send and one receive and no
switch between threads.  The I/O thread reads when nobody waits: watch events, pings, unread
pipelines.

Who writes: whoever has submitted something and finds the *write role* free.  Sends never block;
what the kernel does not take is left to the I/O thread.

Invariants:

* The state lock ``mutex`` guards the automaton and is never held across a system call that can
  block.  Nothing that belongs to a user runs under it.
* Only the I/O thread, which no interrupt reaches, makes and ends connections and calls what the
  automaton wants called.  The one exception are sleepers: a reader wakes them itself, and because
  an interrupt could lose one of them, the end of a connection wakes all.
* The roles change hands under the mutex, and nobody waits for one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial

from zkwire.background import Callbacks, Task, report
from zkwire.calls import Call, Waitable
from zkwire.dial import readable_within, resolve
from zkwire.errors import ClientClosedError, ForkedError
from zkwire.forking import remember
from zkwire.io_thread import IOThread
from zkwire.link import INTERRUPTED, Link
from zkwire.states import StateWait
from zkwire.waiting import Gone, Sleeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from ssl import SSLContext
    from typing import Any

    from zkwire.calls import Waker
    from zkwire.dial import Resolver
    from zkwire.leases import Hold
    from zkwire.sasl import Mechanism
    from zkwire.session import Session
    from zkwire.states import Onlooker
    from zkwire.watches import Watch

FLUSH_AT = 128
# How much longer than it was given a close may take: the I/O thread's way out.
CLOSE_SLACK = 0.2

# Seconds between two looks at the deadlines by who reads; the shortest deadline is a ping's.
LOOK = 0.005

# Seconds on a clock that never goes back.  CLOCK_MONOTONIC stands still while the machine sleeps;
# the server's clock does not.
clock: Callable[[], float] = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Pump:
    """See the module's docstring.  ``resolver`` and the clock ``now`` are for tests."""

    def __init__(
        self,
        session: Session,
        name: str,
        tls: SSLContext | None = None,
        sasl: Mechanism | None = None,
        resolver: Resolver | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.session = session
        self.now = now or clock
        self._name = name
        self.tls = tls
        self.sasl = sasl
        self.resolver = resolver or resolve
        self.mutex = threading.Lock()
        self.link: Link | None = None
        self.due: deque[Waker] = deque()  # what the automaton wants called
        self.soon: deque[Callable[[], None]] = deque()  # what others want called
        self.sleepers: set[Sleeper] = set()
        self._followers: deque[Sleeper] = deque()
        self._callbacks = Callbacks(f"{name}-callbacks")
        self.thread: threading.Thread | None = None
        self.io: IOThread | None = None
        self.closing: float | None = None  # seconds that the close may take, once it is wanted
        self.detaching = False  # the session is to live on
        self.ended = False
        self.forked = False

    # --- what callers ask for ---------------------------------------------------------------------

    def check(self) -> None:
        """Raise in a forked child, and when nothing can happen any more."""
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make a Client in this process"
            )
        if self.ended:
            raise self.session.ending()

    def start(self) -> None:
        """Start the I/O thread, and with it the search for a server, if nobody has yet."""
        if self.forked:
            self.check()
        with self.mutex:
            if self.thread is not None or self.session.over or self.closing is not None:
                return
            io = self.io = IOThread(self)
            try:
                thread = threading.Thread(target=io.run, name=f"{self._name}-io", daemon=True)
                remember(self)
                thread.start()
                self.thread = thread
            except BaseException:
                io.cancel()
                raise

    def submit(self, call: Call, *, eager: bool = False) -> None:
        """Put a call behind all earlier ones.

        Whoever waits for it sends it; with ``eager`` it leaves by itself, at once if nothing is in
        flight, else together with what follows, at the next reply or when enough have gathered.
        """
        if self.thread is None or self.forked:
            self.start()
        link = self.link
        if link is not None and link.end and self.thread is not threading.current_thread():
            # It is broken, as the caller may know already: the call must not be lost with it.
            self.wake()
            self.wait(Gone(self, link))
        session = self.session
        with self.mutex:
            if self.closing is not None and not session.over:
                raise ClientClosedError(
                    "the client is being closed", op=call.op.name, path=call.path
                )
            session.submit(call, self.now())
            first = not session.usable and session.queued == 1
        if first:
            self.wake()  # it has a deadline, and those behind it have later ones
        elif eager and (session.idle or session.queued >= FLUSH_AT):
            self.flush()

    def exchange(self, call: Call) -> None:
        """Submit a call and, if nobody else uses the connection, send it and read its answer.

        What :meth:`submit` and :meth:`wait` do, with one look at the state instead of four.  The
        call need not have ended afterwards.
        """
        link, session = self.link, self.session
        if link is None or link.reader is not None or self.closing is not None:
            self.submit(call)
            return
        data: bytes | None = None
        try:
            with self.mutex:
                free = link is self.link and link.reader is link.writer is None and link.writable
                if free and session.usable:
                    now = self.now()
                    session.submit(call, now)  # may refuse: nothing has been taken yet
                    link.reader = link.writer = call
                    data = session.data_to_send(now)
                    link.written += len(data)
            if data is not None:
                link.send(data)
                link.writer = None
                if not link.writable:
                    self._let_go()  # the rest must leave before the answer can come
                self._read_until(link, call, None)
        except BaseException:
            if link.reader is call:
                link.end = link.end or INTERRUPTED
            raise
        finally:
            if link.writer is call:
                link.writer = None
            if link.reader is call:
                link.reader = None
            if not link.writable:
                self._let_go()
        if data is None:
            self.submit(call)
        else:
            self.hand_over()

    def wait(self, waitable: Waitable, timeout: float | None = None, *, lead: bool = False) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

        ``lead``: an answer is on its way, so read it here if nobody else is reading.
        """
        deadline = None if timeout is None else self.now() + timeout
        while not waitable.ready:
            if self.ended or self.forked:
                self.check()
            self.flush()
            if not (lead and self._lead(waitable, deadline)):
                self._sleep(waitable, deadline, lead)
            if deadline is not None and self.now() >= deadline:
                if lead:
                    self.hand_over()  # it may have been this caller's turn to read
                return waitable.ready
        return True

    async def until(self, waitable: Waitable) -> bool:
        """Refuse an ``await`` that would block a whole event loop."""
        raise RuntimeError("await belongs to AsyncClient; with a Client use wait()")

    def abandon(self, call: Call) -> bool:
        """The caller no longer waits; True if the call now never will be sent."""
        with self.mutex:
            taken_back = self.session.abandon(call)
            self._collect()
        self._have_called()
        return taken_back

    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Take a watch back; with ``tell`` on the server too, when nobody else needs it."""
        if self.forked:
            return
        with self.mutex:
            self.session.forget_watch(watch, tell=tell)
            self._collect()
        self.flush()
        self._have_called()

    def hold(self, hold: Hold) -> None:
        """Tell ``hold`` when the session may be gone."""
        with self.mutex:
            self.session.hold(hold)
            self._collect()
        self._have_called()

    def unhold(self, hold: Hold) -> None:
        """The opposite of :meth:`hold`."""
        with self.mutex:
            self.session.unhold(hold)
            self._collect()
        self._have_called()

    def attach(self, onlooker: Onlooker) -> None:
        """Show every state to ``onlooker`` from now on."""
        with self.mutex:
            self.session.audience.add(onlooker)
            if isinstance(onlooker, StateWait):
                onlooker.see(self.session.state)  # it may have changed since it was made

    def detach(self, onlooker: Onlooker) -> None:
        """The opposite.  Idempotent."""
        with self.mutex:
            self.session.audience.remove(onlooker)

    def replace_hosts(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now; an empty list says nothing."""
        with self.mutex:
            if hosts:
                self.session.hosts.replace(hosts)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function in the callback thread."""
        self._callbacks.put(function)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine of background replies in the I/O thread."""
        self.start()
        if self.session.over:
            raise self.session.ending()
        Task(work(), self._call_soon, self.when_ready)

    def when_ready(self, waitable: Waitable, function: Callable[[], None]) -> None:
        """Call ``function`` as soon as ``waitable`` is ready; it must be quick and never wait."""
        with self.mutex:
            if not waitable.ready:
                waitable.add_waker(function)
                return
        function()

    def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the threads; returns within about ``timeout`` seconds.

        ``detach``: end the threads only, and leave the session to somebody else.

        The I/O thread does it.  Nothing here waits for a lock without a limit: this may be a signal
        handler, or a finalizer, that has interrupted the very thread that holds it.
        """
        if self.forked:
            return
        deadline = self.now() + timeout + CLOSE_SLACK
        self.detaching = detach
        self.closing = timeout
        if self.thread is None and self.mutex.acquire(timeout=timeout):
            told: list[Waker] = []
            try:
                if self.thread is None:
                    self.session.closed()
                    told = self.session.take_wakeups()  # there is no I/O thread to call them
            finally:
                self.mutex.release()
            for function in told:
                function()
        self.wake()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(max(CLOSE_SLACK, deadline - self.now()))
        self._let_go()
        self._callbacks.close(max(CLOSE_SLACK, deadline - self.now()))

    def wake(self) -> None:
        """Make the I/O thread look at what there is to do."""
        io = self.io
        if io is not None:
            io.wake()

    # --- what is to be called ---------------------------------------------------------------------

    def _collect(self) -> None:
        """Take over what the automaton wants called; under the mutex, so that the order holds."""
        if self.session.wakeups:
            self.due.extend(self.session.take_wakeups())

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
        if self.ended:
            self.call_soon()  # the I/O thread may not come by any more

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
            # The role may have become free before this sleeper was known to its holder.
            if not lead or link is None or link.end or link.reader is not None:
                sleeper.sleep(None if deadline is None else deadline - self.now())
        finally:
            with self.mutex:
                self.sleepers.discard(sleeper)
                if sleeper in self._followers:
                    self._followers.remove(sleeper)
                waitable.drop_waker(sleeper)

    def _lead(self, waitable: Waitable, deadline: float | None) -> bool:
        """Read until ``waitable`` is ready, the connection ends or the deadline has passed.

        False if there is nothing to read from, or another thread reads.
        """
        link = self.link
        if link is None or link.end or link.reader is not None:
            return False
        me: list[object] = []
        try:
            with self.mutex:
                if link is not self.link or link.reader is not None:
                    return False
                link.reader = me
            self._read_until(link, waitable, deadline)
        except BaseException:
            if link.reader is me:
                link.end = link.end or INTERRUPTED
            raise
        finally:
            if link.reader is me:
                link.reader = None
            if link.end:
                self._let_go()
        self.hand_over()
        return True

    def _read_until(self, link: Link, waitable: Waitable, deadline: float | None) -> None:
        """See :meth:`_lead`; with the read role."""
        if self.session.has_output:
            self.flush()  # what others have submitted while the write role was taken
        while not (waitable.ready or link.end):
            if deadline is None:
                self.read(link, block=True)
            elif readable_within(link.sock, deadline - self.now()):
                self.read(link, block=False)
            else:
                break
            if self.due or (not self.session.usable and self.session.challenge is not None):
                self.wake()

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

    def read(self, link: Link, *, block: bool) -> None:
        """One receive and all that it brings; with the read role only."""
        data = link.receive(block=block)
        if not data:
            return
        session = self.session
        sleepers: list[Sleeper] = []
        with self.mutex:
            if link.end or link is not self.link:
                return
            link.reads += 1
            now = self.now()
            session.receive_data(data, now)
            if now >= link.look_at:
                # In a flood of replies the I/O thread may not get the mutex in time for its pings.
                link.look_at = now + LOOK
                session.on_deadline(now)
            if session.broken or session.over:
                link.end = session.broken or "the session is over"
            if session.wakeups:
                self._collect()
                sleepers = self._take_sleepers()
        for sleeper in sleepers:
            sleeper()
        if session.has_output:
            self.flush()

    def _take_sleepers(self) -> list[Sleeper]:
        """Take out of what is due the sleepers that nothing else stands before."""
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

    def _write(self, link: Link) -> bool:
        """Send one batch; False if that is for somebody else to do."""
        me: list[object] = []
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
            raise
        finally:
            if link.writer is me:
                link.writer = None
            if not link.writable:
                self._let_go()
        return True

    def send_rest(self, link: Link) -> None:
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
        self.mutex = threading.Lock()  # its holder may be a thread that does not exist here
        link, self.link = self.link, None
        if link is not None:
            link.sock.close()
        io, self.io = self.io, None
        if io is not None:
            io.abandon()
