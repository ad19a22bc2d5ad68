"""All recipes and services in the simulated world: no fault, at no place, breaks what they promise.

For each world: every single fault at every sixth step, a cancellation at every await, and many
random runs with several faults.  Planted bugs are in test_planted_bugs.py; how much is made, and
how a failure is seen again, says test_simulation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.conftest import SEED
from tests.support import simulation_following as watches
from tests.support import simulation_supervisor as supervisors
from tests.support.planted_bugs import FAMILY
from tests.support.simulation_barrier import meeting as entering
from tests.support.simulation_cache import FAULTS as CACHE_FAULTS
from tests.support.simulation_cache import mirror
from tests.support.simulation_counter import adding
from tests.support.simulation_family import (
    disagreement,
    meeting,
    multi_lock,
    read_write,
    semaphore,
    various_multi_lock,
    various_read_write,
    various_semaphore,
)
from tests.support.simulation_locks import Manners
from tests.support.simulation_membership import (
    NO_SYNC_BEFORE_DELETE,
    Life,
    group,
    keepers,
    various_group,
    various_keepers,
)
from tests.support.simulation_once_per import asking
from tests.support.simulation_partitioner import FAULTS as PARTITIONER_FAULTS
from tests.support.simulation_partitioner import shared_out
from tests.support.simulation_parts import A_SIXTH, FACTOR, NETWORK, planted
from tests.support.simulation_queue import Ledger, Plan, queues, various
from zkwire.errors import LockLostError
from zkwire.recipes.persistent_node import PersistentModeKeeper
from zkwire.recipes.queue import Taking
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch
from zkwire.testing.simulation import (
    InTurn,
    Scenario,
    Scripted,
    ViolationError,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    sweep,
)
from zkwire.testing.simulation.client import Step
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.simulation import Schedule, Simulation

LITTLE = FACTOR <= 1
BRIEF = Manners(stay=1)
SOME = ("cut", "unsent", "expire", "delete", "cancel", "crash")
"""With little time not every fault is tried where what is for the first client comes late."""

LOCKS: dict[str, Scenario] = {
    "reader, writer": read_write(["read", "write"], BRIEF),
    "writer, reader": read_write(["write", "read"], BRIEF),
    "downgrade, writer": read_write(["downgrade", "write"], BRIEF),
    "hasty downgrade, writer": read_write(["hasty", "write"], BRIEF),
    "semaphore of 1": semaphore(1, 2, BRIEF),
    "semaphore of 2": semaphore(2, 3, BRIEF),
    "multi-lock": multi_lock(2, BRIEF),
}
LARGER: dict[str, Scenario] = {
    "readers and writers": read_write(["read", "write", "read", "write"], BRIEF),
    "downgrade among others": read_write(["downgrade", "write", "read"], BRIEF),
    "readers that meet": meeting(),
    "semaphore that is not there": semaphore(1, 2, BRIEF, prepared=False),
    "semaphore, try": semaphore(1, 2, BRIEF, wait=False),
    "multi-lock and lock": multi_lock(2, BRIEF, single=True),
    "multi-lock, try": multi_lock(2, BRIEF, single=True, wait=False),
    "multi-lock, limited": multi_lock(2, Manners(stay=1, patience=3.0, hold=5.0)),
}
QUEUES: dict[str, Scenario] = {
    "put and get": queues(Plan()),
    "put and take": queues(Plan(consumers=("fail",))),
    "flat, get": queues(Plan(flat=True)),
    "two consumers": queues(Plan(consumers=("get", "take"), items=2, many=True)),
}
MEMBERS: dict[str, Scenario] = {
    "one node": keepers(1, Life(sets=2)),
    "two processes, one path": keepers(2),
    "two objects of one client": keepers(2, together=True),
    "no parent": keepers(1, prepared=False),
    "node of no session": keepers(1, Life(patience=9.0), kind=PersistentModeKeeper),
    "group": group(2),
    "group, one name": group(2, named=True),
}
READERS: dict[str, watches.Kind] = {"data": AsyncDataWatch, "children": AsyncChildrenWatch}

late = partial(InTurn, "a")
"""What is for the first client reaches it last."""

# --- every fault ----------------------------------------------------------------------------------


def sweeps() -> Iterator[tuple[str, Scenario, Callable[[], Schedule], tuple[str, ...], int]]:
    """Name, world, schedule, faults and seed of each."""
    for name, world in LOCKS.items():
        long = name == "semaphore of 2"
        first = ("unsent", "linger", "close", "cancel", "crash") if long and LITTLE else FAULTS
        second = ("cut", "expire", "delete") if long else SOME
        yield name, world, InTurn, first, 0
        yield f"{name}, late", world, late, second if LITTLE else FAULTS, 0
    for name, world in QUEUES.items():
        long = LITTLE and name in ("flat, get", "two consumers")
        yield name, world, InTurn, ("linger", "crash") if long else FAULTS, 0
    for name, world in MEMBERS.items():
        yield name, world, InTurn, FAULTS, 0
    for name, kind in READERS.items():
        yield name, watches.following(kind, number=2), InTurn, watches.FAULTS, 1
    yield "counter", adding(2, 2), InTurn, NETWORK, 0
    yield "crowded counter", adding(2, 2, crowded=True), late, NETWORK, 0
    yield "barrier", entering(2, 1), InTurn, NETWORK, 0
    yield "barrier, late", entering(2, 1), late, NETWORK, 0
    yield "once per", asking(2, 2), InTurn, NETWORK, 0


SWEEPS = list(sweeps())


@pytest.mark.parametrize(
    ("world", "schedule", "faults", "seed"), [row[1:] for row in SWEEPS], ids=[r[0] for r in SWEEPS]
)
def test_every_single_fault_at_every_sixth_step(
    world: Scenario, schedule: Callable[[], Schedule], faults: tuple[str, ...], seed: int
) -> None:
    print(sweep(world, schedule, faults=faults, seed=seed, **A_SIXTH))


def test_every_end_of_a_session_at_every_step() -> None:
    print(sweep(supervisors.supervised(1), InTurn, faults=("expire", "abandon")))


# --- cancellation ---------------------------------------------------------------------------------


def broken(who: str, turns: int) -> Callable[[], Schedule]:
    """A request arrives and the connection breaks before the answer, after so many turns."""
    steps = [Step(kind, who) for kind in ("down", "run", "up")] * turns
    return lambda: Scripted([*steps, Step("cut", who)])


def cancellations() -> Iterator[tuple[str, Scenario, Callable[[], Schedule]]]:
    for name, world in {**LOCKS, **LARGER}.items():
        yield name, world, InTurn
        yield f"{name}, on a bad network", world, broken("a", 1)
        if name in LOCKS or not LITTLE:
            yield f"{name}, late", world, late
            yield f"{name}, on a bad network, later", world, broken("a", 4)
    for name, world in QUEUES.items():
        yield name, world, late
        yield f"{name}, on a bad network", world, broken("b", 4)
    for name, world in MEMBERS.items():
        yield name, world, late
    for name, kind in READERS.items():
        yield name, watches.following(kind), InTurn
    yield "counter", adding(2, 2), InTurn
    yield "crowded counter", adding(2, 2, crowded=True), InTurn
    yield "barrier", entering(2, 2), InTurn
    yield "once per", asking(2, 2), InTurn


CANCELLATIONS = list(cancellations())


@pytest.mark.parametrize(
    ("world", "schedule"), [row[1:] for row in CANCELLATIONS], ids=[r[0] for r in CANCELLATIONS]
)
def test_a_cancellation_at_every_await(world: Scenario, schedule: Callable[[], Schedule]) -> None:
    print(cancel_everywhere(world, schedule))


# --- many faults ----------------------------------------------------------------------------------


def random_runs() -> Iterator[tuple[str, Scenario, int, tuple[str, ...], int]]:
    """Name, world, number of runs, faults and servers of each."""
    for name, world, runs, servers in (
        ("read-write", various_read_write(), 400, 66),
        ("semaphore", various_semaphore(), 400, 66),
        ("multi-lock", various_multi_lock(), 400, 66),
        ("queue", various(), 250, 62),
        ("nodes", various_keepers(), 300, 0),
        ("nodes of no session", various_keepers(PersistentModeKeeper), 300, 0),
        ("groups", various_group(), 300, 0),
    ):
        yield name, world, runs, FAULTS, 1
        if servers:
            yield f"{name}, servers", world, servers, FAULTS, 3
    for name, world, runs in (
        ("counter", adding(3, 2), 300),
        ("crowded counter", adding(3, 2, crowded=True), 300),
        *((f"barrier of {count}", entering(count, 2), 120) for count in (1, 2, 3)),
        ("barrier of 2 of 3", entering(2, 2, more=1), 120),
        ("once per", asking(3, 2), 200),
    ):
        yield name, world, runs, NETWORK, 1
        yield f"{name}, servers", world, runs, NETWORK, 3
    for name, kind in READERS.items():
        for sessions in (1, 3):
            world = watches.following(kind, sessions=sessions, number=5)
            yield f"{name}, {sessions} sessions", world, 400, watches.FAULTS, 3
    for name, world in {
        "recursive": mirror(),
        "recursive, before 3.9": mirror(version="3.8"),
        "one by one": mirror(version="3.5"),
        "node and children": mirror(depth=1),
        "node": mirror(depth=0),
        "node and children, one by one": mirror(version="3.4", depth=1),
        "one by one, 3.4": mirror(version="3.4"),
    }.items():
        yield f"cache, {name}", world, 100, CACHE_FAULTS, 1
    for number in (1, 2, 3):
        world = supervisors.supervised(number)
        yield f"{number} supervisors", world, 150, supervisors.FAULTS, 1
    yield "supervisors, servers", supervisors.supervised(2), 150, supervisors.FAULTS, 3
    # A later session sees nothing older, although its server is behind.
    lagging = supervisors.supervised(1, lagging=True)
    yield "supervisor, behind", lagging, 150, supervisors.FAULTS, 1
    yield "partitioner, no faults", shared_out(), 40, (), 1
    yield "partitioner", shared_out(), 40, PARTITIONER_FAULTS, 1
    yield "partitioner, servers", shared_out(), 13, PARTITIONER_FAULTS, 3


RANDOM = list(random_runs())


@pytest.mark.parametrize(
    ("world", "runs", "faults", "servers"), [row[1:] for row in RANDOM], ids=[r[0] for r in RANDOM]
)
def test_random_runs_with_several_faults(
    world: Scenario, runs: int, faults: tuple[str, ...], servers: int
) -> None:
    most = 5 if faults == supervisors.FAULTS else 4
    seeds = range(SEED, SEED + int(runs * FACTOR))
    print(explore(world, seeds, most=most, faults=faults, servers=servers))


# --- runs that chance does not make ---------------------------------------------------------------


def test_two_who_do_not_agree_on_the_number() -> None:
    print(exhaust(disagreement(), faults=(), frames=False, states=2000))
    seeds = range(SEED, SEED + int(50 * FACTOR))
    print(explore(disagreement(), seeds, faults=("cut", "cancel", "slow")))


HASTE = (
    "run a; up a; down a; run a; run a2; run a; linger a; run a2; late a; dial a; up a; down a; "
    "up a; down1 a; run a2; cancel a2"
)
"""The answer to a downgrade is lost, the write lock is released, and the reader cancelled."""


def test_a_reader_beside_a_released_writer_has_one_node() -> None:
    world = read_write(["hasty"], BRIEF)
    history = replay(world, HASTE)
    assert "ORPHAN" not in history[-1], "\n".join(history)
    assert any("linger" in line for line in history)
    assert any("Cancelled" in line for line in history)
    with planted(*FAMILY["a first try is forgotten"]):
        assert "ORPHAN" in replay(world, HASTE)[-1]


BEHIND = (
    "run a; run a.background; up a; cut a; cancel a; dial a; lag a; up a; down a; "
    "run a.background; up a; down a; run a.background; run a"
)
"""The reply to the create is lost, the owner closes, the next server does not know of the node."""


def test_a_server_that_is_behind_does_not_hide_a_node() -> None:
    world = keepers(1, Life(sets=0, stay=0))
    history = replay(world, BEHIND)
    assert "LEFT" not in history[-1], "\n".join(history)
    with planted(NO_SYNC_BEFORE_DELETE):
        assert "LEFT" in replay(world, BEHIND)[-1]


def behind(kind: watches.Kind, seed: int, *, synced: bool = True) -> None:
    """A run of two sessions, the servers of which are behind one another."""
    sim = Simulation(seed=seed, faults=("lag",))
    watches.following(kind, sessions=2, synced=synced)(sim)
    sim.run(watches.StaysBehind(seed))


@pytest.mark.parametrize("kind", READERS.values(), ids=READERS)
def test_the_server_of_the_next_session_may_be_behind(kind: watches.Kind) -> None:
    for seed in range(SEED, SEED + int(400 * FACTOR)):
        behind(kind, seed)

    def search() -> None:
        for seed in range(int(4000 * FACTOR)):
            behind(AsyncDataWatch, seed, synced=False)

    with pytest.raises(ViolationError, match="ORDER"):
        search()


class StandsStill(InTurn):
    """The first consumer stands still for longer than its session lives.

    ``at_work``: in the body, and not before it, with the reply that says that it has a claim.
    ``told``: then it learns of the end of its session before it goes on, and not after that.
    """

    def __init__(self, at_work: bool, told: bool) -> None:
        super().__init__()
        self._at_work = at_work
        self._next = "turn" if told else "run"
        self.name = ""

    def next(self, sim: Simulation) -> Step | None:
        if not self.name:
            self.name = self._consumer(sim)
            if self.name:
                return Step("pause", self.name)
        step = Step(self._next, self.name)
        return step if step in sim.steps() else super().next(sim)

    def _consumer(self, sim: Simulation) -> str:
        if self._at_work:
            [ledger] = sim.checks
            assert isinstance(ledger, Ledger)
            return next((client.name for client, _ in ledger.working.values()), "")
        for client in sim.clients:
            claims = [p for p in sim.tree.ephemerals(client.session.session_id) if "/taken/" in p]
            if claims and client.link is not None and not client.link.down:
                return client.name
        return ""


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("at_work", [True, False])
@pytest.mark.parametrize("flat", [False, True])
def test_a_consumer_that_stood_still_does_not_remove_what_another_has(
    flat: bool, at_work: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it begin to work on that."""
    ends: list[tuple[int, str, bool]] = []
    leave_body = Taking._leave_body

    async def noted(taking: Taking, kind: type[BaseException] | None) -> None:
        assert taking._item is not None
        lost, end = taking._lost.is_set(), "removed"
        try:
            await leave_body(taking, kind)
        except LockLostError:
            end = "refused"
            raise
        finally:
            ends.append((taking._item.deliveries, end, lost))

    monkeypatch.setattr(Taking, "_leave_body", noted)
    sim, schedule = Simulation(), StandsStill(at_work, told)
    queues(Plan(consumers=("take", "take"), patience=None, flat=flat))(sim)
    assert sim.run(schedule)
    assert schedule.name
    assert ends == [(2, "removed", False), *([(1, "refused", told)] * at_work)]
