"""The answer to come of one operation, under asyncio."""

from __future__ import annotations

import asyncio
from functools import partial

from zkwire.errors import ClientClosedError, ZooKeeperError
from zkwire.net.client import check_callable
from zkwire.net.pipeline import ReplyToCome, timed_out
from zkwire.session.request import ANSWERED, Request
from zkwire.wire import ops

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any

    Awaits = dict[asyncio.Task[Any] | None, Coroutine[Any, Any, Any]]

LOOP_CLOSED = "the client's event loop has been closed"


class StepReply(Request):
    """What a recipe awaits.  ``heard``, once it is there: an await has ended with an error."""

    __slots__ = ("driver", "heard")
    driver: Any  # a LoopDriver
    heard: bool

    def __await__(self) -> Generator[Any, None, Any]:
        return self.within(self.driver.operation_timeout).__await__()

    async def within(self, timeout: float | None) -> Any:
        """The result, at most ``timeout`` seconds from now; else OperationTimeoutError."""
        try:
            if self.outcome is None:
                in_time = False
                self.driver.start()  # an await in another loop is refused and withdraws nothing
                try:
                    in_time = await self.driver.within(self, timeout)
                finally:
                    taken_back = not (self.ready or self._wakers) and self.driver.withdraw(self)
                if not in_time and (taken_back or not self.ready):
                    raise timed_out(self, timeout, taken_back)
            return self.value()
        except BaseException:
            self.heard = True
            raise


class KeptReply(StepReply):
    """What an :class:`AsyncReply` stands for: an error that no await has heard is reported."""

    __slots__ = ()

    def __del__(self) -> None:
        outcome = self.outcome
        if outcome is ANSWERED and self.op is not ops.MULTI:
            return  # first: it costs each operation as much
        if outcome is not None and not hasattr(self, "heard"):
            try:
                self.value()
            except ClientClosedError:
                pass  # it says nothing about the operation
            except ZooKeeperError as error:
                self.driver.never_retrieved(error.with_traceback(None))


class AsyncReply(ReplyToCome):
    """Await it, now or later, once or often, in any number of tasks.

    The request is on its way already.  When the last await is cancelled, a request that had not
    been sent is withdrawn; one that had been is still executed, in its place in the order.

    It is a ``collections.abc.Coroutine``, so ``asyncio.create_task`` and
    ``run_coroutine_threadsafe`` take it as it is.  One that is dropped without an await, and that
    was refused, is reported to the loop's exception handler, as a future is.
    """

    __slots__ = ("_awaits",)
    _request: KeptReply

    def __await__(self) -> Generator[Any, None, Any]:
        return self._request.__await__()

    def result(self, timeout: float | None = None) -> Any:
        """The result if the operation has ended; RuntimeError before that: await it."""
        request = self._request
        if request.outcome is not None:
            request.heard = True
        return request.value()

    def add_done_callback(self, function: Callable[[AsyncReply], object]) -> None:
        """Call ``function`` with this reply once the operation has ended, from the event loop.

        Never from within this call.  It may be a coroutine function.  What it raises goes to the
        loop's exception handler.  ClientClosedError if that loop has been closed.
        """
        check_callable("function", function)
        driver = self._request.driver
        if driver.loop_closed:
            raise ClientClosedError(LOOP_CLOSED)
        driver.when_ready(self._request, partial(driver.dispatch, partial(function, self)))

    # --- as a coroutine: a task that was made of it begins an await of its own --------------------

    @property
    def __name__(self) -> str:
        """What the repr of such a task shows."""
        return f"{self._request.op.name} {self._request.path or ''}".rstrip()

    def send(self, value: Any) -> Any:
        """Go on with the await of the running task."""
        awaits, task = self._under_way(), asyncio.current_task()
        if task not in awaits:
            awaits[task] = self._request.within(self._request.driver.operation_timeout)
        try:
            return awaits[task].send(value)
        except BaseException:  # StopIteration, with the result, is one
            awaits.pop(task, None)
            raise

    def throw(self, error: Any, /, *rest: Any) -> Any:
        """Raise ``error`` in the await of the running task; one that has not begun ends with it."""
        awaits, task, request = self._under_way(), asyncio.current_task(), self._request
        if task not in awaits:
            awaits[task] = request.within(None)
            if not (request.ready or request._wakers):
                request.driver.withdraw(request)
            request.heard = True
        try:
            return awaits[task].throw(error, *rest)
        except BaseException:
            awaits.pop(task, None)
            raise

    def close(self) -> None:
        """End the await of the running task, if there is one, as its cancellation would."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return  # no loop runs here, so nothing awaits it here
        under_way = self._under_way().pop(task, None)
        if under_way is not None:
            under_way.close()

    def _under_way(self) -> Awaits:
        if not hasattr(self, "_awaits"):
            self._awaits: Awaits = {}
        return self._awaits
