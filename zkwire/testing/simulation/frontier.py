"""The search through all schedules: the choices of a run, and those that it leaves to later runs.

It decides which choices are followed and in which order.  It must not know scenarios, nor how a run
is made and checked.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from zkwire.testing.simulation.client import Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import Known, state_fingerprint
from zkwire.testing.simulation.reduction import Postponed, all_reducible, sufficient_steps
from zkwire.testing.simulation.simulation import Simulation

_FAULTS = frozenset(FAULTS)


class Prefix(NamedTuple):
    """The beginning of a later run: the steps up to a choice, and the choice itself."""

    steps: list[Step]
    choice: Step | None
    states: tuple[Any, ...]  # the last state of these steps, and the earlier ones, nested
    left: int  # faults that may still happen


class Frontier:
    """The beginnings of all later runs.

    The longest one without a new fault comes first, so that a run that repeats its own states is
    found.  Then come those that end with a fault, in a random order.
    """

    def __init__(self, most: int) -> None:
        self._prefixes = [Prefix([], None, (), most)]
        self._faulty: list[list[Prefix]] = [[] for _ in range(most)]
        self._chance = Random(0)

    def push(self, prefix: Prefix) -> None:
        is_fault = prefix.choice is not None and prefix.choice.kind in _FAULTS
        (self._faulty[prefix.left] if is_fault else self._prefixes).append(prefix)

    def pop(self) -> Prefix | None:
        if self._prefixes:
            return self._prefixes.pop()
        kinds = [prefixes for prefixes in self._faulty if prefixes]
        if not kinds:
            return None
        prefixes = self._chance.choice(kinds)
        at = self._chance.randrange(len(prefixes))
        prefixes[at], prefixes[-1] = prefixes[-1], prefixes[at]
        return prefixes.pop()


class Limits(NamedTuple):
    """See `exhaust`."""

    depth: float
    reduced: bool


class Branch:
    """Follows one prefix, then takes each first choice and leaves the others to later runs."""

    def __init__(
        self, prefix: Prefix, frontier: Frontier, seen: set[int], known: Known, limits: Limits
    ) -> None:
        choice = () if prefix.choice is None else (prefix.choice,)
        self._steps = iter((*prefix.steps, *choice))
        self._states = prefix.states
        self._left = prefix.left
        self._frontier = frontier
        self._seen = seen
        self._known = known
        self._limits = limits
        self._postponed: tuple[Postponed, list[Step]] | None = None

    def next(self, sim: Simulation) -> Step | None:
        for step in self._steps:
            return step
        if not self._left:
            sim.tree_history.forget()
        self._follow_postponed()
        choices, postponed = self._choices(sim)
        if not choices:
            return None
        first = choices[0] if choices[0].kind not in _FAULTS else None
        far = len(sim.done) >= self._limits.depth
        if far or (first is not None and len(choices) == 1 and postponed is None):
            return first
        if not self._is_new(hash((state_fingerprint(sim, self._known), self._left)), sim):
            return None
        done = sim.done.copy()
        self._leave(done, choices if first is None else choices[1:])
        if postponed is not None:
            self._postponed = postponed, done
        return first

    def _choices(self, sim: Simulation) -> tuple[list[Step], Postponed | None]:
        """The steps, then the faults; a fault is possible even after the last step."""
        faults = self._left > 0
        if not (self._limits.reduced and all_reducible(sim)):
            return [*sim.steps(), *(sim.faults() if faults else ())], None
        return sufficient_steps(sim, faults=faults)

    def _leave(self, done: list[Step], choices: list[Step]) -> None:
        for step in reversed(choices):
            left = self._left - (step.kind in _FAULTS)
            self._frontier.push(Prefix(done, step, self._states, left))

    def _follow_postponed(self) -> None:
        if self._postponed is not None:
            postponed, done = self._postponed
            self._postponed = None
            if postponed.must_be_followed:
                self._leave(done, postponed.steps)

    def _is_new(self, state: int, sim: Simulation) -> bool:
        """Whether no run was in this state; raises if this run was and still has tasks.

        Such a run repeats itself, and its tasks wait for ever: time passes only when nothing else
        can happen.
        """
        if state not in self._seen:
            self._seen.add(state)
            self._states = (state, self._states)
            return True
        before = self._states
        while before and before[0] != state:
            before = before[1]
        if before and any(not task.background for task in sim.tasks):
            raise ViolationError("LIVE", "the run is back in an earlier state: it never ends")
        return False
