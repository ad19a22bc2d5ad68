"""The server that costs nothing, in Python: for machines without a C compiler.

Does what native/replay.c does, with ready-made bytes; `python -m benchmarks.replay` prints its port
and ends with its standard input.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys

HEADER = struct.Struct(">iiqi")
STAT = b"\0\0\0\0\0\0\0\1" * 8 + b"\0\0\0\0"
DATA = struct.pack(">i", 100) + b"x" * 100 + STAT
NAMES = struct.pack(">i", 10) + b"".join(
    struct.pack(">i4sB", 5, b"n000", 48 + n) for n in range(10)
)
BODIES = {2: b"", 3: STAT, 4: DATA, 5: STAT, 8: NAMES, 12: NAMES + STAT, 11: b"", -11: b""}
UNIMPLEMENTED = -6
CHUNK = 1 << 17
VERSION = b"Zookeeper version: 3.4.14-0, built on nothing\n"


class Peer:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._in = b""
        self._greeted = False
        self._zxid = 1000

    def turn(self) -> bool:
        """Answer whatever has come; whether the connection goes on."""
        try:
            received = self.sock.recv(CHUNK)
            if received.startswith(b"srvr") and not self._greeted:
                self.sock.sendall(VERSION)
                return False
            if received:
                self.sock.sendall(b"".join(self._replies(self._in + received)))
        except OSError:
            return False
        return bool(received)

    def _replies(self, data: bytes) -> list[bytes]:
        replies = []
        start, end = 0, len(data)
        while end - start >= 4:
            (length,) = struct.unpack_from(">i", data, start)
            if end - start - 4 < length:
                break
            replies.append(self._reply(data, start + 4))
            start += 4 + length
        self._in = data[start:]
        return replies

    def _reply(self, data: bytes, start: int) -> bytes:
        if not self._greeted:
            self._greeted = True
            (timeout,) = struct.unpack_from(">i", data, start + 12)
            return struct.pack(">iiiqi16s?", 37, 0, timeout, id(self), 16, b"", False)
        xid, opcode = struct.unpack_from(">ii", data, start)
        self._zxid += 1
        if opcode == 1:  # create: the path comes back
            (length,) = struct.unpack_from(">i", data, start + 8)
            body = data[start + 8 : start + 12 + length]
        else:
            body = BODIES.get(opcode, b"")
        error = 0 if opcode == 1 or opcode in BODIES else UNIMPLEMENTED
        return HEADER.pack(16 + len(body), xid, self._zxid, error) + body


def serve() -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.data is None:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(sock, selectors.EVENT_READ, Peer(sock))
            elif not key.data.turn():
                selector.unregister(key.fileobj)
                key.data.sock.close()


if __name__ == "__main__":
    serve()
