"""The calls of a session between submission and answer: a queue, then a line of unanswered ones.

Decides xids, the order on the wire, which reply belongs to which call, and what of a broken
connection had been sent.  It must not know what a reply means or how a call ends.

Invariants: xids on one connection rise strictly and are never below 1 (0 is not counted by a
server's throttle, negative ones are reserved); replies come in the order of requests, so the head
of the line is the only call a reply can be for.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from zkwire.control import HEADER_BYTES, LENGTH_BYTES, pack_header
from zkwire.errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.calls import Call

LAST_XID = 0x7FFFFFFF
# Handed out at a time; the kernel's socket buffers are of this order.
SEND_BATCH = 256 * 1024


class Flight:
    """See the module's docstring."""

    __slots__ = ("_next_xid", "position", "queue", "unanswered")

    def __init__(self, first_xid: int = 1) -> None:
        self.queue: deque[Call] = deque()
        self.unanswered: deque[Call] = deque()
        self.position = 0  # bytes handed out on this connection
        self._next_xid = first_xid

    def __iter__(self) -> Iterator[Call]:
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

    def since(self, before: int) -> list[Call]:
        """The calls that have been sent since the line was ``before`` calls long."""
        return list(islice(self.unanswered, before, None))

    def take(self, now: float) -> list[bytes]:
        """The frames of the next calls of the queue, which from now on count as sent."""
        parts: list[bytes] = []
        queue, unanswered = self.queue, self.unanswered
        limit = self.position + SEND_BATCH
        while queue and self.position < limit:
            call = queue[0]
            body, xid = call.body, self._next_xid
            self._next_xid = xid + 1 if xid < LAST_XID else 1
            size = HEADER_BYTES + len(body)
            parts += pack_header(size - LENGTH_BYTES, xid, call.op.opcode), body
            call.end = self.position = self.position + size
            call.xid, call.sent_at = xid, now
            # First in, then out: an interrupt may find the call in both places, never in none.
            unanswered.append(call)
            queue.popleft()
        return parts

    def stray(self, xid: int) -> ProtocolError:
        """The error for a reply whose xid is not that of the head of the line."""
        line = self.unanswered
        expected = f"expected was {line[0].xid}" if line else "but none is expected"
        return ProtocolError(f"a reply has the xid {xid}, {expected}")

    def overdue(self, now: float) -> Iterator[Call]:
        """Take out the queued calls whose deadline has passed."""
        while self.queue and self.queue[0].deadline is not None and self.queue[0].deadline <= now:
            yield self.queue.popleft()
