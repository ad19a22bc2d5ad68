"""The locks in the simulated world: every order of events within bounds, every single fault, and
many random runs with several.  Planted bugs are in test_planted_bugs.py.

`ZKWIRE_SIMULATION=10` makes ten times as many random runs, and `ZKWIRE_SEED` other ones. A failure
names what to give to `zkwire.testing.simulation.replay`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from copy import copy
from functools import partial
from typing import Any

import pytest

from tests.conftest import SEED
from tests.support.simulation_family import make
from tests.support.simulation_locks import (
    BLOCKING,
    KINDS,
    PLANTED,
    SEQUENTIAL,
    Kind,
    Manners,
    NoSyncBeforeLooking,
    Told,
    await_loss,
    contenders,
    planted,
    various,
)
from tests.support.simulation_parts import A_SIXTH
from zkwire.errors import SessionExpiredError, ThrottledOpError
from zkwire.operations import Operations
from zkwire.recipes.locks import AsyncBlockingLock, AsyncReentrantLock
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.server.node import Node
from zkwire.testing.simulation import (
    CancelAt,
    FailedRunError,
    Figures,
    InTurn,
    Scenario,
    Scripted,
    Seeded,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    sweep,
)
from zkwire.testing.simulation.client import Client, Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.invariants import Claim, Claims, at_most, exclusive, readers_together
from zkwire.testing.simulation.simulation import Simulation
from zkwire.testing.simulation.stage import START
from zkwire.wire.model import EventType

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(1200 * FACTOR)

all_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def bounds(depth: int) -> dict[str, Any]:
    """How far the orders are followed: so many steps, or with more time as far as it goes."""
    if FACTOR > 1:
        return {"runs": int(5000 * FACTOR)}
    return {"depth": depth}


def report(figures: Figures) -> None:
    print(figures)  # shown with -s, and when something fails


# --- every order ----------------------------------------------------------------------------------


@all_kinds
def test_every_order_of_two_contenders(kind: Kind) -> None:
    report(exhaust(contenders(kind, 2, Manners(stay=1)), **bounds(15), frames=False))


@all_kinds
def test_every_order_of_three_contenders(kind: Kind) -> None:
    report(exhaust(contenders(kind, 3, Manners(stay=1)), **bounds(9), frames=False))


@all_kinds
def test_every_order_of_two_contenders_on_one_client(kind: Kind) -> None:
    scenario = contenders(kind, 2, Manners(stay=1), together=True)
    report(exhaust(scenario, **bounds(8)))


# --- every fault ----------------------------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("late", ["", "a", "b"])
def test_every_single_fault_at_every_sixth_step(kind: Kind, late: str) -> None:
    report(sweep(contenders(kind, 2), lambda: InTurn(late), faults=FAULTS, **A_SIXTH))


@all_kinds
def test_every_single_fault_among_three_of_whom_none_waits_for_ever(kind: Kind) -> None:
    scenario = contenders(kind, 3, Manners(patience=9.0))
    report(sweep(scenario, InTurn, faults=FAULTS, **A_SIXTH))


@all_kinds
@pytest.mark.parametrize("limit", [0.0, 3.0])
def test_every_single_fault_when_a_release_has_a_limit(kind: Kind, limit: float) -> None:
    report(sweep(contenders(kind, 2, Manners(give=limit)), InTurn, faults=FAULTS, **A_SIXTH))


@all_kinds
def test_every_single_fault_when_the_parent_is_missing(kind: Kind) -> None:
    scenario = contenders(kind, 2, prepared=False)
    base = partial(Seeded, SEED)
    report(sweep(scenario, base, seed=SEED, servers=2, faults=FAULTS, **A_SIXTH))


@pytest.mark.parametrize("kind", [BLOCKING, SEQUENTIAL], ids=lambda kind: kind.name)
def test_a_client_that_is_being_closed_claims_nothing(kind: Kind) -> None:
    sweep(contenders(kind, 2), lambda: InTurn("a"), faults=["close"])


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.queue], ids=lambda kind: kind.name)
def test_an_outsider_who_deletes_the_node_causes_no_deadlock(kind: Kind) -> None:
    scenario = various(kind)
    report(explore(scenario, range(SEED, SEED + RUNS // 4), faults=["delete", "cut", "slow"]))


def test_a_guard_that_was_not_answered_is_asked_again() -> None:
    """Its watch is restored, but on a node that somebody else has made meanwhile, unheard of."""
    scenario = contenders(BLOCKING, 2, Manners(hold=15.0), together=True)
    steps = "run a; up a; delete a; down a; run a2; up a; run a; down a; cut a"
    told = replay(scenario, steps)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("get_children2" in line for line in told)


TAKEN = (
    "run a; up a; down a; run a; run a; up a; down a; up a; cut a; run b; up b; down b; run b; "
    "run a; run a.background; dial a; lag a; up a; down a; up a; down a; run a.background; up a"
)
"""a's release is executed and not answered; its new server still shows its node, where b's is."""


@pytest.mark.parametrize("core", [AsyncBlockingLock, NoSyncBeforeLooking])
def test_a_claim_by_a_node_that_is_gone_is_found(core: type[AsyncBlockingLock]) -> None:
    told = replay(contenders(planted(core, judge=Claims), 2, Manners(stay=1)), TAKEN, frames=False)
    found = told[-1].strip() == "STATE: b claims by a node that is gone"
    assert found == (core is NoSyncBeforeLooking), "\n".join(told)
    assert any("lag a" in line for line in told)


# --- cancellation ---------------------------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("late", ["", "a", "b"])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_cancellation_at_every_await(kind: Kind, late: str, prepared: bool) -> None:
    for number in (1, 2, 3):
        scenario = contenders(kind, number, Manners(rounds=2), prepared=prepared)
        report(cancel_everywhere(scenario, lambda: InTurn(late)))


@all_kinds
def test_a_cancellation_at_every_await_on_a_bad_network(kind: Kind) -> None:
    scenario = contenders(kind, 2)
    cut = [Step("run", "a"), Step("up", "a"), Step("cut", "a")]
    report(cancel_everywhere(scenario, lambda: Scripted(cut)))


# --- many faults ----------------------------------------------------------------------------------


@all_kinds
def test_random_runs_with_several_faults(kind: Kind) -> None:
    seeds = range(SEED, SEED + RUNS)
    report(explore(various(kind), seeds, most=5, faults=FAULTS))


def test_random_runs_with_several_servers() -> None:
    kind = SEQUENTIAL
    seeds = range(SEED, SEED + RUNS // 2)
    report(explore(various(kind), seeds, most=5, servers=3, faults=FAULTS))


# --- the simulation itself ------------------------------------------------------------------------


def two(sim: Simulation) -> None:
    contenders(SEQUENTIAL)(sim)


def run(scenario: Scenario, seed: int) -> Simulation:
    sim = Simulation(seed=seed, trace=True)
    scenario(sim)
    sim.run(Seeded(seed, 3))
    return sim


def test_three_thirds_of_a_sweep_are_the_whole() -> None:
    runs = [
        sweep(two, first=first, every=every, faults=("cut",)).runs
        for first, every in ((0, 1), (0, 3), (1, 3), (2, 3))
    ]
    assert runs[0] == sum(runs[1:]) - 2, "the plain run is made each time"


def test_the_same_seed_is_the_same_run() -> None:
    assert run(two, 7).history == run(two, 7).history
    assert run(two, 7).history != run(two, 8).history


def test_a_run_can_be_replayed_from_what_a_failure_says() -> None:
    kind = next(kind for kind in PLANTED if kind.name == "SequentialNoCleaning")
    scenario = contenders(kind, 2)
    with pytest.raises(FailedRunError) as caught:
        explore(scenario, range(1000), faults=["cancel"])
    error = caught.value
    seed = int(error.origin.removeprefix("seed "))
    history = replay(scenario, "; ".join(map(str, error.steps)), seed=seed)
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


class Held:
    """A lock that claims what it is told to."""

    def __init__(self, fence: int) -> None:
        self.held = False
        self.fence = fence


def look(claims: Claims, client: Client, *locks: Held) -> None:
    """Each with a node of its own."""
    sim = client.sim
    assert isinstance(sim, Simulation)
    for lock in locks:
        lock.held = True
        node = Node(b"", (), client.session.session_id, lock.fence, 0)
        sim.tree.nodes[f"/{lock.fence}"] = node
    claims.step(sim)


@pytest.fixture
def client() -> Client:
    return Simulation().client()


def test_rules_say_who_may_hold_together(client: Client) -> None:
    reader, other, writer = (Claim(Held(1), client, role) for role in ("read", "read", "write"))
    assert exclusive([reader])
    assert not exclusive([reader, other])
    assert readers_together([reader, other])
    assert readers_together([writer])
    assert not readers_together([reader, writer])
    assert at_most(2)([reader, writer])
    assert not at_most(2)([reader, other, writer])


def test_two_claims_that_may_not_be_are_found(client: Client) -> None:
    claims, locks = Claims(readers_together), [Held(1), Held(2), Held(3)]
    for lock, role in zip(locks, ("read", "read", "write"), strict=True):
        claims.add(lock, client, role)
    look(claims, client, *locks[:2])
    with pytest.raises(ViolationError, match="ME"):
        look(claims, client, locks[2])


def test_a_fence_that_goes_back_is_found(client: Client) -> None:
    claims, first, second = Claims(), Held(5), Held(5)
    claims.add(first, client)
    claims.add(second, client)
    look(claims, client, first)
    first.held = False
    with pytest.raises(ViolationError, match="FENCE"):
        look(claims, client, second)


def test_readers_may_come_in_any_order(client: Client) -> None:
    claims, first, second = Claims(readers_together), Held(5), Held(4)
    claims.add(first, client, "read")
    claims.add(second, client, "read")
    look(claims, client, first)
    look(claims, client, second)
    assert [grant.fence for grant in claims.grants] == [5, 4]


def test_what_is_refused_for_the_moment_is_not_done() -> None:
    sim = Simulation()
    client = sim.client()
    task = client.spawn(client.world.until(client.world.operations.create("/x"), None))
    performed(sim, "run a; refuse a; down a; run a")
    assert isinstance(task.error, ThrottledOpError)
    assert "/x" not in sim.tree.nodes


def test_who_greets_is_not_refused_for_the_moment() -> None:
    sim = Simulation()
    sim.client(connected=False)
    performed(sim, "dial a")
    assert {step.kind for step in sim.faults()} >= {"linger"}
    assert Step("refuse", "a") not in sim.faults()


def test_an_outsider_writes_what_is_there_already() -> None:
    sim = Simulation()
    with_a_node(sim)
    before = copy(sim.tree.nodes["/x"])
    performed(sim, "touch b")
    node = sim.tree.nodes["/x"]
    assert (node.data, node.version, node.czxid) == (before.data, 1, before.czxid)
    assert node.mzxid > before.mzxid


def test_who_waits_for_a_loss_and_is_not_told_is_found() -> None:
    sim = Simulation()
    client = sim.client()
    lock = AsyncSequentialLock(client.world, "/lock")
    sim.checks.append(Told())
    client.locks.append(lock)
    client.spawn(lock._acquire_by(None, True))
    while not lock.held:
        sim.perform(sim.steps()[0])
    waiting = client.spawn(await_loss(lock.lost))
    performed(sim, f"run {waiting.name}")
    wakers = lock.lost._lose("for a test")
    sim.checks[0].step(sim)
    lock.lost._wakers = wakers
    with pytest.raises(ViolationError, match="TOLD"):
        sim.checks[0].step(sim)


def test_each_task_has_its_own_place_in_a_re_entrant_lock() -> None:
    sim = Simulation()
    client = sim.client()
    lock = AsyncReentrantLock(client.world, "/lock")
    order: list[str] = []

    async def work(name: str) -> None:
        assert await lock.acquire()
        assert await lock.try_acquire(), "once more"
        order.append(name)
        await client.turn()
        await lock.release()
        assert lock.held
        await client.turn()
        order.append(name)
        await lock.release()

    for name in ("one", "two"):
        client.spawn(work(name))
    while steps := sim.steps():
        sim.perform(steps[0])
    assert order == ["one", "one", "two", "two"]


def test_a_server_falls_behind_whether_or_not_its_client_stands_still() -> None:
    sim = Simulation()
    sim.client()
    sim.perform(Step("pause", "a"))
    assert Step("lag", "a") in sim.faults()


def performed(sim: Simulation, steps: str) -> None:
    for text in steps.split("; "):
        kind, _, subject = text.partition(" ")
        assert Step(kind, subject) in [*sim.steps(), *sim.faults()], text
        sim.perform(Step(kind, subject))


def with_a_node(sim: Simulation) -> tuple[Client, Client]:
    """The second one has made an ephemeral node that the first one has not seen."""
    first, second = sim.client(), sim.client()
    sim.spawn(second.world.until(second.world.operations.create("/x", ephemeral=True), None))
    performed(sim, "run b; up b; down b; run b")
    assert "/x" in sim.tree.nodes
    return first, second


def test_what_lingers_brings_its_own_server_up_to_date() -> None:
    sim = Simulation()
    first, _ = with_a_node(sim)
    first.spawn(first.world.until(first.world.operations.create("/y"), None))
    performed(sim, "run a; lag a; linger a; late a")
    assert {"/x", "/y"} <= set(sim.tree.nodes)


@pytest.mark.parametrize("end", ["close b; up b", "expire b", "crash b; time"])
def test_a_server_that_is_behind_knows_nothing_of_the_end_of_a_session(end: str) -> None:
    sim = Simulation()
    first, _ = with_a_node(sim)
    first.spawn(first.sleep(60))
    performed(sim, f"run a; {end}")
    while "/x" in sim.tree.nodes:
        sim.perform(sim.steps()[0])
    assert "/x" in sim.tree_history.oldest(sim.tree.zxid - 1, sim.tree).nodes


async def _change(client: Client, *what: str) -> None:
    operations = client.world.operations
    for each in what:
        await (
            operations.create("/n/c")
            if each == "children"
            else operations.set_data("/n", each.encode())
        )


def _told_by_a_server_that_was_behind(
    watching: Callable[[Operations, list[str]], Coroutine[Any, Any, object]], now: str, later: str
) -> list[str]:
    """Of a change while it was behind, and of one after it has caught up."""
    sim, told = Simulation(), list[str]()
    make(sim, "/n")
    first, second = sim.client(), sim.client()
    first.spawn(watching(first.world.operations, told))
    performed(sim, "run a; up a; down a; run a; lag a")
    second.spawn(_change(second, now))
    performed(sim, "run b; up b; down b; run b; apply a; down a")
    second.spawn(_change(second, later))
    sim.run(InTurn())
    return told


async def _always(operations: Operations, told: list[str]) -> None:
    await operations.add_watch("/n", watch=lambda event: told.append(EventType(event.type).name))


async def _both(operations: Operations, told: list[str]) -> None:
    data = operations.get_data(
        "/n", watch=lambda event: told.append(f"data {EventType(event.type).name}")
    )
    await operations.get_children(
        "/n", watch=lambda event: told.append(f"child {EventType(event.type).name}")
    )
    await data


def test_a_watch_that_stays_outlives_a_server_that_is_behind() -> None:
    assert _told_by_a_server_that_was_behind(_always, "1", "2") == ["NODE_DATA_CHANGED"] * 2


def test_a_held_event_uses_up_no_watch_of_another_kind() -> None:
    assert _told_by_a_server_that_was_behind(_both, "children", "1") == [
        "child NODE_CHILDREN_CHANGED",
        "data NODE_DATA_CHANGED",
    ]


def test_a_watch_that_is_to_stay_brings_its_server_up_to_date() -> None:
    sim = Simulation()
    first, _ = with_a_node(sim)
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
