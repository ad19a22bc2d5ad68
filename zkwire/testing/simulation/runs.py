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
    """A run has broken an invariant.

    ``invariant`` is the name of the invariant, ``steps`` lead to the violation, ``origin`` says
    which run has found it, and ``seed`` is the seed of that run's simulation.
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
    """The number of runs and of their steps; :func:`exhaust` also counts states.

    ``states`` is the number of different states in which there was a choice; ``complete`` says that
    all of them were found.
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
    """Runs one scenario many times, and reports the first failure.

    ``runs`` and ``steps`` count all runs and their steps.
    """

    runs: int
    steps: int

    def __init__(self, scenario: Scenario, options: dict[str, Any]) -> None:
        self._scenario = scenario
        self._options = options
        self.runs = self.steps = 0

    def run(self, schedule: Schedule, origin: str, seed: int = 0) -> Simulation:
        """Make one more run; a failure names it by ``origin``."""
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
        """The invariant that these steps break, or None, and the simulation."""
        sim = Simulation(seed=seed, trace=trace, **self._options)
        self._scenario(sim)
        try:
            sim.run(Scripted(steps))
        except ViolationError as error:
            sim.note(str(error))
            return error.invariant, sim
        return None, sim

    def _shrink(self, steps: list[Step], invariant: str, seed: int) -> list[Step]:
        """Remove steps, faults first, as long as the same invariant breaks."""
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
    """Run under one random schedule for each seed, with up to ``most`` faults.

    Each simulation gets the seed, too.
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
    """Run under every schedule with up to ``most`` faults.

    Of schedules that lead to the same state, only one is followed.  With ``reduced``, orders that
    make no difference are skipped if every check allows it: see
    :mod:`zkwire.testing.simulation.reduction` and
    :class:`~zkwire.testing.simulation.simulation.Check`.  Runs without a fault come first; then
    faults come at random places, so that a search that is stopped early has looked everywhere.
    After ``depth`` steps a run has no more choices; ``runs``, ``states`` and ``seconds`` limit the
    whole search.  States in ``seen`` are not followed again, and new states are added to it.
    """
    runner = Runner(scenario, options)
    frontier = Frontier(most)
    latest = time.monotonic() + seconds
    seen = set() if seen is None else seen
    known: Known = {}
    limits = Limits(depth, reduced)
    before = len(seen)
    while (prefix := frontier.pop()) is not None:
        found = len(seen) - before
        if runner.runs >= runs or found >= states or time.monotonic() > latest:
            return Figures(runner.runs, runner.steps, found, complete=False)
        branch = Branch(prefix, frontier, seen, known, limits)
        runner.run(branch, f"{len(prefix.steps)} steps chosen in turn")
    return Figures(runner.runs, runner.steps, len(seen) - before)


def sweep(
    scenario: Scenario,
    base: Callable[[], Schedule] = InTurn,
    *,
    seed: int = 0,
    first: int = 0,
    every: int = 1,
    **options: Any,
) -> Figures:
    """Run once for each fault at each step of one schedule.

    ``every=3`` takes each third step only, from number ``first`` on.
    """
    runner = Runner(scenario, options)
    length = len(runner.run(base(), "the plain run", seed).done)
    for at in range(first, length, every):
        choices, which = 1, 0
        while which < choices:
            schedule = OneFault(base(), at, which)
            runner.run(schedule, f"fault {which} at step {at}", seed)
            choices, which = schedule.choices, which + 1
    return runner.figures


def cancel_everywhere(
    scenario: Scenario, base: Callable[[], Schedule] = InTurn, *, seed: int = 0, **options: Any
) -> Figures:
    """Run twice for each await of each task, with an early and with a late cancellation there."""
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
    """Run the steps in the text of a failure, and return the history."""
    sim = Simulation(seed=seed, trace=True, **options)
    scenario(sim)
    try:
        sim.run(Scripted(list(_parse(text))))
    except ViolationError as error:
        sim.note(str(error))
    return sim.history


def _parse(text: str) -> Iterator[Step]:
    for part in text.split(";"):
        kind, _, subject = part.strip().partition(" ")
        yield Step(kind, subject)
