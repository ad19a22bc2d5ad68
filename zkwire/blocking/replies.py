"""Replies that a thread waits for, and the operations that wait for theirs."""

from __future__ import annotations

from zkwire.net.pipeline import Submitter, timed_out
from zkwire.operations import Operations
from zkwire.session.request import Request
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Protocol

    from zkwire.operations.nodes import Requests
    from zkwire.session.waitable import Waitable

    class Waiting(Protocol):
        """What these need of a driver."""

        def submit(self, request: Request) -> None: ...
        def round_trip(self, request: Request) -> None: ...
        def withdraw(self, request: Request) -> bool: ...
        def wait(self, waitable: Waitable, timeout: float | None, *, lead: bool) -> bool: ...


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
