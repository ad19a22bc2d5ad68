"""One request in flight.

A :class:`Request` goes queued -> sent -> ended; it ends exactly once, with one store, in the order
of the wire.  This module decides how an outcome becomes a value or an error; it must not know how
to wait: the shells put wakers into it.
"""

from __future__ import annotations

from zkwire.errors import UNCERTAIN, UnimplementedError, ZooKeeperError, error_for
from zkwire.session.waitable import Waitable
from zkwire.wire.ops import WatchKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.session.watch import Watch
    from zkwire.wire.ops import Op


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


class Request(Waitable):
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
