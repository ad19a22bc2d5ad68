"""Frames as bytes, and a bare socket to send them on: the floor's tools, and those of setting up.

Independent of zkwire, which is what is measured.  Must not retry, decode or check more than it is
asked to.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence

SESSION_MS = 1_800_000
"""Longer than any run: idle workers need not ping, and no ping falls into a segment."""

SILENCE_SECONDS = 20
CHUNK = 65536

OPCODES = {"create": 1, "delete": 2, "exists": 3, "get": 4, "set": 5, "children": 8}
MULTI = 14
CLOSE = struct.pack(">iii", 8, 0, -11)
OPEN_ACL = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
PERSISTENT, EPHEMERAL_SEQUENTIAL = 0, 3

Address = tuple[str, int]


def string(value: bytes) -> bytes:
    """A string or buffer with its length."""
    return struct.pack(">i", len(value)) + value


def frame(body: bytes) -> bytes:
    """A body with its length in front."""
    return struct.pack(">i", len(body)) + body


def fields(verb: str, path: str, data: bytes = b"", flags: int = PERSISTENT) -> bytes:
    """The fields of a request, without its header."""
    start = string(path.encode())
    if verb == "create":
        return start + string(data) + OPEN_ACL + struct.pack(">i", flags)
    if verb == "set":
        return start + string(data) + struct.pack(">i", -1)
    return start + (struct.pack(">i", -1) if verb == "delete" else b"\0")


def request(
    verb: str, path: str, data: bytes = b"", *, xid: int = 1, flags: int = PERSISTENT
) -> bytes:
    """A whole request, ready to be sent; it sets no watch."""
    return frame(struct.pack(">ii", xid, OPCODES[verb]) + fields(verb, path, data, flags))


def watching(path: str) -> bytes:
    """A getData request that sets a watch."""
    return request("get", path)[:-1] + b"\1"


def multi(verb: str, paths: Iterable[str], data: bytes = b"") -> bytes:
    """All of these creates or deletes in one transaction."""
    header = struct.pack(">i?i", OPCODES[verb], False, -1)
    parts = [header + fields(verb, path, data) for path in paths]
    return frame(struct.pack(">ii", 1, MULTI) + b"".join(parts) + struct.pack(">i?i", -1, True, -1))


SESSION_GREETING = frame(struct.pack(">iqiqi16s?", 0, 0, SESSION_MS, 0, 16, b"", False))


class Bare:
    """A ZooKeeper session on a plain blocking socket.  No ping: sessions outlive the run."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, SILENCE_SECONDS)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's own time limit costs nothing; Python's would cost a poll for each call.
        limit = struct.pack("ll", SILENCE_SECONDS, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._buffer = memoryview(bytearray(CHUNK))
        self.socket.sendall(SESSION_GREETING)
        self.read_frame()

    def close(self) -> None:
        """End the session, and wait until the server has seen it."""
        try:
            self.socket.sendall(CLOSE)
            while self.socket.recv(CHUNK):
                pass
        except OSError:
            pass  # it is over in any case
        finally:
            self.socket.close()

    def read(self, length: int) -> bytes:
        """Exactly so many bytes."""
        parts = bytearray(length)
        rest = memoryview(parts)
        while rest:
            received = self.socket.recv_into(rest)
            if not received:
                raise ConnectionError("the server has closed the connection")
            rest = rest[received:]
        return bytes(parts)

    def receive(self, length: int) -> bytes:
        """Exactly so many bytes, with one call if they come together."""
        received = self.socket.recv(CHUNK)
        return received if len(received) == length else received + self.read(length - len(received))

    def read_frame(self) -> bytes:
        """The next frame, without its length."""
        return self.read(struct.unpack(">i", self.read(4))[0])

    def ask(self, frame: bytes) -> bytes:
        """One request, one reply; the reply's header comes first."""
        self.socket.sendall(frame)
        return self.read_frame()

    def skip(self, length: int) -> None:
        """Receive so many bytes and look at none."""
        receive, buffer = self.socket.recv_into, self._buffer
        while length > 0:
            received = receive(buffer)
            if not received:
                raise ConnectionError("the server has closed the connection")
            length -= received

    def flood(self, data: bytes, expected: int) -> None:
        """Send everything, receive `expected` bytes, and never wait for one with the other due.

        A server that cannot send may stop to receive, so a plain sendall could wait forever.
        """
        sock, buffer = self.socket, self._buffer
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest[:CHUNK], socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                expected -= sock.recv_into(buffer)
        self.skip(expected)

    def do_all(self, frames: Sequence[bytes]) -> None:
        """Many requests whose replies nobody needs; outside any measured time."""
        for start in range(0, len(frames), 1000):
            window = frames[start : start + 1000]
            self.socket.sendall(b"".join(window))
            for _ in window:
                self.read_frame()
