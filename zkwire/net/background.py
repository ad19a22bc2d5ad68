"""What runs without a caller: a user's callbacks, and the clean-ups of recipes.

Neither may run in a thread that reads the socket.  A callback may block, or ask the same client for
something; and an interrupt that ends a caller must not end a clean-up.
"""

from __future__ import annotations

import queue
import sys
import threading
from functools import partial
from types import CoroutineType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


def report(error: BaseException) -> None:
    """Report an exception that has no caller, as Python reports an unhandled one of a thread."""
    args = (type(error), error, error.__traceback__, threading.current_thread())
    try:
        threading.excepthook(threading.ExceptHookArgs(args))
    except BaseException as failed:  # a program's own hook must not end the thread that called it
        sys.excepthook(type(failed), failed, failed.__traceback__)


def _refuse_coroutine(result: object) -> None:
    """A callback that would have to be awaited has done nothing."""
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(f"{result.__qualname__} is async: callbacks of a Client are not awaited")


class Deferred:
    """What is to be called before the next request, or a moment later if there is none.

    If one of them is interrupted (by any exception out of a signal handler), the interrupt is
    raised, and that function stays to be called again.  Two threads may call the same function.  A
    request that one of these functions submits does not call the others.
    """

    __slots__ = ("_called", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self._called = False  # at this moment

    def discard(self, function: Callable[[], object] | None) -> None:
        """Do not call this one any more, if it is one of them."""
        try:
            self.waiting.remove(function)  # type: ignore[arg-type]  # None is not one
        except ValueError:
            pass

    def call(self) -> None:
        """Call them, in order."""
        if self._called:
            return
        try:
            self._called = True
            for function in self.waiting[:]:
                try:
                    function()
                except ValueError as error:  # its own: a path may be too long for it
                    report(error)
                try:
                    self.waiting.remove(function)
                except ValueError:
                    pass  # another thread has called it as well
        finally:
            self._called = False


class Callbacks:
    """Calls functions one after the other, in order, in a daemon thread made when first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._starting = threading.RLock()  # for a signal handler, which must not start another
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, function: Callable[[], object]) -> bool:
        """Call ``function`` soon, see :meth:`call`; False if it never will be."""
        if self._closed:
            return False
        self._queue.put(function)
        if self._thread is None:
            self._start()
        return True

    @staticmethod
    def call(function: Callable[[], object]) -> None:
        """Call it here; its exceptions are reported, see :func:`report`."""
        try:
            _refuse_coroutine(function())
        except BaseException as error:
            report(error)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            try:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            except BaseException:
                self._thread = None
                raise

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            self.call(function)
            del function  # while this waits, it keeps nothing of the user's alive

    def end(self) -> None:
        """Let the thread end after the queued functions."""
        self._closed = True
        self._queue.put(None)

    def close(self, timeout: float) -> None:
        """:meth:`end`, and wait for that unless this is that thread."""
        self.end()
        thread = self._thread
        if thread is not None and thread.ident not in (None, threading.get_ident()):
            thread.join(timeout)


def _is_ended_by_the_collector(error: BaseException) -> bool:
    """Whether a coroutine could not be used because it has been ended, or is just being ended.

    The collector ends coroutines, in any thread, together with a client that nothing refers to.
    The traceback of the error then has one place only, the call, and none in the coroutine.
    """
    place = error.__traceback__
    return isinstance(error, (RuntimeError, ValueError)) and not (place and place.tb_next)


class BackgroundTask:
    """Runs ``work()``, whose awaits yield Waitables, step by step, as those become ready.

    All steps but the first belong to the driver's thread for I/O.  As long as it runs it is one of
    ``running``.
    """

    __slots__ = ("_coroutine", "_driver", "_running", "_steps", "_work")

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, object]],
        driver: Any,
        running: set[BackgroundTask],
    ) -> None:
        self._running = running
        running.add(self)
        self._work = work
        self._coroutine: Coroutine[Any, Any, object] | None = None  # before the first step
        self._driver = driver
        self._steps = 0

    def step(self) -> None:
        """Take one step; the first in the caller's thread, so that requests keep their order.

        An interrupt of that step is raised.  It is then open whether the task continues, so another
        task must be made, and both of them must be harmless.
        """
        if self not in self._running:  # it was cancelled
            return
        if self._coroutine is None:
            self._coroutine = self._work()
        try:
            waitable = self._coroutine.send(None)
            self._steps += 1
            go_on = partial(self.next_step, self._steps)
            self._driver.when_ready(waitable, partial(self._driver.call_soon, go_on))
        except StopIteration:
            self._running.discard(self)
        except BaseException as error:
            self._running.discard(self)
            if not _is_ended_by_the_collector(error):
                raise

    def cancel(self) -> None:
        """Stop it at its await; by the thread that all steps but the first belong to."""
        self._running.discard(self)
        if self._coroutine is None:
            return  # it never begins
        try:
            self._coroutine.close()
        except Exception as error:  # of its clean-up; it must not end the thread that does I/O
            running = isinstance(error, ValueError) and _is_ended_by_the_collector(error)
            if not running:  # else it is ended already, or this is a step of it
                report(error)

    def next_step(self, behind: int = 0) -> None:
        """Take one step where no caller waits for it; nothing if that has been done.

        It is the step after ``behind`` steps: a waker that was interrupted may wake it again.
        """
        if behind != self._steps:
            return
        try:
            self.step()
        except Exception as error:
            report(error)
