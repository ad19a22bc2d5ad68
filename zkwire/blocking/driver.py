"""The engine room of the blocking client: what its operations, recipes and watches ask of it.

It owns the threads and what they need; how they share the connection is in
:mod:`zkwire.blocking.leader`, and what the I/O thread does in :mod:`zkwire.blocking.io_thread`.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial

from zkwire.blocking.io_thread import IOThread, serve
from zkwire.blocking.leader import LeaderFollower
from zkwire.errors import ClientClosedError
from zkwire.net.background import Callbacks, Task
from zkwire.net.dial import resolve
from zkwire.net.forking import remember
from zkwire.net.pacing import FLUSH_AT
from zkwire.session.states import StateWait
from zkwire.session.waitable import Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from ssl import SSLContext
    from typing import Any

    from zkwire.net.connection import Connection
    from zkwire.net.dial import Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.states import Observer
    from zkwire.session.waitable import Waitable, Waker
    from zkwire.session.watch import Watch

LOOK_AGAIN = 0.0005  # seconds
# How much longer than it was given a close may take: the I/O thread's way out.
CLOSE_SLACK = 0.2


class ThreadDriver(LeaderFollower):
    """See the module's docstring.  ``resolver`` and the clock ``now`` are for tests."""

    io: IOThread | None
    threads: object

    def __init__(
        self,
        session: Session,
        name: str,
        tls: SSLContext | None = None,
        sasl: Mechanism | None = None,
        resolver: Resolver | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(session, now)
        self._name = name
        self.tls = tls
        self.sasl = sasl
        self.resolver: Resolver = resolver or resolve
        self._callbacks = Callbacks(f"{name}-callbacks")
        self.thread: threading.Thread | None = None
        self.closing: float | None = None  # seconds that the close may take, once it is wanted
        self.detaching: bool = False  # the session is to live on
        self.tasks: set[Task] = set()  # that run in the background
        self.client: object = None
        self._dropped = False  # nobody holds the client any more

    # --- what callers ask for ---------------------------------------------------------------------

    @staticmethod
    def caller() -> int:
        """Another number for each thread."""
        return threading.get_ident()

    def start(self) -> None:
        """Start the I/O thread, and with it the search for a server, if nobody has yet."""
        if self.forked:
            self.check()
        if self.threads is not threading.get_ident:
            self.threads_replaced()
        if self.thread is not None:
            return
        self.refuse_nested()
        with self.mutex:
            if self.thread is not None or self.session.ended or self.closing is not None:
                return
            io = self.io = IOThread(self)
            try:
                work = (io.held, io.select)
                name = f"{self._name}-io"
                thread = threading.Thread(target=serve, args=work, name=name, daemon=True)
                remember(self)
                thread.start()
                self.thread = thread
            except BaseException:
                io.cancel()
                raise

    def threads_replaced(self) -> None:
        """Use the new kind, if nothing has been used of the old."""
        if self.thread is not None:
            super().threads_replaced()
        self.threads = threading.get_ident
        self.renew_mutex()
        self._callbacks = Callbacks(f"{self._name}-callbacks")

    def submit(self, request: Request, *, eager: bool = False) -> None:
        """Put a call behind all earlier ones.

        Whoever waits for it sends it; with ``eager`` it leaves by itself, at once if nothing is in
        flight, else together with what follows, at the next reply or when enough have gathered.
        """
        if self.owned() or self.threads is not threading.get_ident:
            self.check_thread()
        if self.late.waiting:
            self.late.call()
        link, session = self.link, self.session
        queued = 0
        if link is not None and not link.end and self.closing is None:
            with self.mutex:
                queued = session.push(request)
        if not queued:
            self._submit(request, eager)
        elif eager and (queued >= FLUSH_AT or not session.unanswered):
            self.flush()

    def _submit(self, request: Request, eager: bool) -> None:
        """:meth:`submit` for a call that has to do with more than the queue."""
        if self.thread is None or self.forked:
            self.start()
        link, session = self.link, self.session
        broken = link is not None and link.end and session.usable
        if link is not None and broken and self.thread is not threading.current_thread():
            # As the caller may know already: the call must not be lost with it.  While it opens no
            # call is, and a SASL mechanism may keep the I/O thread for as long as it likes.
            self.wake()
            self.wait(Gone(self, link))
        with self.mutex:
            cleaning = self.detaching and self.thread is threading.current_thread()
            if self.closing is not None and not session.ended and not cleaning:
                raise ClientClosedError(
                    "the client is being closed", op=request.op.name, path=request.path
                )
            session.submit(request, self.now())
            self._collect()  # remove_watches may have ended watches here already
            first = not session.usable and session.queued == 1
        if first:
            self.wake()  # it has a deadline, and those behind it have later ones
        elif eager and (not session.unanswered or session.queued >= FLUSH_AT):
            self.flush()
        self._have_called()

    def exchange(self, request: Request) -> None:
        """Submit a call and, if nobody else uses the connection, send it and read its answer.

        What :meth:`submit` and :meth:`wait` do, with one look at the state instead of four.  The
        call need not have ended afterwards.
        """
        busy = self.late.waiting or self.closing is not None or self.owned()
        replaced = self.threads is not threading.get_ident
        if busy or replaced or not self._lead(request, None, request):
            self.submit(request)

    async def until(self, waitable: Waitable) -> bool:
        """Refuse an ``await`` that would block a whole event loop."""
        raise RuntimeError("await belongs to AsyncClient; with a Client use wait()")

    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits; True if the call now never will be sent."""
        if self.forked or self.nested:
            return False
        with self.mutex:
            taken_back = self.session.withdraw(request)
            self._collect()
        self._have_called()
        return taken_back

    def await_delivery(self) -> None:
        """Wait until no event is half delivered, unless that is for this very thread to do."""
        with self.mutex:
            pass

    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Take a watch back; with ``tell`` on the server too, when nobody else needs it.

        A finalizer, which the collector runs anywhere, may have to leave it to the I/O thread.
        """
        if self.forked or self.ended:  # a session's end is the end of its watches
            return
        if self.nested:
            self._call_soon(partial(self.close_watch, watch, tell=tell))
            return
        with self.mutex:
            self.session.forget_watch(watch, tell=tell)
            self._collect()
        self.flush()
        self._have_called()

    def hold(self, hold: LeaseHolder) -> None:
        """Tell ``hold`` when the session may be gone."""
        with self.mutex:
            self.session.hold(hold)
            self._collect()
        self._have_called()

    def unhold(self, hold: LeaseHolder) -> None:
        """The opposite of :meth:`hold`."""
        if self.nested:
            self._call_soon(partial(self.unhold, hold))
            return
        with self.mutex:
            self.session.unhold(hold)
            self._collect()
        self._have_called()

    def attach(self, onlooker: Observer) -> None:
        """Show every state to ``onlooker`` from now on."""
        if self.nested:
            self._call_soon(partial(self.attach, onlooker))
            return
        with self.mutex:
            self.session.observers.add(onlooker)
            if isinstance(onlooker, StateWait):
                onlooker.see(self.session.state)  # it may have changed since it was made

    def detach(self, onlooker: Observer) -> None:
        """The opposite.  Idempotent."""
        if self.nested:
            self._call_soon(partial(self.detach, onlooker))
            return
        with self.mutex:
            self.session.observers.remove(onlooker)

    def replace_hosts(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now; an empty list says nothing."""
        with self.mutex:
            if hosts:
                self.session.hosts.replace(hosts)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function in the callback thread."""
        self._callbacks.put(function)

    def spawn(
        self, work: Callable[[], Coroutine[Any, Any, object]], *, lasting: bool = False
    ) -> None:
        """Run a coroutine of background replies: its first step here, the others in the I/O thread.

        What the first step asks for is written when this returns, if there is a connection that
        takes it and no other thread is writing.  A signal handler or a finalizer on top of the
        client's own work leaves that step, too.  Nobody waits for the end of a ``lasting`` one.
        """
        self.start()
        if self.session.ended:
            raise self.session.ending()
        running = set[Task]() if lasting else self.tasks
        task = Task(work(), self._call_soon, self.when_ready, running)
        if self.interrupting:
            self._call_soon(task.next_step)
            return
        task.step()
        self.flush()

    def clean_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most ``timeout`` seconds."""
        latest = self.now() + timeout
        while self.tasks and not (self.ended or self.forked) and self.now() < latest:
            time.sleep(LOOK_AGAIN)

    def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        """Call ``function`` as soon as ``waitable`` is ready; it must be quick and never wait."""
        if self.nested:
            self._call_soon(partial(self.when_ready, waitable, function))
            return
        with self.mutex:
            if not waitable.ready:
                waitable.add_waker(function)
                return
        function()

    def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the threads; returns within about ``timeout`` seconds.

        ``detach``: end the threads only, and leave the session to somebody else.

        The I/O thread does it.  If this is a signal handler, or a finalizer, that keeps it from
        that, the end comes behind it.
        """
        if self.forked:
            return
        deadline = self.now() + timeout + CLOSE_SLACK
        self.detaching = detach
        self.closing = timeout
        if self.nested:
            self.wake()
            self._callbacks.close(0.0)
            return
        if self.thread is None:
            self._close_unstarted()
        self.wake()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(max(CLOSE_SLACK, deadline - self.now()))
        self._let_go()
        self._callbacks.close(max(CLOSE_SLACK, deadline - self.now()))

    def _close_unstarted(self) -> None:
        told: list[Waker] = []
        with self.mutex:
            if self.thread is None:
                self.session.closed()
                told = self.session.take_callbacks()  # there is no I/O thread to call them
        for function in told:
            function()

    def drop(self, timeout: float) -> bool:
        """Nobody holds the client any more: close it soon; whether there was anything to close.

        For a finalizer, see :mod:`zkwire.net.held`.
        """
        thread, io = self.thread, self.io
        if self.forked or sys.is_finalizing():
            return False
        left = thread is not None and self.closing is None and not self.session.ended
        self._dropped = True
        if self.ended or thread is None or io is None:
            self.part()
        else:
            if self.closing is None:
                self.closing = timeout
            io.wake()
        return left

    def part(self) -> None:
        """By the I/O thread, at its end: nobody will close the client."""
        if self._dropped:
            self._callbacks.end()


class Gone(Waitable):
    """Ready once a connection is no longer the pump's."""

    __slots__ = ("_link", "_pump")

    def __init__(self, pump: ThreadDriver, link: Connection) -> None:
        super().__init__()
        self._pump = pump
        self._link = link

    @property
    def ready(self) -> bool:
        """Whether what is submitted now is for another connection."""
        return self._pump.link is not self._link
