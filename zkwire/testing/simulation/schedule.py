"""Who decides what happens next in a simulation, and how many runs are made of one scenario.

A scenario is a function that is given a new :class:`Simulation` and puts clients, tasks and checks
into it.  :func:`explore` runs it under random schedules with random faults, :func:`exhaust` under
every schedule without any, :func:`sweep` with every single fault at every step of one schedule, and
:func:`cancel_everywhere` with a cancellation at every await.  Each returns how many runs there
were, or raises :class:`FailedRunError` with the history of a run that has been made as short as is
easy.  :func:`replay` is for looking at one run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from zkwire.testing.simulation.client import Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import Known, state_fingerprint
from zkwire.testing.simulation.reduction import PutOff, enough, may_leave_out
from zkwire.testing.simulation.simulation import Schedule, Simulation

Scenario = Callable[[Simulation], object]

_FAULTS = frozenset(FAULTS)
_ARRIVALS = frozenset({"down", "down1", "eof"})
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
        self.invariant = error.invariant
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


class _Way(NamedTuple):
    """How to get to a choice that was left to a later run."""

    steps: list[Step]
    choice: Step | None
    states: tuple[Any, ...]  # the last one on the way, and those before it, nested
    left: int  # faults that may still happen


class _Todo:
    """The ways that are left to later runs.  Where a fault comes next is left to chance.

    Until then it is the deepest way that comes next: so whoever goes in circles is found to do so.
    """

    def __init__(self, most: int) -> None:
        self._ways = [_Way([], None, (), most)]
        self._faulty: list[list[_Way]] = [[] for _ in range(most)]
        self._chance = Random(0)

    def push(self, way: _Way) -> None:
        is_fault = way.choice is not None and way.choice.kind in _FAULTS
        (self._faulty[way.left] if is_fault else self._ways).append(way)

    def pop(self) -> _Way | None:
        if self._ways:
            return self._ways.pop()
        kinds = [ways for ways in self._faulty if ways]
        if not kinds:
            return None
        ways = self._chance.choice(kinds)
        at = self._chance.randrange(len(ways))
        ways[at], ways[-1] = ways[-1], ways[at]
        return ways.pop()


class _Limits(NamedTuple):
    """See `exhaust`."""

    depth: float
    reduced: bool


class _Branch:
    """Goes one way, then always takes the first choice and leaves the others to later runs."""

    def __init__(
        self, way: _Way, todo: _Todo, seen: set[int], known: Known, limits: _Limits
    ) -> None:
        self._way = iter(way.steps if way.choice is None else [*way.steps, way.choice])
        self._states = way.states
        self._left = way.left
        self._todo = todo
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
            self._todo.push(_Way(done, step, self._states, left))

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


# --- many runs ------------------------------------------------------------------------------------


class Runner:
    """Runs one scenario again and again, and reports the first failure.

    ``runs`` and ``steps`` say how much it was.
    """

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
    todo = _Todo(most)
    latest = time.monotonic() + seconds
    seen = set() if seen is None else seen
    known: Known = {}
    limits = _Limits(depth, reduced)
    before = len(seen)
    while (way := todo.pop()) is not None:
        found = len(seen) - before
        if runner.runs >= runs or found >= states or time.monotonic() > latest:
            return Figures(runner.runs, runner.steps, found, complete=False)
        branch = _Branch(way, todo, seen, known, limits)
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
