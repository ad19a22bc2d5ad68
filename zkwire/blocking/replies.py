"""Answers to come, and operations that wait for theirs: operations meet threads here."""

from __future__ import annotations

from zkwire.net.pipeline import Submitting, timed_out
from zkwire.operations import Operations
from zkwire.session.request import Request
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from zkwire.blocking.driver import ThreadDriver
    from zkwire.operations.base import Requests


class BlockingReply(Request):
    """The answer to come of one operation; see :meth:`result`."""

    __slots__ = ("pump",)
    pump: ThreadDriver

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, at most ``timeout`` seconds, and return the operation's result.

        Raises what the operation ended with, or OperationTimeoutError: then, and when this is
        interrupted, a request that had not been sent is taken back (``maybe_applied`` is False);
        one that had been is still executed.
        """
        if timeout is not None:
            check_timeout("timeout", timeout)
        if self.outcome is None and not self._wait(timeout):
            taken_back = self.pump.withdraw(self)
            if taken_back or not self.ready:
                raise timed_out(self, timeout, taken_back)
        return self.value()

    def _wait(self, timeout: float | None) -> bool:
        try:
            return self.pump.wait(self, timeout, lead=True)
        except BaseException:
            self.pump.withdraw(self)  # as a cancelled await does
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        """Blocks in place: a recipe runs in its caller's thread."""
        return self.result()
        yield


if TYPE_CHECKING:
    _Operations = Requests  # what each returns here, who inherits them has to say
else:
    _Operations = Operations


class Exchange(Submitting, _Operations):
    """The operations for whoever waits for each answer before going on: they return the result."""

    _pump: ThreadDriver
    _kind = BlockingReply
    _operation_timeout: float | None

    def _submit(self, request: Request) -> Any:
        reply: Any = request  # of this kind
        pump = reply.pump = self._pump
        limit = self._operation_timeout
        if limit is None:
            pump.exchange(request)
        else:
            pump.submit(request)  # with a time limit the caller must not get stuck in a receive
        return reply.result(limit) if request.outcome is None else request.value()
