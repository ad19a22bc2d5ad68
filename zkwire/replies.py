"""Answers to come, and the pipeline that hands them out: operations meet threads here."""

from __future__ import annotations

from zkwire.calls import Call, check_timeout
from zkwire.errors import OperationTimeoutError
from zkwire.model import OPEN_ACL_UNSAFE
from zkwire.verbs import Verbs
from zkwire.verbs.base import Requests
from zkwire.watches import ClosedWatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any, Protocol

    from zkwire.jute.records import ACL
    from zkwire.pump import Pump
    from zkwire.watches import Watch, WatchOwner

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


class BlockingReply(Call):
    """The answer to come of one operation; see :meth:`result`."""

    __slots__ = ("pump",)
    pump: Pump

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, at most ``timeout`` seconds, and return the operation's result.

        Raises what the operation ended with, or OperationTimeoutError: then, and when this is
        interrupted, a request that had not been sent is taken back (``maybe_applied`` is False);
        one that had been is still executed.
        """
        if timeout is not None:
            check_timeout("timeout", timeout)
        if self.outcome is None and not self._wait(timeout):
            taken_back = self.pump.abandon(self)
            if taken_back or not self.ready:
                raise timed_out(self, timeout, taken_back)
        return self.value()

    def _wait(self, timeout: float | None) -> bool:
        try:
            return self.pump.wait(self, timeout, lead=True)
        except BaseException:
            self.pump.abandon(self)  # as a cancelled await does
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        """Blocks in place: a recipe runs in its caller's thread."""
        return self.result()
        yield


class BackgroundReply(Call):
    """A reply whose await hands the call to whoever drives the coroutine."""

    __slots__ = ("pump",)
    pump: AnyPump

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.ready:
            yield self
        return self.value()


class _Submitting(Requests):
    """What submits calls to a pump."""

    _pump: Any  # an AnyPump, or what a subclass says

    def _own(self, watch: Watch) -> None:
        if watch.closed:
            raise ClosedWatchError("the watch has been closed")
        if watch.owner is None:
            watch.owner = self._pump
        elif watch.owner is not self._pump:
            raise ValueError("the watch belongs to another client")


class Pipeline(_Submitting, Verbs):
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
        kind: type[Call] = BlockingReply,
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


if TYPE_CHECKING:
    _Operations = Requests  # what each returns here, who inherits them has to say
else:
    _Operations = Verbs


class Exchange(_Submitting, _Operations):
    """The operations for whoever waits for each answer before going on: they return the result."""

    _pump: Pump
    _kind = BlockingReply
    _operation_timeout: float | None

    def _submit(self, call: Call) -> Any:
        reply: Any = call  # of this kind
        pump = reply.pump = self._pump
        limit = self._operation_timeout
        if limit is None:
            pump.exchange(call)
        else:
            pump.submit(call)  # with a time limit the caller must not get stuck in a receive
        return reply.result(limit) if call.outcome is None else call.value()
