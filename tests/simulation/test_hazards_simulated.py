"""Hazards of the recipes, provoked where every step is chosen: in the simulation.

Each row is run twice: with the real recipe, which must keep every invariant, and with one that has
the row's bug, which must not.  So each proves by itself that it would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from tests.support import simulation_locks as locks
from tests.support.planted_bugs import BESIDE, EVERY
from tests.support.simulation_family import read_write, semaphore
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    SEQUENTIAL_TRY,
    Usage,
    contend,
    contenders,
    various,
)
from tests.support.simulation_parts import Change, Judge, planted
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.simulation import (
    Claims,
    FailedRunError,
    InTurn,
    Scenario,
    Simulation,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    runs,
    sweep,
)

LOSSES = "cut unsent linger"
BRIEF = Usage(stay=1)
# Both want the lock, and the second one gives up before the first one lets go.
IMPATIENT = Usage(patience=3.0, hold=5.0)
SEEDS, UNTIL_FOUND = range(100), range(4000)


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a planted bug is found is enough; nobody reads how."""
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)


def assert_found(bug: str, invariants: str, run: Callable[[], object]) -> None:
    """The bug breaks one of these invariants."""
    changes = [change for change in EVERY[bug].changes if change is not BESIDE]
    with planted(*changes, BESIDE), pytest.raises(FailedRunError) as caught:
        run()
    assert caught.value.invariant in invariants.split()


class Row(NamedTuple):
    """A hazard: its bug, what that breaks, and where; ``late``: what comes last to this client."""

    number: str
    bug: str
    invariants: str
    world: Scenario
    faults: str = ""
    late: str = ""


def number_of(row: Row) -> str:
    return f"{row.number} {row.late}".strip()


TWO, THREE = contenders(SEQUENTIAL, 2), contenders(SEQUENTIAL, 3)
TRYING, LEASES = contenders(SEQUENTIAL_TRY, 2), semaphore(1, 2, BRIEF)
HOPEFUL = Row("B23", "hopeful", "STATE", TWO, "expire")
SWEPT = (
    # A failure behind the create leaves no node.
    Row("B1", "sequential: no cleaning", "LIVE ORPHAN", TWO, "cut cancel"),
    # A lost create is not repeated blindly.
    Row("B3", "sequential: blind repeat", "LIVE ORPHAN", TWO, LOSSES),
    # The lost delete of a failed try, and that of an attempt that timed out.
    Row("B5", "try: step back once", "ORPHAN", TRYING, f"{LOSSES} blip"),
    Row(
        *("B6", "sequential: one cleaning", "ORPHAN", contenders(SEQUENTIAL, 2, IMPATIENT)),
        f"{LOSSES} blip",
    ),
    # The node ahead goes before the look.
    Row("B10", "sequential: exists", "LIVE", TWO, LOSSES),
    # The order is by number and not by session.
    Row("B14", "sequential: by name", "ME FIFO FENCE HERD", THREE, "cut"),
    # A holder that is cut off or stands still stops claiming.
    Row("B20", "sequential: no lease", "ME FENCE", TWO, "partition pause expire"),
    # The claim ends before the delete is sent.
    Row("B21", "sequential: late end", "ME", TWO, LOSSES, "a"),
    # A holder whose node is deleted is told.
    Row(
        *("B22", "sequential: no guard", "STATE", contenders(SEQUENTIAL, 2, Usage(hold=15.0))),
        "delete",
    ),
    # A waiter whose session ends is granted nothing, at whichever step that is.
    *(HOPEFUL._replace(late=late) for late in ("", "a", "b")),
    # A pause makes no stale holder; what it writes later is refused, see the test with a server.
    Row("B24", "sequential: no lease", "ME FENCE", TWO, "pause", "a"),
    # An attempt that timed out leaves no watch.
    Row(
        *("B27", "sequential: watch kept", "WATCH HERD", contenders(SEQUENTIAL, 2, IMPATIENT)),
        "cut crash",
    ),
    # The own node is not somebody else's.
    Row("C1", "blocking: exists means taken", "LIVE ORPHAN", contenders(BLOCKING, 2), LOSSES),
    # A lease whose session is gone does not count.
    Row("D5", "semaphore: no watch on the leases", "LIVE", LEASES, "crash partition"),
)


@pytest.mark.parametrize("row", SWEPT, ids=number_of)
def test_hazard_B1_B3_B5_B6_B10_B14_B20_B21_B22_B23_B24_B27_C1_D5_swept(row: Row) -> None:
    """Each of these faults at each step harms the bad one only."""
    run = partial(sweep, row.world, partial(InTurn, row.late), faults=row.faults.split())
    run()
    assert_found(row.bug, row.invariants, run)


CANCELLED = (
    *(
        Row("B7", "sequential: no cleaning", "LIVE ORPHAN", contenders(SEQUENTIAL, number))
        for number in (1, 2)
    ),
    Row("D4", "the lease is kept", "ORPHAN LIVE", LEASES),  # between its create and its hand-over
)


