"""zkwire under trio, and so under anyio with its backend for trio.

    import trio
    from zkwire import AsyncSequentialLock
    from zkwire.trio import TrioClient

    async def main():
        async with TrioClient("127.0.0.1:2181") as client:
            async with AsyncSequentialLock(client, "/locks/report") as lock:
                ...

It needs the package trio, so it is not among the names of :mod:`zkwire` itself.  One system task
does the I/O; there is no thread, except to look up the name of a host.

Invariants: the session is only touched in trio's thread.  Functions of a user's are called by the
system task, never from within the session, and their errors go into the log.
"""

from __future__ import annotations

import math
import selectors
import threading
from collections import deque
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import trio
from trio.lowlevel import Task, current_task

from zkwire.aio.client import AsyncClient
from zkwire.aio.replies import StepReply
from zkwire.errors import ForkedError
from zkwire.net.connector import Connector
from zkwire.net.lifetime import close_in_child
from zkwire.net.listeners import log_failure
from zkwire.net.one_thread import OneThreadDriver, uninterruptible
from zkwire.net.timing import DEFER_SECONDS, FLUSH_AT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from zkwire.recipes.runtime import Owned
    from zkwire.session.request import Request
    from zkwire.session.waitable import Waitable

__all__ = ["TrioClient"]

T = TypeVar("T")


class _TrioIO:
    """The system task: turns the connector whenever something has happened or is due."""

    def __init__(self, driver: _TrioDriver) -> None:
        self.token: trio.lowlevel.TrioToken = trio.lowlevel.current_trio_token()
        self.over: trio.Event = trio.Event()
        self._driver = driver
        self._thread = threading.get_ident()
        self._selector: Any = selectors.DefaultSelector()  # epoll or kqueue: one descriptor
        self.connector: Connector = Connector(driver, self._selector)
        self._soon: deque[Callable[[], object]] = deque()
        self._waiting: trio.CancelScope | None = None
        self._woken = self._stopped = self._in_turn = False
        self.call_deferred_at: float | None = None

    # --- from anywhere ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the task turn soon; from any thread."""
        self._woken = True
        if threading.get_ident() != self._thread:
            with suppress(trio.RunFinishedError):
                self.token.run_sync_soon(self._interrupt, idempotent=True)
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the task call ``function``; False if it never will."""
        if self.over.is_set():
            return False
        self._soon.append(function)
        self.wake()
        return True

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """The system task's function."""
        try:
            while not self._stopped:
                await self._wait(self._prepare())
                self.turn()
        except Exception as error:  # else it would end the program's run
            log_failure("the client's I/O has failed", error)
        finally:
            self.stop()
            self._call_soon()
            self.connector.close_unused()
            self._selector.close()
            self.over.set()

    def _prepare(self) -> float | None:
        due = self.connector.prepare()
        connection = self._driver.current_connection
        if connection is not None:
            writing = selectors.EVENT_WRITE if connection.pending else 0
            self.connector.listen(selectors.EVENT_READ | writing)
        times = [at for at in (due, self.call_deferred_at) if at is not None]
        return min(times) if times else None

    async def _wait(self, due: float | None) -> None:
        """Until something can be done on a socket, somebody wakes this, or a deadline."""
        left = math.inf if due is None else max(0.0, due - self._driver.now())
        with trio.CancelScope(deadline=trio.current_time() + left) as self._waiting:
            if self._woken or self._soon:
                self._waiting.cancel()
            await trio.lowlevel.wait_readable(self._selector.fileno())
        self._waiting, self._woken = None, False

    def turn(self) -> None:
        """Do what can be done on the sockets, and what is due."""
        if self._stopped or self._in_turn:
            return
        self._in_turn, driver = True, self._driver
        try:
            for key, events in self._selector.select(0):
                self._ready(key.data, events)
            self._call_soon()
            driver.flush()
            self.connector.conclude(driver.now())
            if self.call_deferred_at is not None and driver.now() >= self.call_deferred_at:
                self.call_deferred_at = None
                driver.deferred.call()
                driver.flush()
            if driver.unfinished:
                driver.finish_clean_up()
        finally:
            self._in_turn = False

    def _ready(self, attempt: Callable[[], Any] | None, events: int) -> None:
        driver, connection = self._driver, self._driver.current_connection
        if attempt is not None:
            trying = attempt()
            if trying is not None:
                trying.ready(events)
        elif connection is not None:
            if events & selectors.EVENT_READ:
                driver.read(connection)
            if events & selectors.EVENT_WRITE:
                driver.send_rest(connection)

    def _call_soon(self) -> None:
        for _ in range(len(self._soon)):  # what these ask for has its turn later
            function = self._soon.popleft()
            try:
                function()
            except Exception as error:
                log_failure("a callback has failed", error)

    def stop(self) -> None:
        """End the session on this side, and the connection.  Idempotent."""
        if not self._stopped:
            self._stopped = True
            self.connector.stop("the client is closed")
            self._driver.call_callbacks()
            self.wake()

    def after_fork(self) -> None:
        """In a forked child: close everything, without a byte or a FIN."""
        self._stopped = True
        self.connector.after_fork()
        self._selector.close()


