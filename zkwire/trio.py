"""zkwire under trio, and so under anyio with its backend for trio.

    import trio
    from zkwire import AsyncSequentialLock
    from zkwire.trio import TrioClient

    async def main():
        async with TrioClient("127.0.0.1:2181") as client:
            async with AsyncSequentialLock(client, "/locks/report") as lock:
                ...

It needs the package trio, so it is not among the names of :mod:`zkwire` itself.  There is no
thread, except to look up the name of a host.

A run of trio has a loop here: what the driver for asyncio asks of an event loop, done by system
tasks.  So both libraries have one driver, and this module knows only how a task of trio waits, how
it is cancelled, and when it ends.

Invariants: the session is only touched in trio's thread.  Functions of a user's are called by
system tasks, never from within the session, and their errors go into the log.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import trio
from trio.lowlevel import RunVar, Task, current_task, spawn_system_task

from zkwire.aio.client import AsyncClient
from zkwire.aio.driver import LoopDriver
from zkwire.net.listeners import log_failure

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from zkwire.session.waitable import Waitable

__all__ = ["TrioClient"]

T = TypeVar("T")


def _call(scope: trio.CancelScope, function: Callable[[], object]) -> None:
    """Call it unless that is cancelled; an error would end the run, so it goes into the log."""
    if not scope.cancel_called:
        try:
            function()
        except Exception as error:
            log_failure("a callback has failed", error)


class _Handle:
    """Calls a function whenever a wait has ended, once or again and again, in a system task."""

    def __init__(
        self,
        wait: Callable[[], Awaitable[object]],
        function: Callable[[], object],
        *,
        again: bool = False,
        when: float = 0.0,
    ) -> None:
        self._scope = trio.CancelScope()
        self._when = when
        spawn_system_task(self._run, wait, function, again)

    async def _run(
        self, wait: Callable[[], Awaitable[object]], function: Callable[[], object], again: bool
    ) -> None:
        with self._scope:
            # The socket of one that is cancelled may be closed, and a wait for it an error.
            while not self._scope.cancel_called:
                await wait()
                _call(self._scope, function)
                if not again:
                    break

    def when(self) -> float:
        """The time that it waits for, if it is one."""
        return self._when

    def cancel(self) -> None:
        """Call the function no more.  Idempotent."""
        self._scope.cancel()


class _Loop:
    """A run of trio in the shape of an event loop, as far as the driver for asyncio needs one."""

    time = staticmethod(trio.current_time)

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._listening: dict[tuple[socket.socket, Any], _Handle] = {}
        self._closed = False
        self.drivers: set[_TrioDriver] = set()  # to be closed at the end of the run
        spawn_system_task(self._close_at_the_end)

    async def _close_at_the_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for driver in list(self.drivers):
                _call(trio.CancelScope(), driver._stop)
            self._closed = True

    def is_closed(self) -> bool:
        """Whether the run is over."""
        return self._closed

    def call_soon(
        self, function: Callable[[], object], *, context: Context | None = None
    ) -> trio.CancelScope:
        """Call it in the run, soon, from any thread; RuntimeError if the run is over."""
        scope = trio.CancelScope()
        call = function if context is None else partial(context.run, function)
        self._token.run_sync_soon(_call, scope, call)
        return scope

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, function: Callable[..., object], *args: object) -> _Handle:
        """Call it at this time of trio's clock."""
        return _Handle(partial(trio.sleep_until, when), partial(function, *args), when=when)

    def call_later(self, delay: float, function: Callable[[], object]) -> _Handle:
        """Call it after so many seconds."""
        return self.call_at(self.time() + delay, function)

    def add_reader(
        self, sock: socket.socket, function: Callable[..., object], *args: object
    ) -> None:
        """Call it whenever something can be read."""
        self._listen(trio.lowlevel.wait_readable, sock, partial(function, *args))

    def add_writer(
        self, sock: socket.socket, function: Callable[..., object], *args: object
    ) -> None:
        """Call it whenever something can be written."""
        self._listen(trio.lowlevel.wait_writable, sock, partial(function, *args))

    def _listen(self, wait: Any, sock: socket.socket, function: Callable[[], object]) -> None:
        self._listening[sock, wait] = _Handle(partial(wait, sock), function, again=True)

    def remove_reader(self, sock: socket.socket) -> None:
        """Stop calling what :meth:`add_reader` was given."""
        self._unlisten(trio.lowlevel.wait_readable, sock)

    def remove_writer(self, sock: socket.socket) -> None:
        """Stop calling what :meth:`add_writer` was given."""
        self._unlisten(trio.lowlevel.wait_writable, sock)

    def _unlisten(self, wait: Any, sock: socket.socket) -> None:
        if (handle := self._listening.pop((sock, wait), None)) is not None:
            handle.cancel()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Put an error into the log."""
        log_failure(context["message"], context["exception"])


_loop: RunVar[_Loop] = RunVar("zkwire's loop")


def _running_loop() -> _Loop:
    """The loop of this run of trio; RuntimeError where none runs."""
    try:
        return _loop.get()
    except LookupError:
        loop = _Loop()
        _loop.set(loop)
        return loop


class _Ends(trio.abc.Instrument):
    """Tells the locks that a task alone can release when that task has ended."""

    def __init__(self) -> None:
        self.locks: WeakKeyDictionary[Task, WeakSet[Any]] = WeakKeyDictionary()

    def task_exited(self, task: Task) -> None:
        for lock in tuple(self.locks.pop(task, ())):
            if lock._owned:
                lock._runtime.call_soon(partial(lock._owner_ended, f"the task {task.name}"))


@asynccontextmanager
async def _cancelled_by(
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


class _TrioDriver(LoopDriver):
    """The driver of a session under trio; see the module's docstring."""

    caller = waiter = staticmethod(current_task)
    running_loop = staticmethod(_running_loop)
    cancelled_by = staticmethod(_cancelled_by)
    _sleep = staticmethod(trio.sleep)
    _names = "a", "TrioClient", "run of trio", "a task of trio.run"

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._ends: _Ends | None = None

    def start(self) -> Any:
        """Begin to connect unless that has been done; returns the run's loop."""
        started = self.loop is not None
        loop: Any = super().start()
        if not started:
            loop.drivers.add(self)
        return loop

    # --- tasks ------------------------------------------------------------------------------------

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

    def when_caller_ends(self, lock: Any) -> None:
        """Tell the lock, if it is owned then, when the running task has ended."""
        if self._ends is None:
            self._ends = _Ends()
            trio.lowlevel.add_instrument(self._ends)
        self._ends.locks.setdefault(current_task(), WeakSet()).add(lock)

    def _call(self, function: Callable[[], object]) -> None:
        result = function()
        if iscoroutine(result):
            context = self.context.copy()
            spawn_system_task(_finish, result, name=str(function), context=context)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the connection; within ``timeout`` seconds, also when cancelled."""
        with trio.CancelScope(shield=True):
            await super().close(timeout, detach=detach)

    def _stop(self) -> None:
        super()._stop()
        loop: Any = self.loop
        loop.drivers.discard(self)
        if self._ends is not None:
            trio.lowlevel.remove_instrument(self._ends)
            self._ends = None


async def _finish(coroutine: Coroutine[Any, Any, object]) -> None:
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
