"""The driver of the clients whose session belongs to one thread, in which tasks wait.

That is an event loop of asyncio, or a run of trio, to which :mod:`zkwire.trio` gives the shape of
such a loop.  There is no other thread and no lock.  Only the loop's thread touches the session, and
not while it is in the middle of that; a finalizer runs in any thread and at any moment.

Requests leave in the order of the calls: at once if nothing is unanswered, else at the end of the
loop's turn, with the next reply, or when enough have gathered, whichever comes first.

Invariants: an await that is cancelled withdraws what had not been sent and leaves the rest in its
place; functions of a user's are called from the loop, never from within the session.

It also knows how a task waits, how a scope cancels the task that works in it, what is one task's
own, and the end of a task that holds a re-entrant lock.
"""

from __future__ import annotations

import asyncio
from asyncio import current_task
from contextlib import asynccontextmanager, nullcontext
from contextvars import Context, copy_context
from functools import partial
from sys import is_finalizing as finalizing
from weakref import WeakKeyDictionary, WeakSet

from zkwire.aio.loop import SHORTEST_PAUSE, LoopIO, in_the_middle, uninterruptible
from zkwire.aio.replies import LOOP_CLOSED, StepReply
from zkwire.errors import ClientClosedError, ForkedError, ZooKeeperError
from zkwire.net.connection import INTERRUPTED, Connection
from zkwire.net.driver import Driver
from zkwire.net.lifetime import close_in_child
from zkwire.net.timing import DEADLINES_EVERY, DEFER_SECONDS, FLUSH_AT
from zkwire.session.request import Failed, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from typing import Any, Final, TypeVar

    from zkwire.net.pipeline import Pipeline
    from zkwire.session.waitable import Waitable, Watch

    T = TypeVar("T")


class Calling:
    """Calls functions of a user's, and keeps the coroutines that they return running.

    Each call has a copy of the context (``contextvars``) in which the client was made.  Without
    that it would have the context of a task that happened to connect, and the loop would keep that
    alive.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()  # callbacks that are coroutines
        self.context: Context = copy_context()

    def _call(self, function: Callable[[], object]) -> None:
        result = function()  # errors go to the loop's exception handler
        if asyncio.iscoroutine(result):
            task = asyncio.ensure_future(result)
            self._running.add(task)
            task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": "a callback has failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)


def value_of_each_task(current: Callable[[], object], make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the value of the task that calls it, made at the first call."""
    values: WeakKeyDictionary[object, T] = WeakKeyDictionary()

    def value() -> T:
        task = current()
        if task is None:
            raise RuntimeError("a re-entrant lock is its task's, and this is no task")
        if task not in values:
            values[task] = make()
        return values[task]

    return value


class _Owner:
    """A task, and the locks that it alone releases: no other could.

    The event loop calls back when a task is done.  One that waits for what nothing refers to is
    never done: the collector ends it, in any thread.
    """

    def __init__(self) -> None:
        self.locks: WeakSet[Any] = WeakSet()
        task = current_task()
        assert task is not None
        self._name = f"the task {task.get_name()}"
        task.add_done_callback(self._tell)

    def _tell(self, _: object = None) -> None:
        for lock in tuple(self.locks):
            if lock._owned:
                lock._owner_ended(self._name)

    __del__ = _tell  # only the task has it, which may be collected while it waits


_owner_of_this_task = value_of_each_task(current_task, _Owner)


# Keeps the tasks alive that await something of a client, and those keep the client: the loop itself
# holds neither.
_awaited: set[asyncio.Future[None]] = set()


def _wake(future: asyncio.Future[None]) -> None:
    """Let the task continue that awaits the future, if it still does and can."""
    if not (future.done() or future.get_loop().is_closed()):
        future.set_result(None)


async def within(
    loop: asyncio.AbstractEventLoop,
    waitable: Waitable,
    timeout: float | None,
    told: LoopDriver | None = None,
) -> bool:
    """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

    ``told``: the driver, which can end the wait, and wakes it for that.
    """
    latest = None if timeout is None else loop.time() + timeout
    # Again if it was ready and is not any more, as a connection that has lasted a moment.
    while not (waitable.ready or (latest is not None and loop.time() >= latest)):
        future = loop.create_future()
        waker = partial(_wake, future)
        timer = None if latest is None else loop.call_at(latest, waker)
        waitable._add_waker(waker)
        _awaited.add(future)
        try:
            if told is not None:
                if told.interrupted:
                    told._refuse_interrupted()
                told._sleepers.add(waker)
            await future
        finally:
            _awaited.discard(future)
            if told is not None:
                told._sleepers.discard(waker)
            if timer is not None:
                timer.cancel()
            waitable._drop_waker(waker)
    return waitable.ready