class _Ends(trio.abc.Instrument):
    """Tells the locks that a task alone can release when that task has ended."""

    def __init__(self) -> None:
        self.locks: WeakKeyDictionary[Task, WeakSet[Owned]] = WeakKeyDictionary()

    def task_exited(self, task: Task) -> None:
        for lock in tuple(self.locks.pop(task, ())):
            if lock._owned:
                runtime: Any = lock._runtime
                runtime.call_soon(partial(lock._owner_ended, f"the task {task.name}"))


class _TrioDriver(OneThreadDriver):
    """The driver of a session under trio; see the module's docstring."""

    _kind = StepReply
    io: _TrioIO | None = None
    caller = waiter = staticmethod(current_task)

    def __init__(self, session: Any, rng: Any, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.context: Context = copy_context()
        self._ends: _Ends | None = None

    @property
    def outside(self) -> bool:
        """Whether no task of a run of trio runs this."""
        return not trio.lowlevel.in_trio_run()

    def start(self) -> object:
        """Begin to connect unless that has been done."""
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make a TrioClient in this process"
            )
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError("trio does not run here: call this in a task of trio.run")
        io = self.io or self._begin()
        if io.token is not trio.lowlevel.current_trio_token():
            raise RuntimeError("this TrioClient belongs to another run of trio")
        return io

    def _begin(self, *, connect: bool = True) -> _TrioIO:
        io = self.io = _TrioIO(self)
        close_in_child(self)
        if connect and not self.session.ended:
            self.session.start(self.now())
        trio.lowlevel.spawn_system_task(io.run, name=self.name)
        return io

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the system task call ``function``; False if it never will."""
        return self.io is not None and self.io.call_soon(function)

    # --- requests ---------------------------------------------------------------------------------

    @uninterruptible
    def submit(self, request: Request, eager: bool = True) -> None:
        """Put a request behind all earlier ones; it leaves at once if nothing is unanswered."""
        self.start()
        if self.deferred.waiting:
            self.deferred.call()
        session, connection = self.session, self.current_connection
        self._prepare(request, connection)
        if connection is not None and self.now() >= session.dead_at:
            self._judge()
        alone = eager and not session.unanswered
        session.submit(request, self.now())
        self.call_callbacks()  # remove_watches may have ended watches here already
        if session.usable and (alone or session.queued >= FLUSH_AT):
            self.flush()
        else:
            self.wake()

    def defer(self, function: Callable[[], object]) -> None:
        """Call ``function`` when the next request is submitted, or in DEFER_SECONDS seconds."""
        self.start()
        self.deferred.waiting.append(function)
        if self.io is not None and self.io.call_deferred_at is None:
            self.io.call_deferred_at = self.now() + DEFER_SECONDS
            self.io.wake()

    # --- waiting ----------------------------------------------------------------------------------

    async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
        self.start()
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while not waitable.ready:
                if self.interrupted:
                    self._refuse_interrupted()
                woken = trio.Event()
                self._sleepers.add(woken.set)
                waitable._add_waker(woken.set)
                try:
                    await woken.wait()
                finally:
                    waitable._drop_waker(woken.set)
                    self._sleepers.discard(woken.set)
            return True
        return waitable.ready

    @asynccontextmanager
    async def cancelled_by(
        self,
        add: Callable[[Callable[[object], None]], Callable[[], object]],
        error: Callable[[], Exception],
        value: T,
    ) -> AsyncGenerator[T, None]:
        """Cancel the body when something happens, then raise ``error()``."""
        with trio.CancelScope() as scope:
            remove = add(lambda _: scope.cancel())
            try:
                yield value
            finally:
                remove()
        if scope.cancel_called:
            raise error()

    def when_caller_ends(self, lock: Owned) -> None:
        """Tell the lock, if it is owned then, when the running task has ended."""
        if self._ends is None:
            self._ends = _Ends()
            trio.lowlevel.add_instrument(self._ends)
        self._ends.locks.setdefault(current_task(), WeakSet()).add(lock)

    # --- functions of a user's --------------------------------------------------------------------

    def _call(self, function: Callable[[], object]) -> None:
        result = self.context.copy().run(function)
        if iscoroutine(result):
            context = self.context.copy()
            trio.lowlevel.spawn_system_task(_finish, result, name=str(function), context=context)

    def never_retrieved(self, error: BaseException) -> None:
        """Say in the log that an operation's error went unnoticed."""
        log_failure("the error of an operation was never retrieved", error)

    # --- the end ----------------------------------------------------------------------------------

    async def cleaned_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most about ``timeout`` seconds."""
        with trio.move_on_after(timeout):
            while self.background_tasks and not self.session.ended:
                await trio.sleep(0.001)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the connection; within ``timeout`` seconds, also when cancelled."""
        if self.forked:
            return
        first = self.closing is None
        io = self.io or self._begin(connect=False)
        if io.over.is_set():
            return
        self.check()
        self.closing = timeout
        with trio.CancelScope(shield=True):
            if not (self.session.ended or detach):
                await self._end_session(timeout, tell=first)
            io.stop()
            await io.over.wait()
        if self._ends is not None:
            trio.lowlevel.remove_instrument(self._ends)
            self._ends = None

    def drop(self, timeout: float) -> bool:
        """Nothing is to be done: the system task keeps a client that is not closed."""
        return False


async def _finish(coroutine: Any) -> None:
    """Run what a user's function has returned."""
    try:
        await coroutine
    except Exception as error:
        log_failure("a callback has failed", error)


class TrioClient(AsyncClient):
    """A ZooKeeper session under trio, to be shared by any number of tasks of one ``trio.run``.

        async with TrioClient("127.0.0.1:2181") as client:
            await client.create("/hello", b"world")
            replies = [client.get_data(path) for path in paths]  # all on their way
            values = [await reply for reply in replies]

    Options, operations, arguments, results, errors, watches and recipes are those of
    :class:`zkwire.AsyncClient`: give it to any ``Async...`` lock or service, and use ``trio`` where
    that one's documentation says ``asyncio``.  ``trio.fail_after`` and ``trio.move_on_after`` limit
    each call; a cancelled await withdraws what had not been sent, and a cancelled ``acquire``
    leaves no node.

    What is different: ``close`` tells the server even in a scope that is cancelled (within a
    second).  A client that is not closed lives until the run of trio ends.  Errors of callbacks and
    listeners go into the log ``zkwire``.  There is no supervisor for trio.  Other threads use
    ``trio.from_thread.run``.
    """

    @staticmethod
    def _driver_class() -> Any:
        return _TrioDriver
