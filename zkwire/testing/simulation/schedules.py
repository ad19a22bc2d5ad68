"""Schedules: each decides which step of a simulation happens next.

A schedule must not know how many runs are made of a scenario; that is the business of
:mod:`zkwire.testing.simulation.runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from zkwire.testing.simulation.client import Step
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.simulation import Schedule, Simulation

_FAULTS = frozenset(FAULTS)
_ARRIVALS = frozenset({"down", "down1", "eof"})


class InTurn:
    """Always the step that has not happened for the longest time: all clients are equally fast.

    Frames for the client ``late`` arrive only when no other step is possible.
    """

    def __init__(self, late: str = "") -> None:
        self._late = late
        self._last: dict[Step, int] = {}

    def next(self, sim: Simulation) -> Step | None:
        """The possible step that has not happened for the longest time."""
        steps = sim.steps()
        if not steps:
            return None
        others = [s for s in steps if s.subject != self._late or s.kind not in _ARRIVALS]
        step = min(others or steps, key=lambda step: self._last.get(step, 0))
        self._last[step] = len(sim.done) + 1
        return step


class Seeded:
    """A random possible step, with up to ``faults`` random faults.

    In every second run, on average, one client is much slower than the others.
    """

    def __init__(self, seed: int, faults: int = 0) -> None:
        rng = self._rng = Random(seed)
        self._left = rng.randint(0, faults)
        self._rate = rng.choice((0.02, 0.05, 0.15))
        self._slow = rng.random() < 0.5
        self._victim: str | None = None

    def next(self, sim: Simulation) -> Step | None:
        """A random step or fault."""
        steps = sim.steps()
        if not steps:
            return None
        random = self._rng.random
        if self._left and random() < self._rate:
            faults = sim.faults()
            kinds = sorted({fault.kind for fault in faults})
            if kinds:
                self._left -= 1
                kind = kinds[int(random() * len(kinds))]
                chosen = [fault for fault in faults if fault.kind == kind]
                return chosen[int(random() * len(chosen))]
        if len(steps) == 1:
            return steps[0]
        if self._slow:
            if self._victim is None:
                self._victim = sim.clients[int(random() * len(sim.clients))].name
            if random() < 0.9:
                others = [step for step in steps if not step.subject.startswith(self._victim)]
                steps = others or steps
        return steps[int(random() * len(steps))]


class Scripted:
    """These steps, without those that are not possible; then ``rest``, by default `InTurn`."""

    def __init__(self, steps: Sequence[Step], rest: Schedule | None = None) -> None:
        self._steps = iter(steps)
        self._rest = rest or InTurn()

    def next(self, sim: Simulation) -> Step | None:
        """The next step that is possible."""
        possible = sim.steps()
        if not possible:
            return None
        for step in self._steps:
            if step in possible or (step.kind in _FAULTS and step in sim.faults()):
                return step
        return self._rest.next(sim)


class OneFault:
    """A schedule with one fault at one place: the ``which``-th of the possible ones.

    ``choices`` is the number of faults that were possible there; 0 if the run ended before.
    """

    def __init__(self, base: Schedule, at: int, which: int) -> None:
        self._base = base
        self._at = at
        self._which = which
        self.choices: int = 0

    def next(self, sim: Simulation) -> Step | None:
        """The fault at its place; otherwise the step of the base."""
        if len(sim.done) == self._at and sim.steps():
            faults = sim.faults()
            self.choices = len(faults)
            if self._which < len(faults):
                return faults[self._which]
        return self._base.next(sim)


class CancelAt:
    """A schedule in which a task is cancelled at one of its awaits.

    The cancellation comes as soon as the task is suspended there, or, if ``late``, when the task
    could already go on.  ``happened`` is True once it has come.
    """

    def __init__(self, base: Schedule, task: str, at: int, *, late: bool) -> None:
        self._base = base
        self._task = task
        self._at = at
        self._late = late
        self.happened: bool = False

    def next(self, sim: Simulation) -> Step | None:
        """The cancellation at its place; otherwise the step of the base."""
        for task in sim.tasks if not self.happened else ():
            there = task.name == self._task and task.awaits == self._at
            if there and (not self._late or Step("run", task.name) in sim.steps()):
                self.happened = True
                return Step("cancel", task.name)
        return self._base.next(sim)
