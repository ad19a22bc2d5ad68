"""Who decides what happens next in a simulation, and how many runs are made of one scenario.

A scenario is a function that is given a new :class:`Simulation` and puts clients, tasks and checks
into it.  :func:`explore` runs it under random schedules with random faults, :func:`exhaust` under
every schedule without any, :func:`sweep` with every single fault at every step of one schedule, and
:func:`cancel_everywhere` with a cancellation at every await.  Each returns how many runs there
were, or raises :class:`FailedRunError` with the history of a run that has been made as short as is
easy.  :func:`replay` is for looking at one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from zkwire.testing.simulated_client import ViolationError
from zkwire.testing.simulation import FAULTS, Schedule, Simulation, Step

Scenario = Callable[[Simulation], object]

_FAULTS = frozenset(FAULTS)
_ARRIVALS = frozenset({"down", "down1", "eof"})
_SHRINKING_RUNS = 400


class FailedRunError(AssertionError):
    """A run has broken an invariant: ``invariant``, the ``steps`` that lead there, how found."""

    def __init__(
        self, error: ViolationError, origin: str, steps: list[Step], history: list[str], runs: int
    ) -> None:
        faults = [str(step) for step in steps if step.kind in _FAULTS]
        super().__init__(
            f"{error}\nfound by {origin}, in run {runs}; faults: {', '.join(faults) or 'none'}\n"
            f"replay with: {'; '.join(map(str, steps))}\n" + "\n".join(history)
        )
        self.invariant = error.invariant
        self.origin = origin
        self.steps = steps
        self.runs = runs
        self.faults = faults


class Figures(NamedTuple):
    """How many runs there were, and steps in them; ``states`` is known to :func:`exhaust`."""

    runs: int
    steps: int
    states: int = 0

    def __str__(self) -> str:
        states = f", {self.states} states" * bool(self.states)
        return f"{self.runs} runs, {self.steps} steps{states}"


# --- schedules ------------------------------------------------------------------------------------


class InTurn:
    """What has not happened for the longest time: a plain run, in which everybody is as fast.

    What is for the client ``late`` reaches it only when nothing else can happen.
    """

    def __init__(self, late: str = "") -> None:
        self._late = late
        self._last: dict[Step, int] = {}

    def next(self, sim: Simulation) -> Step | None:
        """The possible step that is longest ago."""
        steps = sim.steps()
        if not steps:
            return None
        others = [s for s in steps if s.who != self._late or s.kind not in _ARRIVALS]
        step = min(others or steps, key=lambda step: self._last.get(step, 0))
        self._last[step] = len(sim.done) + 1
        return step


class Seeded:
    """Anything that is possible, by chance, and up to ``faults`` faults.

    In every other run one client is much slower than the others.
    """

    def __init__(self, seed: int, faults: int = 0) -> None:
        rng = self._rng = Random(seed)
        self._left = rng.randint(0, faults)
        self._rate = rng.choice((0.02, 0.05, 0.15))
        self._slow = rng.random() < 0.5
        self._victim: str | None = None

    def next(self, sim: Simulation) -> Step | None:
        """Any step, or any fault."""
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
                others = [step for step in steps if not step.who.startswith(self._victim)]
                steps = others or steps
        return steps[int(random() * len(steps))]


class Scripted:
    """These steps, as far as they are possible; then ``rest``, or everything in turn."""

    def __init__(self, steps: Sequence[Step], rest: Schedule | None = None) -> None:
        self._steps = iter(steps)
        self._rest = rest or InTurn()

    def next(self, sim: Simulation) -> Step | None:
        """The next one that is possible."""
        possible = sim.steps()
        if not possible:
            return None
        for step in self._steps:
            if step in possible or (step.kind in _FAULTS and step in sim.faults()):
                return step
        return self._rest.next(sim)


class OneFault:
    """A schedule with one fault put in at one place: the ``which``-th possible one.

    ``choices`` is how many there were; 0 if the run has ended before.
    """

    def __init__(self, base: Schedule, at: int, which: int) -> None:
        self._base = base
        self._at = at
        self._which = which
        self.choices = 0

    def next(self, sim: Simulation) -> Step | None:
        """What the base says, or the fault."""
        if len(sim.done) == self._at and sim.steps():
            faults = sim.faults()
            self.choices = len(faults)
            if self._which < len(faults):
                return faults[self._which]
        return self._base.next(sim)


class CancelAt:
    """A schedule in which a task is cancelled at one of its awaits.

    At once when it is suspended there, or ``late``, when it could already go on.  ``happened`` says
    whether it was.
    """

    def __init__(self, base: Schedule, task: str, at: int, *, late: bool) -> None:
        self._base = base
        self._task = task
        self._at = at
        self._late = late
        self.happened = False

    def next(self, sim: Simulation) -> Step | None:
        """What the base says, or the cancellation."""
        for task in sim.tasks if not self.happened else ():
            there = task.name == self._task and task.awaits == self._at
            if there and (not self._late or Step("run", task.name) in sim.steps()):
                self.happened = True
                return Step("cancel", task.name)
        return self._base.next(sim)


class _Branch:
    """Follows a list of choices, then takes the first ones and leaves the others to later runs."""

    def __init__(
        self, choices: list[int], todo: list[list[int]], seen: set[int], depth: int | None
    ) -> None:
        self._choices = choices
        self._todo = todo
        self._seen = seen
        self._depth = depth
        self._at = 0

    def next(self, sim: Simulation) -> Step | None:
        steps = sim.steps()
        if not steps:
            return None
        if len(steps) == 1 or (self._depth is not None and len(sim.done) >= self._depth):
            return steps[0]
        at, self._at = self._at, self._at + 1
        if at < len(self._choices):
            return steps[self._choices[at]]
        state = sim.fingerprint()
        if state in self._seen:
            return None
        self._seen.add(state)
        self._todo += [[*self._choices, choice] for choice in range(len(steps) - 1, 0, -1)]
        self._choices.append(0)
        return steps[0]


# --- many runs ------------------------------------------------------------------------------------


class _Runner:
    """Runs one scenario again and again, and reports the first failure."""

    def __init__(self, scenario: Scenario, options: dict[str, Any]) -> None:
        self._scenario = scenario
        self._options = options
        self.runs = self.steps = 0

    def run(self, schedule: Schedule, origin: str, seed: int = 0) -> Simulation:
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
        return FailedRunError(error, origin, sim.done, sim.history, self.runs)

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


def explore(scenario: Scenario, seeds: Iterable[int], *, most: int = 3, **options: Any) -> Figures:
    """Run under a random schedule for each seed, with at most so many faults each."""
    runner = _Runner(scenario, options)
    for seed in seeds:
        runner.run(Seeded(seed, most), f"seed {seed}", seed)
    return runner.figures


def exhaust(
    scenario: Scenario, *, depth: int | None = None, runs: int | None = None, **options: Any
) -> Figures:
    """Run under every schedule without a fault that differs in its first ``depth`` steps.

    Of schedules that lead to the same state one is followed.  ``runs`` limits their number.
    """
    runner = _Runner(scenario, options)
    todo: list[list[int]] = [[]]
    seen: set[int] = set()
    while todo and (runs is None or runner.runs < runs):
        choices = todo.pop()
        runner.run(_Branch(choices, todo, seen, depth), f"schedule {choices}")
    return Figures(runner.runs, runner.steps, len(seen))


def sweep(
    scenario: Scenario, base: Callable[[], Schedule] = InTurn, *, seed: int = 0, **options: Any
) -> Figures:
    """Run with every single fault at every step of one schedule."""
    runner = _Runner(scenario, options)
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
    runner = _Runner(scenario, options)
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
