"""One request in flight, and what everything that can be waited for has in common.

A :class:`Call` goes queued -> sent -> ended; it ends exactly once, with one store, in the order of
the wire.  This module decides how an outcome becomes a value or an error; it must not
know how to wait: the shells put wakers into it.
"""

from __future__ import annotations

from zkwire.errors import UNCERTAIN, UnimplementedError, ZooKeeperError, error_for
from zkwire.ops import WatchKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from zkwire.ops import Op
    from zkwire.watches import Watch

    Waker = Callable[[], object]


class Waitable:
    """Something that becomes ready.

    ``wakers`` are functions that the shell calls once, soon after ``ready`` has turned true,
    outside of all locks.  Adding one, and turning ready, happens under the shell's state lock.
    Most have one at most; where thousands wait a tuple of them would not do.
    """

    __slots__ = ("wakers",)

    def __init__(self) -> None:
        self.wakers: tuple[Waker, ...] | dict[Waker, None] = ()  # in the order of their coming

    @property
    def ready(self) -> bool:
        """Whether there is nothing left to wait for."""
        raise NotImplementedError

    def add_waker(self, waker: Waker) -> None:
        """Have ``waker`` called when this turns ready."""
        if not self.wakers:
            self.wakers = (waker,)
        elif isinstance(self.wakers, tuple):
            self.wakers = dict.fromkeys((*self.wakers, waker))
        else:
            self.wakers[waker] = None

    def drop_waker(self, waker: Waker) -> None:
        """The opposite.  Idempotent."""
        if isinstance(self.wakers, dict):
            self.wakers.pop(waker, None)
        elif waker in self.wakers:
            self.wakers = tuple(other for other in self.wakers if other != waker)

    def take_wakers(self) -> tuple[Waker, ...]:
        """The wakers to call now; each is handed out once."""
        wakers = tuple(self.wakers)  # first: an interrupt behind the store would lose them
        self.wakers = ()
        return wakers


def check_timeout(name: str, seconds: float | None) -> float | None:
    """``seconds`` itself if it is a time limit: a number not below 0, or None."""
    if seconds is None:
        return None
    if type(seconds) is float and seconds >= 0.0:
        return seconds  # first: each release comes here
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    try:
        limit = float(seconds)
    except OverflowError:
        raise ValueError(f"{name} is out of the range of a float") from None
    if limit < 0:
        raise ValueError(f"{name} must not be negative: {seconds}")
    if not limit >= 0:
        raise ValueError(f"{name} must be a number of seconds, not nan")
    return limit


class Awaited:
    """Awaited in the background (:class:`zkwire.background.Task`): until something is ready."""

    __slots__ = ("_waitable",)

    def __init__(self, waitable: Waitable) -> None:
        self._waitable = waitable

    def __await__(self) -> Generator[Waitable, None, None]:
        if not self._waitable.ready:
            yield self._waitable


class Answered:
    """The outcome of a call that the server carried out; ``call.record`` is what it sent."""

    __slots__ = ()


ANSWERED = Answered()


class Refused:
    """The outcome of a call that the server refused with an error code."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class Failed:
    """The outcome of a call that no server answered."""

    __slots__ = ("kind", "maybe_applied", "message")

    def __init__(self, kind: type[ZooKeeperError], message: str, maybe_applied: bool) -> None:
        self.kind = kind
        self.message = message
        self.maybe_applied = maybe_applied


class Call(Waitable):
    """One request: what was asked, where it stands, how it ended.

    ``end`` is the position in the connection's outgoing stream behind the request's last byte: what
    the kernel has taken less of was not sent.  ``watch`` is registered with the reply; if the call
    ``guards`` a node (its czxid), already when it is submitted.  ``covered``: a persistent watch
    on the same path does the server's part of it.
    """

    __slots__ = (
        "body", "covered", "deadline", "end", "finish", "guards", "op", "outcome", "path",
        "record", "sent_at", "watch", "watch_kind", "watch_path", "xid",
    )  # fmt: skip
    sent_at: float  # once it has been sent
    end: int
    record: Any  # once it has been answered; None if the server sends none

    def __init__(
        self,
        op: Op,
        path: str | None = None,
        body: bytes = b"",
        finish: Callable[[Any], Any] | None = None,
        watch: Watch | None = None,
        watch_path: str = "",
        watch_kind: WatchKind = WatchKind.DATA,
        guards: int | None = None,
    ) -> None:
        # One for each request: what is seldom needed is stored when it is.
        self.wakers = ()
        self.op = op
        self.path = path
        self.body = body
        self.finish = finish
        self.xid = 0
        self.deadline: float | None = None
        self.outcome: Answered | Refused | Failed | None = None
        self.watch = watch
        if watch is not None:
            self.watch_path = watch_path
            self.watch_kind = watch_kind
            self.guards = guards
            self.covered = False

    @property
    def ready(self) -> bool:
        """Whether the call has ended."""
        return self.outcome is not None

    @property
    def sent(self) -> bool:
        """Whether it was handed out for sending."""
        return self.xid != 0

    def error(self) -> ZooKeeperError | None:
        """The error that the call ended with, made anew at each call; None if it succeeded."""
        outcome = self.outcome
        if isinstance(outcome, Refused):
            if outcome.code == UnimplementedError.code:
                message = (
                    f"this server does not know it (servers do since {self.op.since}), or it is "
                    "switched off there"
                )
                return UnimplementedError(message, op=self.op.name, path=self.path)
            error = error_for(outcome.code, self.op.name, self.path)
            error.maybe_applied = outcome.code in UNCERTAIN and self.op.changes
            return error
        if isinstance(outcome, Failed):
            return outcome.kind(
                outcome.message,
                op=self.op.name,
                path=self.path,
                maybe_applied=outcome.maybe_applied and self.op.changes,
            )
        return None

    def value(self) -> Any:
        """The result of an ended call; raises the error that it ended with."""
        outcome = self.outcome
        if outcome is ANSWERED:
            return self.record if self.finish is None else self.finish(self.record)
        error = self.error()
        if error is None:
            raise RuntimeError("the call has not ended yet")
        raise error
