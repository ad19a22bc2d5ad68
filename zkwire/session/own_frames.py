"""The frames that a session sends on its own account: authentication, watches, pings.

Only their bytes and their order; when they are sent is the automaton's business.
"""

from __future__ import annotations

import struct

from zkwire.jute.records import AuthPacket, SetWatches, SetWatches2
from zkwire.wire import ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.session.watch_table import WatchTable

_HEADER = struct.Struct(">iii")
HEADER_BYTES = _HEADER.size
LENGTH_BYTES = 4  # those at its beginning, which the length does not count

pack_header = _HEADER.pack
"""A header from the length of all that follows the length, the xid and the opcode."""


def header(xid: int, opcode: int, body_bytes: int) -> bytes:
    """What stands before a request's body of that many bytes."""
    return pack_header(body_bytes + HEADER_BYTES - LENGTH_BYTES, xid, opcode)


def encode(xid: int, op: ops.Op, body: bytes) -> bytes:
    """A whole request."""
    return header(xid, op.opcode, len(body)) + body


PING = header(ops.PING_XID, ops.PING.opcode, 0)


def authentication(scheme: str, secret: bytes) -> bytes:
    """One set of credentials."""
    return encode(ops.AUTH_XID, ops.AUTH, AuthPacket.pack(0, scheme, secret))


def watches(table: WatchTable, last_zxid: int) -> Iterator[bytes]:
    """What sets all watches again; each frame will be answered.

    ``set_watches2`` only where there is a persistent watch: a server before 3.6 does not know it,
    and closes the connection.
    """
    for lists in table.batches():
        if any(lists[3:]):
            yield encode(ops.SET_WATCHES_XID, ops.SET_WATCHES2, SetWatches2.pack(last_zxid, *lists))
        else:
            body = SetWatches.pack(last_zxid, *lists[:3])
            yield encode(ops.SET_WATCHES_XID, ops.SET_WATCHES, body)
