"""One frame as the fault proxy sees it, with its operation's name and the fields that tests use.

Decides what an operation is called and how the header of a frame is parsed; must not know sockets,
faults, or which request a reply belongs to.  It does not use the client's codec, so that a bug
there shows here.

Invariant: any bytes make a frame.  A field that cannot be parsed is None; parsing never raises.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from zkwire.wire.ops import OPS

Direction = Literal["c2s", "s2c"]
Kind = Literal["connect", "request", "reply", "notification", "ping", "auth", "command", "raw"]

OPCODES: Final[dict[str, int]] = {
    **{op.name: op.opcode for op in OPS.values()},
    "delete_container": 20,  # between servers
    "create_session": -10,
}
"""The opcode of each operation, by its name in the protocol, in snake case."""

NOTIFICATION_XID: Final = -1
PING_XID: Final = -2

_NAMES = {opcode: name for name, opcode in OPCODES.items()}
_KINDS: dict[str, Kind] = {"ping": "ping", "auth": "auth"}
_WITHOUT_PATH = {op.name for op in OPS.values() if not op.has_path} | {"create_session", "unknown"}
_REQUEST_HEADER = struct.Struct(">4xii")
_REPLY_HEADER = struct.Struct(">4xiqi")
_EVENT_PATH = _REPLY_HEADER.size + 8  # after the type of the event and the state


class Frame(NamedTuple):
    """One frame that the proxy has received, whether it was forwarded or not.

    ``direction`` is "c2s" or "s2c"; ``connection`` counts the accepted connections from 0.

    ``kind`` says what the frame is on the wire: "connect", "ping" and "auth" in either direction;
    "request" and "reply" for all other operations; "notification"; "command" for a four-letter
    word; "raw" for bytes that are no frame, split as they arrived.

    ``op`` is a name of `OPCODES`, "connect", "notification", the four-letter word, "raw", or
    "unknown".  A reply has the ``op``, ``opcode`` and ``path`` of its ``request``.

    ``number`` counts requests over all connections from 0, handshakes and pings not included; None
    for any other frame.  ``raw`` is the frame as it was on the wire, ``time`` the monotonic time at
    which the proxy had read it.
    """

    direction: Direction
    connection: int
    kind: Kind
    op: str
    raw: bytes
    time: float
    xid: int | None = None
    opcode: int | None = None
    zxid: int | None = None
    error: int | None = None
    path: str | None = None
    number: int | None = None
    request: Frame | None = None

    @property
    def body(self) -> bytes:
        """The frame without its length prefix, with its header if it has one."""
        return self.raw if self.kind in ("command", "raw") else self.raw[4:]

    def __repr__(self) -> str:
        notes = [f"{self.connection} {self.direction} {self.op}"]
        if self.kind != self.op:
            notes.append(self.kind)
        if self.xid is not None:
            notes.append(f"xid={self.xid}")
        if self.error:
            notes.append(f"error={self.error}")
        if self.path is not None:
            notes.append(repr(self.path))
        return f"<Frame {' '.join(notes)}, {len(self.raw)} bytes>"


def describe_rule(op: str, nth: int, known: Collection[str], *, reply: bool = False) -> str:
    """The description of a rule for the ``nth`` request of an operation, or for its reply.

    ValueError unless the operation is ``known`` and there can be such a request.
    """
    if op not in known:
        raise ValueError(f"unknown operation {op!r}")
    if nth < 1:
        raise ValueError(f"nth counts from 1: {nth!r}")
    what = f"notification {nth}" if op == "notification" else f"request {nth} of {op}"
    return f"the reply to {what}" if reply else what


def request_frame(connection: int, raw: bytes, time: float) -> Frame:
    """A frame from the client, after the handshake."""
    if len(raw) < _REQUEST_HEADER.size:
        return Frame("c2s", connection, "request", "unknown", raw, time)
    xid, opcode = _REQUEST_HEADER.unpack_from(raw)
    op = _NAMES.get(opcode, "unknown")
    path = None if op in _WITHOUT_PATH else _ustring(raw, _REQUEST_HEADER.size)
    kind = _KINDS.get(op, "request")
    return Frame("c2s", connection, kind, op, raw, time, xid, opcode, path=path)


def sent_xid(raw: bytes) -> int | None:
    """The xid of the server's answer to these bytes; None if they are too short for a request."""
    if len(raw) < _REQUEST_HEADER.size:
        return None
    xid, opcode = _REQUEST_HEADER.unpack_from(raw)
    # The server answers a ping with the ping's own xid, not the xid of the request.
    return PING_XID if opcode == OPCODES["ping"] else int(xid)


def reply_xid(raw: bytes) -> int | None:
    """The xid of a frame from the server, after the handshake; None if it has no header."""
    return int(_REPLY_HEADER.unpack_from(raw)[0]) if len(raw) >= _REPLY_HEADER.size else None


def reply_frame(connection: int, raw: bytes, time: float, request: Frame | None) -> Frame:
    """A frame from the server, after the handshake; ``request`` is what it answers, if known."""
    if len(raw) < _REPLY_HEADER.size:
        return Frame("s2c", connection, "reply", "unknown", raw, time, request=request)
    xid, zxid, error = _REPLY_HEADER.unpack_from(raw)
    kind: Kind = "reply"
    op, opcode, path = "unknown", None, None
    if xid == NOTIFICATION_XID:
        kind = op = "notification"
        path = _ustring(raw, _EVENT_PATH)
    elif request is not None:
        kind = _KINDS.get(request.op, "reply")
        op, opcode, path = request.op, request.opcode, request.path
    elif xid == PING_XID:
        kind = op = "ping"
    return Frame(
        "s2c", connection, kind, op, raw, time, xid, opcode, zxid, error, path, None, request
    )


def _ustring(raw: bytes, at: int) -> str | None:
    length = int.from_bytes(raw[at : at + 4], "big", signed=True)
    end = at + 4 + length
    if length < 0 or not at + 4 <= end <= len(raw):
        return None
    return raw[at + 4 : end].decode("utf-8", "replace")
