"""The socket of one client as the embedded server's loop sees it: bytes in, bytes out, TLS between.

Decides what has arrived and what is sent next; must not know when the loop asks.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkwire.testing.server.connection import Connection

if TYPE_CHECKING:
    from zkwire.testing.server.tls import ServerTls

_CHUNK = 64 * 1024


class Peer:
    """A socket, its connection, the requests to carry out and the bytes to send."""

    __slots__ = ("connection", "interest", "requests", "sock", "tls", "unsent")

    def __init__(self, sock: socket.socket, connection: Connection, tls: ServerTls | None) -> None:
        self.sock: socket.socket = sock
        self.connection: Connection = connection
        self.tls: ServerTls | None = tls
        self.interest: int = selectors.EVENT_READ
        self.requests: Iterator[bytes] | None = None
        self.unsent: memoryview[int] = memoryview(b"")

    @property
    def backlog(self) -> int:
        return len(self.unsent) + self.connection.waiting

    def receive(self) -> bytes | None:
        """The bytes that have arrived; None if there are none yet, empty at the end."""
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if self.tls is None or not data:
            return data
        plaintext = self.tls.receive(data)
        if plaintext and self.connection.first_bytes is not None:  # now the certificate is known
            self.connection.credentials.add_certificate(self.tls.subject)
        return plaintext or (b"" if self.tls.eof or self.tls.error else None)

    def take_output(self) -> bytes:
        """The next bytes for the kernel."""
        data = self.connection.take_output()
        return data if self.tls is None else self.tls.encrypt(data)
