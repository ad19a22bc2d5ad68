"""Frames: a signed 32-bit length, then that many bytes.

Decides where a frame ends and which lengths are refused; must not know what is inside.  A length is
checked before anything is kept for it, and memory grows only with bytes that have really arrived,
so a peer that lies about a length costs nothing.  Feeding is linear in the bytes fed, however small
the pieces.
"""

from __future__ import annotations

import struct

from zkwire.errors import ProtocolError, ReplyTooLargeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# jute.maxbuffer of an unconfigured server; it closes the connection on a longer request frame.
SEND_LIMIT = 0xFFFFF
# Servers do not apply the limit to what they send, so more must be accepted than may be sent.
RECEIVE_LIMIT = 64 * 1024 * 1024

_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from


def frame(body: bytes) -> bytes:
    """One frame around ``body``."""
    return _LENGTH.pack(len(body)) + body


class FrameSplitter:
    """Cuts a stream of bytes into frames of at most ``limit`` bytes."""

    __slots__ = ("_need", "limit", "partial")

    def __init__(self, limit: int = RECEIVE_LIMIT) -> None:
        self.limit: int = limit
        self.partial: bytearray = bytearray()
        self._need = 4

    def join(self, chunk: bytes) -> bytes:
        """``chunk`` behind what is left of earlier ones; b"" as long as no frame is whole."""
        if not self.partial:
            return chunk
        if len(self.partial) + len(chunk) < self._need:
            self.partial += chunk
            return b""
        whole = b"".join((self.partial, chunk))
        self.partial = bytearray()
        return whole

    def cut(self, data: bytes, at: int = 0) -> Iterator[tuple[bytes, int, int]]:
        """Yield ``(data, start, end)`` for each whole frame from ``at`` on, prefix not counted.

        ``data`` comes from :meth:`join`; what is left is kept for it.  Raises ProtocolError at a
        forbidden length, after the frames before it.  The iterator must be exhausted before the
        next call.
        """
        have, need = len(data), 4
        while have - at >= 4:
            (length,) = _read_length(data, at)
            if not 0 <= length <= self.limit:
                raise self._forbidden(length)
            need = length + 4
            if at + need > have:
                break
            yield data, at + 4, at + need
            at += need
            need = 4
        if at < have:
            self.partial += data[at:]
            self._need = need

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, int, int]]:
        """:meth:`cut` what :meth:`join` makes of ``chunk``."""
        return self.cut(self.join(chunk))

    def _forbidden(self, length: int) -> ProtocolError:
        if length < 0:
            return ProtocolError(f"a frame claims {length} bytes")
        return ReplyTooLargeError(f"a frame of {length} bytes is over the limit of {self.limit}")

    @property
    def missing(self) -> int:
        """How many bytes the frame that has begun still lacks, as far as known; else 0."""
        return self._need - len(self.partial) if self.partial else 0
