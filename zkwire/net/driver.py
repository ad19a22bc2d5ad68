"""The driver of a session, as far as threads and asyncio are alike: recipes are given it.

A driver owns the session and the connection in use.  For recipes it is the Runtime of
:mod:`zkwire.recipes.runtime`; for requests and watches it is their way to the server.  How to wait,
and which thread does what, is decided by the subclasses, for threads and for asyncio.

Invariants: the session is only used under ``mutex``.  Under asyncio, where one thread does
everything, that is no lock.  What threads change without the mutex is copied by ``list``: that is
one step even where Python has no global lock (making a ``tuple`` takes several).

A driver also decides when a coroutine in the background (a recipe that cleans up after itself, a
service) begins and what ends it.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import count

from zkwire.errors import ClientClosedError, OperationTimeoutError
from zkwire.net.background import BackgroundTask, Deferred
from zkwire.net.dial import resolve
from zkwire.net.listeners import log_failure, warn
from zkwire.net.pipeline import BackgroundReply, LazyPipeline, Pipeline
from zkwire.net.timing import clock
from zkwire.recipes._service import Background
from zkwire.recipes.runtime import Runtime
from zkwire.session.outcomes import CLOSING
from zkwire.session.states import StateWait
from zkwire.session.waitable import Alarm, Awaited, Either, Waitable
from zkwire.wire.model import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from random import Random
    from ssl import SSLContext
    from typing import Any, TypeVar

    from zkwire.jute.records import ACL
    from zkwire.net.connection import Connection
    from zkwire.net.dial import LookUp, Resolver
    from zkwire.net.sasl import Mechanism
    from zkwire.operations import Operations
    from zkwire.recipes._lock import Acquirable
    from zkwire.session.liveness import LeaseHolder
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.states import Observer
    from zkwire.session.waitable import Watch

    T = TypeVar("T")


IDS_AT_ONCE = 64
"""Ids that are made together: one that is made alone, after a wait, takes longer than its share."""


class Driver(Runtime):
    """See the module's docstring.  It has the session and the options of ``client``, checked."""

    # What each request needs.  Of more than thirty others Python would look up each in a dict.
    __slots__ = (
        "closing", "current_connection", "deferred", "forked", "interrupted", "mutex", "now",
        "session",
    )  # fmt: skip
    _kind: type[Request]  # the replies to a recipe's requests
    context: Any  # under asyncio and trio alone: of the functions of a user's
    forked: bool
    io: Any = None  # an IOThread or a LoopIO, once it is started

    def __init__(self, client: Any) -> None:
        super().__init__()
        self.client = client  # which lives as long as something refers to its driver
        session: Session = client._session
        self.session: Session = session  # pyright: ignore[reportIncompatibleVariableOverride]
        self.closing: float | None = None  # seconds that the close may take, once it is wanted
        self.name: str = client._name
        self.operation_timeout: float | None = client._operation_timeout
        self.tls: SSLContext | None = client._tls
        self.sasl: Mechanism | None = client._sasl
        self.resolver: Resolver = client._hooks.get("_resolver", resolve)
        self.look_ups: dict[tuple[str, int], LookUp] = {}
        self.now: Any = client._hooks.get("_now", clock)
        self.current_connection: Connection | None = None
        self.deferred: Deferred = Deferred()
        self.undefer: Callable[[Callable[[], object] | None], None] = self.deferred.discard
        self.interrupted: dict[object, Acquirable] = {}  # by waiter
        self.acl: Sequence[ACL] = client._acl
        self.operations: Operations = LazyPipeline(self, self._kind)
        self.background: Pipeline = Pipeline(self, BackgroundReply)
        self.background_tasks: set[BackgroundTask] = set()
        self.services: dict[Any, BackgroundTask] = {}
        self._rng: Random = client._rng
        self._ids: deque[str] = deque()
        self._batches = count()

    awaits = False
    """Whether what a user's function returns is awaited."""

    def check_callback(self, function: Any) -> None:
        """TypeError for a function of a user's that cannot be called here."""

    # --- what differs between threads and asyncio -------------------------------------------------

    if TYPE_CHECKING:

        def start(self) -> object:
            """Begin to connect unless that has been done; raises where that is not possible."""

        def submit(self, request: Request, eager: bool = True) -> None:
            """Put a request after all earlier ones; with ``eager`` it leaves without a waiter."""

        def call_soon(self, function: Callable[[], object]) -> bool:
            """Have the thread that does I/O call ``function``; False if it never will."""
            ...

        def read(self, connection: Connection) -> None:
            """Receive once, what has come, and have the session take it in."""

        def call_callbacks(self) -> None:
            """Call the session's callbacks, in order; by the thread that does I/O."""

        def _schedule_callbacks(self) -> None:
            """Have the session's callbacks called; not under the mutex."""

        def _rouse(self, waiter: object) -> None:
            """Have this thread or task look again at what it waits for."""

    def outside_chroot(self) -> Operations:
        """The operations with the server's own paths."""
        outside = LazyPipeline(self, self.operations._kind, chroot="")
        outside._submit = self.operations._submit  # type: ignore[method-assign]  # may be observed
        return outside

    def wake(self) -> None:
        """Have the thread that does I/O do soon what there is to do; from any thread."""
        if (io := self.io) is not None:
            io.wake()

    def _collect(self) -> None:
        """Take over the session's callbacks, under the mutex, so that their order holds."""

    @property
    def elsewhere(self) -> bool:
        """Whether the session must not be changed here, but by the thread that does I/O.

        That is so in the middle of a change of it in the same thread, or outside its event loop.
        """
        return False

    @property
    def interrupting(self) -> bool:
        """Whether a wait in this thread would be a wait for the thread itself."""
        return self.elsewhere

    # --- requests and watches ---------------------------------------------------------------------

    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits; True if the request now never will be sent."""
        if self.forked or self.elsewhere:
            return False
        with self.mutex:
            taken_back = self.session.withdraw(request)
            self._collect()
        self._schedule_callbacks()
        return taken_back

    def await_delivery(self) -> None:
        """Wait until no event is half delivered, unless this very thread delivers it."""
        with self.mutex:
            pass

    def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        """Call ``function`` as soon as ``waitable`` is ready; it must be quick and never wait."""
        if self.elsewhere and self.call_soon(partial(self.when_ready, waitable, function)):
            return
        with self.mutex:
            if not waitable.ready:
                waitable._add_waker(function)
                return
        function()

    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Remove a watch; with ``tell`` from the server too, unless another one needs it there.

        A finalizer, which the collector runs anywhere, may have to leave it to the thread for I/O.
        """
        if self.forked or self.session.ended:  # a session's end is the end of its watches
            return
        if self.elsewhere and self.call_soon(partial(self.close_watch, watch, tell=tell)):
            return
        with self.mutex:
            self.session.forget_watch(watch, tell=tell)
            self._collect()
        self.flush()
        self._schedule_callbacks()

    # --- the session ------------------------------------------------------------------------------

    def hold(self, hold: LeaseHolder) -> None:
        """Tell ``hold`` when the session may be gone."""
        with self.mutex:
            session = self.session
            if not (session.hold(hold) or session.callbacks):
                return
            self._collect()
        self._schedule_callbacks()
        self.wake()  # the I/O must know when the lease ends

    def unhold(self, hold: LeaseHolder) -> None:
        """The opposite of :meth:`hold`."""
        if self.elsewhere and self.call_soon(partial(self.unhold, hold)):
            return
        with self.mutex:
            self.session.unhold(hold)
            if not self.session.callbacks:
                return
            self._collect()
        self._schedule_callbacks()

    def _change(self, function: Callable[[T], object], argument: T) -> None:
        """Call ``function`` under the mutex, or soon where the session must not be changed."""
        if self.elsewhere and self.call_soon(partial(self._change, function, argument)):
            return
        with self.mutex:
            function(argument)

    def attach(self, observer: Observer) -> None:
        """Show every state to ``observer`` from now on."""
        self._change(self._attach, observer)

    def _attach(self, observer: Observer) -> None:
        self.session.observers.add(observer)
        if isinstance(observer, StateWait):
            observer.see(self.session.state)  # it may have changed since it was made

    def detach(self, observer: Observer) -> None:
        """The opposite of :meth:`attach`.  Idempotent."""
        self._change(self.session.observers.remove, observer)

    @contextmanager
    def seeing(self, *states: State) -> Generator[StateWait, None, None]:
        """For a ``with``: a wait for one of these states, or for the end of the session."""
        wait = StateWait(states, self.session.state)
        self.attach(wait)
        try:
            yield wait
        finally:
            self.detach(wait)

    def replace_hosts(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now."""
        self._change(self.session.hosts.replace, hosts)

    def check_open(self, op: str | None = None, path: str | None = None) -> None:
        """Raise what has ended the session, or ClientClosedError as soon as that is wanted."""
        session = self.session
        if session.ended:
            raise session.ending(op, path)
        if self.closing is not None:
            raise ClientClosedError(CLOSING, op=op, path=path)

    @cached_property
    def _prefix(self) -> str:
        """Drawn once: from the system's source of randomness it takes 3 µs."""
        return f"{self._rng.getrandbits(64):016x}"

    def unique(self) -> str:
        """An id that no other attempt of any client has."""
        while True:
            try:
                return self._ids.popleft()
            except IndexError:
                first = IDS_AT_ONCE * next(self._batches)
                numbers = range(first + 1, first + 1 + IDS_AT_ONCE)
                self._ids.extend([f"{self._prefix}{number:08x}" for number in numbers])

    def warn(self, message: str) -> None:
        """Put a line into the log, for operators to act on."""
        self.dispatch(partial(warn, message))

    def log_failure(self, message: str, error: BaseException) -> None:
        """Put an error that ends something, with its traceback, into the log."""
        self.dispatch(partial(log_failure, message, error))

    # --- to end another caller's wait -------------------------------------------------------------

    def interrupt(self, waiter: object, attempt: Acquirable) -> None:
        """Have the wait of this thread or task raise the attempt's error, if that still goes on.

        At once, or within a twentieth of a second if the thread reads and there are no epolls.
        """
        if self.elsewhere and self.call_soon(partial(self.interrupt, waiter, attempt)):
            return
        self.interrupted[waiter] = attempt
        self._rouse(waiter)

    def _refuse_interrupted(self) -> None:
        """Raise what has interrupted this caller; called where ``interrupted`` is not empty."""
        me = self.waiter()
        attempt = self.interrupted.pop(me, None)
        if attempt is not None and attempt._is_cancelled(me):
            raise attempt._cancelled_error()

    # --- a recipe's waits -------------------------------------------------------------------------

    async def connected(self, deadline: float | None) -> None:
        """Wait for a usable connection; raises what ended the session, or OperationTimeoutError."""
        session = self.session
        if self.usable:
            return
        self.start()
        if not await self.within(session.change, self._left(deadline)):
            raise OperationTimeoutError("no server could be reached in time")
        if session.ended:
            raise session.ending()

    async def ready(self, waitable: Waitable) -> None:
        """Wait until ``waitable`` is ready; raises what ended the session if that comes first."""
        await self.holds(waitable, None)

    async def holds(self, condition: Waitable, timeout: float | None) -> bool:
        """Wait until ``condition`` is ready, at most ``timeout`` seconds; whether it is.

        Raises what ended the session if that comes first.
        """
        with self.seeing() as over:
            await self.within(Either(condition, over), timeout)
        if not condition.ready and over.ready:
            raise self.session.ending()
        return condition.ready

    # --- the connection ---------------------------------------------------------------------------

    def send_rest(self, connection: Connection) -> None:
        """The socket takes bytes again; by the thread that does I/O."""
        with self.mutex:
            mine = (
                connection.pending and not connection.closed_because and connection.writer is None
            )
            if mine:
                connection.writer, connection.writable = self, True
        if mine:
            try:
                data, connection.backlog = connection.backlog, memoryview(b"")
                connection.written += len(data)
                connection.send(data)
            finally:
                connection.writer = None
        self.flush()

    def finish_clean_up(self) -> None:
        """Clean up what locks could not, each on a stack that was full; by the thread for I/O."""
        self.unfinished = False  # first: what comes from now on asks for it anew
        for lock in list(self.active_locks):
            lock._take_over()

    def after_fork(self) -> None:
        """In a forked child: close the parent's connection without a byte or a FIN."""
        self.forked = True
        connection, io = self.current_connection, self.io
        self.current_connection = self.io = None
        if connection is not None:
            connection.closed_because = "it is the parent process's"
            connection.close()
        if io is not None:
            io.after_fork()

    # --- in the background ------------------------------------------------------------------------

    def spawn(self, work: Callable[[Pipeline], Coroutine[Any, Any, object]]) -> None:
        """Run ``work(background)`` to its end, whatever becomes of the caller.

        The first step is taken here.  When this returns, what that step asks for has been written,
        as far as the kernel takes it and no other thread is writing.  The thread that does I/O
        takes the other steps; and the first one, too, if a signal handler or a finalizer calls this
        in the middle of the client's own work.
        """
        self.start()
        if self.session.ended:
            raise self.session.ending()
        task = BackgroundTask(partial(work, self.background), self, self.background_tasks)
        if self.interrupting:
            self.call_soon(task.next_step)
            return
        task.step()
        self.flush()

    async def another_state(self) -> None:
        """In a coroutine given to ``spawn``: wait until the session is in another state."""
        with self.seeing(*(set(State) - {self.session.state})) as wait:
            await Awaited(wait)

    async def any_of(self, *waitables: Waitable) -> None:
        """In a coroutine given to ``spawn`` or a service: wait until one of them is ready.

        Raises what ended the session if that comes first.
        """
        with self.seeing() as over:
            either = Either(*waitables, over)
            try:
                await Awaited(either)
            finally:  # those of its parts that did not come must not keep it
                self._change(either._drop_waker, either._wake)
        if not any(waitable.ready for waitable in waitables):
            self.check_open()

    async def pause(self, seconds: float, *waitables: Waitable) -> None:
        """In a coroutine of the background: let so much time pass, or less if one is ready.

        Raises what ended the session if that comes first.
        """
        alarm, alarms = Alarm(self.now() + seconds), self.session.alarms
        alarms[alarm] = None
        try:
            if self.io is not None:
                self.io.wake()  # it has a deadline
            await self.any_of(alarm, *waitables)
        finally:
            alarms.pop(alarm, None)

    def jitter(self) -> float:
        """A random number from 0.5 to 1."""
        return 0.5 + self._rng.getrandbits(16) / (2 << 16)

    # --- services ---------------------------------------------------------------------------------

    def serve(self, service: Any) -> None:
        """Run the service in this session until :meth:`dismiss`; raises what ended the client.

        Idempotent: an interrupt of the caller may have come after the first call.
        """
        self.start()
        self.check_open()
        with self.mutex:  # two threads may ask for it at once
            if service in self.services:
                return
            # The coroutine is made in the first step: an interrupt here leaves none.
            begin = partial(service._run, Background(self, self.background))
            task = BackgroundTask(begin, self, set())
            self.services[service] = task
        self.call_soon(task.next_step)

    def dismiss(self, service: Any) -> None:
        """Stop the service soon, in the middle of a wait.  Idempotent."""
        task = self.services.get(service)
        if task is not None:
            self.call_soon(task.cancel)
            self.services.pop(service, None)  # interrupt-safe: last, so this can be repeated
