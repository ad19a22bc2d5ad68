"""The search through all schedules: what a run chooses, and what it leaves to later runs.

It decides which choices are followed and in which order.  It must not know scenarios, nor how a run
is made and judged.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from zkwire.testing.simulation.client import Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import Known, state_fingerprint
from zkwire.testing.simulation.reduction import PutOff, enough, may_leave_out
from zkwire.testing.simulation.simulation import Simulation

_FAULTS = frozenset(FAULTS)


class Prefix(NamedTuple):
    """How to get to a choice that was left to a later run."""

    steps: list[Step]
    choice: Step | None
    states: tuple[Any, ...]  # the last one on the way, and those before it, nested
    left: int  # faults that may still happen


class Frontier:
    """The ways that are left to later runs.  Where a fault comes next is left to chance.

    Until then it is the deepest way that comes next: so whoever goes in circles is found to do so.
    """

    def __init__(self, most: int) -> None:
        self._ways = [Prefix([], None, (), most)]
        self._faulty: list[list[Prefix]] = [[] for _ in range(most)]
        self._chance = Random(0)

    def push(self, way: Prefix) -> None:
        is_fault = way.choice is not None and way.choice.kind in _FAULTS
        (self._faulty[way.left] if is_fault else self._ways).append(way)

    def pop(self) -> Prefix | None:
        if self._ways:
            return self._ways.pop()
        kinds = [ways for ways in self._faulty if ways]
        if not kinds:
            return None
        ways = self._chance.choice(kinds)
        at = self._chance.randrange(len(ways))
        ways[at], ways[-1] = ways[-1], ways[at]
        return ways.pop()


class Limits(NamedTuple):
    """See `exhaust`."""

    depth: float
    reduced: bool


class Branch:
    """Goes one way, then always takes the first choice and leaves the others to later runs."""

    def __init__(
        self, way: Prefix, frontier: Frontier, seen: set[int], known: Known, limits: Limits
    ) -> None:
        self._way = iter(way.steps if way.choice is None else [*way.steps, way.choice])
        self._states = way.states
        self._left = way.left
        self._frontier = frontier
        self._seen = seen
        self._known = known
        self._limits = limits
        self._put_off: tuple[PutOff, list[Step]] | None = None

    def next(self, sim: Simulation) -> Step | None:
        for step in self._way:
            return step
        if not self._left:
            sim.tree_history.forget()
        self._look_back()
        choices, put_off = self._choices(sim)
        if not choices:
            return None
        first = choices[0] if choices[0].kind not in _FAULTS else None
        far = len(sim.done) >= self._limits.depth
        if far or (first is not None and len(choices) == 1 and put_off is None):
            return first
        if not self._is_new(hash((state_fingerprint(sim, self._known), self._left)), sim):
            return None
        done = sim.done.copy()
        self._leave(done, choices if first is None else choices[1:])
        if put_off is not None:
            self._put_off = put_off, done
        return first

    def _choices(self, sim: Simulation) -> tuple[list[Step], PutOff | None]:
        """Steps before faults; those may come even when everything is over."""
        faults = self._left > 0
        if not (self._limits.reduced and may_leave_out(sim)):
            return [*sim.steps(), *(sim.faults() if faults else ())], None
        return enough(sim, faults=faults)

    def _leave(self, done: list[Step], choices: list[Step]) -> None:
        for step in reversed(choices):
            left = self._left - (step.kind in _FAULTS)
            self._frontier.push(Prefix(done, step, self._states, left))

    def _look_back(self) -> None:
        if self._put_off is not None:
            put_off, done = self._put_off
            self._put_off = None
            if put_off.was_wrong:
                self._leave(done, put_off.steps)

    def _is_new(self, state: int, sim: Simulation) -> bool:
        """Nobody has been there.  Who comes back to where this very run has been goes in circles.

        Time passes only when nothing else can happen, so whoever waits there waits for ever.
        """
        if state not in self._seen:
            self._seen.add(state)
            self._states = (state, self._states)
            return True
        before = self._states
        while before and before[0] != state:
            before = before[1]
        if before and any(not task.background for task in sim.tasks):
            raise ViolationError("LIVE", "everything is as it was before, and will be again")
        return False
