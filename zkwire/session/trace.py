"""The frames on the wire as data: one :class:`TraceFrame` for each frame, in both directions.

Names, numbers and sizes only: by construction it holds no payload, no secret and no password.
``emit`` is called with the frames in their order; without a tracer nothing here is called.
"""

from __future__ import annotations

import struct
from itertools import islice

from zkwire.jute.record import Record
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from zkwire.session.request import Request

_HEADER = struct.Struct(">iii")
_OUT_OF_BAND = {
    ops.NOTIFICATION_XID: "notification",
    ops.PING_XID: ops.PING.name,
    ops.AUTH_XID: ops.AUTH.name,
    ops.SET_WATCHES_XID: ops.SET_WATCHES.name,
}
_CONNECT = "connect"
_UNKNOWN = "unknown"


class TraceFrame(Record):
    """One frame on the wire; ``size`` is in bytes, without the length in front.

    ``time`` is in seconds on the client's monotonic clock.  For a reply, ``op`` and ``path`` are
    those of its request, ``sent_at`` is the time at which the request was sent (None if the client
    sent it by itself), and ``zxid`` and ``error`` are in the header of the reply.
    """

    time: float
    sent: bool
    xid: int
    op: str
    path: str | None
    size: int
    zxid: int | None = None
    error: int = 0
    sent_at: float | None = None


class Tracer:
    """Turns frames into TraceFrames; see the module's docstring."""

    __slots__ = ("_emit",)

    def __init__(self, emit: Callable[[TraceFrame], object]) -> None:
        self._emit = emit

    def control_frames(self, frames: Sequence[bytes], now: float) -> None:
        """The session's own frames are being sent."""
        for frame in frames:
            _, xid, opcode = _HEADER.unpack_from(frame)
            op = ops.OPS.get(opcode) if xid else None  # a connect request begins with a zero
            name = op.name if op else _CONNECT
            self._emit(TraceFrame(now, True, xid, name, None, len(frame) - 4))

    def sent(self, requests: Iterable[Request], now: float) -> None:
        """These requests are being sent."""
        for request in requests:
            size = len(request.body) + 8
            self._emit(TraceFrame(now, True, request.xid, request.op.name, request.path, size))

    def greeted(self, size: int, now: float) -> None:
        """The answer to a connect request has arrived."""
        self._emit(TraceFrame(now, False, 0, _CONNECT, None, size))

    def received(
        self, xid: int, zxid: int, code: int, size: int, unanswered: Sequence[Request], now: float
    ) -> None:
        """A frame has arrived; a reply can only be for the first of the ``unanswered``."""
        request = next(islice(unanswered, 1), None)
        name = ops.SASL.name if xid > 0 else _OUT_OF_BAND.get(xid, _UNKNOWN)
        path: str | None = None
        sent_at: float | None = None
        if request is not None and request.xid == xid:
            name, path, sent_at = request.op.name, request.path, request.sent_at
        self._emit(TraceFrame(now, False, xid, name, path, size, zxid, code, sent_at))
