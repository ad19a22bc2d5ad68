"""The servers that the differential test compares: frames in, frames out, in lockstep."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from tests.support.server_control import ZooKeeperServer
from zkwire.jute.frames import FrameSplitter
from zkwire.testing.server.processor import Processor
from zkwire.testing.server.rules import Version
from zkwire.testing.server.sessions import Connection

SECONDS = 30.0
SILENCE = b"silence"


def playing(server: ZooKeeperServer) -> Version:
    """What an embedded server has to play to be compared with this one."""
    version: Any = "{}.{}".format(*server.release)
    return version


class Link(Protocol):
    """One connection to one side."""

    def exchange(self, data: bytes, replies: int | None) -> list[bytes]:
        """Send, and return the frames that come up to that many replies; None: up to the end.

        The end of the connection is an empty frame, a lack of replies is SILENCE.
        """
        ...

    def close(self) -> None: ...


class Side(Protocol):
    """One of the servers under comparison."""

    name: str

    def connect(self) -> Link: ...


class RealLink:
    """A socket to a real server."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = FrameSplitter()

    def exchange(self, data: bytes, replies: int | None) -> list[bytes]:
        found: list[bytes] = []
        if data:
            try:
                self._socket.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                return [b""]
        while replies is None or sum(map(self._is_reply, found)) < replies:
            try:
                chunk = self._socket.recv(65536)
            except ConnectionResetError:
                chunk = b""
            except TimeoutError:
                return [*found, SILENCE]
            if not chunk:
                return [*found, b""]
            found += [c[at:end] for c, at, end in self._splitter.feed(chunk)]
        return found

    @staticmethod
    def _is_reply(body: bytes) -> bool:
        return body[:4] != b"\xff\xff\xff\xff"

    def close(self) -> None:
        self._socket.close()


class RealSide:
    """A real server."""

    name = "real"

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    def connect(self) -> RealLink:
        return RealLink(*self._address)


class EmbeddedLink:
    """A connection of the pure processor: no socket, so that nothing but the rules can differ."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.connection: Connection = processor.connect()
        self._splitter = FrameSplitter()

    def exchange(self, data: bytes, replies: int | None) -> list[bytes]:
        self._processor.receive(self.connection, data, 0.0)
        output = self.connection.take_output()
        found = [c[at:end] for c, at, end in self._splitter.feed(output)]
        if self.connection.ended and (replies is None or len(found) < replies):
            found.append(b"")
        return found

    def close(self) -> None:
        self._processor.lost(self.connection)


class EmbeddedSide:
    """The embedded server."""

    name = "embedded"

    def __init__(self, processor: Processor) -> None:
        self.processor = processor

    def connect(self) -> EmbeddedLink:
        return EmbeddedLink(self.processor)
