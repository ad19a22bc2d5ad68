"""What ``--fault`` asks for: its words, and the steps that the proxy then takes for a frame.

A fault is aimed at a request (``cut-after:set_data#3``), at all that passes (``delay:200ms``,
``split:1``), or at a time since the start (``blackhole:5s@3s``).  The requests of an operation are
counted over all connections.  The steps are those of :mod:`zkwire.testing.proxy.faults`.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import NamedTuple

from zkwire.cli.arguments import duration
from zkwire.cli.spy.message import operations
from zkwire.testing.proxy.faults import Cut, Gate, Hold, Send, Step, Wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.testing.proxy.faults import Action
    from zkwire.testing.proxy.frames import Frame

KINDS = (
    "drop-reply:OP[#N], cut-after:OP[#N], cut-before:OP[#N], expire[:OP[#N]], expire@TIME, "
    "delay:TIME, blackhole:TIME[@TIME], split:BYTES"
)
AIMED = ("drop-reply", "cut-after", "cut-before", "expire")


class Timed(NamedTuple):
    """A fault at a time: ``seconds`` long, ``at`` seconds behind the start."""

    spec: str
    kind: str
    at: float
    seconds: float


class _Reply:
    """The action for the reply to a request that a fault was aimed at."""

    def __init__(self, spec: str, steps: tuple[Step, ...]) -> None:
        self.spec = spec
        self._steps = steps

    def __call__(self, frame: Frame) -> tuple[Step, ...]:
        return self._steps


class _Aimed:
    """A fault for the nth request of some operations; none of them: of any but pings."""

    def __init__(self, spec: str, kind: str, ops: tuple[str, ...], nth: int) -> None:
        self.spec = spec
        self.kind = kind
        self._ops = ops
        self._left = nth

    def hits(self, frame: Frame) -> bool:
        """Whether this is the frame; each is counted once."""
        event = frame.kind == "notification"
        if frame.direction == "s2c" and not event:
            return False
        op = "watch" if event else frame.op
        if op not in self._ops if self._ops else frame.kind != "request":
            return False
        self._left -= 1
        return self._left == 0


class Faults:
    """All faults of a run; ValueError for one that cannot be understood."""

    def __init__(self, specs: list[str]) -> None:
        self.timed: list[Timed] = []
        self._aimed: list[_Aimed] = []
        self._delay = 0.0
        self._size = 0
        for spec in specs:
            try:
                self._add(spec)
            except (ValueError, ArgumentTypeError) as error:
                raise ValueError(f"--fault {spec}: {error}") from None

    @property
    def end_sessions(self) -> bool:
        """Whether one of the faults ends a session."""
        return "expire" in {f.kind for f in self._aimed} | {f.kind for f in self.timed}

    def steps(
        self, frame: Frame, promised: Action | None
    ) -> tuple[tuple[Step, ...], str | None, Gate | None]:
        """The steps for a frame, the fault that has hit it, and where it waits for ``expire``."""
        hits = [fault for fault in self._aimed if fault.hits(frame)]
        spec, gate = None, None
        steps: tuple[Step, ...] = (Send(frame.raw),)
        if isinstance(promised, _Reply):
            spec, steps = promised.spec, promised(frame)
        elif hits:
            steps, gate = _steps_of(hits[0], frame)
            waits = isinstance(steps[0], Send) and steps[0].reply is not None
            spec = None if waits else hits[0].spec
        if self._delay and frame.direction == "s2c" and steps:
            steps = (Wait(frame.time + self._delay), *steps)
        if self._size:
            steps = tuple(
                step._replace(size=self._size) if isinstance(step, Send) else step for step in steps
            )
        return steps, spec, gate

    def _add(self, spec: str) -> None:
        kind, _, what = spec.partition(":")
        kind, at, time = kind.partition("@")
        if kind == "expire" and at and not what:
            self.timed.append(Timed(spec, kind, duration(time), 0.0))
        elif at:
            raise ValueError(f"the faults are {KINDS}")
        elif kind in AIMED and (what or kind == "expire"):
            self._aimed.append(_aimed(spec, kind, what))
        elif kind == "delay":
            self._delay = duration(what)
        elif kind == "split":
            if not (what.isascii() and what.isdigit() and int(what) > 0):
                raise ValueError("split takes a number of bytes from 1 on, such as split:1")
            self._size = int(what)
        elif kind == "blackhole":
            seconds, _, time = what.partition("@")
            self.timed.append(Timed(spec, kind, duration(time or "0"), duration(seconds)))
        else:
            raise ValueError(f"the faults are {KINDS}")


def _aimed(spec: str, kind: str, what: str) -> _Aimed:
    word, number, nth = what.partition("#")
    if number and not (nth.isascii() and nth.isdigit() and int(nth) > 0):
        raise ValueError(f"{nth!r} is no number from 1 on")
    ops = operations(word) if word else ()
    if "watch" in ops and kind not in {"cut-after", "cut-before"}:
        raise ValueError("a watch event has no reply; cut-before and cut-after take one")
    return _Aimed(spec, kind, ops, int(nth) if number else 1)


def _steps_of(fault: _Aimed, frame: Frame) -> tuple[tuple[Step, ...], Gate | None]:
    send = Send(frame.raw)
    if fault.kind == "cut-before":
        return (Cut(),), None
    if fault.kind == "expire":
        gate = Gate()
        return (Hold(gate, frame), send), gate
    if frame.direction == "s2c":  # cut-after an event
        return (send, Cut()), None
    dropped: tuple[Step, ...] = () if fault.kind == "drop-reply" else (Cut(),)
    return (send._replace(reply=_Reply(fault.spec, dropped)),), None
