"""Requests that are submitted without waiting for their answers: what both shells share."""

from __future__ import annotations

from zkwire.errors import OperationTimeoutError
from zkwire.operations import Verbs
from zkwire.operations.base import Requests
from zkwire.session.request import Call
from zkwire.session.watch import ClosedWatchError
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any, Protocol

    from zkwire.jute.records import ACL
    from zkwire.session.watch import Watch, WatchOwner

    class AnyPump(WatchOwner, Protocol):
        """What a pipeline needs of a pump."""

        def submit(self, call: Call, *, eager: bool) -> None: ...


def timed_out(call: Call, timeout: float | None, taken_back: bool) -> OperationTimeoutError:
    """The error for a caller that has waited long enough."""
    if taken_back:
        state = "it was taken back unsent"
    elif call.sent:
        state = "it was sent and stays in effect"
    else:
        state = "it waits to be sent"  # others wait for it, or it is for every connection
    return OperationTimeoutError(
        f"no answer within {timeout:.3g} s; {state}",
        op=call.op.name,
        path=call.path,
        maybe_applied=call.op.changes and not taken_back,
    )


class BackgroundReply(Call):
    """A reply whose await hands the call to whoever drives the coroutine."""

    __slots__ = ("pump",)
    pump: AnyPump

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ready:
            yield self
        return self.value()


class Submitting(Requests):
    """What submits calls to a pump."""

    _pump: Any  # an AnyPump, or what a subclass says

    def _own(self, watch: Watch) -> None:
        if watch.closed:
            raise ClosedWatchError("the watch has been closed")
        if watch.owner is None:
            watch.owner = self._pump
        elif watch.owner is not self._pump:
            raise ValueError("the watch belongs to another client")


class Pipeline(Submitting, Verbs):
    """The operations of a client, each returning its reply at once.

        replies = [client.pipeline.get_data(path) for path in paths]
        values = [reply.result() for reply in replies]

    Requests leave in the order of the calls, many in one write.  The error of a reply that is never
    asked for its result goes unnoticed, as that of a ``concurrent.futures.Future``.
    """

    def __init__(
        self,
        pump: AnyPump,
        chroot: str,
        kind: type[Call],
        *,
        acl: Sequence[ACL] = OPEN_ACL_UNSAFE,
        eager: bool = True,
    ) -> None:
        self._pump = pump
        self._chroot = chroot
        self._acl = acl
        self._kind = kind
        self._eager = eager

    def _submit(self, call: Call) -> Any:
        call.pump = self._pump  # type: ignore[attr-defined]  # every kind of reply has one
        self._pump.submit(call, eager=self._eager)
        return call
