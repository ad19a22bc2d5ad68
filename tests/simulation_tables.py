"""Every schedule of a small world, most of them without running them.

A state has parts (`zkwire.testing.fingerprint.parts`): the server, and of each client its process
and its network.  What a step does depends on few of them and changes few: a task that runs knows
nothing of other clients.  So when a step has been carried out once, it is known what it does in
every state in which those few parts are the same, and what the next state is.  The next state of a
step that is not yet known is found by a run that leads there.

What a step depends on, by its kind (`Tables`):

* a task that runs, or frames that arrive at a client: that client;
* frames that arrive at the server: the server, and what is under way;
* everything else: the server, what is under way, that client, and what the checks remember.

A step that has changed anything beyond that is not learned: it is carried out each time, and so is
one in which time passes.  Checks: a claim that begins or ends changes what `Claims` remembers, so a
step that is known as a client's own begins none; in a step of the third kind the checks have seen
the same things before.  The end of each run is reached by running.

Whenever a run leads to a state that was foretold, the parts are compared; `ForetoldError` would say
that something depends on more than is known here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from zkwire.testing.fingerprint import parts
from zkwire.testing.schedule import Figures, Runner, Scenario
from zkwire.testing.simulated_client import Link, Step, ViolationError
from zkwire.testing.simulation import Simulation
from zkwire.testing.trouble import FAULTS

Parts = tuple[int, ...]
Effect = tuple[tuple[int, int], ...]  # which part becomes what

_FAULTS: Final = frozenset(FAULTS)
_CLIENT_ONLY: Final = frozenset({
    "run", "cancel", "down", "down1", "turn", "resume", "pause", "partition", "blip", "close",
})  # fmt: skip
_SERVER_ONLY: Final = frozenset({"up", "up1", "late", "apply", "uproot", "wrap"})
_TIME: Final = frozenset({"time", "slow"})
_CLOCK, _SERVER, _CHECKS, _CLIENTS = range(4)  # places among the parts; each client has two


class ForetoldError(AssertionError):
    """A run has led to another state than was foretold."""


class Choice(NamedTuple):
    """A step, and the place of the part that is its client's; 0 if it is nobody's."""

    step: Step
    place: int

    @property
    def is_fault(self) -> bool:
        """Whether it is one."""
        return self.step.kind in _FAULTS


class Tables:
    """What is known of steps: which are possible, and what they do."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, ...], list[Choice]] = {}
        self._faults: dict[tuple[int, ...], list[Choice]] = {}
        self._busy: dict[int, tuple[bool, bool]] = {}
        self._effects: dict[tuple[object, ...], Effect] = {}

    # --- what is possible -------------------------------------------------------------------------

    def learn(self, sim: Simulation, state: Parts) -> None:
        """What is possible in this state, client by client."""
        places = {client.name: _CLIENTS + 2 * n for n, client in enumerate(sim.clients)}
        owners = places | {task.name: places[task.client.name] for task in sim.tasks}
        steps = [Choice(step, owners.get(step.who, 0)) for step in sim.steps()]
        faults = [Choice(step, owners.get(step.who, 0)) for step in sim.faults()]
        self._faults[state[_SERVER],] = [choice for choice in faults if not choice.place]
        for client in sim.clients:
            at = places[client.name]
            self._steps[state[at : at + 2]] = [c for c in steps if c.place == at]
            own = [choice for choice in faults if choice.place == at]
            self._faults[state[_SERVER], state[at], state[at + 1]] = own
            tasks = [task for task in sim.tasks if task.client is client]
            waits = any(not task.background for task in tasks)
            self._busy[state[at]] = (bool(tasks) or client.unsettled(), waits)

    def steps(self, state: Parts) -> list[Choice] | None:
        """What can happen, if that is known."""
        found: list[Choice] = []
        for at in range(_CLIENTS, len(state), 2):
            own = self._steps.get(state[at : at + 2])
            if own is None:
                return None
            found += own
        if not found and any(self._busy[state[at]][0] for at in range(_CLIENTS, len(state), 2)):
            return [Choice(Step("time"), 0)]
        return found

    def faults(self, state: Parts) -> list[Choice] | None:
        """What can go wrong, if that is known."""
        found = self._faults.get((state[_SERVER],))
        for at in range(_CLIENTS, len(state), 2):
            own = self._faults.get((state[_SERVER], state[at], state[at + 1]))
            if own is None or found is None:
                return None
            found = found + own
        return found

    def anybody_waits(self, state: Parts) -> bool:
        """Whether there is a task that is not in the background."""
        return any(self._busy[state[at]][1] for at in range(_CLIENTS, len(state), 2))

    # --- what it does -----------------------------------------------------------------------------

    def record(self, before: Parts, choice: Choice, after: Parts, *, same_link: bool) -> None:
        """This has been seen to happen."""
        step, place = choice
        changed = {at for at, part in enumerate(before) if part != after[at]}
        networks = set(range(_CLIENTS + 1, len(before), 2))
        if step.kind in _TIME:
            return
        if step.kind in _CLIENT_ONLY and same_link and changed <= {place, place + 1}:
            key = _client_key(before, choice)
        elif step.kind in _SERVER_ONLY and changed <= {_SERVER, *networks}:
            key = _server_key(before, choice)
        elif changed <= {_SERVER, _CHECKS, place, *networks} - {_CLOCK}:
            key = _wide_key(before, choice)
        else:
            return
        self._effects[key] = tuple((at, after[at]) for at in sorted(changed))

    def after(self, state: Parts, choice: Choice) -> Parts | None:
        """The next state, if that is known."""
        kind = choice.step.kind
        effect = None
        if kind in _CLIENT_ONLY:
            effect = self._effects.get(_client_key(state, choice))
        elif kind in _SERVER_ONLY:
            effect = self._effects.get(_server_key(state, choice))
        if effect is None:
            effect = self._effects.get(_wide_key(state, choice))
        if effect is None:
            return None
        found = list(state)
        for at, part in effect:
            found[at] = part
        return tuple(found)


