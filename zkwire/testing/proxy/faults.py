"""What the fault proxy can do to a frame.

An *action* is a function from a frame to *steps*: what the connection does in the frame's place, in
its direction, one after the other.  `forward` is ``(Send(frame.raw),)`` and all others are as
short, so a test can bring its own.  Steps are only descriptions; `zkwire.testing.proxy.relay`
performs them.  This module decides what a fault is; it must not know sockets, rules, or time beyond
the frame's own.

Invariant: the steps of a direction are performed in the order of its frames.  Nothing is ever
re-ordered inside a direction, because TCP cannot do that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from zkwire.testing.proxy.frames import Frame

_DRIP_PIECES = 50


class Gate:
    """A place at which a stream stops until the test lets it go on; see `hold`."""

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
        """Wait until a stream has stopped here: the first frame that did; TimeoutError if none."""
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
        """For the proxy: ``frame`` stands at the gate; ``wake`` is called at the release."""
        with self._changed:
            self._frame = self._frame or frame
            if not self._open:
                self._wakers.append(wake)
            self._changed.notify_all()


class Send(NamedTuple):
    """Send one whole frame, or what is left of it.

    With ``size``, in segments of that many bytes, and then ``gap`` seconds apart.  ``reply`` is the
    action for the frame that answers this one.
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
    """Shut this direction: the receiver sees the end of the stream, the other direction lives."""


class Cut(NamedTuple):
    """Close the connection on both sides: FIN, or RST with ``reset``."""

    reset: bool = False


class BlackHole(NamedTuple):
    """Pass nothing more in either direction, and leave the connection open."""


Step: TypeAlias = Send | Wait | Hold | HalfClose | Cut | BlackHole
Action: TypeAlias = Callable[[Frame], Iterable[Step]]


def forward(frame: Frame) -> Iterable[Step]:
    """Pass the frame as it is: what happens without a rule."""
    return (Send(frame.raw),)


def drop(frame: Frame) -> Iterable[Step]:
    """The frame vanishes; everything else goes on."""
    return ()


def cut_before(frame: Frame) -> Iterable[Step]:
    """Close both sides with FIN before the frame gets through."""
    return (Cut(),)


def rst_before(frame: Frame) -> Iterable[Step]:
    """Close both sides with RST before the frame gets through."""
    return (Cut(reset=True),)


def cut_after(frame: Frame) -> Iterable[Step]:
    """Close both sides with FIN after the frame.

    After a request means: once its reply, which is swallowed, shows that the server carried it out.
    After a frame of the server means: behind it.
    """
    return _send_then(frame, cut_before)


def rst_after(frame: Frame) -> Iterable[Step]:
    """As `cut_after`, with RST."""
    return _send_then(frame, rst_before)


def black_hole(frame: Frame) -> Iterable[Step]:
    """From this frame on nothing passes, in either direction; the connection stays open."""
    return (BlackHole(),)


def half_close(frame: Frame) -> Iterable[Step]:
    """Pass the frame, then shut its direction: behind a request, the server sees the end."""
    return (Send(frame.raw), HalfClose())


def duplicate(frame: Frame) -> Iterable[Step]:
    """Pass the frame twice."""
    return (Send(frame.raw), Send(frame.raw))


def split(frame: Frame) -> Iterable[Step]:
    """Pass the frame byte by byte.

    Each byte is a segment of its own until the kernel's congestion window is full (10 on Linux, and
    again after each acknowledgement); what waits for the window may travel together.
    """
    return (Send(frame.raw, size=1),)


def truncate(n: int) -> Action:
    """Pass the first ``n`` bytes of the frame, length prefix included, then close with FIN."""
    _check("n", n)
    return lambda frame: (Send(frame.raw[:n]), Cut())


def rewrite(fn: Callable[[bytes], bytes]) -> Action:
    """Pass what ``fn`` makes of the whole frame, length prefix included, unchecked."""
    return lambda frame: (Send(bytes(fn(frame.raw))),)


def delay(seconds: float) -> Action:
    """Pass the frame, and everything behind it, not before ``seconds`` after its arrival."""
    _check("seconds", seconds)
    return lambda frame: (Wait(frame.time + seconds), Send(frame.raw))


def delay_reply(seconds: float) -> Action:
    """As `delay`, for the reply of the request."""
    return _on_reply(delay(seconds))


def drip(seconds: float) -> Action:
    """The reply of the request trickles out in pieces, the last one after ``seconds``.

    On a frame of the server, that frame does.
    """
    _check("seconds", seconds)

    def trickle(frame: Frame) -> Iterable[Step]:
        size = -(-len(frame.raw) // _DRIP_PIECES)
        gaps = -(-len(frame.raw) // size) - 1
        return (Send(frame.raw, size, seconds / max(gaps, 1)),)

    return _on_reply(trickle)


def hold(gate: Gate) -> Action:
    """Stop the stream in front of the frame until ``gate.release()``."""
    return lambda frame: (Hold(gate, frame), Send(frame.raw))


def _send_then(frame: Frame, action: Action) -> Iterable[Step]:
    if frame.direction == "c2s":
        return (Send(frame.raw, reply=action),)
    return (Send(frame.raw), *action(frame))


def _on_reply(action: Action) -> Action:
    def act(frame: Frame) -> Iterable[Step]:
        return (Send(frame.raw, reply=action),) if frame.direction == "c2s" else action(frame)

    return act


def _check(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
