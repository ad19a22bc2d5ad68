"""The simulation itself: its schedules, its faults, the invariants that it checks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.planted_bugs import EVERY
from tests.support.simulation_locks import SEQUENTIAL, contenders
from tests.support.simulation_parts import make, planted
from zkwire.errors import SessionExpiredError, ThrottledOpError
from zkwire.operations import Operations
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.simulation import (
    CancelAt,
    FailedRunError,
    InTurn,
    Scripted,
    Seeded,
    explore,
    replay,
)
from zkwire.testing.simulation.client import Client, Step
from zkwire.testing.simulation.invariants import Claim, at_most, exclusive, readers_together
from zkwire.testing.simulation.simulation import Simulation
from zkwire.testing.simulation.stage import START
from zkwire.wire.model import EventType

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


def test_a_deadlock_is_reported() -> None:
    def scenario(sim: Simulation) -> None:
        client = sim.client()

        async def acquire_twice() -> None:
            await AsyncSequentialLock(client.world, "/lock")._acquire_by(None, True)
            await AsyncSequentialLock(client.world, "/lock")._acquire_by(None, True)

        client.spawn(acquire_twice())

    with pytest.raises(FailedRunError, match="LIVE"):
        explore(scenario, [0], most=0)


def test_an_error_in_a_task_is_reported() -> None:
    async def fail() -> None:
        raise KeyError("x")

    def scenario(sim: Simulation) -> None:
        sim.client()
        sim.spawn(fail())

    with pytest.raises(FailedRunError, match="KeyError"):
        explore(scenario, [0])


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


def test_a_process_that_pauses_for_too_long_finds_its_session_gone() -> None:
    sim = Simulation()
    client = sim.client()

    async def use() -> None:
        await client.sleep(1.0)
        await client.world.operations.exists("/")
        await client.sleep(60.0)

    task = client.spawn(use())
    assert sim.run(Scripted([Step("run", "a"), Step("pause", "a")]))
    assert isinstance(task.error, SessionExpiredError)


def test_what_is_refused_for_the_moment_is_not_done() -> None:
    sim = Simulation()
    client = sim.client()
    task = client.spawn(client.world.until(client.world.operations.create("/x"), None))
    performed(sim, "run a; refuse a; down a; run a")
    assert isinstance(task.error, ThrottledOpError)
    assert "/x" not in sim.tree.nodes


def with_a_node() -> tuple[Simulation, Client, Client]:
    """The second one has made an ephemeral node that the first one has not seen."""
    sim = Simulation()
    first, second = sim.client(), sim.client()
    sim.spawn(second.world.until(second.world.operations.create("/x", ephemeral=True), None))
    performed(sim, "run b; up b; down b; run b")
    assert "/x" in sim.tree.nodes
    return sim, first, second


def test_an_outsider_writes_what_is_there_already() -> None:
    sim, _, _ = with_a_node()
    before = copy(sim.tree.nodes["/x"])
    performed(sim, "touch b")
    node = sim.tree.nodes["/x"]
    assert (node.data, node.version, node.czxid) == (before.data, 1, before.czxid)
    assert node.mzxid > before.mzxid


def test_what_lingers_brings_its_own_server_up_to_date() -> None:
    sim, first, _ = with_a_node()
    first.spawn(first.world.until(first.world.operations.create("/y"), None))
    performed(sim, "run a; lag a; linger a; late a")
    assert {"/x", "/y"} <= set(sim.tree.nodes)


@pytest.mark.parametrize("end", ["close b; up b", "expire b", "crash b; time"])
def test_a_server_that_is_behind_knows_nothing_of_the_end_of_a_session(end: str) -> None:
    sim, first, _ = with_a_node()
    first.spawn(first.sleep(60))
    performed(sim, f"run a; {end}")
    while "/x" in sim.tree.nodes:
        sim.perform(sim.steps()[0])
    assert "/x" in sim.tree_history.oldest(sim.tree.zxid - 1, sim.tree).nodes


async def _always(operations: Operations, told: list[str]) -> None:
    await operations.add_watch("/n", watch=lambda event: told.append(EventType(event.type).name))


async def _both(operations: Operations, told: list[str]) -> None:
    def teller(what: str) -> Callable[[Any], None]:
        return lambda event: told.append(f"{what} {EventType(event.type).name}")

    data = operations.get_data("/n", watch=teller("data"))
    await operations.get_children("/n", watch=teller("child"))
    await data


@pytest.mark.parametrize(
    ("watching", "now", "later", "expected"),
    [
        # A watch that stays outlives a server that is behind.
        (_always, "1", "2", ["NODE_DATA_CHANGED"] * 2),
        # A held event uses up no watch of another kind.
        (_both, "children", "1", ["child NODE_CHILDREN_CHANGED", "data NODE_DATA_CHANGED"]),
    ],
)
def test_what_a_server_tells_when_it_is_no_longer_behind(
    watching: Callable[[Operations, list[str]], Coroutine[Any, Any, object]],
    now: str,
    later: str,
    expected: list[str],
) -> None:
    """Of a change while it was behind, and of one after it has caught up."""
    sim, told = Simulation(), list[str]()
    make(sim, "/n")
    first, second = sim.client(), sim.client()

    async def change(what: str) -> None:
        operations = second.world.operations
        await (
            operations.create("/n/c")
            if what == "children"
            else operations.set_data("/n", what.encode())
        )

    first.spawn(watching(first.world.operations, told))
    performed(sim, "run a; up a; down a; run a; lag a")
    second.spawn(change(now))
    performed(sim, "run b; up b; down b; run b; apply a; down a")
    second.spawn(change(later))
    sim.run(InTurn())
    assert told == expected


def test_a_watch_that_is_to_stay_brings_its_server_up_to_date() -> None:
    sim, first, _ = with_a_node()
    first.spawn(_always(first.world.operations, []))
    performed(sim, "run a; lag a; up a")
    assert not sim.stale_servers


def test_who_has_crashed_does_nothing_any_more() -> None:
    sim = Simulation()
    first, second = sim.client(), sim.client()
    second.spawn(second.sleep(60))
    performed(sim, "cut a; crash a; run b")
    while sim.steps() and sim.now < START + 30:
        step = sim.steps()[0]
        assert step.subject != first.name
        sim.perform(step)