def _client_key(state: Parts, choice: Choice) -> tuple[object, ...]:
    step, at = choice
    return (step, state[_CLOCK], state[at], state[at + 1])


def _server_key(state: Parts, choice: Choice) -> tuple[object, ...]:
    return (choice.step, "server", state[_CLOCK], state[_SERVER], state[_CLIENTS + 1 :: 2])


def _wide_key(state: Parts, choice: Choice) -> tuple[object, ...]:
    step, at = choice
    process = state[at] if at else 0
    return (step, state[:_CLIENTS], process, state[_CLIENTS + 1 :: 2])


# --- the search -----------------------------------------------------------------------------------


class Trail(NamedTuple):
    """A step, the state before it and the way there."""

    before: Trail | None
    state: int
    step: Step


class Place(NamedTuple):
    """A state to look at, if it is known, and how to get there; or what leads to an unknown one."""

    state: Parts | None
    trail: Trail | None
    left: int  # faults that may still happen
    coming: tuple[Parts, Choice] | None = None


class _Way:
    """A schedule: goes to a place, then on as long as nobody knows what comes."""

    def __init__(self, search: Search, place: Place) -> None:
        self._search = search
        self._place = place
        self._steps = _steps_of(place.trail)
        self._last = len(self._steps) - 1
        self._at = 0
        self._link: tuple[Step, Link | None] | None = None

    def next(self, sim: Simulation) -> Step | None:
        """The next step of the way, or beyond."""
        at, self._at = self._at, self._at + 1
        if at <= self._last:
            step = self._steps[at]
            if at == self._last and self._place.coming:
                self._remember_link(sim, self._place.coming[1])
            return step
        going_on = self._look(sim)
        if going_on is None:
            return None
        self._place = going_on
        assert going_on.coming
        self._remember_link(sim, going_on.coming[1])
        return going_on.coming[1].step

    def _remember_link(self, sim: Simulation, choice: Choice) -> None:
        self._link = (choice.step, _link(sim, choice))

    def _look(self, sim: Simulation) -> Place | None:
        """What there is to see where the way ends; and how to go on from there."""
        place, tables = self._place, self._search.tables
        state = parts(sim)
        if place.state is not None and place.state != state:
            wrong = [at for at, part in enumerate(state) if part != place.state[at]]
            steps = "; ".join(map(str, sim.done))
            raise ForetoldError(f"parts {wrong} are not what was foretold, after: {steps}")
        if place.coming:
            before, choice = place.coming
            assert self._link
            same_link = _link(sim, choice) is self._link[1]
            tables.record(before, choice, state, same_link=same_link)
        tables.learn(sim, state)
        return self._search.visit(Place(state, place.trail, place.left), real=True)


