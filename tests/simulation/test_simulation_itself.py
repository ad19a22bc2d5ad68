"""The simulation itself: its schedules, its faults, the prints of its states, and its searches."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.planted_bugs import EVERY
from tests.simulation.scenarios import SMALL
from tests.support.simulation_locks import BLOCKING, SEQUENTIAL, Usage, contenders
from tests.support.simulation_parts import FACTOR, Judge, planted
from zkwire.errors import NodeExistsError
from zkwire.testing.simulation import (
    CancelAt,
    FailedRunError,
    Figures,
    InTurn,
    Scenario,
    Seeded,
    ViolationError,
    exhaust,
    explore,
    replay,
)
from zkwire.testing.simulation.client import Client, Step, Suspend
from zkwire.testing.simulation.fingerprint import Reader, state_fingerprint
from zkwire.testing.simulation.invariants import Claim, at_most, exclusive, readers_together
from zkwire.testing.simulation.simulation import Simulation
from zkwire.testing.simulation.stage import StaleServer, TreeHistory

two = contenders(SEQUENTIAL)


def performed(sim: Simulation, steps: str) -> None:
    for text in steps.split("; "):
        kind, _, subject = text.partition(" ")
        assert Step(kind, subject) in [*sim.steps(), *sim.faults()], text
        sim.perform(Step(kind, subject))


# --- runs -----------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_run() -> None:
    def history(seed: int) -> list[str]:
        sim = Simulation(seed=seed, trace=True)
        two(sim)
        sim.run(Seeded(seed, 3))
        return sim.history

    assert history(7) == history(7) != history(8)


def test_a_run_can_be_replayed_from_what_a_failure_says() -> None:
    with planted(*EVERY["sequential: no cleaning"].changes):
        with pytest.raises(FailedRunError) as caught:
            explore(two, range(1000), faults=["cancel"])
        error = caught.value
        seed = int(error.origin.removeprefix("seed "))
        history = replay(two, "; ".join(map(str, error.steps)), seed=seed)
    assert history[-1].strip().startswith(error.invariant)
    assert error.faults
    assert "\n".join(history) in str(error)


def test_a_cancelled_task_ends_at_the_await_that_was_asked_for() -> None:
    sim = Simulation()
    two(sim)
    schedule = CancelAt(InTurn(), "a", 1, late=False)
    assert sim.run(schedule)
    assert schedule.happened
    [task] = [task for task in sim.ended if task.name == "a"]
    assert type(task.error).__name__ == "Cancelled"
    assert task.awaits == 1


# --- invariants -----------------------------------------------------------------------------------


def test_rules_say_who_may_hold_together() -> None:
    client, lock = Simulation().client(), SimpleNamespace(held=False, fence=1)
    reader, other, writer = (Claim(lock, client, role) for role in ("read", "read", "write"))
    assert exclusive([reader])
    assert not exclusive([reader, other])
    assert readers_together([reader, other])
    assert readers_together([writer])
    assert not readers_together([reader, writer])
    assert at_most(2)([reader, writer])
    assert not at_most(2)([reader, other, writer])


# --- faults ---------------------------------------------------------------------------------------


def with_a_node() -> tuple[Simulation, Client]:
    """A client that has not seen the ephemeral node of another one."""
    sim = Simulation()
    first, second = sim.client(), sim.client()
    sim.spawn(second.world.until(second.world.operations.create("/x", ephemeral=True), None))
    performed(sim, "run b; up b; down b; run b")
    assert "/x" in sim.tree.nodes
    return sim, first


@pytest.mark.parametrize("end", ["close b; up b", "expire b", "crash b; time"])
def test_a_server_that_is_behind_knows_nothing_of_the_end_of_a_session(end: str) -> None:
    sim, first = with_a_node()
    first.spawn(first.sleep(60))
    performed(sim, f"run a; {end}")
    while "/x" in sim.tree.nodes:
        sim.perform(sim.steps()[0])
    assert "/x" in sim.tree_history.oldest(sim.tree.zxid - 1, sim.tree).nodes


def test_a_watch_that_is_to_stay_brings_its_server_up_to_date() -> None:
    sim, first = with_a_node()
    first.spawn(first.world.until(first.world.operations.add_watch("/n", watch=print), None))
    performed(sim, "run a; lag a; up a")
    assert not sim.stale_servers


# --- prints of states: whatever decides about what comes is part of them -------------------------


NOW = 107.5


def nothing(_: object) -> None:
    """No change."""


def finished() -> Simulation:
    """Nobody has anything to do any more; the past is known."""
    sim = Simulation(servers=2)
    contenders(SEQUENTIAL)(sim)
    sim.run(InTurn())
    sim.tree_history.remember(sim.tree)
    return sim


def printed(value: object) -> int:
    return Reader(NOW).fingerprint(value)


# --- the server -----------------------------------------------------------------------------------


def link(sim: Simulation, client: int = 0) -> Any:
    found = sim.clients[client].link
    assert found is not None
    return found


def fall_behind(sim: Simulation) -> StaleServer:
    stale = sim.stale_servers[link(sim).connection] = StaleServer(sim.tree)
    return stale


def change_past(sim: Simulation) -> None:
    """Somebody else owned a node that is gone now: the same number of nodes, the same zxid."""
    sim.tree_history._trees[-1].nodes["/lock"].owner ^= 1


def look_at_another_past(sim: Simulation) -> None:
    stale, past = fall_behind(sim), TreeHistory(wanted=True)
    past.remember(sim.tree)
    stale.tree = past._trees[0]
    stale.tree.nodes["/lock"].owner ^= 1


def reorder(sim: Simulation) -> None:
    sim.tree.nodes["/"] = sim.tree.nodes.pop("/")


CHANGES: tuple[Callable[[Simulation], object], ...] = (
    change_past,
    reorder,
    fall_behind,
    look_at_another_past,
    lambda sim: fall_behind(sim)._events.add((4, "/lock")),  # type: ignore[arg-type]
    lambda sim: setattr(sim.processor, "_reap_at", sim.processor._reap_at + 1),
    lambda sim: setattr(next(iter(sim.sessions)), "passwd", b"another"),
    lambda sim: setattr(link(sim).connection, "session", link(sim, 1).connection.session),
    lambda sim: setattr(link(sim).connection, "greeted", False),
    lambda sim: sim.processor._without_session.update({link(sim).connection: sim.now + 5}),
)


def after_change(change: Callable[[Simulation], object], zxid: int = 0) -> int:
    """The print of a finished simulation; clients have seen so many changes, if that is said."""
    sim = finished()
    for client in sim.clients if zxid else ():
        client.session._requests.last_zxid = sim.tree.zxid + zxid
    change(sim)
    return state_fingerprint(sim)


def test_states_that_differ_in_one_thing_have_different_prints() -> None:
    prints = {after_change(change) for change in (nothing, *CHANGES)}
    assert len(prints) == 1 + len(CHANGES)


def test_what_nobody_can_see_any_more_is_no_part() -> None:
    assert after_change(nothing, zxid=1) == after_change(change_past, zxid=1)


# --- a process ------------------------------------------------------------------------------------


async def _raises(errors: list[Exception]) -> None:
    try:
        raise errors.pop()
    finally:
        await Suspend(None)


async def _goes_through(numbers: range) -> None:
    for _ in numbers:
        await Suspend(None)


async def _has_seen(things: list[int]) -> int:
    seen = things.pop()
    await Suspend(None)
    return seen


async def _waits_with(things: list[object]) -> object:
    return [things.pop(), await Suspend(None)]  # type: ignore[func-returns-value]


def after(coroutine: Coroutine[Any, Any, object], sends: int = 1) -> int:
    """The print of a coroutine that has come to its so manieth await."""
    for _ in range(sends):
        coroutine.send(None)
    found = printed(coroutine)
    with suppress(KeyError, ValueError):
        coroutine.close()
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: after(_raises([KeyError()])), lambda: after(_raises([ValueError()]))),
        (lambda: after(_goes_through(range(5)), 2), lambda: after(_goes_through(range(5)), 3)),
        (lambda: after(_has_seen([1])), lambda: after(_has_seen([2]))),
        (lambda: after(_waits_with([1])), lambda: after(_waits_with(["1"]))),
        (lambda: printed(NOW - 1), lambda: printed(NOW - 2)),
        (lambda: printed(-1), lambda: printed(-2)),
        (lambda: printed(iter([1, 2])), lambda: printed(iter([2, 2]))),
        (lambda: printed([].append), lambda: printed([1].append)),
        (lambda: printed(lambda: 1), lambda: printed(lambda: 2)),
    ],
)
def test_what_a_task_does_next_is_part_of_it(
    one: Callable[[], int], other: Callable[[], int]
) -> None:
    assert one() == one()
    assert one() != other()


def test_a_thing_in_a_set_is_the_same_one_elsewhere() -> None:
    first, second = (partial(print, 1) for _ in range(2))
    assert printed([{first}, first]) == printed([{second}, second])
    assert printed([{first}, first]) != printed([{first}, second])


def test_what_cannot_be_looked_into_is_an_error() -> None:
    with pytest.raises(TypeError, match="memoryview"):
        printed(memoryview(b""))


# --- every schedule, but of equal states only one ------------------------------------------------


SHORT = [name for name in SMALL if not name.startswith(("semaphore", "new", "multi-lock"))]
"""What is small enough to be followed to its end here."""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_world_has_no_way_to_fail(name: str) -> None:
    scenario, faults, most = SMALL[name]
    found = exhaust(scenario, most=most, faults=faults, frames=False, states=int(150 * FACTOR))
    print(found)


# --- what is left out -----------------------------------------------------------------------------


def ends(
    scenario: Scenario,
    faults: tuple[str, ...],
    what: Callable[[Simulation], object] = state_fingerprint,
    most: int = 1,
    **options: Any,
) -> tuple[Figures, set[object]]:
    """How it can end."""
    found = set[object]()

    class Last(Judge):
        def end(self, sim: Simulation) -> None:
            found.add(what(sim))

    def with_last(sim: Simulation) -> None:
        scenario(sim)
        sim.checks.append(Last())

    options = {"frames": False, **options}
    figures = exhaust(with_last, most=most if faults else 0, faults=faults, **options)
    assert figures.complete
    return figures, found


SOME = {"blocking, trying, 2": ("crash",)}


@pytest.mark.parametrize("name", [name for name in SHORT if "2" in name])
def test_what_is_left_out_makes_no_difference(name: str) -> None:
    faults = SMALL[name].faults if FACTOR > 1 else SOME.get(name, ())
    for which in [(), *((fault,) for fault in faults)]:
        (few, found), (many, all_there_are) = (
            ends(SMALL[name].scenario, which, reduced=reduced) for reduced in (True, False)
        )
        print(which, few, many, len(found), sep=" | ")
        assert found == all_there_are
        assert 5 < few.states < many.states


def test_who_ends_a_claim_puts_nothing_off() -> None:
    """Or else the one who claims too long has always ended it before the other one begins."""
    for kind in (SEQUENTIAL, BLOCKING):
        bug = EVERY[f"{kind.name}: late end"]
        with planted(*bug.changes), pytest.raises(FailedRunError, match="ME"):
            exhaust(contenders(kind, 2, Usage(stay=0)), frames=False, faults=())


# --- what is part of a state ----------------------------------------------------------------------


class Never:
    """WRONG: this was so behind a step, or in the end; it says nothing of itself, as a user's."""

    def __init__(self, at_step: Callable[[Simulation], bool], at_end: bool = False) -> None:
        self.names = ""
        self._wrong = at_step
        self._at_end = at_end

    def step(self, sim: Simulation) -> None:
        if len(self.names) < 2:
            self.names += sim.done[-1].subject
        if not self._at_end:
            self.end(sim)

    def end(self, sim: Simulation) -> None:
        if self._wrong(sim):
            raise ViolationError("WRONG", "it was so")


