"""One request, from submission to its end.

A :class:`Request` goes queued -> sent -> ended; it ends exactly once, with one store, in the order
of the wire.  This module decides how an outcome becomes a value or an error.  It must not know how
to wait: the shells put wakers into it.
"""

from __future__ import annotations

from zkwire.errors import (
    SESSION_EXPIRED,
    UNCERTAIN,
    NodeExistsError,
    SessionMovedError,
    UnimplementedError,
    ZooKeeperError,
    error_for,
)
from zkwire.jute.records import CreateRequest, CreateTTLRequest, ErrorResponse
from zkwire.session.waitable import Waitable
from zkwire.wire.ops import WatchKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch
    from zkwire.wire.ops import Op


class Answered:
    """The server carried the request out; ``Request.record`` is its reply."""

    __slots__ = ()


ANSWERED = Answered()


class Refused:
    """The server refused the request with an error code."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code: int = code


_SEQUENTIAL = 2  # in the flags of each kind of node that has a number (Java's CreateMode)
_ABOUT_SESSION = (SESSION_EXPIRED, SessionMovedError.code)


def about_session(answers: Any) -> int:
    """The code with which a multi was refused for the sake of its session; 0: it was not.

    A server looks at the session with each operation (``PrepRequestProcessor.pRequest2Txn``), and
    answers as if the first one had been refused.  Nothing has been executed.
    """
    if not (answers and isinstance(answers[0], ErrorResponse)):
        return 0  # a refused multi has errors alone; the answers of others may be many
    for answer in answers:
        if isinstance(answer, ErrorResponse) and answer.err in _ABOUT_SESSION:
            return answer.err
    return 0


class Failed:
    """No server answered the request; ``kind`` is the class of the error."""

    __slots__ = ("kind", "maybe_applied", "message")

    def __init__(self, kind: type[ZooKeeperError], message: str, maybe_applied: bool) -> None:
        self.kind: type[ZooKeeperError] = kind
        self.message: str = message
        self.maybe_applied: bool = maybe_applied


class Request(Waitable):
    """What was asked, where it stands, how it ended.

    ``path`` is the caller's, for messages; the server's is in ``body``.  ``finish`` turns the
    reply's record into the caller's result.  ``xid`` is 0 until it is sent.  ``deadline`` and
    ``sent_at`` are in seconds; only a request that waits for a connection has a deadline.  ``end``
    is the position in the connection's outgoing stream behind its last byte: if the kernel has
    taken fewer bytes, it was not sent.

    ``watch`` is set by the reply, on the server's path ``watch_path``.  ``own_czxid`` is for the
    own-node watch of a lock, which is in the table from submission on: the czxid of that node.
    ``covered``: a persistent watch on the same path does the server's part of the watch.
    """

    __slots__ = (
        "body", "covered", "deadline", "end", "finish", "op", "outcome", "own_czxid", "path",
        "record", "sent_at", "watch", "watch_kind", "watch_path", "xid",
    )  # fmt: skip
    sent_at: float  # once it is sent
    end: int
    record: Any  # once it is answered; None if the reply has no record
    _wakers: tuple[Waker, ...] | dict[Waker, None]

    def __init__(
        self,
        op: Op,
        path: str | None = None,
        body: bytes = b"",
        finish: Callable[[Any], Any] | None = None,
        watch: Watch | None = None,
        watch_path: str = "",
        watch_kind: WatchKind = WatchKind.DATA,
        own_czxid: int | None = None,
    ) -> None:
        # One object for each request: what is seldom needed is stored only where it is.
        self._wakers = ()
        self.op: Op = op
        self.path: str | None = path
        self.body: bytes = body
        self.finish: Callable[[Any], Any] | None = finish
        self.xid: int = 0
        self.deadline: float | None = None
        self.outcome: Answered | Refused | Failed | None = None
        self.watch: Watch | None = watch
        if watch is not None:
            self.watch_path: str = watch_path
            self.watch_kind: WatchKind = watch_kind
            self.own_czxid: int | None = own_czxid
            self.covered: bool = False

    @property
    def ready(self) -> bool:
        """Whether the request has ended."""
        return self.outcome is not None

    @property
    def sent(self) -> bool:
        """Whether the request counts as sent."""
        return self.xid != 0

    def complete(self, outcome: Answered | Refused | Failed, callbacks: list[Waker]) -> None:
        """End it without a record and append its wakers to ``callbacks``.  Idempotent."""
        if self.outcome is None:
            callbacks += self._take_wakers()
            self.record = None
            self.outcome = outcome  # interrupt-safe: last

    def error(self) -> ZooKeeperError | None:
        """The error that the request ended with, a new object each time; None if it succeeded."""
        outcome = self.outcome
        if isinstance(outcome, Refused):
            if outcome.code == UnimplementedError.code:
                message = (
                    f"this server does not know it (servers do since {self.op.since}), or it is "
                    "switched off there"
                )
                return UnimplementedError(message, op=self.op.name, path=self.path)
            taken = outcome.code == NodeExistsError.code and self._appends_number
            error = error_for(outcome.code, self.op.name, self.path, sequential=taken)
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

    @property
    def _appends_number(self) -> bool:
        """Whether it is a sequential create."""
        if self.op.request not in (CreateRequest, CreateTTLRequest):
            return False
        fields: Any = self.op.request.decode(self.body)
        return bool(fields.flags & _SEQUENTIAL)

    def value(self) -> Any:
        """The result; raises the error that the request ended with, RuntimeError before its end."""
        if self.outcome is ANSWERED:
            return self.record if self.finish is None else self.finish(self.record)
        error = self.error()
        if error is None:
            raise RuntimeError("the request has not ended yet")
        try:
            raise error
        finally:
            del error  # or else its traceback leads back to it, and to all that its callers have
