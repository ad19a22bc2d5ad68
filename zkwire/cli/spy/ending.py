"""How the spy ends a session: it does what its client could do, and closes it.

A server moves the session to the new connection and then closes it, so its ephemeral nodes are gone
and the client hears "expired" when it connects again: as after an expiry, and at once.
"""

from __future__ import annotations

import socket

from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest, ConnectResponse, ReplyHeader, RequestHeader
from zkwire.wire.ops import CLOSE_SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.testing.proxy.relay import Address

_SECONDS = 10.0


def end_session(address: Address, session_id: int, password: bytes) -> bool:
    """End it on this server; whether it was there.  OSError if the server cannot be reached."""
    family, where = address
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(where)
        greeting = ConnectRequest(0, 0, int(_SECONDS * 1000), session_id, password, False)
        connection.sendall(frame(greeting.encode()))
        if not ConnectResponse.decode(_receive(connection)).time_out:
            return False
        connection.sendall(frame(RequestHeader.pack(1, CLOSE_SESSION.opcode)))
        while ReplyHeader.unpack(_receive(connection))[0].xid != 1:
            pass
        return True


def _receive(connection: socket.socket) -> bytes:
    return _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 65536))
        if not chunk:
            raise ConnectionError("the server has closed the connection")
        data += chunk
    return data