@asynccontextmanager
async def cancelled_by(
    add: Callable[[Callable[[object], None]], Callable[[], object]],
    error: Callable[[], Exception],
    value: T,
) -> AsyncGenerator[T, None]:
    """Cancel the body, which gets ``value``, when something happens, then raise ``error()``.

    ``add`` has a function called when it happens, and returns one that undoes this.  As with
    ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
    """
    task, over = asyncio.current_task(), False
    if task is None:
        raise RuntimeError("only a task can be cancelled, and this is none")
    outside, cancelled = task.cancelling(), False

    def cancel(_: object = None) -> None:
        nonlocal cancelled
        if not over:
            cancelled = task.cancel()

    remove = add(cancel)
    try:
        yield value
    except BaseException as raised:
        over = True
        if (
            not cancelled
            or task.uncancel() > outside
            or not isinstance(raised, asyncio.CancelledError)
        ):
            raise
        raise error() from None
    finally:
        remove()
    over = True
    if cancelled:  # and the body has ended before it noticed
        task.uncancel()
        raise error()


class LoopDriver(Calling, Driver):
    """See the module's docstring."""

    awaits = True
    _kind = StepReply
    io: LoopIO | None = None
    closing: float | None
    caller: Callable[[], object] = staticmethod(asyncio.current_task)
    waiter: Callable[[], object] = caller
    cancelled_by: Any = staticmethod(cancelled_by)

    running_loop: Callable[[], Any] = staticmethod(asyncio.get_running_loop)
    _sleep: Callable[[float], Any] = staticmethod(asyncio.sleep)
    # How messages name the client's class, such a loop, and where a call belongs.
    _names = "an", "AsyncClient", "event loop", "a coroutine"

    def __init__(self, client: Any) -> None:
        Calling.__init__(self)
        Driver.__init__(self, client)
        self.mutex: Any = nullcontext()
        self._sleepers: set[Callable[[], None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._flushing = False
        self._deferred_timer: asyncio.TimerHandle | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        """Begin to connect unless that has been done; returns the running loop."""
        try:
            loop: asyncio.AbstractEventLoop | None = self.running_loop()
        except RuntimeError:
            loop = None
        if loop is not None and loop is self.loop and not self.forked:
            return loop
        a, client, kind, place = self._names
        if self.forked:
            raise ForkedError(
                f"this client belongs to the parent process; make {a} {client} in this process"
            )
        if loop is None:
            raise RuntimeError(f"no running {kind}: call this in {place}")
        if self.loop is not None:
            raise RuntimeError(f"this {client} belongs to another {kind}")
        if type(loop).add_reader is asyncio.AbstractEventLoop.add_reader:
            raise RuntimeError(
                f"{type(loop).__name__} cannot wait for a socket; on Windows use "
                "asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)"
            )
        self.loop = loop
        close_in_child(self)
        if not self.session.ended:
            self.session.start(self.now())
            self.io = LoopIO(self, loop)
            self.io.turn_soon()
        return loop

    def check(self) -> None:
        """Raise RuntimeError in another event loop, ForkedError in a forked child."""
        self.start()

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the task that calls it."""
        return value_of_each_task(self.caller, make)

    @property
    def loop_closed(self) -> bool:
        """Whether the client's loop has been closed: nothing can happen any more."""
        return self.loop is not None and self.loop.is_closed()

    @property
    def elsewhere(self) -> bool:
        """Whether the client's loop, which may be running, does not run this."""
        if self.loop is None or self.loop.is_closed():
            return False
        try:
            return self.running_loop() is not self.loop
        except RuntimeError:
            return True

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the loop call ``function``, from any thread; False if it never will."""
        if self.loop is None:
            return False
        call = self.loop.call_soon_threadsafe if self.elsewhere else self.loop.call_soon
        try:
            call(function, context=self.context.copy())
        except RuntimeError:  # it is closed
            return False
        return True

    def never_retrieved(self, error: BaseException) -> None:
        """Report an operation whose error went unnoticed, as a future's."""
        if self.loop is not None and not self.forked:
            what = "the error of an operation was never retrieved"
            tell = partial(self.loop.call_exception_handler, {"message": what, "exception": error})
            if not self.call_soon(tell):
                tell()

    # --- requests ---------------------------------------------------------------------------------

    def when_caller_ends(self, lock: Any) -> None:
        """Tell the lock, if it is owned then, when the running task has ended."""
        _owner_of_this_task().locks.add(lock)

    @uninterruptible
    def submit(self, request: Request, eager: bool = True) -> None:
        """Put a request behind all earlier ones; without ``eager`` never send it at once."""
        try:
            loop = self.running_loop()
        except RuntimeError:
            self._submit_from_outside(request, eager)
            return
        if loop is not self.loop or self.forked:
            self.start()
        if self.deferred.waiting:
            self.deferred.call()
        connection, session = self.current_connection, self.session
        alone = eager and not session.unanswered
        if connection is None or connection.closed_because or self.closing is not None:
            self.check_open(request.op.name, request.path)
            if connection is not None and connection.closed_because:
                session.stop_sending(self.now())  # else the request would be lost with it
        elif alone and connection.writable:
            now = self.now()
            if now >= session.dead_at and self.io is not None:
                # Read what has come while the loop was blocked; nothing goes into a dead one.
                self.io.turn()
            elif data := session.send_alone(request, now):
                self._send(connection, data)
                return
        queued = session.push(request)
        if not queued:
            session.submit(request, self.now())
            queued = session.queued
            self.call_callbacks()  # remove_watches may have ended watches here already
        if not session.usable:
            self._turn_soon()  # it has a deadline
        elif alone or queued >= FLUSH_AT:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush_gathered)

    def _submit_from_outside(self, request: Request, eager: bool) -> None:
        """Have the loop submit a request that was made where no loop runs, in order.

        ``run_coroutine_threadsafe(client.get_data(path), loop)`` calls the operation in its own
        thread, ``loop.run_until_complete(client.get_data(path))`` between two runs of the loop.
        """
        if self.forked or self.loop is None:
            self.start()
        if not self.call_soon(partial(self._submit_here, request, eager)):
            raise ClientClosedError(LOOP_CLOSED, op=request.op.name, path=request.path)

    def _submit_here(self, request: Request, eager: bool) -> None:
        try:
            self.submit(request, eager)
        except Exception as error:  # the caller is elsewhere: an await raises it
            kind = type(error) if isinstance(error, ZooKeeperError) else ZooKeeperError
            request.outcome = Failed(kind, str(error.args[0]), False)
            for waker in request._take_wakers():
                waker()
            self.call_callbacks()

    def defer(self, function: Callable[[], object]) -> None:
        """Call ``function`` when the next request is submitted, or in DEFER_SECONDS seconds."""
        self.deferred.waiting.append(function)
        if self._deferred_timer is None:
            self._deferred_timer = self.start().call_later(DEFER_SECONDS, self._call_deferred)

    def _call_deferred(self) -> None:
        self._deferred_timer = None
        self.deferred.call()

    def _flush_gathered(self) -> None:
        self._flushing = False
        self.flush()

    def _turn_soon(self) -> None:
        if self.io is not None:
            self.io.turn_soon()

    # --- waiting ----------------------------------------------------------------------------------

    async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
        return await within(self.start(), waitable, timeout, self)

    def _rouse(self, waiter: object) -> None:
        for waker in list(self._sleepers):  # all of them: other tasks wait on
            waker()

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Refuse to block a whole event loop."""
        if waitable.ready or timeout == 0:
            return waitable.ready
        raise RuntimeError("this would block the event loop: use await")

    # --- what callers ask for ---------------------------------------------------------------------

    @uninterruptible
    def withdraw(self, request: Request) -> bool:
        """The caller no longer waits; True if the request now never will be sent."""
        later = self.elsewhere and self.call_soon(partial(self.withdraw, request))
        return not later and super().withdraw(request)

    @uninterruptible
    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Remove a watch; see :class:`zkwire.net.driver.Driver`.

        The collector may run a finalizer in the middle of anything, in the loop's thread, too.
        """
        if not (in_the_middle() and self.call_soon(partial(self.close_watch, watch, tell=tell))):
            super().close_watch(watch, tell=tell)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        self.call_soon(partial(self._call, function))

    def spawn(self, work: Callable[[Pipeline], Coroutine[Any, Any, object]]) -> None:
        """Run ``work(background)`` to its end; see :class:`zkwire.net.driver.Driver`.

        A task that the collector ends in another thread leaves its clean-up to the loop.
        """
        if self.loop_closed:
            raise ClientClosedError(LOOP_CLOSED)
        if not (self.elsewhere and self.call_soon(partial(self.spawn, work))):
            super().spawn(work)

    # --- bytes ------------------------------------------------------------------------------------

    @uninterruptible
    def read(self, connection: Connection) -> None:
        """One receive and all that follows from it; nothing that comes after an interrupted one."""
        session, data = self.session, None
        try:
            if not connection.closed_because:
                connection.fetch()
                if connection.inbox:
                    data = connection.opened()
            connection.inbox.clear()
            if data:
                now = self.now()
                session.receive_data(data, now)
                if now >= connection.deadlines_at:
                    connection.deadlines_at = now + DEADLINES_EVERY
                    session.on_deadline(now)
                if session.broken:
                    connection.closed_because = session.broken
                if session.callbacks:
                    self.call_callbacks()
                if session.has_output:
                    self.flush()
        except BaseException:  # what it has taken from the kernel may be lost
            connection.closed_because = connection.closed_because or INTERRUPTED
            self._turn_soon()
            raise
        if connection.closed_because or not session.usable:
            self._turn_soon()

    @uninterruptible
    def call_callbacks(self) -> None:
        """Call the session's callbacks, in order."""
        while self.session.callbacks:
            callbacks, called = self.session.take_callbacks(), 0
            try:
                for function in callbacks:
                    function()
                    called += 1
            finally:  # an interrupt must not lose the callbacks after it
                if called < len(callbacks):
                    self.session.callbacks[:0] = callbacks[called:]

    _schedule_callbacks = call_callbacks

    @uninterruptible
    def flush(self) -> None:
        """Send what there is to send, as far as the kernel takes it."""
        connection = self.current_connection
        if connection is None or connection.closed_because:
            return
        while self.session.has_output and connection.writable:
            self._send(connection, self.session.data_to_send(self.now()))

    def _send(self, connection: Connection, data: bytes) -> None:
        connection.written += len(data)
        connection.send(data)
        if not connection.writable:
            self._turn_soon()  # to listen until it is writable, or to end it

    send_rest: Final = uninterruptible(Driver.send_rest)

    # --- the end ----------------------------------------------------------------------------------

    async def cleaned_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most about ``timeout`` seconds."""
        latest = self.now() + timeout
        while self.background_tasks and not self.session.ended and self.now() < latest:
            await self._sleep(SHORTEST_PAUSE)

    async def _end_session(self, timeout: float, *, tell: bool) -> None:
        """Wait for the end of the session, with ``tell`` after asking the server for it."""
        if tell:
            self.session.close(self.now())
            self.flush()
            self._turn_soon()
        with self.seeing() as over:
            await self.within(over, timeout)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the connection; returns within about ``timeout`` seconds.

        When the client's own loop is closed already, there is only the socket left to close.
        """
        if self.forked:
            return
        if self.loop is None:
            self.loop = self.running_loop()  # nothing will be started; listeners are told
        elif not self.loop_closed:
            self.start()
        session = self.session
        first, self.closing = self.closing is None, timeout
        try:
            if not (self.io is None or session.ended or detach or self.loop_closed):
                await self._end_session(timeout, tell=first)
        finally:
            self._stop()

    def drop(self, timeout: float) -> bool:
        """Nothing refers to the client any more: close it soon; False if that is not necessary.

        For a finalizer, see :mod:`zkwire.net.lifetime`.
        """
        io = self.io
        unused = io is None or self.forked or self.closing is not None or self.session.ended
        if io is None or unused or finalizing():
            return False
        io.owner_ref.hold(io)
        if not self.call_soon(partial(self._close_soon, timeout)):
            self._stop()  # its loop is closed: there is only the socket
        return True

    def _close_soon(self, timeout: float) -> None:
        close_in_child(self)  # the finalizer has run, which ends weak references
        self._call(partial(self.close, timeout))

    def _stop(self) -> None:
        if self.io is not None:
            self.io.stop()
        else:
            self.session.closed()
        self.call_callbacks()
