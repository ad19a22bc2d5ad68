"""One direction of a connection through the proxy: it performs the steps of the faults, in order.

Decides when a byte may leave; must not know the other direction, the selector, or which fault
belongs to which frame.

Invariants: steps are performed in the order in which they were added, and a step that ends the
direction comes after the bytes that were received before it.  If `_HIGH_WATER` bytes wait for a
receiver, nothing more is read from the sender; the other connections go on.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import assert_never

from zkwire.testing.proxy.faults import BlackHole, Cut, Gate, HalfClose, Hold, Send, Step, Wait
from zkwire.testing.proxy.frames import Direction

_CHUNK = 64 * 1024
_HIGH_WATER = 1024 * 1024
# Sends of one direction in one round: a frame in single bytes must not keep the others waiting.
_ROUND = 64


class Flow:
    """One direction of a connection: steps in, bytes out."""

    def __init__(
        self,
        direction: Direction,
        source: socket.socket,
        target: socket.socket,
        wake: Callable[[], None],
    ) -> None:
        self.direction: Direction = direction
        self.source = source
        self.target = target
        self.ended = False  # the source has no more bytes
        self.closed: bool = False  # the target takes no more bytes
        self.blocked: bool = False  # the target takes no bytes now
        self._wake = wake
        self._steps: deque[Step] = deque()
        self._backlog = 0
        self._offset = 0  # the bytes of the first step that are sent
        self._due = 0.0
        self._gate: Gate | None = None

    def add(self, steps: Iterable[Step]) -> None:
        """Perform ``steps`` after all earlier ones."""
        for step in steps:
            self._steps.append(step)
            if isinstance(step, Send):
                self._backlog += len(step.data)

    @property
    def readable(self) -> bool:
        """Whether more bytes may be read from the source."""
        return not self.ended and self._backlog < _HIGH_WATER

    @property
    def deadline(self) -> float:
        """When the next step can be performed without an event: a time, or infinity."""
        if not self._steps or self.blocked or (self._gate and not self._gate.is_open):
            return math.inf
        return self._due

    def perform(self, now: float) -> Cut | BlackHole | None:
        """Perform the steps that are due; returns a step that is about both directions."""
        for _ in range(_ROUND):
            if self.deadline > now:
                break
            step = self._steps[0]
            if isinstance(step, Send):
                self._send(step, now)
                continue
            self._steps.popleft()
            match step:
                case Wait():
                    self._due = step.until
                case Hold():
                    self._gate = step.gate
                    step.gate.arrive(step.frame, self._wake)
                case HalfClose():
                    self._shut()
                case Cut() | BlackHole():
                    return step
                case _:
                    assert_never(step)
        return None

    def _send(self, step: Send, now: float) -> None:
        if self.closed:
            self._sent(len(step.data) - self._offset)
            return
        try:
            self._sent(self.target.send(self._segment(step)))
        except BlockingIOError:
            self.blocked = True
        except OSError:
            # The other direction reads the reason from this socket, after the remaining bytes.
            self.closed = True
        if step.gap and self._offset and self._offset % step.size == 0:
            self._due = now + step.gap

    def _segment(self, step: Send) -> bytes | memoryview:
        """The bytes of the next call of send: one piece, or several whole frames."""
        if step.size:
            return memoryview(step.data)[self._offset :][: step.size - self._offset % step.size]
        parts = [memoryview(step.data)[self._offset :]]
        size = len(parts[0])
        for following in islice(self._steps, 1, None):
            if not isinstance(following, Send) or following.size or size >= _CHUNK:
                break
            parts.append(memoryview(following.data))
            size += len(following.data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _sent(self, count: int) -> None:
        self._backlog -= count
        self._offset += count
        while self._steps and isinstance(step := self._steps[0], Send):
            if self._offset < len(step.data):
                break
            self._offset -= len(step.data)
            self._steps.popleft()

    def _shut(self) -> None:
        self.closed = True
        with suppress(OSError):
            self.target.shutdown(socket.SHUT_WR)
