"""The engine room of the blocking client: what its operations, recipes and watches ask of it.

It owns the threads and what they need; how they share the connection is in :mod:`zkwire.roles`, and
what the I/O thread does in :mod:`zkwire.io_thread`.
"""

from __future__ import annotations

import threading
import time
from functools import partial

from zkwire.background import Callbacks, Task
from zkwire.dial import resolve
from zkwire.errors import ClientClosedError
from zkwire.forking import remember
from zkwire.io_thread import IOThread
from zkwire.roles import Roles
from zkwire.states import StateWait
from zkwire.waiting import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from ssl import SSLContext
    from typing import Any

    from zkwire.calls import Call, Waitable, Waker
    from zkwire.dial import Resolver
    from zkwire.leases import Hold
    from zkwire.sasl import Mechanism
    from zkwire.session import Session
    from zkwire.states import Onlooker
    from zkwire.watches import Watch

FLUSH_AT = 128
# Seconds: a signal handler may have interrupted the very thread that has the mutex.
MOMENT = 1.0
LOOK_AGAIN = 0.0005
# How much longer than it was given a close may take: the I/O thread's way out.
CLOSE_SLACK = 0.2


class Pump(Roles):
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
        super().__init__(session, now)
        self._name = name
        self.tls = tls
        self.sasl = sasl
        self.resolver = resolver or resolve
        self._callbacks = Callbacks(f"{name}-callbacks")
        self.thread: threading.Thread | None = None
        self.closing: float | None = None  # seconds that the close may take, once it is wanted
        self.detaching = False  # the session is to live on
        self.tasks: set[Task] = set()  # that run in the background

    # --- what callers ask for ---------------------------------------------------------------------

    caller = staticmethod(threading.get_ident)

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
        if self.late.waiting:
            self.late.call()
        link, session = self.link, self.session
        queued = 0
        if link is not None and not link.end and self.closing is None:
            with self.mutex:
                queued = session.push(call)
        if not queued:
            self._submit(call, eager)
        elif eager and (queued >= FLUSH_AT or not session.unanswered):
            self.flush()

    def _submit(self, call: Call, eager: bool) -> None:
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
            if self.closing is not None and not session.over and not cleaning:
                raise ClientClosedError(
                    "the client is being closed", op=call.op.name, path=call.path
                )
            session.submit(call, self.now())
            self._collect()  # remove_watches may have ended watches here already
            first = not session.usable and session.queued == 1
        if first:
            self.wake()  # it has a deadline, and those behind it have later ones
        elif eager and (not session.unanswered or session.queued >= FLUSH_AT):
            self.flush()
        self._have_called()

    def exchange(self, call: Call) -> None:
        """Submit a call and, if nobody else uses the connection, send it and read its answer.

        What :meth:`submit` and :meth:`wait` do, with one look at the state instead of four.  The
        call need not have ended afterwards.
        """
        busy = self.late.waiting or self.closing is not None
        if busy or not self._lead(call, None, call):
            self.submit(call)

    async def until(self, waitable: Waitable) -> bool:
        """Refuse an ``await`` that would block a whole event loop."""
        raise RuntimeError("await belongs to AsyncClient; with a Client use wait()")

    def abandon(self, call: Call) -> bool:
        """The caller no longer waits; True if the call now never will be sent."""
        if self.forked:
            return False
        with self.mutex:
            taken_back = self.session.abandon(call)
            self._collect()
        self._have_called()
        return taken_back

    def settle(self) -> None:
        """Wait, for a moment at most, until no event is half delivered."""
        # Not `acquire(timeout=...)`: an interrupt right behind that would leave the mutex taken.
        latest = self.now() + MOMENT
        while self.mutex.locked() and self.now() < latest:
            time.sleep(LOOK_AGAIN)

    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Take a watch back; with ``tell`` on the server too, when nobody else needs it.

        A finalizer, which the collector runs anywhere, leaves it to the I/O thread if it may have
        interrupted the very thread that has the mutex.
        """
        if self.forked or self.ended:  # a session's end is the end of its watches
            return
        self.settle()
        if self.mutex.locked():
            self._call_soon(partial(self.close_watch, watch, tell=tell))
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
        Task(work(), self._call_soon, self.when_ready, self.tasks)

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
