"""The runs that are made of one scenario: at random, of every schedule, with every single fault.

A scenario is a function that gets a new :class:`Simulation` and puts clients, tasks and checks into
it.  :func:`explore` runs it under random schedules with random faults, :func:`exhaust` under every
schedule, without faults or with a few, :func:`sweep` with every single fault at every step of one
schedule, and :func:`cancel_everywhere` with a cancellation at every await.  Each returns how many
runs it has made, or raises :class:`FailedRunError`, whose steps are shortened as far as that is
cheap.  :func:`replay` shows one run.

A schedule decides which step of a simulation happens next, and must not know how many runs are
made.  The search of :func:`exhaust` keeps the choices of a run, and those that it leaves to later
runs, and must not know scenarios.

Most orders of steps make no difference: the steps of a client and the frames that reach it change
nothing that other clients see.  :func:`sufficient_steps` chooses a *persistent* set of steps
(Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996, chapter 4): all
steps outside the set, as long as no step of the set happens, commute with all steps in it.  The
steps outside are postponed: they are possible again after each step of the set.

It relies on this:

* The two queues between a client and the server are first in, first out: adding a frame at one end
  commutes with removing one at the other.  Frames that arrive together have the same effect as
  frames that arrive one by one.  The exception is a step that ends the connection (a cut, a
  deadline), since frames that have not arrived are then lost.
* A fault that stops a client's steps also postpones what its server does for it: processing the
  frames of a lost connection, and catching up.
* Time passes only when nothing else is possible.
* Tasks of different clients share only the server, and checks look after a step only at the server
  and at the claims of locks (``client.locks``).  Every check must promise this (``reducible``);
  otherwise all steps are followed.
* Two claims that overlap still overlap if one begins earlier, but perhaps not if one ends earlier.
  So if the chosen step ends a claim, the postponed steps must be followed as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from zkwire.testing.simulation.client import Client, Holder, Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import Known, state_fingerprint
from zkwire.testing.simulation.simulation import Schedule, Simulation

Scenario = Callable[[Simulation], object]

_FAULTS = frozenset(FAULTS)
_ARRIVALS = frozenset({"down", "down1", "eof"})
_CLIENT_STEPS: Final = frozenset({"run", "turn", "down", "down1", "eof", "dial", "resume"})
# These faults happen at the server and commute with the steps of a client.
_SERVER_FAULTS: Final = frozenset({"expire", "delete", "touch", "lag", "uproot", "wrap", "refuse"})
_SHRINKING_RUNS = 400


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


class Choices(NamedTuple):
    """The steps to choose from, then the faults.

    If the chosen step ends one of the ``claims``, which are held before it, the ``postponed`` steps
    must be followed as well.
    """

    steps: list[Step]
    claims: Sequence[Holder] = ()
    postponed: Sequence[Step] = ()


def sufficient_steps(sim: Simulation, *, faults: bool) -> Choices:
    """The smallest sufficient set of steps, and of faults if ``faults``."""
    steps = fewest = sim.steps()
    chosen: Client | None = None
    for client in sim.clients if len(steps) > 1 or faults else ():
        own = [s for s in steps if s.kind in _CLIENT_STEPS and sim.client_of(s) is client]
        if 0 < len(own) < len(fewest) + faults and _is_independent(sim, client, own, faults=faults):
            fewest, chosen = own, client
    if faults or chosen is None:
        return Choices([*fewest, *(_faults(sim, chosen) if faults else ())])
    claims = [lock for lock in chosen.locks if lock.held]
    return Choices(fewest, claims, [s for s in steps if s not in fewest] if claims else ())


def _faults(sim: Simulation, chosen: Client | None) -> list[Step]:
    possible = sim.faults()
    if chosen is None:
        return possible
    return [s for s in possible if s.kind not in _SERVER_FAULTS and sim.client_of(s) is chosen]


def _is_independent(sim: Simulation, client: Client, own: list[Step], *, faults: bool) -> bool:
    """Whether the client's ``own`` steps commute with all steps of others."""
    claims = any(lock.held for lock in client.locks)
    if claims and (faults or len(own) > 1):
        return False
    link = client.link
    if faults and (client.ghosts or (link is not None and link.connection in sim.stale_servers)):
        return False
    if link is None:
        return True
    if link.up and (faults or client.due):  # both may end the connection
        return False
    return bool(link.down) or not (faults or _may_receive(sim, client))


def _may_receive(sim: Simulation, client: Client) -> bool:
    """Whether an answer, an event or an end can reach the client before it sends anything."""
    link, watchers = client.link, sim.processor.state.watchers
    assert link is not None
    return bool(
        link.up
        or client.ghosts
        or link.connection in sim.stale_servers
        or watchers.paths(link.connection)
    )


class Prefix(NamedTuple):
    """The beginning of a later run: the steps up to a choice, and the choice itself."""

    steps: list[Step]
    choice: Step | None
    states: tuple[Any, ...]  # the last state of these steps, and the earlier ones, nested
    left: int  # faults that may still happen


class Exploration:
    """The states that were ``seen``, and the beginnings of all later runs; see `exhaust`.

    Of these the longest one without a new fault comes first, so that a run that repeats its own
    states is found.  Then come those that end with a fault, in a random order.
    """

    def __init__(self, most: int, depth: float, reduced: bool, seen: set[int]) -> None:
        self.depth: float = depth
        self.reduced: bool = reduced
        self.seen: set[int] = seen
        self.known: Known = {}
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


