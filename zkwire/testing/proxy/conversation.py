"""The two byte streams of one connection, taken apart into frames, each reply with its request.

Decides where a frame ends, when the handshake is over, and what a reply answers; must not know
sockets, nor what happens to a frame.  Replies are matched by xid, not by order: replies to
authentication and pings overtake others, and the proxy must show this.

Invariants: no byte is lost or added, whatever the peers send.  The time is linear in the bytes,
however small the pieces.  From the first impossible length on, the bytes of a direction are passed
on without being parsed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from zkwire.testing.proxy.faults import Action
from zkwire.testing.proxy.frames import (
    Direction,
    Frame,
    reply_frame,
    reply_xid,
    request_frame,
    sent_xid,
)

# Far above what any server sends, and below the lengths that four ASCII letters encode.
_LONGEST = 64 * 1024 * 1024

_Expected = tuple[Frame, Action | None]


class _Splitter:
    """Splits one direction into frames, up to the first impossible length."""

    __slots__ = ("_buffer", "framed")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.framed = True

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes."""
        self._buffer += data
        frames: list[bytes] = []
        at, have = 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while self.framed and have - at >= 4:
                length = int.from_bytes(view[at : at + 4], "big", signed=True)
                self.framed = 0 <= length <= _LONGEST
                if not self.framed or have - at < 4 + length:
                    break
                frames.append(bytes(view[at : at + 4 + length]))
                at += 4 + length
        del self._buffer[:at]
        return frames

    def rest(self) -> list[bytes]:
        """Remove and return the incomplete frame: no piece or one."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return [rest] if rest else []


class Conversation:
    """One connection as the proxy sees it."""

    def __init__(self, connection: int) -> None:
        self._connection = connection
        self._splitters: dict[Direction, _Splitter] = {"c2s": _Splitter(), "s2c": _Splitter()}
        # The directions in which a frame has passed: there the handshake is over.
        self._begun: set[Direction] = set()
        # By xid; None is for the handshake.  Requests with the same xid are answered in order.
        self._expected: dict[int | None, deque[_Expected]] = {}

    def receive(
        self, direction: Direction, data: bytes, now: float
    ) -> Iterator[tuple[Frame, Action | None]]:
        """Yield each frame that ``data`` completes, and for a reply the action of its request.

        The iterator must be exhausted before the next call.
        """
        splitter = self._splitters[direction]
        for raw in splitter.feed(data):
            first = direction not in self._begun
            self._begun.add(direction)
            if direction == "s2c":
                yield self._reply(first, raw, now)
            elif first:
                yield Frame(direction, self._connection, "connect", "connect", raw, now), None
            else:
                yield request_frame(self._connection, raw, now), None
        if not splitter.framed:
            for raw in splitter.rest():
                yield self._unframed(direction, raw, now), None

    def rest(self, direction: Direction) -> list[bytes]:
        """The incomplete frame at the end of a direction, if there is one."""
        return self._splitters[direction].rest()

    def expect(self, request: Frame, sent: bytes, action: Action | None) -> None:
        """Note that ``sent`` goes to the server for ``request``; ``action`` is for the reply."""
        if request.kind in ("command", "raw"):
            return
        xid = None if request.kind == "connect" else sent_xid(sent)
        self._expected.setdefault(xid, deque()).append((request, action))

    def _reply(self, first: bool, raw: bytes, now: float) -> tuple[Frame, Action | None]:
        request, action = self._answered(None if first else reply_xid(raw))
        if not first:
            return reply_frame(self._connection, raw, now, request), action
        frame = Frame("s2c", self._connection, "connect", "connect", raw, now, request=request)
        return frame, action

    def _answered(self, xid: int | None) -> _Expected | tuple[None, None]:
        waiting = self._expected.get(xid)
        if not waiting:
            return None, None
        expected = waiting.popleft()
        if not waiting:
            del self._expected[xid]
        return expected

    def _unframed(self, direction: Direction, raw: bytes, now: float) -> Frame:
        first = direction not in self._begun
        self._begun.add(direction)
        word = raw[:4].decode("latin-1")
        if direction == "c2s" and first and word.isascii() and word.isalpha():
            # The answer to a four-letter word is text: its first bytes are no length.
            self._splitters["s2c"].framed = False
            return Frame(direction, self._connection, "command", word, raw, now)
        return Frame(direction, self._connection, "raw", "raw", raw, now)
