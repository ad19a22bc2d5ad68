"""The driver of the asyncio client: one loop, no thread, no lock.

Requests leave in the order of the calls: at once if nothing is unanswered, else at the end of the
loop's turn, with the next reply, or when enough have gathered, whichever comes first.

Invariants: an await that is cancelled withdraws what had not been sent and leaves the rest in its
place; functions of a user's are called from the loop, never from within the session.

It also knows how a task waits, how a scope cancels the task that works in it, what is one task's
own, and the end of a task that holds a re-entrant lock.
"""

from __future__ import annotations

import asyncio
from asyncio import Task, current_task
from contextlib import asynccontextmanager
from functools import partial
from sys import is_finalizing as finalizing
from weakref import WeakKeyDictionary, WeakSet

from zkwire.aio.loop import (
    LOOP_CLOSED,
    SHORTEST_PAUSE,
    LoopBound,
    LoopIO,
)
from zkwire.aio.replies import StepReply
from zkwire.errors import ClientClosedError, ZooKeeperError
from zkwire.net.driver import Seeing
from zkwire.net.lifetime import close_in_child
from zkwire.net.one_thread import uninterruptible
from zkwire.net.timing import DEFER_SECONDS, FLUSH_AT
from zkwire.session.request import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from random import Random
    from typing import Any, Protocol, TypeVar

    from zkwire.net.pipeline import Pipeline
    from zkwire.recipes.runtime import Owned
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable

    T = TypeVar("T")

    class Told(Protocol):
        """A driver, as far as waits tell it of themselves."""

        def awaiting(self, waker: Callable[[], None], begins: bool) -> None: ...


def value_of_each_task(make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the value of the task that calls it, made at the first call."""
    values: WeakKeyDictionary[Task[Any], T] = WeakKeyDictionary()

    def value() -> T:
        task = current_task()
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
        self.locks: WeakSet[Owned] = WeakSet()
        task = current_task()
        assert task is not None
        self._name = f"the task {task.get_name()}"
        task.add_done_callback(self._tell)

    def _tell(self, _: object = None) -> None:
        for lock in tuple(self.locks):
            if lock._owned:
                lock._owner_ended(self._name)

    __del__ = _tell  # only the task has it, which may be collected while it waits


_owner_of_this_task = value_of_each_task(_Owner)


def tell_at_the_end_of_this_task(lock: Owned) -> None:
    """Tell the lock when this task ends and still owns it."""
    _owner_of_this_task().locks.add(lock)


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
    told: Told | None = None,
) -> bool:
    """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

    ``told``: what can end the wait, and wake it for that.
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
                told.awaiting(waker, True)
            await future
        finally:
            _awaited.discard(future)
            if told is not None:
                told.awaiting(waker, False)
            if timer is not None:
                timer.cancel()
            waitable._drop_waker(waker)
    return waitable.ready


@asynccontextmanager
async def cancelled_by(
    add: Callable[[Callable[[object], None]], Callable[[], object]],
    error: Callable[[], Exception],
) -> AsyncGenerator[None, None]:
    """Cancel the body when something happens, then raise ``error()``.

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
        yield
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


class LoopDriver(LoopBound):
    """See the module's docstring."""

    _kind = StepReply
    io: LoopIO | None = None
    loop: asyncio.AbstractEventLoop | None
    closing: float | None
    caller = waiter = staticmethod(asyncio.current_task)

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self._flushing = False
        self._deferred_timer: asyncio.TimerHandle | None = None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.session.ended:
            self.session.start(self.now())
            self.io = LoopIO(self, loop)
            self.io.turn_soon()

    # --- requests ---------------------------------------------------------------------------------

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the task that calls it."""
        return value_of_each_task(make)

    def when_caller_ends(self, lock: Owned) -> None:
        """Tell the lock, if it is owned then, when the running task has ended."""
        tell_at_the_end_of_this_task(lock)

    @asynccontextmanager
    async def cancelled_by(
        self,
        add: Callable[[Callable[[object], None]], Callable[[], object]],
        error: Callable[[], Exception],
        value: T,
    ) -> AsyncGenerator[T, None]:
        """Cancel the body when something happens; see :func:`zkwire.aio.driver.cancelled_by`."""
        async with cancelled_by(add, error):
            yield value

    @uninterruptible
    def submit(self, request: Request, eager: bool = True) -> None:
        """Put a request behind all earlier ones; without ``eager`` never send it at once."""
        try:
            loop = asyncio.get_running_loop()
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
            self._prepare(request, connection)
        elif alone and connection.writable:
            now = self.now()
            if now >= session.dead_at:
                self._judge()
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

    def wake(self) -> None:
        """Have the loop do soon what there is to do; from any thread."""
        if self.io is not None:
            self.io.wake()

    def _turn_soon(self) -> None:
        if self.io is not None:
            self.io.turn_soon()

    # --- waiting ----------------------------------------------------------------------------------

    async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
        return await within(self.start(), waitable, timeout, self)

    def awaiting(self, waker: Callable[[], None], begins: bool) -> None:
        """A task's wait begins, which ``waker`` wakes, or ends."""
        if begins:
            if self.interrupted:
                self._refuse_interrupted()
            self._sleepers.add(waker)
        else:
            self._sleepers.discard(waker)

    # --- what callers ask for ---------------------------------------------------------------------

    def spawn(
        self, work: Callable[[Pipeline], Coroutine[Any, Any, object]], *, lasting: bool = False
    ) -> None:
        """Run ``work(background)`` to its end; see :class:`zkwire.net.driver.Driver`.

        A task that the collector ends in another thread leaves its clean-up to the loop.
        """
        if self.loop_closed:
            raise ClientClosedError(LOOP_CLOSED)
        if not (self.outside and self.call_soon(partial(self.spawn, work, lasting=lasting))):
            super().spawn(work, lasting=lasting)

    # --- the end ----------------------------------------------------------------------------------

    async def cleaned_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most about ``timeout`` seconds."""
        latest = self.now() + timeout
        while self.background_tasks and not self.session.ended and self.now() < latest:
            await asyncio.sleep(SHORTEST_PAUSE)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the connection; returns within about ``timeout`` seconds.

        When the client's own loop is closed already, there is only the socket left to close.
        """
        if self.forked:
            return
        if self.loop is None:
            self.loop = asyncio.get_running_loop()  # nothing will be started; listeners are told
        elif not self.loop_closed:
            self.start()
        session = self.session
        first, self.closing = self.closing is None, timeout
        try:
            if not (self.io is None or session.ended or detach or self.loop_closed):
                if first:
                    session.close(self.now())
                    self.flush()
                    self._turn_soon()
                with Seeing(self) as over:
                    await self.within(over, timeout)
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
