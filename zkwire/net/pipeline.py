"""Requests that are submitted without waiting for their answers: what both shells share."""

from __future__ import annotations

from zkwire.errors import OperationTimeoutError
from zkwire.operations import Operations
from zkwire.operations.base import Requests
from zkwire.session.request import Request
from zkwire.session.watch import ClosedWatchError
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any, Protocol

    from zkwire.jute.records import ACL
    from zkwire.session.watch import Watch, WatchOwner

    class AnyDriver(WatchOwner, Protocol):
        """What a pipeline needs of a pump."""

        def submit(self, request: Request, *, eager: bool) -> None: ...


def timed_out(request: Request, timeout: float | None, taken_back: bool) -> OperationTimeoutError:
    """The error for a caller that has waited long enough."""
    if taken_back:
        state = "it was taken back unsent"
    elif request.sent:
        state = "it was sent and stays in effect"
    else:
        state = "it waits to be sent"  # others wait for it, or it is for every connection
    return OperationTimeoutError(
        f"no answer within {timeout:.3g} s; {state}",
        op=request.op.name,
        path=request.path,
        maybe_applied=request.op.changes and not taken_back,
    )


class BackgroundReply(Request):
    """A reply whose await hands the call to whoever drives the coroutine."""

    __slots__ = ("pump",)
    pump: AnyDriver

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ready:
            yield self
        return self.value()


class Submitting(Requests):
    """What submits calls to a pump."""

    _pump: Any  # an AnyDriver, or what a subclass says

    def _own(self, watch: Watch) -> None:
        if watch.closed:
            raise ClosedWatchError("the watch has been closed")
        if watch.owner is None:
            watch.owner = self._pump
        elif watch.owner is not self._pump:
            raise ValueError("the watch belongs to another client")


class Pipeline(Submitting, Operations):
    """The operations of a client, each returning its reply at once.

        replies = [client.pipeline.get_data(path) for path in paths]
        values = [reply.result() for reply in replies]

    Requests leave in the order of the calls, many in one write.  The error of a reply that is never
    asked for its result goes unnoticed, as that of a ``concurrent.futures.Future``.
    """

    def __init__(
        self,
        pump: AnyDriver,
        chroot: str,
        kind: type[Request],
        *,
        acl: Sequence[ACL] = OPEN_ACL_UNSAFE,
        eager: bool = True,
    ) -> None:
        self._pump = pump
        self._chroot = chroot
        self._acl = acl
        self._kind = kind
        self._eager = eager

    def _submit(self, request: Request) -> Any:
        request.pump = self._pump  # type: ignore[attr-defined]  # every kind of reply has one
        self._pump.submit(request, eager=self._eager)
        return request
