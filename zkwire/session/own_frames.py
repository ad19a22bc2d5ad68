"""The session's own frames, which no caller asked for: authentication, watches, pings.

Decides their bytes and their order; it must not know when they are sent.
"""

from __future__ import annotations

import struct

from zkwire.jute.records import AuthPacket, SetWatches, SetWatches2
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from zkwire.session.watch_table import WatchTable

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


def watches(table: WatchTable, last_zxid: int) -> Iterator[bytes]:
    """The frames that set all watches again; a server answers each.

    ``set_watches2`` is used only for persistent watches: a server before 3.6 does not know it and
    closes the connection.
    """
    for lists in table.batches():
        if any(lists[3:]):
            yield encode(ops.SET_WATCHES_XID, ops.SET_WATCHES2, SetWatches2.pack(last_zxid, *lists))
        else:
            body = SetWatches.pack(last_zxid, *lists[:3])
            yield encode(ops.SET_WATCHES_XID, ops.SET_WATCHES, body)