def _link(sim: Simulation, choice: Choice) -> Link | None:
    return sim.clients[(choice.place - _CLIENTS) // 2].link if choice.place else None


def _steps_of(trail: Trail | None) -> list[Step]:
    found: list[Step] = []
    while trail is not None:
        found.append(trail.step)
        trail = trail.before
    return found[::-1]


class Search:
    """Looks at every state of one scenario; see :func:`exhaust`."""

    def __init__(self, runner: Runner, most: int, seen: set[int]) -> None:
        self.tables = Tables()
        self.seen = seen
        self._runner = runner
        self._passed: set[int] = set()  # states without a choice
        self._todo = [Place(None, None, most)]
        self._faulty: list[list[tuple[Parts, Trail | None]]] = [[] for _ in range(most + 1)]
        self._chance = Random(0)

    def advance(self) -> bool:
        """Look at one more place; False if there is none."""
        place = self._next()
        if place is None:
            return False
        if place.state is None or self.tables.steps(place.state) is None:
            self._run(place)
        else:
            self.visit(place, real=False)
        return True

    def _next(self) -> Place | None:
        """What needs no more faults comes first; where a fault comes next is left to chance."""
        while not self._todo:
            left = next((n for n in reversed(range(len(self._faulty))) if self._faulty[n]), 0)
            if not left:
                return None
            states = self._faulty[left]
            at = self._chance.randrange(len(states))
            states[at], states[-1] = states[-1], states[at]
            state, trail = states.pop()
            faults = self.tables.faults(state)
            if faults is None:
                self._run(Place(state, trail, left))
                faults = self.tables.faults(state) or []
            self._push(self._branches(state, trail, left, faults), left - 1)
        return self._todo.pop()

    def _run(self, place: Place) -> None:
        way = _Way(self, place)
        self._runner.run(way, "following every schedule")

    def visit(self, place: Place, *, real: bool) -> Place | None:
        """Leave the choices of a new state to be looked at, but for the one that is returned.

        That one is for a ``real`` run to go on with.
        """
        state, trail, left, _ = place
        assert state is not None
        steps = self.tables.steps(state)
        assert steps is not None
        key = hash((hash(state), left))
        if key in self.seen or key in self._passed:
            self._look_for_circle(place, key, real=real)
            return None
        if not steps and not real:
            self._run(place)  # the checks have something to say at the end
            return None
        (self.seen if len(steps) + bool(left) > 1 else self._passed).add(key)
        if left:
            self._faulty[left].append((state, trail))
        branches = list(self._branches(state, trail, left, steps))
        unknown = next((branch for branch in branches if branch.state is None), None)
        if real and unknown is not None:
            branches.remove(unknown)
        self._push(branches, left)
        return unknown if real else None

    def _branches(
        self, state: Parts, trail: Trail | None, left: int, choices: Sequence[Choice]
    ) -> Iterator[Place]:
        key = hash((hash(state), left))
        for choice in choices:
            way = Trail(trail, key, choice.step)
            after = self.tables.after(state, choice)
            coming = (state, choice) if after is None else None
            yield Place(after, way, left - choice.is_fault, coming)

    def _push(self, branches: Iterator[Place] | list[Place], left: int) -> None:
        self._todo += branches

    def _look_for_circle(self, place: Place, key: int, *, real: bool) -> None:
        """Who comes back to where this very way has been goes in circles.

        Time passes only when nothing else can happen, so whoever waits there waits for ever.
        """
        trail, state = place.trail, place.state
        while trail is not None and trail.state != key:
            trail = trail.before
        if trail is None or state is None or not self.tables.anybody_waits(state):
            return
        if real:
            raise ViolationError("LIVE", "everything is as it was before, and will be again")
        self._run(place)


def exhaust(
    scenario: Scenario,
    *,
    most: int = 0,
    states: int | None = None,
    seconds: float = math.inf,
    seen: set[int] | None = None,
    **options: Any,
) -> Figures:
    """As `zkwire.testing.schedule.exhaust`, and finds the same states, but with few runs.

    All schedules with fewer faults are followed before any with more.
    """
    runner = Runner(scenario, options)
    seen = set() if seen is None else seen
    before = len(seen)
    search = Search(runner, most, seen)
    latest = time.monotonic() + seconds
    while states is None or len(seen) - before < states:
        if time.monotonic() > latest:
            break
        if not search.advance():
            return Figures(runner.runs, runner.steps, len(seen) - before)
    return Figures(runner.runs, runner.steps, len(seen) - before, complete=False)