@pytest.mark.parametrize("row", CANCELLED, ids=number_of)
def test_hazard_B7_D4_an_interrupt_at_every_await(row: Row) -> None:
    cancel_everywhere(row.world)
    assert_found(row.bug, row.invariants, lambda: cancel_everywhere(row.world))


EXPLORED = (
    # A repeated delete ends with its session, and hits nobody.
    Row(
        *("B25", "blocking: deletes anything", "ME FENCE", various(BLOCKING)),
        "cut linger expire blip cancel",
    ),
    # Two locks of one session are two contenders.
    Row(
        *("B31", "sequential: session is name", "ME FENCE ERROR LIVE FIFO ORPHAN"),
        contenders(SEQUENTIAL, 2, together=True),
        LOSSES,
    ),
    # A late release leaves the next owner alone.
    Row("C4", "blocking: beside tokens", "STATE ME FENCE", various(BLOCKING), "delete"),
    # An election is the fair lock; two quick losses, an expiry and a delete make no second leader.
    Row(
        *("D10", "sequential: no second look", "ME FIFO FENCE"),
        contenders(SEQUENTIAL, 3, Usage(rounds=2)),
        "cut linger expire delete",
    ),
)


@pytest.mark.parametrize("row", EXPLORED, ids=number_of)
def test_hazard_B25_B31_C4_D10_several_faults(row: Row) -> None:
    run = partial(explore, row.world, most=4, faults=row.faults.split())
    run(SEEDS)
    assert_found(row.bug, row.invariants, lambda: run(UNTIL_FOUND))


def test_hazard_C3_equal_content_proves_nothing() -> None:
    """Every contender writes the same; only the owner of the node tells them apart."""

    def alike(sim: Simulation) -> None:
        contenders(BLOCKING, 2)(sim)
        for client in sim.clients:
            client.world.unique = lambda: "x"  # type: ignore[method-assign]

    begin = "attempt = Attempt(runtime.session_id, runtime.unique(), (*runtime.pending_cleanups,))"
    same = Change(AsyncBlockingLock, "_acquire", ((begin, f"{begin}; attempt.id = 'the same'"),))
    run = partial(sweep, alike, faults=LOSSES.split())
    with planted(same, BESIDE):
        run()
    with planted(same):
        assert_found("content is owner", "ME FENCE STATE ORPHAN LIVE", run)


def test_hazard_C6_the_holder_leaves_between_the_create_and_the_look() -> None:
    world = contenders(BLOCKING, 2, BRIEF)
    exhaust(world, depth=10, frames=False)
    assert_found("blocking: exists", "LIVE", lambda: exhaust(world, depth=13, frames=False))


def test_hazard_C8_the_fair_lock_serves_all_alike() -> None:
    """Nobody is served again before all others were, who wanted it all the time."""
    number, times = 4, 6
    names: list[str] = []

    class Last(Judge):
        def end(self, sim: Simulation) -> None:
            names.extend(grant.claim.client.name for grant in claims.grants)

    claims = Claims()

    def scenario(sim: Simulation) -> None:
        sim.checks += [claims, Last()]
        for _ in range(number):
            client = sim.client()
            lock = AsyncSequentialLock(client.world, locks.PATH)
            claims.add(lock, client)
            client.spawn(contend(client, lock, Usage(rounds=times), wait=True))

    replay(scenario, "time")
    assert len(names) == number * times
    for at in range(number, len(names), number):
        assert len(set(names[at : at + number])) == number, names


def test_hazard_D1_a_reader_does_not_wait_for_a_later_writer() -> None:
    world = read_write(["write", "read", "write"], BRIEF)
    exhaust(world, depth=6, frames=False)
    search = partial(explore, world, SEEDS, faults=())
    assert_found("read-write: a reader waits for later writers", "LIVE FIFO ONCE", search)


def test_hazard_D2_a_downgrade_lets_no_queued_writer_in() -> None:
    world = read_write(["downgrade", "write"], BRIEF)
    exhaust(world, depth=8, frames=False)
    sweep(world, faults=("cut",))
    search = partial(sweep, world, faults=())
    assert_found("read-write: a downgrade goes to the end", "LIVE ONCE", search)


def test_hazard_D3_a_lost_listing_behind_a_lease_costs_no_lease() -> None:
    sweep(LEASES, faults=("cut", "linger"))
    search = partial(sweep, LEASES, faults=("cut", "linger", "cancel"))
    assert_found("the lease is kept", "ORPHAN LIVE", search)


@pytest.mark.parametrize("count", [1, 2])
def test_hazard_D6_tries_that_overlap_take_no_lease_too_many(count: int) -> None:
    exhaust(semaphore(count, 3, BRIEF, wait=False), depth=7, frames=False)
    world = semaphore(count, 3, Usage(rounds=2, stay=9), wait=False)
    search = partial(explore, world, UNTIL_FOUND, faults=())
    assert_found("semaphore: one lease too many", "ME FENCE", search)
