"""The actions of the fault proxy: what it can do to a frame.

An *action* is a function that returns *steps* for a frame.  The connection performs them in place
of the frame, in its direction, one after the other.  `forward` returns ``(Send(frame.raw),)``, and
the other actions are as short, so a test can define its own.  Steps are only data;
`zkwire.testing.proxy.relay` performs them.  This module decides what a fault is; it must not know
sockets, rules, or any time but the frame's own.

Invariant: the steps of a direction are performed in the order of its frames.  The proxy never
reorders a direction, because TCP does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from zkwire.testing.proxy.frames import Frame

_DRIP_PIECES = 50


class Gate:
    """A point at which a stream stops until the test releases it; see `hold`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._open = False
        self._wakers: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether `release` was called."""
        return self._open

    def wait_reached(self, timeout: float = 15.0) -> Frame:
        """Wait until a stream stops here; returns the frame, or raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._frame is not None, timeout):
                raise TimeoutError(f"no frame reached the gate within {timeout} s")
            assert self._frame is not None
            return self._frame

    def release(self) -> None:
        """Let everything pass, now and later."""
        with self._changed:
            self._open = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def arrive(self, frame: Frame, wake: Callable[[], None]) -> None:
        """For the proxy: note that ``frame`` is at the gate; the release calls ``wake``."""
        with self._changed:
            self._frame = self._frame or frame
            if not self._open:
                self._wakers.append(wake)
            self._changed.notify_all()


class Send(NamedTuple):
    """Send these bytes: a whole frame or a part of one.

    With ``size``, the bytes leave in segments of that size, ``gap`` seconds apart.  ``reply`` is
    the action for the frame that answers this one.
    """

    data: bytes
    size: int = 0
    gap: float = 0.0
    reply: Action | None = None


class Wait(NamedTuple):
    """Do nothing until this monotonic time."""

    until: float


class Hold(NamedTuple):
    """Do nothing until the gate is released."""

    gate: Gate
    frame: Frame


class HalfClose(NamedTuple):
    """Close this direction: the receiver sees the end of the stream; the other stays open."""


class Cut(NamedTuple):
    """Close the connection on both sides, with FIN, or with RST if ``reset``."""

    reset: bool = False


class BlackHole(NamedTuple):
    """Forward nothing more in either direction, and keep the connection open."""


Step: TypeAlias = Send | Wait | Hold | HalfClose | Cut | BlackHole
Action: TypeAlias = Callable[[Frame], Iterable[Step]]


def forward(frame: Frame) -> Iterable[Step]:
    """Forward the frame unchanged; the action for a frame without a rule."""
    return (Send(frame.raw),)


def drop(frame: Frame) -> Iterable[Step]:
    """Drop the frame; later frames are forwarded."""
    return ()


def cut_before(frame: Frame) -> Iterable[Step]:
    """Close both sides with FIN instead of forwarding the frame."""
    return (Cut(),)


def rst_before(frame: Frame) -> Iterable[Step]:
    """Close both sides with RST instead of forwarding the frame."""
    return (Cut(reset=True),)


def cut_after(frame: Frame) -> Iterable[Step]:
    """Close both sides with FIN after the frame.

    For a request, the server carries it out; the proxy closes when the reply comes, and drops the
    reply.  A frame of the server is forwarded first.
    """
    return _send_then(frame, cut_before)


def rst_after(frame: Frame) -> Iterable[Step]:
    """As `cut_after`, with RST."""
    return _send_then(frame, rst_before)


def black_hole(frame: Frame) -> Iterable[Step]:
    """From this frame on, forward nothing in either direction; the connection stays open.

    For the rest of that connection: `FaultProxy.black_hole` does not end it.
    """
    return (BlackHole(),)


def half_close(frame: Frame) -> Iterable[Step]:
    """Forward the frame, then close its direction; the other direction stays open."""
    return (Send(frame.raw), HalfClose())


def duplicate(frame: Frame) -> Iterable[Step]:
    """Forward the frame twice."""
    return (Send(frame.raw), Send(frame.raw))


def split(frame: Frame) -> Iterable[Step]:
    """Forward the frame byte by byte.

    Each byte is a segment of its own until the kernel's congestion window is full (10 segments on
    Linux, and again after each acknowledgement); bytes that wait for the window may share one.
    """
    return (Send(frame.raw, size=1),)


def truncate(n: int) -> Action:
    """Forward the first ``n`` bytes of the frame, length prefix included, then close with FIN."""
    _check("n", n)
    return lambda frame: (Send(frame.raw[:n]), Cut())


def rewrite(fn: Callable[[bytes], bytes]) -> Action:
    """Forward what ``fn`` returns for the whole frame, length prefix included, unchecked."""
    return lambda frame: (Send(bytes(fn(frame.raw))),)


def delay(seconds: float) -> Action:
    """Forward the frame ``seconds`` after its arrival, and later frames after it."""
    _check("seconds", seconds)
    return lambda frame: (Wait(frame.time + seconds), Send(frame.raw))


def delay_reply(seconds: float) -> Action:
    """As `delay`, for the reply to the request."""
    return on_reply(delay(seconds))


def drip(seconds: float) -> Action:
    """Forward the reply to the request in small pieces, the last one after ``seconds``.

    A frame of the server is itself forwarded in pieces.
    """
    _check("seconds", seconds)

    def trickle(frame: Frame) -> Iterable[Step]:
        size = -(-len(frame.raw) // _DRIP_PIECES)
        gaps = -(-len(frame.raw) // size) - 1
        return (Send(frame.raw, size, seconds / max(gaps, 1)),)

    return on_reply(trickle)


def hold(gate: Gate) -> Action:
    """Stop the stream before the frame until ``gate.release()``."""
    return lambda frame: (Hold(gate, frame), Send(frame.raw))


def _send_then(frame: Frame, action: Action) -> Iterable[Step]:
    if frame.direction == "c2s":
        return (Send(frame.raw, reply=action),)
    return (Send(frame.raw), *action(frame))


def on_reply(action: Action) -> Action:
    """Do ``action`` to the reply to the request; a frame of the server is itself a reply."""

    def act(frame: Frame) -> Iterable[Step]:
        return (Send(frame.raw, reply=action),) if frame.direction == "c2s" else action(frame)

    return act


def _check(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
