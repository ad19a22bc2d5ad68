"""A connection whose bytes go through TLS.

The filter is one state machine, so the state lock serialises the thread that reads and the one that
writes; output that reading makes (answers to key updates) leaves with the next write.

Invariant: what was sent of a batch is known to within one TLS record.  A call whose last byte was
in a record of which the kernel has taken anything counts as sent.
"""

from __future__ import annotations

import socket
import ssl

from zkwire.net.connection import FLAGS, Connection
from zkwire.net.dial import kernel_says, shut_down
from zkwire.net.tls import TlsFilter, describe
from zkwire.session.outcomes import CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any


RECORD_BYTES = 16 * 1024


class TLSConnection(Connection):
    """A Connection over a TlsFilter that has done its handshake."""

    exact = False
    __slots__ = ("_ciphertext", "_mutex", "_tls")

    def __init__(
        self, sock: socket.socket, tls: TlsFilter, mutex: AbstractContextManager[Any]
    ) -> None:
        super().__init__(sock)
        self._tls = tls
        self._mutex = mutex
        self._ciphertext = memoryview(b"")  # of a record that the kernel has not taken whole

    @property
    def pending(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self._ciphertext or self.backlog)

    def opened(self) -> bytes | None:
        """The plaintext that has come; None for none yet.  An end of the stream is noted down."""
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
        data = memoryview(data)
        interrupt: BaseException | None = None
        try:
            while self._ciphertext or data:
                if not self._ciphertext:
                    with self._mutex:
                        self._ciphertext = memoryview(self._tls.encrypt(data[:RECORD_BYTES]))
                    data = data[RECORD_BYTES:]
                interrupt = self._send_ciphertext()
                if self._ciphertext or interrupt is not None:
                    break
        except OSError as error:  # ssl.SSLError is one
            self.broken_pipe = (
                describe(error) if isinstance(error, ssl.SSLError) else kernel_says(error)
            )
            self._ciphertext, self.writable = memoryview(b""), False
            self.written -= len(data)
            shut_down(self.sock)
            return
        self.written -= len(data)
        self.backlog, self.writable = data, not (self._ciphertext or data)
        if interrupt is not None:  # what is sent is known all the same, see Connection.send
            self.writer = None
            raise interrupt

    def _send_ciphertext(self) -> BaseException | None:
        """Send what the kernel takes of it; returns what has interrupted that, if anything."""
        taken, interrupt = self._taken, None
        try:
            taken.extend(map(self._send, (self._ciphertext,), FLAGS))
        except BlockingIOError:
            pass
        except BaseException as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            interrupt = error
        if taken:
            self._ciphertext = self._ciphertext[taken[0] :]
            del taken[0]
        return interrupt
