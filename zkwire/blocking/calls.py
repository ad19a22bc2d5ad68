"""What the I/O thread is to call: the session's callbacks, and functions that others hand over.

Decides in which order they are called, and which thread does it once the I/O thread has ended.  It
must not know what they do.
"""

from __future__ import annotations

from collections import deque

from zkwire.blocking.waiting import MutexDriver
from zkwire.net.background import report
from zkwire.net.pacing import DEFER_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from typing import Any

    from zkwire.session.session import Session
    from zkwire.session.waitable import Waker


class CallingDriver(MutexDriver):
    """See the module's docstring."""

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.callbacks: deque[Waker] = deque()  # the session's, in order
        self.tasks: deque[Callable[[], object]] = deque()  # other functions for the I/O thread
        self.ended = False  # the I/O thread is

    def wake(self) -> None:
        """Wake the I/O thread."""
        io = self.io
        if io is not None:
            io.wake()

    def _collect(self) -> None:
        if self.session.callbacks:
            self.callbacks.extend(self.session.take_callbacks())

    def _schedule_callbacks(self) -> None:
        if self.callbacks:
            self.wake()
            if self.ended:  # no I/O thread will call them
                self.call_callbacks()

    def call_callbacks(self) -> None:
        """Call the session's callbacks, in order; by the I/O thread."""
        while True:
            with self.mutex:
                self._collect()
                callbacks, self.callbacks = self.callbacks, deque()
            if not callbacks:
                return
            for function in callbacks:
                try:
                    function()
                except Exception as error:
                    report(error)

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the I/O thread call ``function``, or call it here if that thread has ended."""
        self.tasks.append(function)
        self.wake()
        if self.ended and not self.nested:
            self.run_tasks()
        return True

    def run_tasks(self) -> None:
        """Call what :meth:`call_soon` was given, in order; by the I/O thread."""
        while True:
            try:
                function = self.tasks.popleft()
            except IndexError:
                return
            function()

    def defer(self, function: Callable[[], object]) -> None:
        """Call ``function`` when the next request is submitted, or in DEFER_SECONDS seconds."""
        self.deferred.waiting.append(function)
        io = self.io
        if io is not None and io.call_deferred_at is None:
            io.call_deferred_at = self.now() + DEFER_SECONDS
            io.wake()

    def io_ended(self) -> None:
        """By the I/O thread, at its end."""
        raise NotImplementedError
