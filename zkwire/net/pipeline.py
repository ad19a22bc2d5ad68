"""Requests that do not wait for the answer, and transactions: the part that both clients share."""

from __future__ import annotations

from zkwire.errors import OperationTimeoutError
from zkwire.operations import Operations
from zkwire.operations.multi import WRITES, Recorder
from zkwire.operations.nodes import Requests
from zkwire.session.request import Request
from zkwire.session.waitable import Bound, ClosedWatchError, Watch
from zkwire.wire import ops

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any


def timed_out(request: Request, timeout: float | None, withdrawn: bool) -> OperationTimeoutError:
    """The error for a caller that has waited long enough."""
    if withdrawn:
        state = "it was withdrawn unsent"
    elif request.sent:
        state = "it was sent and stays in effect"
    else:
        state = "it waits to be sent"  # for another waiter, or it is for every connection
    error = OperationTimeoutError(
        f"no answer within {timeout:.3g} s; {state}",
        op=request.op.name,
        path=request.path,
        maybe_applied=request.op.changes and not withdrawn,
    )
    request.given_up(error)
    return error


class ReplyToCome(Bound):
    """The answer to come of one operation, which a user has asked for.  See the subclasses."""

    __slots__ = ("_request",)
    _request: Any
    _first = "await it first"  # what is to be done for an attribute of the result

    def __repr__(self) -> str:
        name = f"{self._request.op.name} {self._request.path or ''}".rstrip()
        return f"<reply of {name}: {'ended' if self.ready else 'not yet'}>"

    @property
    def ready(self) -> bool:
        """Whether the operation has ended."""
        return self._request.outcome is not None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}: it is the reply to "
                f"come of {self._request.op.name}; {self._first}",
                name=name,
                obj=self,
            )


class BackgroundReply(Request):
    """A reply whose await yields it, to the BackgroundTask that drives the coroutine."""

    __slots__ = ("driver",)
    driver: Any  # a Driver

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ready:
            yield self
        return self.value()


class Submitter(Requests):
    """What submits requests to a driver."""

    _driver: Any  # a Driver

    def _own(self, watch: Watch) -> None:
        if watch.closed:
            raise ClosedWatchError("the watch has been closed")
        if watch._owner is None:
            watch._owner = self._driver
        elif watch._owner is not self._driver:
            raise ValueError("the watch belongs to another client")


class Pipeline(Submitter, Operations):
    """The operations of a client, each returning its reply at once.

        replies = [client.pipeline.get_data(path) for path in paths]
        values = [reply.result() for reply in replies]

    Requests leave in the order of the calls, many in one write.  If a reply is never asked for its
    result, its error goes unnoticed, as with a ``concurrent.futures.Future``.
    """

    def __init__(self, driver: Any, kind: type[Request], chroot: str | None = None) -> None:
        session = driver.session
        self._driver = driver
        self._chroot = session.chroot if chroot is None else chroot
        self._acl = driver.acl
        self._send_limit = session.send_limit
        self._kind = kind


class LazyPipeline(Pipeline):
    """The same for recipes: what is asked for together leaves in one write, when it is awaited."""

    _eager = False


class TransactionBase(Recorder):
    """The operations of a multi, collected one by one; ``results`` once it has been executed.

    It is sent once: to repeat it after a lost connection, begin a new one.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client, WRITES)
        self.results: list[Any] = []
        self._committed = False

    def _submit(self, request: Request) -> Any:
        self._refuse_if_committed()
        return super()._submit(request)

    def _sent_by(self, operations: Any) -> Any:
        self._refuse_if_committed()
        self._committed = True
        return operations._send_multi(ops.MULTI, self)

    def _refuse_if_committed(self) -> None:
        if self._committed:
            raise RuntimeError("this transaction has been committed: begin a new one")
