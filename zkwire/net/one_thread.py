"""The driver of a session that belongs to one thread, as far as asyncio and trio are alike.

Tasks wait in that thread, and it does the I/O, so nothing is locked.  Only it may touch the
session, and not while it is in the middle of that; a finalizer runs in any thread and at any
moment.  How a task waits, and what turns the connector, is decided by the subclasses.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from weakref import WeakKeyDictionary

from zkwire.net.connection import INTERRUPTED, Connection
from zkwire.net.driver import Driver
from zkwire.net.timing import DEADLINES_EVERY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from random import Random
    from types import CodeType, FrameType
    from typing import Any, Final, TypeVar

    from zkwire.recipes._recipe import Cancellable
    from zkwire.session.request import Request
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable, Watch

    Function = TypeVar("Function", bound=Callable[..., object])
    T = TypeVar("T")


_work: set[CodeType] = set()  # of what is uninterruptible


def uninterruptible(function: Function) -> Function:
    """A function in the middle of which the session must not be touched."""
    _work.add(function.__code__)
    return function


def in_the_middle() -> bool:
    """Whether the caller's caller interrupts the work of this thread for a client.

    A finalizer does, when the collector runs it there.  The stack tells: a note of it would cost
    each operation something.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in _work:
        frame = frame.f_back
    return frame is not None


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


class OneThreadDriver(Driver):
    """A driver whose session belongs to one thread, in which tasks wait: of asyncio, or of trio."""

    awaits = True
    context: Context  # of the functions of a user's

    if TYPE_CHECKING:

        @property
        def outside(self) -> bool:
            """Whether the tasks' thread, which may be running, does not run this."""
            ...

        def _call(self, function: Callable[[], object]) -> None:
            """Call a user's function; a coroutine that it returns runs as a task."""

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.mutex: Any = nullcontext()
        self._sleepers: set[Callable[[], None]] = set()

    def check(self) -> None:
        """Raise RuntimeError in another event loop, ForkedError in a forked child."""
        self.start()

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the task that calls it."""
        return value_of_each_task(self.caller, make)

    def _turn_soon(self) -> None:
        """Have the I/O do soon what there is to do; in the session's own thread."""
        self.wake()

    # --- requests ---------------------------------------------------------------------------------

    def _prepare(self, request: Request, connection: Connection | None) -> None:
        """The connection is not as usual: refuse the request, or make sure that it is not lost."""
        self.check_open(request.op.name, request.path)
        if connection is not None and connection.closed_because:
            self._judge()  # it is broken: the request must not be lost with it

    def _judge(self) -> None:
        """Read what has come while the loop was blocked; nothing goes into a dead connection."""
        if self.io is not None:
            self.io.turn()

    # --- waiting ----------------------------------------------------------------------------------

    def interrupt(self, waiter: object, attempt: Cancellable) -> None:
        """Have this task's wait raise what the attempt says, if that lasts then."""
        if not (self.outside and self.call_soon(partial(self.interrupt, waiter, attempt))):
            super().interrupt(waiter, attempt)

    def _rouse(self, waiter: object) -> None:
        for waker in list(self._sleepers):  # all of them: other tasks wait on
            waker()

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Refuse to block a whole event loop."""
        if waitable.ready or timeout == 0:
            return waitable.ready
        raise RuntimeError("this would block the event loop: use await")

    # --- what callers ask for ---------------------------------------------------------------------

    withdraw: Final = uninterruptible(Driver.withdraw)

    @uninterruptible
    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        """Remove a watch; with ``tell`` from the server too, unless another one needs it there.

        A finalizer, which the collector runs in any thread and in the middle of anything, leaves it
        to the loop.
        """
        if self.forked:
            return
        later = self.outside or in_the_middle()
        if not (later and self.call_soon(partial(self.close_watch, watch, tell=tell))):
            self.session.forget_watch(watch, tell=tell)
            self.call_callbacks()
            self.flush()

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        self.call_soon(partial(self._call, function))

    async def _end_session(self, timeout: float, *, tell: bool) -> None:
        """Wait for the end of the session, with ``tell`` after asking the server for it."""
        if tell:
            self.session.close(self.now())
            self.flush()
            self._turn_soon()
        with self.seeing() as over:
            await self.within(over, timeout)

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
                if session.broken or session.ended:
                    connection.closed_because = session.broken or "the session is over"
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
            finally:  # an interrupt must not lose those behind it
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
