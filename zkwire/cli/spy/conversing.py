"""One captured connection: which side is the client, and what both have said, message by message.

Behind missing bytes, and where the capture begins in the middle of a connection, messages begin
again with the first piece that begins like one.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from zkwire.cli.spy.meaning import NAMES
from zkwire.cli.spy.message import Message
from zkwire.cli.spy.segments import ACK, FIN, RST, SYN
from zkwire.cli.spy.stream import Hole, Piece, Stream
from zkwire.jute.frames import RECEIVE_LIMIT
from zkwire.testing.proxy.conversation import Conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.cli.spy.segments import Place, Segment
    from zkwire.cli.spy.stream import When
    from zkwire.testing.proxy.frames import Direction, Frame

    Parts = list[Piece | Hole]

_GREETING = 512  # bytes, more than any request for a session has
_TLS = b"\x16\x03"  # a handshake, and the first half of its version


class Moment(NamedTuple):
    """What is told of a connection, as an Event has it."""

    when: When
    what: str
    detail: str
    frame: Frame | None = None


class CapturedConnection:
    """The connection between ``ends``; it is asked for what it was once all segments are in."""

    def __init__(self, segment: Segment, when: When) -> None:
        self._ends = (segment.source, segment.target)
        self._streams = {end: Stream() for end in self._ends}
        self._first = when
        self._client: Place | None = None
        self._syn: int | None = None
        self._end: tuple[When, Place] | None = None

    def is_followed_by(self, segment: Segment) -> bool:
        """Whether this segment begins another connection between the same ends."""
        same = (self._client, self._syn) == (segment.source, segment.number)
        return segment.flags & (SYN | ACK) == SYN and not same

    def add(self, segment: Segment, when: When) -> None:
        """Take in a segment."""
        stream, number = self._streams[segment.source], segment.number
        if segment.flags & SYN:
            stream.begin(number)
            answers = segment.flags & ACK
            self._client = segment.target if answers else segment.source
            self._syn = self._syn if answers else number
            segment = segment._replace(number=(number + 1) & 0xFFFF_FFFF)
        if segment.size:
            stream.add(segment, when)
        if segment.flags & (FIN | RST) and self._end is None:
            self._end = when, segment.source

    @cached_property
    def begun(self) -> bool:
        """Whether the capture has its beginning."""
        return self._syn is not None or self._greets

    @cached_property
    def is_tls(self) -> bool:
        """Whether it begins as TLS does."""
        return any(_first(parts).startswith(_TLS) for parts in self._sides.values())

    @cached_property
    def is_zookeeper(self) -> bool:
        """Whether some bytes are those of ZooKeeper's protocol."""
        word = _first(self._sides["c2s"]).strip()
        if self._syn is not None and len(word) == 4 and word.isalpha():
            return True
        return self._greets or any(_fits(parts, side) for side, parts in self._sides.items())

    def moments(self, connection: int) -> Iterator[Moment]:
        """All that happens, in the order of time."""
        peer = " to ".join(self._names)
        yield Moment(self._first, "open", peer if self.begun else f"{peer}, before the capture")
        talk = Conversation(connection)
        parts: list[tuple[Piece | Hole, Direction]] = []
        for side, found in self._sides.items():
            if not self.begun:
                talk.resume(side)
            for part in _aligned(found, side, whole=self.begun):
                parts.append((part, side))
        latest = self._first
        for part, side in sorted(parts, key=lambda pair: pair[0].when):
            latest = part.when
            if isinstance(part, Hole):
                lost = part.size + sum(map(len, talk.rest(side)))
                talk.resume(side)
                yield Moment(part.when, "gap", f"{side} {lost}")
                continue
            for frame, action in talk.receive(side, part.data, part.when[0]):
                if side == "c2s":
                    talk.expect(frame, frame.raw, action)
                yield Moment(part.when, "frame", "", frame)
        if self._end is not None:
            by = "client" if self._end[1] == self._roles[0] else "server"
            yield Moment(max(self._end[0], latest), "close", by)

    @cached_property
    def _roles(self) -> tuple[Place, Place]:
        """Client and server."""
        one, other = self._ends
        if self._client is not None:
            return (one, other) if self._client == one else (other, one)
        first, second = self._streams[one].parts(), self._streams[other].parts()
        straight = _fits(first, "c2s") + _fits(second, "s2c")
        crossed = _fits(second, "c2s") + _fits(first, "s2c")
        return (one, other) if straight >= crossed else (other, one)

    @cached_property
    def _sides(self) -> dict[Direction, Parts]:
        client, server = self._roles
        return {"c2s": self._streams[client].parts(), "s2c": self._streams[server].parts()}

    @property
    def _names(self) -> list[str]:
        return [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self._roles
        ]

    @cached_property
    def _greets(self) -> bool:
        """Whether the client's first message is the request for a session."""
        begin = _first(self._sides["c2s"])
        end = 4 + int.from_bytes(begin[:4], "big")
        request = Message(begin[:end], "c2s", "connect", None)
        return end <= len(begin) and request.problem is None


def _first(parts: Parts) -> bytes:
    """The first bytes of a direction, up to the first hole."""
    found = b""
    for part in parts:
        if isinstance(part, Hole) or len(found) >= _GREETING:
            break
        found += part.data
    return found


def _fits(parts: Parts, side: Direction) -> bool:
    """Whether some piece begins like a message."""
    return any(isinstance(part, Piece) and _is_message(part.data, side) for part in parts)


def _is_message(data: bytes, side: Direction) -> bool:
    """Whether these bytes begin like a message from this side."""
    length, _, opcode, _, error = (
        int.from_bytes(data[at : at + 4], "big", signed=True) for at in range(0, 20, 4)
    )
    if side == "c2s":
        return len(data) >= 12 and 8 <= length <= RECEIVE_LIMIT and opcode in NAMES
    return len(data) >= 20 and 16 <= length <= RECEIVE_LIMIT and -1000 < error <= 0


def _aligned(parts: Parts, side: Direction, *, whole: bool) -> Iterator[Piece | Hole]:
    """The parts, without pieces of which no message can be made: they count as missing."""
    hole: Hole | None = None if whole else Hole((0.0, 0), 0)
    for part in parts:
        if isinstance(part, Hole):
            hole = Hole(part.when, part.size + (hole.size if hole else 0))
        elif hole is None:
            yield part
        elif not _is_message(part.data, side):
            hole = Hole(part.when, hole.size + len(part.data))
        else:
            if hole.size:
                yield hole
            yield part
            hole = None
    if hole is not None and hole.size:
        yield hole
