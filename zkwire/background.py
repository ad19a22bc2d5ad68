"""What runs without a caller: user callbacks, and recipes that clean up behind themselves.

Neither may run in a thread that reads the socket: a callback may block or ask the same client
something, and an interrupt that ends a caller must not end a clean-up.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from types import CoroutineType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from zkwire.calls import Waitable


def report(error: BaseException) -> None:
    """Report an exception that has no caller, as an unhandled thread's is."""
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


class Late:
    """What is to be called before the next request, or a moment later if there is none.

    An interrupt that hits who calls it leaves it there to be called again; two threads may call the
    same.  What is submitted by one of these functions calls none.
    """

    __slots__ = ("_called", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self._called = False  # at this moment

    def call(self) -> None:
        """Call them, in order."""
        if self._called:
            return
        try:
            self._called = True
            for function in self.waiting[:]:
                try:
                    function()
                except Exception as error:
                    report(error)
                with suppress(ValueError):  # another thread has called it as well
                    self.waiting.remove(function)
        finally:
            self._called = False


class Callbacks:
    """Calls functions one after the other, in order, in a daemon thread made when first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, function: Callable[[], object]) -> None:
        """Call ``function`` soon; its exceptions are reported as an unhandled thread's are."""
        if self._closed:
            return
        self._queue.put(function)
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            try:
                _refuse_coroutine(function())
            except BaseException as error:
                report(error)

    def close(self, timeout: float) -> None:
        """Let the thread end behind what is queued; wait for it unless this is that thread."""
        self._closed = True
        self._queue.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)


class Task:
    """Runs a coroutine whose awaits yield Waitables, step by step, as those become ready.

    ``soon(function)`` runs a function in the thread that the steps belong to;
    ``when_ready(waitable, function)`` runs one as soon as the waitable is ready.  As long as it
    runs it is one of ``running``.
    """

    __slots__ = ("_coroutine", "_running", "_soon", "_when_ready")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, object],
        soon: Callable[[Callable[[], None]], None],
        when_ready: Callable[[Waitable, Callable[[], None]], None],
        running: set[Task],
    ) -> None:
        self._running = running
        running.add(self)
        self._coroutine = coroutine
        self._soon = soon
        self._when_ready = when_ready
        soon(self._step)

    def _step(self) -> None:
        try:
            waitable = self._coroutine.send(None)
        except StopIteration:
            self._running.discard(self)
            return
        except Exception as error:
            self._running.discard(self)
            report(error)
            return
        self._when_ready(waitable, lambda: self._soon(self._step))
