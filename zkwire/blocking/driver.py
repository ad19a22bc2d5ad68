"""The driver of the blocking client: what its operations, recipes and watches ask for.

It owns the threads; how they share the connection is in :mod:`zkwire.blocking.leader`, and what the
I/O thread does in :mod:`zkwire.blocking.io_thread`.  It also knows what is one thread's own, and
the end of a thread that holds a re-entrant lock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from zkwire.blocking.io_thread import IOThread, serve
from zkwire.blocking.leader import LeaderFollower
from zkwire.blocking.sync import BlockingReply, ReplyPipeline, check_callback
from zkwire.errors import ZooKeeperError
from zkwire.net.background import report
from zkwire.net.lifetime import clean_up_at_exit, close_in_child
from zkwire.net.pipeline import Pipeline
from zkwire.session.waitable import Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from zkwire.operations import Operations

    T = TypeVar("T")


def value_of_each_thread(make: Callable[[], T]) -> Callable[[], T]:
    """A function that returns the value of the thread that calls it, made at the first call."""
    kinds: dict[object, Any] = {}  # gevent replaces threads, and their values with them

    def value() -> T:
        kind = threading.get_ident
        # In one step: of two threads that begin at once, one would lose its value.
        values = kinds.get(kind) or kinds.setdefault(kind, threading.local())
        try:
            return values.value
        except AttributeError:
            values.value = made = make()
            return made

    return value


class _Owner:
    """A thread, and the locks that it alone releases; finalized at the thread's end.

    No other thread could release them.  A thread's own values are finalized when it ends, in that
    thread, which is at nothing else then; the I/O thread does the rest.  In a forked child threads
    end that have never run there, and at the end of the interpreter nothing can be done any more.
    """

    _process = 0  # of none, while it is being made

    def __init__(self) -> None:
        self.locks: WeakSet[Any] = WeakSet()
        self._name = f"the thread {threading.current_thread().name}"
        self._process = os.getpid()

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._process:
            return
        for lock in self.locks:
            if lock._owned:
                with suppress(ZooKeeperError):  # the session is over, and its nodes go with it
                    lock._runtime.spawn(partial(_tell, lock, self._name))


async def _tell(lock: Any, owner: str, _: Operations) -> None:
    lock._owner_ended(owner)


_owner_of_this_thread = value_of_each_thread(_Owner)


POLL_SECONDS = 0.0005
# How much longer than it was given a close may take: the I/O thread's way out.
CLOSE_SLACK = 0.2


class ThreadDriver(LeaderFollower):
    """See the module's docstring."""

    _kind = BlockingReply
    io: IOThread | None = None
    closing: float | None
    thread: threading.Thread | None
    waiter: Callable[[], object] = staticmethod(threading.get_ident)

    def check_callback(self, function: Any) -> None:
        """TypeError for a function that would have to be awaited."""
        check_callback(function)

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._dropped = False  # nothing refers to the client any more
        self.pipeline: Pipeline = ReplyPipeline(self, BlockingReply)
        clean_up_at_exit(self)

    @staticmethod
    def caller() -> int:
        """Another number for each thread."""
        return threading.get_ident()

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the thread that calls it."""
        return value_of_each_thread(make)

    def when_caller_ends(self, lock: Any) -> None:
        """Tell the lock, if it is owned then, when the calling thread has ended."""
        _owner_of_this_thread().locks.add(lock)

    def start(self) -> None:
        """Start the I/O thread, which connects, unless that has been done."""
        if self.forked:
            self.check()
        if self.threads is not threading.get_ident:
            self.threads_replaced()
        if self.thread is not None:
            return
        self.check_thread()
        with self.mutex:
            if self.thread is not None or self.session.ended or self.closing is not None:
                return
            io = self.io = IOThread(self)
            try:
                work = (io.owner_ref, io.select)
                name = f"{self.name}-io"
                thread = threading.Thread(target=serve, args=work, name=name, daemon=True)
                close_in_child(self)
                thread.start()
                self.thread = thread
            except BaseException:
                io.cancel()
                raise

    # --- a user's functions -----------------------------------------------------------------------

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function in the callback thread."""
        self._callbacks.put(function)

    def dispatch_surely(self, function: Callable[[], object]) -> None:
        """:meth:`dispatch`, or call it here if the callback thread has been ended."""
        if not self._callbacks.put(function):
            self._callbacks.call(function)

    # --- a recipe's waits: every await blocks in place --------------------------------------------

    async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is."""
        return self.wait(waitable, timeout)

    async def ready(self, waitable: Waitable) -> None:
        """Refuse an ``await`` that would block a whole event loop."""
        raise RuntimeError("await belongs to AsyncClient; with a Client use wait()")

    # --- the end ----------------------------------------------------------------------------------

    async def cleaned_up(self, timeout: float) -> None:
        """Wait until nothing runs in the background, at most ``timeout`` seconds."""
        self._clean_up(timeout)

    def _clean_up(self, timeout: float) -> None:
        latest = self.now() + timeout
        while self.background_tasks and not (self.ended or self.forked) and self.now() < latest:
            time.sleep(POLL_SECONDS)

    def wind_up(self, seconds: float) -> None:
        """At the end of the interpreter: see that no node of a lock is left, within this time."""
        for lock in list(self.active_locks):
            try:
                lock._resume_cleanup()
            except Exception as error:
                report(error)
        self._clean_up(seconds)

    async def close(self, timeout: float, *, detach: bool = False) -> None:
        """End the session and the threads; returns within about ``timeout`` seconds.

        ``detach``: end the threads only, and leave the session to another client.

        The I/O thread does it.  If this is a signal handler, or a finalizer, that keeps it from
        that, the end comes behind it.
        """
        if self.forked:
            return
        deadline = self.now() + timeout + CLOSE_SLACK
        self.detaching = detach
        self.closing = timeout
        if self.elsewhere:
            self.wake()
            self._callbacks.close(0.0)
            return
        if self.thread is None:
            self._close_unstarted()
        self.wake()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(max(CLOSE_SLACK, deadline - self.now()))
        self._done_with_connection()
        self._callbacks.close(max(CLOSE_SLACK, deadline - self.now()))

    def _close_unstarted(self) -> None:
        with self.mutex:
            if self.thread is not None:
                return
            self.session.closed()
        self.call_callbacks()  # there is no I/O thread to call them

    def drop(self, timeout: float) -> bool:
        """Nothing refers to the client any more: close it soon; False if that is not necessary.

        For a finalizer, see :mod:`zkwire.net.lifetime`.
        """
        thread, io = self.thread, self.io
        if self.forked or sys.is_finalizing():
            return False
        left = thread is not None and self.closing is None and not self.session.ended
        self._dropped = True
        if self.ended or thread is None or io is None:
            self.io_ended()
        else:
            if self.closing is None:
                self.closing = timeout
            io.wake()
        return left

    def io_ended(self) -> None:
        """By the I/O thread, at its end: end the callback thread if no close will."""
        if self._dropped:
            self._callbacks.end()


class EventletDriver(ThreadDriver):
    """The driver where eventlet has patched threads: it lets no two of them wait for one socket.

    So callers leave all reading to the I/O thread, and sleep until their answer is there.
    """

    def wait(self, waitable: Waitable, timeout: float | None = None, *, lead: bool = False) -> bool:
        return super().wait(waitable, timeout, lead=False)

    def _listen(self, waitable: Waitable, deadline: float | None) -> bool:
        return False

    def _read_as_leader(self, *_: Any, **__: Any) -> bool:
        return False
