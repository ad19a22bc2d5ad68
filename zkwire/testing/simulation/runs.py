"""The runs that are made of one scenario: at random, of every schedule, with every single fault.

A scenario is a function that gets a new :class:`Simulation` and puts clients, tasks and checks into
it.  :func:`explore` runs it under random schedules with random faults, :func:`exhaust` under every
schedule, without faults or with a few, :func:`sweep` with every single fault at every step of one
schedule, and :func:`cancel_everywhere` with a cancellation at every await.  Each returns how many
runs it has made, or raises :class:`FailedRunError`, whose steps are shortened as far as that is
cheap.  :func:`replay` shows one run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from zkwire.testing.simulation.client import Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import Known
from zkwire.testing.simulation.frontier import Branch, Frontier, Limits
from zkwire.testing.simulation.schedules import CancelAt, InTurn, OneFault, Scripted, Seeded
from zkwire.testing.simulation.simulation import Schedule, Simulation

Scenario = Callable[[Simulation], object]

_FAULTS = frozenset(FAULTS)
_SHRINKING_RUNS = 400


class FailedRunError(AssertionError):
    """A run has broken an invariant: ``invariant``, the ``steps`` that lead there, how found.

    ``seed`` is that of its world.
    """

    def __init__(
        self, error: ViolationError, origin: str, sim: Simulation, runs: int, seed: int
    ) -> None:
        steps, history = sim.done, sim.history
        faults = [str(step) for step in steps if step.kind in _FAULTS]
        super().__init__(
            f"{error}\nfound by {origin}, in run {runs}; faults: {', '.join(faults) or 'none'}\n"
            f"replay with: {'; '.join(map(str, steps))}\n" + "\n".join(history)
        )
        self.invariant: str = error.invariant
        self.origin = origin
        self.steps = steps
        self.runs = runs
        self.seed = seed
        self.faults = faults


class Figures(NamedTuple):
    """How many runs there were, and steps in them; the rest is known to :func:`exhaust`.

    ``states`` is the number of different ones in which there was a choice; ``complete`` says that
    there are no more of them.
    """

    runs: int
    steps: int
    states: int = 0
    complete: bool = True

    def __str__(self) -> str:
        states = f", {self.states} states" * bool(self.states)
        stopped = "" if self.complete else ", stopped"
        return f"{self.runs} runs, {self.steps} steps{states}{stopped}"


class Runner:
    """Runs one scenario again and again, and reports the first failure.

    ``runs`` and ``steps`` say how much it was.
    """

    runs: int
    steps: int

    def __init__(self, scenario: Scenario, options: dict[str, Any]) -> None:
        self._scenario = scenario
        self._options = options
        self.runs = self.steps = 0

    def run(self, schedule: Schedule, origin: str, seed: int = 0) -> Simulation:
        """One more run; ``origin`` says in a failure what this one was."""
        sim = Simulation(seed=seed, **self._options)
        self._scenario(sim)
        self.runs += 1
        try:
            sim.run(schedule)
        except ViolationError as error:
            raise self._failure(error, sim.done, origin, seed) from error
        self.steps += len(sim.done)
        return sim

    def _failure(
        self, error: ViolationError, steps: list[Step], origin: str, seed: int
    ) -> FailedRunError:
        steps = self._shrink(steps, error.invariant, seed)
        _, sim = self._again(steps, seed, trace=True)
        return FailedRunError(error, origin, sim, self.runs, seed)

    def _again(
        self, steps: list[Step], seed: int, *, trace: bool = False
    ) -> tuple[str | None, Simulation]:
        """The invariant that these steps break, if any."""
        sim = Simulation(seed=seed, trace=trace, **self._options)
        self._scenario(sim)
        try:
            sim.run(Scripted(steps))
        except ViolationError as error:
            sim.note(str(error))
            return error.invariant, sim
        return None, sim

    def _shrink(self, steps: list[Step], invariant: str, seed: int) -> list[Step]:
        """Leave out steps, faults first, as long as the same invariant breaks."""
        left = _SHRINKING_RUNS
        for fault in [step for step in steps if step.kind in _FAULTS]:
            without = steps.copy()
            without.remove(fault)
            if self._again(without, seed)[0] == invariant:
                steps = without
            left -= 1
        size = len(steps) // 2
        while size and left > 0:
            at = 0
            while at < len(steps) and left > 0:
                without = steps[:at] + steps[at + size :]
                left -= 1
                if self._again(without, seed)[0] == invariant:
                    steps = without
                else:
                    at += size
            size //= 2
        return steps

    @property
    def figures(self) -> Figures:
        return Figures(self.runs, self.steps)


def explore(
    scenario: Scenario,
    seeds: Iterable[int],
    *,
    most: int = 3,
    **options: Any,
) -> Figures:
    """Run under a random schedule for each seed, with at most so many faults each.

    The worlds differ by the seed as well.
    """
    runner = Runner(scenario, options)
    for seed in seeds:
        runner.run(Seeded(seed, most), f"seed {seed}", seed)
    return runner.figures


def exhaust(
    scenario: Scenario,
    *,
    most: int = 0,
    depth: float = math.inf,
    runs: float = math.inf,
    states: float = math.inf,
    seconds: float = math.inf,
    reduced: bool = True,
    seen: set[int] | None = None,
    **options: Any,
) -> Figures:
    """Run under every schedule with up to ``most`` faults that differs in its first steps.

    Of schedules that lead to the same state one is followed, and ``reduced`` leaves out steps that
    make no difference, see :mod:`zkwire.testing.simulation.reduction`, if every check says that
    none does to it, see :class:`~zkwire.testing.simulation.simulation.Check`.  Those without a
    fault come first, then faults at places left to chance, so that what is stopped has looked
    everywhere.  ``depth`` limits the steps, ``runs``, ``states`` and ``seconds`` how much is looked
    at.  Only states count that ``seen`` has not yet.
    """
    runner = Runner(scenario, options)
    frontier = Frontier(most)
    latest = time.monotonic() + seconds
    seen = set() if seen is None else seen
    known: Known = {}
    limits = Limits(depth, reduced)
    before = len(seen)
    while (way := frontier.pop()) is not None:
        found = len(seen) - before
        if runner.runs >= runs or found >= states or time.monotonic() > latest:
            return Figures(runner.runs, runner.steps, found, complete=False)
        branch = Branch(way, frontier, seen, known, limits)
        runner.run(branch, f"{len(way.steps)} steps chosen in turn")
    return Figures(runner.runs, runner.steps, len(seen) - before)


def sweep(
    scenario: Scenario, base: Callable[[], Schedule] = InTurn, *, seed: int = 0, **options: Any
) -> Figures:
    """Run with every single fault at every step of one schedule."""
    runner = Runner(scenario, options)
    length = len(runner.run(base(), "the plain run", seed).done)
    for at in range(length):
        choices, which = 1, 0
        while which < choices:
            schedule = OneFault(base(), at, which)
            runner.run(schedule, f"fault {which} at step {at}", seed)
            choices, which = schedule.choices, which + 1
    return runner.figures


def cancel_everywhere(
    scenario: Scenario, base: Callable[[], Schedule] = InTurn, *, seed: int = 0, **options: Any
) -> Figures:
    """Run with a cancellation at every await of every task, early and late."""
    runner = Runner(scenario, options)
    plain = runner.run(base(), "the plain run", seed)
    for task in [task for task in plain.ended if not task.background]:
        for at in range(1, task.awaits + 1):
            for late in (False, True):
                schedule = CancelAt(base(), task.name, at, late=late)
                origin = f"{task.name} cancelled at await {at}{' late' * late}"
                runner.run(schedule, origin, seed)
                assert schedule.happened, origin
    return runner.figures


def replay(scenario: Scenario, text: str, *, seed: int = 0, **options: Any) -> list[str]:
    """Run the steps that a failure has named, and return the history."""
    sim = Simulation(seed=seed, trace=True, **options)
    scenario(sim)
    try:
        sim.run(Scripted(list(_parse(text))))
    except ViolationError as error:
        sim.note(str(error))
    return sim.history


def _parse(text: str) -> Iterator[Step]:
    for part in text.split(";"):
        kind, _, who = part.strip().partition(" ")
        yield Step(kind, who)
