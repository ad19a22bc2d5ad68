"""A connection whose bytes go through TLS.

The filter is one state machine, so the state lock serialises the thread that reads and the one that
writes; output that reading makes (answers to key updates) leaves with the next write.

Invariant: how much of a batch was sent is known to within one TLS record.  A request counts as sent
if its last byte was in a record of which the kernel has taken anything.
"""

from __future__ import annotations

import ssl

from zkwire.net.connection import Connection
from zkwire.net.dial import shut_down
from zkwire.net.tls import TlsFilter, describe
from zkwire.session.outcomes import CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from contextlib import AbstractContextManager
    from typing import Any

    from zkwire.net.wakeup import WakeupEpolls


RECORD_BYTES = 16 * 1024


class TLSConnection(Connection):
    """A Connection over a TlsFilter that has done its handshake."""

    exact = False
    __slots__ = ("_mutex", "_tls", "_wire")
    backlog: memoryview[int]
    broken_pipe: str | None
    closed_because: str | None
    writable: bool
    writer: object
    written: int

    def __init__(
        self,
        sock: socket.socket,
        epolls: WakeupEpolls | None,
        tls: TlsFilter,
        mutex: AbstractContextManager[Any],
    ) -> None:
        super().__init__(sock, epolls)
        self._tls = tls
        self._mutex = mutex
        self._wire = Connection(sock)  # for the records; its backlog is the rest of one

    @property
    def pending(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self._wire.backlog or self.backlog)

    def opened(self) -> bytes | None:
        """The plaintext that has come; None if none has.  An end of the stream is noted down."""
        # Once more with nothing at the end: the handshake may have left an alert in there.
        plaintext = self._tls.feed(self.inbox[0])
        error, eof = self._tls.error, self._tls.eof
        if plaintext:
            return plaintext  # first: what is read with an end noted down is not believed
        if error is not None:
            self.closed_because = describe(error)
        elif eof:
            self.closed_because = self.closed_because or CLOSED
        return None

    def send(self, data: bytes | memoryview) -> None:
        """Send what the kernel takes, of bytes that ``written`` counts, and keep the rest."""
        wire, rest = self._wire, memoryview(data)
        record: bytes | memoryview = wire.backlog
        wire.backlog, wire.writable = memoryview(b""), True
        try:
            while (record or rest) and wire.writable:
                if not record:
                    with self._mutex:
                        record = self._tls.encrypt(rest[:RECORD_BYTES])
                    rest = rest[RECORD_BYTES:]
                wire.writer = self
                wire.send(record)
                record = b""
        except ssl.SSLError as error:
            wire.broken_pipe = describe(error)
            shut_down(self.sock)
        except BaseException:
            if wire.writer is None:  # what is sent is known all the same, see Connection.send
                self.writer = None
            raise
        finally:
            self.written -= len(rest)
            self.broken_pipe = wire.broken_pipe
            self.backlog = memoryview(b"") if self.broken_pipe else rest
            self.writable = not (self.pending or self.broken_pipe)
