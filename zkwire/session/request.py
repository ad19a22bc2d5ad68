"""One request from submission to its end, and the queue of a session's requests.

A :class:`Request` goes queued -> sent -> ended; it ends exactly once, with one store, in the order
of the wire.  :class:`RequestQueue` decides xids, the order on the wire, which reply belongs to
which request, and which requests are lost with a connection.  A plain answer, which sets no watch,
refuses nothing and says nothing about the session, ends its request here, many in one loop; the
session looks at all other answers one by one.  This module must not know how to wait: the I/O layer
puts wakers into a request.

Invariants: xids on one connection rise strictly and are never below 1 (a server's throttle does not
count 0, and negative xids are reserved); replies arrive in the order of requests, so the first
unanswered request is the only one that a reply can be for.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import partial

from zkwire import errors
from zkwire.jute.record import Record
from zkwire.jute.records import CreateRequest, CreateTTLRequest, ErrorResponse, SyncRequest
from zkwire.session.waitable import Waitable
from zkwire.wire import ops
from zkwire.wire.ops import CLOSE_SESSION, HEADER_BYTES, LENGTH_BYTES, MULTI, Op, pack_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from zkwire.jute.multi import MultiResponse
    from zkwire.session.liveness import Liveness
    from zkwire.session.waitable import Waker, Watch


class Answered:
    """The server carried the request out; ``Request.record`` is its reply."""

    __slots__ = ()


ANSWERED = Answered()


class Refused(Record):
    """The server refused the request with an error code."""

    code: int


_SEQUENTIAL = 2  # in the flags of each kind of node that has a number (Java's CreateMode)
_ABOUT_SESSION = (errors.SESSION_EXPIRED, errors.SessionMovedError.code)


def about_session(answers: Any) -> int:
    """The code with which a multi was refused because of its session; 0: it was not.

    A server checks the session with each operation (``PrepRequestProcessor.pRequest2Txn``), and
    answers as if the first operation had been refused.  Nothing has been executed.
    """
    if not (answers and isinstance(answers[0], ErrorResponse)):
        return 0  # a refused multi has nothing but errors; other answers may be long
    for answer in answers:
        if isinstance(answer, ErrorResponse) and answer.err in _ABOUT_SESSION:
            return answer.err
    return 0


class Failed(Record):
    """No server answered the request; ``kind`` is the class of the error."""

    kind: type[errors.ZooKeeperError]
    message: str
    maybe_applied: bool


class Request(Waitable):
    """What was asked, where it stands, how it ended.

    ``path`` is the caller's, for messages; the server's is in ``body``.  ``finish`` turns the
    reply's record into the caller's result.  ``xid`` is 0 until it is sent.  ``deadline`` and
    ``sent_at`` are in seconds; only a request that waits for a connection has a deadline.  ``end``
    is the position in the connection's outgoing stream after its last byte: if the kernel has taken
    fewer bytes, it was not sent.

    ``watch`` is set by the reply, on the server's path ``watch_path``.  ``own_czxid`` is for the
    own-node watch of a lock, which is in the table from submission on: the czxid of that node.
    ``following`` are requests for the same write that only have to be sent.
    ``covered``: a persistent watch on the same path does the server's part of the watch.
    """

    __slots__ = (
        "body", "covered", "deadline", "end", "finish", "following", "op", "outcome", "own_czxid",
        "path", "record", "sent_at", "watch", "watch_kind", "watch_path", "xid",
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
        watch_kind: ops.WatchKind = ops.WatchKind.DATA,
        own_czxid: int | None = None,
    ) -> None:
        # One object for each request: what is seldom needed is stored only where it is.
        self._wakers = ()
        self.op: Op = op
        self.path: str | None = path
        self.body: bytes = body
        self.finish: Callable[[Any], Any] | None = finish
        self.following: tuple[Request, ...] = ()
        self.xid: int = 0
        self.deadline: float | None = None
        self.outcome: Answered | Refused | Failed | None = None
        self.watch: Watch | None = watch
        if watch is not None:
            self.watch_path: str = watch_path
            self.watch_kind: ops.WatchKind = watch_kind
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

    def given_up(self, error: errors.OperationTimeoutError) -> None:
        """The caller has waited long enough, and gets this error; for an observer."""

    def error(self) -> errors.ZooKeeperError | None:
        """The error that the request ended with, a new object each time; None if it succeeded."""
        outcome = self.outcome
        if isinstance(outcome, Refused):
            if outcome.code == errors.UnimplementedError.code:
                message = (
                    f"this server does not know it (servers do since {self.op.since}), or it is "
                    "switched off there"
                )
                return errors.UnimplementedError(message, op=self.op.name, path=self.path)
            taken = outcome.code == errors.NodeExistsError.code and bool(
                self.create_flags & _SEQUENTIAL
            )
            error = errors.error_for(outcome.code, self.op.name, self.path, sequential=taken)
            error.maybe_applied = outcome.code in errors.UNCERTAIN and self.op.changes
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
    def create_flags(self) -> int:
        """The flags of the node that it creates (Java's CreateMode); 0 if it creates none."""
        if self.op.request not in (CreateRequest, CreateTTLRequest):
            return 0
        fields: Any = self.op.request.decode(self.body)
        return fields.flags

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


_REPLY = struct.Struct(">iiqi")  # length, xid, zxid, err
_REPLY_BYTES = _REPLY.size
_read_reply = _REPLY.unpack_from

LAST_XID = 0x7FFFFFFF
# Bytes that are sent at a time; the kernel's socket buffers are about as large.
SEND_BATCH = 256 * 1024
# What a multi becomes that was answered as if its session were over; see ``ask_about``.
STILL_THERE = Op(MULTI.name, ops.SYNC.opcode, ops.SYNC.request, ops.SYNC.reply)
_SYNC_ROOT = SyncRequest.pack("/")


def _earlier(finish: Callable[[Any], Any], answers: MultiResponse, _: Any) -> Any:
    return finish(answers)


class RequestQueue:
    """The requests of a session between submission and answer: first queued, then unanswered.

    ``position`` is how many bytes have been sent on this connection, ``last_zxid`` the newest
    transaction that an answer has shown.
    """

    __slots__ = ("_next_xid", "last_zxid", "position", "queue", "unanswered")

    def __init__(self, first_xid: int = 1) -> None:
        self.queue: deque[Request] = deque()
        self.unanswered: deque[Request] = deque()
        self.position: int = 0
        self.last_zxid: int = 0
        self._next_xid = first_xid

    def __iter__(self) -> Iterator[Request]:
        yield from self.unanswered
        yield from self.queue

    def clear(self) -> None:
        """Forget all requests."""
        self.queue.clear()
        self.unanswered.clear()

    def new_xid(self) -> int:
        """The next xid."""
        xid = self._next_xid
        self._next_xid = xid % LAST_XID + 1
        return xid

    def take(self, now: float) -> list[bytes]:
        """The frames of the next queued requests, which from now on count as sent."""
        parts: list[bytes] = []
        queue, limit = self.queue, self.position + SEND_BATCH
        position, xid, unanswered = self.position, self._next_xid, self.unanswered
        try:
            while queue and position < limit:
                request = queue[0]
                size = HEADER_BYTES + len(request.body)
                position += size
                request.end, request.xid, request.sent_at = position, xid, now
                parts.append(pack_header(size - LENGTH_BYTES, xid, request.op.opcode))
                parts.append(request.body)
                xid = xid % LAST_XID + 1
                unanswered.append(request)
                queue.popleft()  # interrupt-safe: last, so it is never in neither place
        finally:
            self.position, self._next_xid = position, xid
        return parts

    def send(self, request: Request, now: float) -> bytes:
        """The frame of a request, which from now on counts as sent at ``now``."""
        body, xid = request.body, self._next_xid
        self._next_xid = xid % LAST_XID + 1
        size = HEADER_BYTES + len(body)
        request.end = self.position = self.position + size
        request.xid, request.sent_at = xid, now
        self.unanswered.append(request)
        return pack_header(size - LENGTH_BYTES, xid, request.op.opcode) + body

    def complete_plain(
        self, data: bytes, live: Liveness, callbacks: list[Waker], now: float
    ) -> int:
        """End the requests whose plain answers ``data`` begins with; returns the offset after them.

        The first frame that is not plain, or is incomplete or unreadable, and all frames after it
        are left to the session.
        """
        unanswered, have, at, request = self.unanswered, len(data), 0, None
        newest = self.last_zxid
        try:
            while unanswered and (start := at + _REPLY_BYTES) <= have:
                length, xid, zxid, code = _read_reply(data, at)
                head, end = unanswered[0], at + LENGTH_BYTES + length
                op = head.op
                if code or xid != head.xid or head.watch is not None or end > have:
                    break
                if op.reply is not None:
                    head.record = record = op.reply.values(data, start, end)
                    if op is MULTI and about_session(record):
                        break
                elif end == start and op is not CLOSE_SESSION:
                    head.record = None
                else:
                    break
                if zxid > newest:
                    self.last_zxid = newest = zxid
                if head._wakers:
                    callbacks += head._take_wakers()
                head.outcome = ANSWERED
                unanswered.popleft()  # interrupt-safe: late, connection_lost finds it until then
                request, at = head, end
        except errors.ProtocolError:
            pass
        if request is not None:
            live.answered(request.sent_at, now)
        return at

    def advance(self, xid: int) -> None:
        """Put the request with this xid before all unanswered ones: its answer overtakes theirs."""
        unanswered = self.unanswered
        at = next((at for at, request in enumerate(unanswered) if request.xid == xid), 0)
        if at:
            unanswered.appendleft(unanswered[at])
            del unanswered[at + 1]  # interrupt-safe: last

    def ask_about(self, request: Request, answers: MultiResponse) -> None:
        """Ask whether the session is over, as the answer to the first request, a multi, says.

        The leader also says so if a multi makes an ephemeral node in a follower's local session,
        which goes on.  So the client sends a sync: the end of the session would reach it before the
        answer to that.  When that answer comes, the multi ends with its own answer.  Until then the
        multi waits as a request that changes nothing, also over a lost connection.
        """
        request.op, request.body, request.xid = STILL_THERE, _SYNC_ROOT, 0
        if request.finish is not None:
            request.finish = partial(_earlier, request.finish, answers)
        self.queue.append(request)
        self.unanswered.popleft()  # interrupt-safe: last, connection_lost finds it until then

    def take_lost(self, sending: bool) -> list[Request]:
        """Remove and return the requests that are lost with their connection.

        These are all requests if the connection was ``sending`` until then.  If not, they are the
        requests without a deadline: the others were submitted after the sending had stopped.
        """
        late = {} if sending else {r: None for r in self.queue if r.deadline is not None}
        lost = [*self.unanswered, *(request for request in self.queue if request not in late)]
        self.clear()
        self.queue.extend(late)
        return lost

    def take_all(self, unknown: tuple[Op, ...]) -> list[Request]:
        """Remove and return the queued requests of these operations."""
        taken = [request for request in self.queue if request.op in unknown] if unknown else []
        for request in taken:
            self.queue.remove(request)
        return taken

    def head(self, xid: int) -> Request:
        """The request that a reply with this xid is for; ProtocolError if it is for none."""
        unanswered = self.unanswered
        if not unanswered or unanswered[0].xid != xid:
            expected = f"expected was {unanswered[0].xid}" if unanswered else "but none is expected"
            raise errors.ProtocolError(f"a reply has the xid {xid}, {expected}")
        return unanswered[0]