def late_leavers(sim: Simulation) -> None:
    """Whoever has made the node is inside until it is told that the node is gone: too long."""
    inside: list[str] = []
    sim.checks.append(Never(lambda _: len(inside) > 1))

    async def use(client: Client) -> None:
        with suppress(NodeExistsError):
            await client.world.operations.create("/mine", ephemeral=True)
            inside.append(client.name)
            await client.turn()
            await client.world.operations.delete("/mine")
            inside.remove(client.name)

    for _ in range(2):
        client = sim.client()
        client.spawn(use(client))


def by_order(sim: Simulation) -> None:
    """A check that remembers who was first, and says it in the end."""
    check = Never(lambda _: check.names == "ba", at_end=True)
    sim.checks.append(check)
    for _ in range(2):
        client = sim.client()
        client.spawn(client.turn())


@pytest.mark.parametrize(
    ("scenario", "frames"),
    [
        (late_leavers, True),  # for a check that says nothing of itself no order is left out
        (by_order, True),  # what it remembers is part of the state all the same
    ],
)
def test_what_a_check_can_tell_apart_is_part_of_a_state(scenario: Scenario, frames: bool) -> None:
    with pytest.raises(FailedRunError, match="WRONG"):
        exhaust(scenario, faults=(), frames=frames)
