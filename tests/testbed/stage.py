"""A client and a server that a test plays itself, step by step, with the fault proxy between them.

Both ends are plain sockets in the test's thread, so each test is one sequence of events and needs
no waiting but for bytes. "Nothing arrives" is checked after another connection has done a round
trip through the proxy's only thread: what was to be passed on before has been.
"""

from __future__ import annotations

import re
import socket
import struct
from typing import Literal, Self

from zkwire.testing.proxy import OPCODES, FaultProxy

TIMEOUT = 20.0
MEGABYTE = 1024 * 1024

HELLO = bytes.fromhex(
    "0000002d000000000000000000000000000027100000000000000000"
    "000000100000000000000000000000000000000000"
)
WELCOME = bytes.fromhex(
    "000000250000000000002710000000000000000700000010000102030405060708090a0b0c0d0e0f00"
)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def ustring(text: str) -> bytes:
    return framed(text.encode())


def request(xid: int, op: str, record: bytes = b"") -> bytes:
    return framed(struct.pack(">ii", xid, OPCODES[op]) + record)


def reply(xid: int, record: bytes = b"", *, zxid: int = 9, error: int = 0) -> bytes:
    return framed(struct.pack(">iqi", xid, zxid, error) + record)


def notification(path: str) -> bytes:
    return reply(-1, struct.pack(">ii", 3, 3) + ustring(path), zxid=-1)


GET = request(1, "get_data", ustring("/a") + b"\0")
GOT = reply(1, b"data")
NEXT = request(2, "exists", ustring("/b") + b"\0")
MISSING = reply(2, error=-101)
NAMED = {
    "GET": GET,
    "GOT": GOT,
    "NEXT": NEXT,
    "MISSING": MISSING,
    "PING": request(-2, "ping"),
    "PONG": reply(-2),
}


def frame_of(word: str) -> bytes:
    """A frame by its name in a script.

    ``delete3`` is a request with the xid 3, ``re3`` the reply to it, ``/a`` a notification,
    ``GET:3`` the first three bytes of GET.
    """
    if word.startswith("/"):
        return notification(word)
    name, _, count = word.partition(":")
    if name in NAMED:
        return NAMED[name][: int(count)] if count else NAMED[name]
    found = re.fullmatch(r"([a-z_]+?)(\d+)", name)
    assert found is not None, word
    return reply(int(found[2])) if found[1] == "re" else request(int(found[2]), found[1])


class End:
    """One end of a connection; it never waits longer than TIMEOUT."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.sock.recv(count - len(data))
            assert chunk, f"the stream ended after {bytes(data)!r}"
            data += chunk
        return bytes(data)

    def frame(self) -> bytes:
        prefix = self.read(4)
        return prefix + self.read(int.from_bytes(prefix, "big"))

    def expect(self, *frames: bytes) -> None:
        """The next frames are these."""
        assert [self.frame() for _ in frames] == list(frames)

    def ending(self) -> tuple[bytes, Literal["FIN", "RST"]]:
        """All that still comes, and how it ends."""
        data = bytearray()
        try:
            while chunk := self.sock.recv(65536):
                data += chunk
        except ConnectionResetError:
            return bytes(data), "RST"
        return bytes(data), "FIN"

    def has_nothing(self) -> bool:
        """Whether there is nothing to read at this moment, neither bytes nor an end."""
        self.sock.setblocking(False)
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.sock.settimeout(TIMEOUT)
        return False

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def do(self, verb: str, *words: str) -> None:
        """One step of a script."""
        if verb == ".":
            assert self.ending() == (b"".join(map(frame_of, words[:-1])), words[-1])
        elif verb == ">":
            self.send(b"".join(map(frame_of, words)))
        elif verb == "<":
            self.expect(*map(frame_of, words))
        elif verb == "=":
            assert self.has_nothing()
        elif verb == "/":
            self.sock.shutdown(socket.SHUT_WR)
        elif verb == "-":
            self.sock.close()
        else:
            assert verb == "!", verb
            self.reset()


class Stage:
    """A server's port, the proxy before it, and the ends of all connections made."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(TIMEOUT)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.proxy = FaultProxy(upstream=self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for end in self.ends:
            end.sock.close()
        self.listener.close()
        self.proxy.close()

    def dial(self) -> End:
        host, port = self.proxy.hosts.split(":")
        return self._own(socket.create_connection((host, int(port)), TIMEOUT))

    def accept(self) -> End:
        return self._own(self.listener.accept()[0])

    def connect(self) -> tuple[End, End]:
        """A client and its server, behind the handshake."""
        client, server = self.dial(), self.accept()
        client.send(HELLO)
        server.expect(HELLO)
        server.send(WELCOME)
        client.expect(WELCOME)
        return client, server

    def play(self, script: str) -> None:
        """A conversation, step by step: ``c`` is its client, ``s`` its server.

        ``>`` sends, ``<`` expects frames, ``.`` the end and what comes before it, ``=`` nothing.
        ``-`` closes, ``!`` resets, ``/`` says that nothing more is sent.  ``settle`` is `settle`.
        """
        client, server = self.connect()
        for step in script.split("; "):
            who, *words = step.split()
            if who == "settle":
                self.settle()
            else:
                (client if who[0] == "c" else server).do(who[1], *words)

    def settle(self) -> None:
        """Return when the proxy has passed on whatever it had and may."""
        before = self.proxy.connections
        client, server = self.connect()
        client.sock.close()
        assert server.ending() == (b"", "FIN")
        server.sock.close()
        self.proxy.wait_for(lambda _: self.proxy.connections <= before)

    def _own(self, sock: socket.socket) -> End:
        end = End(sock)
        self.ends.append(end)
        return end
