"""One connection as the embedded server sees it: bytes in, frames out of them, bytes out.

It has the incomplete frame, the output, the credentials and the session of the connection.  It
decides where a request ends and which lengths end the connection (``NIOServerCnxn``: negative, or
above jute.maxbuffer); it must not know what a frame means.

Invariant: once ``ended`` is set, nothing more is read from the connection, and the peer gets
``output`` and nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from zkwire.errors import ProtocolError
from zkwire.jute.frames import SEND_LIMIT, FrameSplitter
from zkwire.testing.server.acl import Credentials

if TYPE_CHECKING:
    from zkwire.testing.server.sasl import DigestServer


class Session:
    """One session.  ``connections`` has its connections, by the number of the member.

    A ``local`` session is known only to the read-only server that opened it.
    """

    __slots__ = ("connections", "expires", "local", "member", "passwd", "session_id", "timeout")

    def __init__(self, session_id: int, passwd: bytes, timeout: int, *, local: bool) -> None:
        self.local: bool = local
        self.session_id: int = session_id
        self.passwd: bytes = passwd
        self.timeout: int = timeout
        self.expires: int = 0
        self.member: int = 0  # the server that the session is attached to now
        self.connections: dict[int, Connection] = {}


class Connection:
    """See the module's docstring.

    ``member`` is the server of the ensemble that accepted it, ``number`` counts connections from 0.
    ``on_output`` is called when the loop has work: bytes to send, or a connection to close.
    ``queued`` returns, once, the requests that have arrived and were not carried out.
    """

    __slots__ = (
        "_on_output", "_splitter", "barrier", "credentials", "ended", "first_bytes", "greeted",
        "member", "mute", "number", "output", "queued", "reset", "sasl", "session", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        on_output: Callable[[Connection], object],
        *,
        member: int = 0,
        credentials: Credentials | None = None,
        longest: int = SEND_LIMIT,
    ) -> None:
        self.number: int = number
        self.member: int = member
        self.credentials: Credentials = credentials or Credentials()
        self.sasl: DigestServer | None = None  # the exchange, from its first token on
        self.session: Session | None = None
        self.first_bytes: bytes | None = b""  # up to three; None once four have arrived
        self.greeted: bool = False
        self.ended: bool = False
        self.output: list[bytes] = []
        self.waiting: int = 0  # bytes in the output
        self.barrier: int | None = None  # a fault holds the output back from this frame on
        self.mute: bool = False  # a fault swallows all output
        self.reset: bool = False  # a fault ends the connection with RST
        self.queued: Callable[[], Iterable[bytes]] = tuple
        self._on_output = on_output
        self._splitter = FrameSplitter(longest)

    def split(self, data: bytes) -> Iterator[bytes]:
        """The frames without their lengths that ``data`` completes; a bad length is the end.

        The iterator must be exhausted before the next call.
        """
        try:
            for chunk, at, end in self._splitter.feed(data):
                if self.ended:
                    return
                yield chunk[at:end]
        except ProtocolError:
            self.end()

    def send(self, frame: bytes) -> None:
        """Append bytes to the output."""
        if not self.ended and not self.mute:
            self.output.append(frame)
            self.waiting += len(frame)
            self._on_output(self)

    def send_ahead(self, frame: bytes) -> None:
        """Put bytes before everything in the output."""
        rest, self.output = self.output, []
        self.send(frame)
        self.output += rest
        if self.barrier is not None:
            self.barrier += len(self.output) - len(rest)

    def undo_send(self) -> bytes:
        """Undo the last :meth:`send`."""
        last = self.output.pop()
        self.waiting -= len(last)
        return last

    def end(self) -> None:
        """Close the connection after the output so far."""
        self.ended = True
        self._on_output(self)

    def take_output(self) -> bytes:
        """The bytes for the peer; they count as sent."""
        if self.barrier is None:
            parts, self.output = self.output, []
        else:
            parts, self.output = self.output[: self.barrier], self.output[self.barrier :]
            self.barrier = 0
        data = b"".join(parts)
        self.waiting -= len(data)
        return data
