"""Frames: a signed 32-bit length, then that many bytes.

Decides where a frame ends and which lengths are refused; it must not know what is inside.

Invariants: a length is checked before anything is stored for it, and memory grows only with bytes
that have arrived, so a false length costs nothing.  The work is linear in the bytes received,
however small the pieces.
"""

from __future__ import annotations

import struct

from zkwire.errors import ProtocolError, ReplyTooLargeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# jute.maxbuffer of an unconfigured server, which closes the connection on a longer request frame.
SEND_LIMIT = 0xFFFFF
# Servers do not apply that limit to what they send, so a client must accept more than it may send.
RECEIVE_LIMIT = 64 * 1024 * 1024

_LENGTH = struct.Struct(">i")
_read_length = _LENGTH.unpack_from


def frame(body: bytes) -> bytes:
    """One frame around ``body``."""
    return _LENGTH.pack(len(body)) + body


class FrameSplitter:
    """Cuts a stream of bytes into frames of at most ``limit`` bytes.

    ``partial`` is the beginning of a frame that is not whole yet.
    """

    __slots__ = ("_need", "limit", "partial")

    def __init__(self, limit: int = RECEIVE_LIMIT) -> None:
        self.limit: int = limit
        self.partial: bytearray = bytearray()
        self._need = 4

    def join(self, chunk: bytes) -> bytes:
        """``partial`` and ``chunk`` joined, or b"" while they are no whole frame."""
        if not self.partial:
            return chunk
        if len(self.partial) + len(chunk) < self._need:
            self.partial += chunk
            return b""
        whole = b"".join((self.partial, chunk))
        self.partial = bytearray()
        return whole

    def cut(self, data: bytes, at: int = 0) -> Iterator[tuple[bytes, int, int]]:
        """Yield ``(data, start, end)`` for each whole frame from ``at`` on, without its length.

        ``data`` is from :meth:`join`; the rest is kept in ``partial``.  Raises ProtocolError at a
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
        """:meth:`join` and :meth:`cut` in one."""
        return self.cut(self.join(chunk))

    def _forbidden(self, length: int) -> ProtocolError:
        if length < 0:
            return ProtocolError(f"a frame claims {length} bytes")
        return ReplyTooLargeError(f"a frame of {length} bytes is over the limit of {self.limit}")
