"""A relay of bytes that keeps what passes, and sends them on in segments of a given size.

It knows nothing of ZooKeeper, so it can say whether something else leaves a stream as it is.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Wiretap:
    """Listens for connections, one after the other, and keeps both directions of each."""

    def __init__(self, upstream: str, segment: int = 1 << 16) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._segment = segment
        self.sent: list[bytearray] = []
        self.received: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                self.sent.append(bytearray())
                self.received.append(bytearray())
                self._start(client, server, self.sent[-1])
                self._start(server, client, self.received[-1])

    def _start(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        thread = threading.Thread(target=self._copy, args=(source, target, kept))
        self._threads.append(thread)
        thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                for at in range(0, len(data), self._segment):
                    target.sendall(data[at : at + self._segment])
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
