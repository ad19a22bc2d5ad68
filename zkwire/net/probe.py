"""Asks one server whether it is read-write, by the four-letter word ``isro``, without blocking."""

from __future__ import annotations

import selectors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from zkwire.net.dial import Dialer

QUESTION = b"isro"
ANSWER_BYTES = 16


class Probe:
    """One question; ``answer`` is set at its end, b"" if there was none until ``until``."""

    def __init__(
        self, dialer: Dialer, listen: Callable[[Any, socket.socket, int], None], until: float
    ) -> None:
        self.target: tuple[str, int] = dialer.target
        self.answer: bytes | None = None
        self.dialer = dialer
        self._listen = listen
        self._until = until
        self._sock: socket.socket | None = None

    def advance(self, now: float) -> float | None:
        """Go on as far as possible; returns when to be called again at the latest."""
        if self.answer is not None:
            return None
        due = self.dialer.advance(now, self._until)
        if self.dialer.failure is not None or now >= self._until:
            self._end(b"")
        elif self.dialer.connected is not None and self._sock is None:
            self._ask(self.dialer.connected)
        return self._until if due is None else min(due, self._until)

    def _ask(self, sock: socket.socket) -> None:
        tls = self.dialer.tls
        sock.setblocking(False)
        self._sock = sock
        self._listen(self, sock, selectors.EVENT_READ)
        try:
            sock.send(QUESTION if tls is None else tls.encrypt(QUESTION))
        except OSError:
            self._end(b"")

    def ready(self, _: int) -> None:
        """The server has answered, or ended the connection."""
        tls, sock = self.dialer.tls, self._sock
        if sock is None:
            return
        try:
            data = sock.recv(ANSWER_BYTES if tls is None else 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        said = data if tls is None else tls.feed(data)
        if said or not data:
            self._end(said)

    def _end(self, answer: bytes) -> None:
        self.answer = answer
        self.cancel()

    def cancel(self) -> None:
        """End it without an answer."""
        if self._sock is not None:
            self._listen(self, self._sock, 0)
            self._sock = None
        self.dialer.cancel()

    def close_sockets(self) -> None:
        """Close the sockets and nothing else."""
        self.dialer.close_sockets()
