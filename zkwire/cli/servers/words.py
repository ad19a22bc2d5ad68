"""Four-letter words: what a server says of itself, asked in place of a greeting.

Since 3.4.10 and 3.5.3 a server answers those of ``4lw.commands.whitelist`` only, by default
``srvr`` alone.
"""

from __future__ import annotations

import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ssl import SSLContext

    from zkwire.session.hosts import Address

MOST_BYTES = 64 << 20
PIECE = 1 << 16
NOT_ALLOWED = "is not executed because it is not in the whitelist"
NOT_SERVING = "not currently serving requests"
SETTING = "4lw.commands.whitelist"


def dialled(
    address: Address, until: float, tls: SSLContext | None = None, name: str = ""
) -> socket.socket:
    """A connection to the address, or OSError (an ssl.SSLError is one) by ``until`` at the latest.

    ``name``: what the server's certificate must be for.
    """
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(until))
        sock.connect(where)
        if tls is None:
            return sock
        sock.settimeout(_left(until))
        return tls.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def ask(
    word: str, address: Address, until: float, tls: SSLContext | None = None, name: str = ""
) -> str:
    """What the server answers to a word; "" if it says nothing.  Raises OSError."""
    pieces, size = list[bytes](), 0
    with dialled(address, until, tls, name) as sock:
        sock.settimeout(_left(until))
        sock.sendall(word.encode())
        while size < MOST_BYTES:
            sock.settimeout(_left(until))
            try:
                piece = sock.recv(PIECE)
            except ConnectionResetError:  # behind the answer, from a server that has read less
                break
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces).decode(errors="replace")


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("no answer in time")
    return left


class Srvr:
    """What ``srvr`` has told; None for what it has not.  ``serving``: False without a quorum."""

    def __init__(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        self.serving: bool = NOT_SERVING not in text
        self.mode: str | None = fields.get("Mode")
        version = fields.get("Zookeeper version", "").partition("-")[0].partition(",")[0]
        self.version: str | None = version or None
        nodes = fields.get("Node count", "")
        self.nodes: int | None = int(nodes) if nodes.isascii() and nodes.isdigit() else None
        self.latency: str | None = next(
            (value for name, value in fields.items() if name.startswith("Latency")), None
        )