class Branch:
    """Follows one prefix, then takes each first choice and leaves the others to later runs."""

    def __init__(self, prefix: Prefix, exploration: Exploration) -> None:
        choice = () if prefix.choice is None else (prefix.choice,)
        self._steps = iter((*prefix.steps, *choice))
        self._states = prefix.states
        self._left = prefix.left
        self._exploration = exploration
        self._claims: Sequence[Holder] = ()  # those that the last choice may have ended
        self._postponed: tuple[list[Step], Sequence[Step]] = ([], ())

    def next(self, sim: Simulation) -> Step | None:
        for step in self._steps:
            return step
        if not self._left:
            sim.tree_history.forget()
        if not all(lock.held for lock in self._claims):
            self._leave(*self._postponed)
        self._claims = ()
        choices, claims, postponed = self._choices(sim)
        if not choices:
            return None
        first = choices[0] if choices[0].kind not in _FAULTS else None
        far = len(sim.done) >= self._exploration.depth
        if far or (first is not None and len(choices) == 1 and not claims):
            return first
        state = state_fingerprint(sim, self._exploration.known)
        if not self._is_new(hash((state, self._left)), sim):
            return None
        done = sim.done.copy()
        self._leave(done, choices if first is None else choices[1:])
        self._claims, self._postponed = claims, (done, postponed)
        return first

    def _choices(self, sim: Simulation) -> Choices:
        """The choices; a fault is possible even after the last step."""
        faults = self._left > 0
        reducible = all(getattr(check, "reducible", False) for check in sim.checks)
        if not (self._exploration.reduced and reducible):
            return Choices([*sim.steps(), *(sim.faults() if faults else ())])
        return sufficient_steps(sim, faults=faults)

    def _leave(self, done: list[Step], choices: Sequence[Step]) -> None:
        for step in reversed(choices):
            left = self._left - (step.kind in _FAULTS)
            self._exploration.push(Prefix(done, step, self._states, left))

    def _is_new(self, state: int, sim: Simulation) -> bool:
        """Whether no run was in this state; raises if this run was and still has tasks.

        Such a run repeats itself, and its tasks wait for ever: time passes only when nothing else
        can happen.
        """
        if state not in self._exploration.seen:
            self._exploration.seen.add(state)
            self._states = (state, self._states)
            return True
        before = self._states
        while before and before[0] != state:
            before = before[1]
        if before and any(not task.background for task in sim.tasks):
            raise ViolationError("LIVE", "the run is back in an earlier state: it never ends")
        return False


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
        sim, error = self.attempt(schedule, seed)
        self.runs += 1
        if error is not None:
            steps = self._shrink(sim.done, error.invariant, seed)
            sim, _ = self.attempt(Scripted(steps), seed, trace=True)
            raise FailedRunError(error, origin, sim, self.runs, seed) from error
        self.steps += len(sim.done)
        return sim

    def attempt(
        self, schedule: Schedule, seed: int, *, trace: bool = False
    ) -> tuple[Simulation, ViolationError | None]:
        """A simulation that has run, and what has ended it before its end."""
        sim = Simulation(seed=seed, trace=trace, **self._options)
        self._scenario(sim)
        try:
            sim.run(schedule)
        except ViolationError as error:
            sim.note(str(error))
            return sim, error
        return sim, None

    def _breaks(self, invariant: str, steps: list[Step], seed: int) -> bool:
        _, error = self.attempt(Scripted(steps), seed)
        return error is not None and error.invariant == invariant

    def _shrink(self, steps: list[Step], invariant: str, seed: int) -> list[Step]:
        """Remove steps, faults first, as long as the same invariant breaks."""
        left = _SHRINKING_RUNS
        for fault in [step for step in steps if step.kind in _FAULTS]:
            without = steps.copy()
            without.remove(fault)
            if self._breaks(invariant, without, seed):
                steps = without
            left -= 1
        size = len(steps) // 2
        while size and left > 0:
            at = 0
            while at < len(steps) and left > 0:
                without = steps[:at] + steps[at + size :]
                left -= 1
                if self._breaks(invariant, without, seed):
                    steps = without
                else:
                    at += size
            size //= 2
        return steps

    @property
    def figures(self) -> Figures:
        return Figures(self.runs, self.steps)


def explore(scenario: Scenario, seeds: Iterable[int], *, most: int = 3, **options: Any) -> Figures:
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
    :mod:`zkwire.testing.simulation.runs` and
    :class:`~zkwire.testing.simulation.simulation.Check`.  Runs without a fault come first; then
    faults come at random places, so that a search that is stopped early has looked everywhere.
    After ``depth`` steps a run has no more choices; ``runs``, ``states`` and ``seconds`` limit the
    whole search.  States in ``seen`` are not followed again, and new states are added to it.
    """
    runner = Runner(scenario, options)
    latest = time.monotonic() + seconds
    seen = set() if seen is None else seen
    exploration = Exploration(most, depth, reduced, seen)
    before = len(seen)
    while (prefix := exploration.pop()) is not None:
        found = len(seen) - before
        if runner.runs >= runs or found >= states or time.monotonic() > latest:
            return Figures(runner.runs, runner.steps, found, complete=False)
        runner.run(Branch(prefix, exploration), f"{len(prefix.steps)} steps chosen in turn")
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
    steps = [Step(*part.strip().split(" ", 1)) for part in text.split(";")]
    return Runner(scenario, options).attempt(Scripted(steps), seed, trace=True)[0].history
