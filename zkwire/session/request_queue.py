"""The calls of a session between submission and answer: a queue, then a line of unanswered ones.

Decides xids, the order on the wire, which reply belongs to which call, and what of a broken
connection had been sent.  A plain answer, one that sets no watch, refuses nothing and says nothing
about the session, ends its call here, many in one loop; what any other means is for the session.

Invariants: xids on one connection rise strictly and are never below 1 (0 is not counted by a
server's throttle, negative ones are reserved); replies come in the order of requests, so the head
of the line is the only call a reply can be for.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import islice

from zkwire.errors import ProtocolError
from zkwire.session.own_frames import HEADER_BYTES, LENGTH_BYTES, pack_header
from zkwire.session.request import ANSWERED
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.session.liveness import Liveness
    from zkwire.session.request import Request
    from zkwire.session.waitable import Waker
    from zkwire.wire.ops import Op

_REPLY = struct.Struct(">iiqi")  # length, xid, zxid, err
_REPLY_BYTES = _REPLY.size
_read_reply = _REPLY.unpack_from

LAST_XID = 0x7FFFFFFF
# Handed out at a time; the kernel's socket buffers are of this order.
SEND_BATCH = 256 * 1024


class RequestQueue:
    """See the module's docstring."""

    __slots__ = ("_next_xid", "last_zxid", "position", "queue", "unanswered")

    def __init__(self, first_xid: int = 1) -> None:
        self.queue: deque[Request] = deque()
        self.unanswered: deque[Request] = deque()
        self.position = 0  # bytes handed out on this connection
        self.last_zxid = 0  # the newest transaction that an answer has shown
        self._next_xid = first_xid

    def __iter__(self) -> Iterator[Request]:
        yield from self.unanswered
        yield from self.queue

    def clear(self) -> None:
        """Forget all calls."""
        self.queue.clear()
        self.unanswered.clear()

    def new_xid(self) -> int:
        """The next xid."""
        xid = self._next_xid
        self._next_xid = xid + 1 if xid < LAST_XID else 1
        return xid

    def since(self, before: int) -> list[Request]:
        """The calls that have been sent since the line was ``before`` calls long."""
        return list(islice(self.unanswered, before, None))

    def take(self, now: float) -> list[bytes]:
        """The frames of the next calls of the queue, which from now on count as sent."""
        parts: list[bytes] = []
        queue, limit = self.queue, self.position + SEND_BATCH
        while queue and self.position < limit:
            parts.append(self.send(queue[0], now))
            # First in, then out: an interrupt may find the call in both places, never in none.
            queue.popleft()
        return parts

    def send(self, request: Request, now: float) -> bytes:
        """The frame of a call, which from now on counts as sent."""
        body, xid = request.body, self._next_xid
        self._next_xid = xid + 1 if xid < LAST_XID else 1
        size = HEADER_BYTES + len(body)
        request.end = self.position = self.position + size
        request.xid, request.sent_at = xid, now
        self.unanswered.append(request)
        return pack_header(size - LENGTH_BYTES, xid, request.op.opcode) + body

    def complete_plain(
        self, data: bytes, live: Liveness, callbacks: list[Waker], now: float
    ) -> int:
        """End the calls whose plain answers ``data`` begins with; the offset behind those.

        Whatever is not plain, or not whole, or cannot be read, is left to the session, which looks
        at each frame by itself.
        """
        line, have, at, request = self.unanswered, len(data), 0, None
        newest = self.last_zxid
        try:
            while line and have - at >= _REPLY_BYTES:
                length, xid, zxid, code = _read_reply(data, at)
                head, start = line[0], at + _REPLY_BYTES
                end = at + LENGTH_BYTES + length
                op = head.op
                if code or xid != head.xid or head.watch is not None or end > have:
                    break
                if op.reply is not None:
                    head.record = op.reply.decode(data, start, end)
                elif end == start and op is not ops.CLOSE_SESSION:
                    head.record = None
                else:
                    break
                if zxid > newest:
                    self.last_zxid = newest = zxid
                if head.wakers:
                    callbacks += head.take_wakers()
                head.outcome = ANSWERED
                # Late, so that an interrupt anywhere above leaves the call to connection_lost.
                line.popleft()
                request, at = head, end
        except ProtocolError:
            pass
        if request is not None:
            live.heard(request.sent_at, now)
        return at

    def advance(self, xid: int) -> None:
        """Put the call with this xid at the head of the line: its answer overtakes others."""
        line = self.unanswered
        at = next((at for at, request in enumerate(line) if request.xid == xid), 0)
        if at:
            # First in, then out, as above.
            line.appendleft(line[at])
            del line[at + 1]

    def take_lost(self, sending: bool) -> list[Request]:
        """Take out the calls that are lost with their connection.

        All, if it was ``sending``; else those without a deadline, since the others have been
        submitted after that.
        """
        late = {} if sending else {c: None for c in self.queue if c.deadline is not None}
        lost = [*self.unanswered, *(request for request in self.queue if request not in late)]
        self.clear()
        self.queue.extend(late)
        return lost

    def take_all(self, ops: tuple[Op, ...]) -> list[Request]:
        """Take the queued calls of these operations out."""
        taken = [request for request in self.queue if request.op in ops] if ops else []
        for request in taken:
            self.queue.remove(request)
        return taken

    def head(self, xid: int) -> Request:
        """The call that a reply with this xid is for.  Raises ProtocolError if it is for none."""
        line = self.unanswered
        if not line or line[0].xid != xid:
            expected = f"expected was {line[0].xid}" if line else "but none is expected"
            raise ProtocolError(f"a reply has the xid {xid}, {expected}")
        return line[0]

    def overdue(self, now: float) -> Iterator[Request]:
        """Take out the queued calls whose deadline has passed, each when it has been ended."""
        while self.queue and self.queue[0].deadline is not None and self.queue[0].deadline <= now:
            yield self.queue[0]
            self.queue.popleft()
