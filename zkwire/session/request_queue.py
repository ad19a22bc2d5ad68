"""The requests of a session between submission and answer: first queued, then unanswered.

Decides xids, the order on the wire, which reply belongs to which request, and which requests are
lost with a connection.  A plain answer, which sets no watch, refuses nothing and says nothing about
the session, ends its request here, many in one loop.  This module must not know what any other
answer means; the session looks at those one by one.

Invariants: xids on one connection rise strictly and are never below 1 (a server's throttle does not
count 0, negative ones are reserved); replies arrive in the order of requests, so the first
unanswered request is the only one that a reply can be for.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import partial

from zkwire.errors import ProtocolError
from zkwire.jute.records import SyncRequest
from zkwire.session.own_frames import HEADER_BYTES, LENGTH_BYTES, pack_header
from zkwire.session.request import ANSWERED, about_session
from zkwire.wire.ops import CLOSE_SESSION, MULTI, SYNC, Op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from zkwire.jute.multi import MultiResponse
    from zkwire.session.liveness import Liveness
    from zkwire.session.request import Request
    from zkwire.session.waitable import Waker

_REPLY = struct.Struct(">iiqi")  # length, xid, zxid, err
_REPLY_BYTES = _REPLY.size
_read_reply = _REPLY.unpack_from

LAST_XID = 0x7FFFFFFF
# Bytes that are sent at a time; the kernel's socket buffers are about as large.
SEND_BATCH = 256 * 1024
# What a multi becomes that was answered as if its session were over; see ``ask_about``.
STILL_THERE = Op(MULTI.name, SYNC.opcode, SYNC.request, SYNC.reply)
_SYNC_ROOT = SyncRequest.pack("/")


def _earlier(finish: Callable[[Any], Any], answers: MultiResponse, _: Any) -> Any:
    return finish(answers)


class RequestQueue:
    """See the module's docstring.

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
        while queue and self.position < limit:
            parts.append(self.send(queue[0], now))
            queue.popleft()  # interrupt-safe: last, so it is never in neither place
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
        """End the requests whose plain answers ``data`` begins with; the offset behind those.

        The first frame that is not plain, not whole or not readable, and all behind it, are left to
        the session.
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
                    head.record = record = op.reply.decode(data, start, end)
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
        except ProtocolError:
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

        The leader also says so of a follower's local session where the multi makes an ephemeral
        node.  A session's end reaches the client before the answer to a later sync, so that the
        multi ends with its own answer when that one is there.  It waits for it as a request that
        changes nothing, over a lost connection too.
        """
        request.op, request.body, request.xid = STILL_THERE, _SYNC_ROOT, 0
        if request.finish is not None:
            request.finish = partial(_earlier, request.finish, answers)
        self.queue.append(request)
        self.unanswered.popleft()  # interrupt-safe: last, connection_lost finds it until then

    def take_lost(self, sending: bool) -> list[Request]:
        """Remove and return the requests that are lost with their connection.

        All, if it was ``sending`` until then; else those without a deadline, as the others were
        submitted after the sending had stopped.
        """
        late = {} if sending else {r: None for r in self.queue if r.deadline is not None}
        lost = [*self.unanswered, *(request for request in self.queue if request not in late)]
        self.clear()
        self.queue.extend(late)
        return lost

    def take_all(self, ops: tuple[Op, ...]) -> list[Request]:
        """Remove and return the queued requests of these operations."""
        taken = [request for request in self.queue if request.op in ops] if ops else []
        for request in taken:
            self.queue.remove(request)
        return taken

    def head(self, xid: int) -> Request:
        """The request that a reply with this xid is for; ProtocolError if it is for none."""
        unanswered = self.unanswered
        if not unanswered or unanswered[0].xid != xid:
            expected = f"expected was {unanswered[0].xid}" if unanswered else "but none is expected"
            raise ProtocolError(f"a reply has the xid {xid}, {expected}")
        return unanswered[0]
