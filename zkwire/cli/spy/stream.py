"""One direction of a captured TCP connection: segments in any order become runs of bytes.

A run has no hole; between two runs bytes are missing in the capture.  What is repeated is taken
once.  A piece has the time at which all before it had come, too.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.spy.segments import Segment

    When = tuple[float, int]  # seconds, and the number of the packet


class Piece(NamedTuple):
    """Bytes that came together."""

    when: When
    data: bytes


class Hole(NamedTuple):
    """Bytes that are missing."""

    when: When
    size: int


class Stream:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._top = 0
        self._segments: list[tuple[int, When, bytes]] = []
        self._reach: tuple[int, When] = (0, (0.0, 0))
        self.begun: bool = False  # the capture has the first byte

    def begin(self, number: int) -> None:
        """The SYN of this direction; its data has the numbers behind."""
        if not self.begun:
            self._base, self.begun, self._top = number + 1, True, 0

    def add(self, segment: Segment, when: When) -> None:
        """A segment with data."""
        if self._base is None:
            self._base = segment.number
        far = (segment.number - self._base - self._top) & 0xFFFF_FFFF
        at = self._top + far - (far >> 31 << 32)  # numbers begin anew behind 4 GiB
        self._top = max(self._top, at)
        self._segments.append((at, when, segment.data))
        if at + segment.size > self._reach[0]:
            self._reach = at + segment.size, when

    def parts(self) -> list[Piece | Hole]:
        """All that is there, in the order of the stream."""
        found: list[Piece | Hole] = []
        segments = sorted(self._segments, key=lambda segment: segment[:2])
        end = 0 if self.begun or not segments else segments[0][0]
        latest: When = (0.0, 0)
        for at, when, data in segments:
            latest = max(latest, when)
            if at > end:
                found.append(Hole(latest, at - end))
                end = at
            if data := data[end - at :]:
                found.append(Piece(latest, data))
                end += len(data)
        if self._reach[0] > end:
            found.append(Hole(max(self._reach[1], latest), self._reach[0] - end))
        return found
