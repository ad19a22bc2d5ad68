"""The frames of the session itself, which no caller asked for, and the header of every request.

Decides their bytes; it must not know when they are sent.
"""

from __future__ import annotations

import struct

from zkwire.jute.records import AuthPacket
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_HEADER = struct.Struct(">iii")
HEADER_BYTES = _HEADER.size
LENGTH_BYTES = 4  # at the header's beginning; the length does not count itself

pack_header: Final = _HEADER.pack
"""A header, of three numbers: how many bytes follow the length, the xid, the opcode."""


def header(xid: int, opcode: int, body_bytes: int) -> bytes:
    """The header of a request whose body has ``body_bytes`` bytes."""
    return pack_header(body_bytes + HEADER_BYTES - LENGTH_BYTES, xid, opcode)


def encode(xid: int, op: ops.Op, body: bytes) -> bytes:
    """A whole request."""
    return header(xid, op.opcode, len(body)) + body


PING = header(ops.PING_XID, ops.PING.opcode, 0)


def authentication(scheme: str, secret: bytes) -> bytes:
    """The frame with one credential."""
    return encode(ops.AUTH_XID, ops.AUTH, AuthPacket.pack(0, scheme, secret))
