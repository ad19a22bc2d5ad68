"""Replies that a thread waits for, and the operations that wait for theirs."""

from __future__ import annotations

from functools import partial

from zkwire.net.options import check_callable
from zkwire.net.pipeline import Pipeline, Submitter, no_attribute, reply_repr, timed_out
from zkwire.operations import Operations
from zkwire.recipes._recipe import public
from zkwire.session.request import Request
from zkwire.session.waitable import Bound, check_timeout

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol

    from zkwire.operations.base import Requests
    from zkwire.session.waitable import Waitable

    class Waiting(Protocol):
        """What these need of a driver."""

        def submit(self, request: Request) -> None: ...
        def round_trip(self, request: Request) -> None: ...
        def withdraw(self, request: Request) -> bool: ...
        def wait(self, waitable: Waitable, timeout: float | None, *, lead: bool) -> bool: ...
        def check(self) -> None: ...
        def check_callback(self, function: Any) -> None: ...
        def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None: ...
        def dispatch_surely(self, function: Callable[[], object]) -> None: ...


class BlockingReply(Request):
    """The answer to come of one operation; see :meth:`result`."""

    __slots__ = ("driver",)
    driver: Waiting

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, at most ``timeout`` seconds, and return the operation's result.

        Raises what the operation ended with, or OperationTimeoutError: then, and when this is
        interrupted, a request that had not been sent never is (``maybe_applied`` is False); one
        that had been is still executed.
        """
        if timeout is not None:
            check_timeout("timeout", timeout)
        if self.outcome is None:
            try:
                answered = self.driver.wait(self, timeout, lead=True)
            except BaseException:
                self.driver.withdraw(self)  # as a cancelled await does
                raise
            if not answered:
                taken_back = self.driver.withdraw(self)
                if taken_back or not self.ready:
                    raise timed_out(self, timeout, taken_back)
        return self.value()

    def __await__(self) -> Generator[Any, None, Any]:
        """Blocks in place: a recipe runs in its caller's thread."""
        return self.result()
        yield


_new = object.__new__


class PipelinedReply(Bound):
    """The answer to come of one operation of a pipeline."""

    __slots__ = ("_request",)
    _request: BlockingReply

    def __repr__(self) -> str:
        return reply_repr(self._request)

    @property
    def ready(self) -> bool:
        """Whether the operation has ended."""
        return self._request.outcome is not None

    def result(self, timeout: float | None = None) -> Any:
        request = self._request
        if timeout is None and request.outcome is not None:  # as that of most of a long pipeline
            return request.value()
        return request.result(timeout)

    result.__doc__ = BlockingReply.result.__doc__

    def add_done_callback(self, function: Callable[[PipelinedReply], object]) -> None:
        """Call ``function`` with this reply once the operation has ended, in the callback thread.

        That thread calls these, watch callbacks and state listeners in the order in which the
        answers and events have come, one after the other.  It may block, and use the client.  What
        it raises is reported as an unhandled exception of a thread.  With a client that is closed
        already, and has no such thread any more, the calling thread calls it.
        """
        check_callable("function", function)
        driver = self._request.driver
        driver.check()
        driver.check_callback(function)
        call = partial(function, self)
        driver.when_ready(self._request, partial(driver.dispatch_surely, call))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._request.__await__()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, self._request, name, "call its result() first")


class ReplyPipeline(Pipeline):
    """The operations of a blocking client, each returning its reply at once.

        replies = [client.pipeline.get_data(path) for path in paths]
        values = [reply.result() for reply in replies]

    Requests leave in the order of the calls, many in one write.  The error of a reply that is never
    asked for its result goes unnoticed, as that of a ``concurrent.futures.Future``.
    """

    def _submit(self, request: Any) -> PipelinedReply:
        request.driver = self._driver
        self._driver.submit(request, eager=True)
        # Without an __init__: one call of Python less for each of thousands.
        reply = _new(PipelinedReply)
        reply._request = request
        return reply


public(ReplyPipeline, "Client.pipeline")

if TYPE_CHECKING:
    _Operations = Requests  # what each returns here is stated by the subclass
else:
    _Operations = Operations


class BlockingOperations(Submitter, _Operations):
    """The operations, each of which waits for its answer and returns the result."""

    _driver: Any
    _kind = BlockingReply
    _operation_timeout: float | None

    def _submit(self, request: Any) -> Any:
        driver = request.driver = self._driver
        limit = self._operation_timeout
        if limit is None:
            driver.round_trip(request)
        else:
            driver.submit(request)  # with a time limit the caller must not get stuck in a receive
        return request.result(limit) if request.outcome is None else request.value()
