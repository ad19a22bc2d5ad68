"""Hazards of the recipes, provoked where every step is chosen: in the simulation.

Each test runs the schedule of its row twice: with the real recipe, which must keep every invariant
under the row's faults at each step, and with one that has the row's bug, which must not. So each
proves by itself that it would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.support import simulation_locks as locks
from tests.support.planted_bugs import BESIDE, QUEUE, SINGLE
from tests.support.simulation_family import BUGS, LEASE_KEPT, read_write, semaphore
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
    FailedRunError,
    InTurn,
    Scenario,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    runs,
    sweep,
)
from zkwire.testing.simulation.invariants import Claims
from zkwire.testing.simulation.simulation import Simulation

LOSSES = ("cut", "unsent", "linger")
BRIEF = Usage(stay=1)
# Both want the lock, and the second one gives up before the first one lets go.
IMPATIENT = Usage(patience=3.0, hold=5.0)
SEEDS = range(100)
UNTIL_FOUND = range(4000)
Bug = tuple[Change, ...]

late_first = partial(InTurn, "a")
"""What is for the first client reaches it last."""


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a planted bug is found is enough; nobody reads how."""
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)


def assert_found(bug: Bug, invariants: str, run: Callable[[], object]) -> None:
    """The bug breaks one of these invariants."""
    with planted(*bug, BESIDE), pytest.raises(FailedRunError) as caught:
        run()
    assert caught.value.invariant in invariants.split()


def assert_harms(bug: Bug, invariants: str, run: Callable[[], object]) -> None:
    """What is run finds the bug only."""
    run()
    assert_found(bug, invariants, run)


def assert_swept(
    bug: Bug,
    invariants: str,
    world: Scenario,
    *faults: str,
    base: Callable[[], InTurn] = InTurn,
) -> None:
    """Each of these faults at each step harms the bad one only."""
    assert_harms(bug, invariants, lambda: sweep(world, base, faults=faults))


# --- the fair lock --------------------------------------------------------------------------------

TWO = contenders(SEQUENTIAL, 2)


def test_hazard_B1_a_failure_behind_the_create_leaves_no_node() -> None:
    assert_swept(QUEUE["no cleaning"], "LIVE ORPHAN", TWO, "cut", "cancel")


def test_hazard_B3_a_lost_create_is_not_repeated_blindly() -> None:
    assert_swept(QUEUE["blind repeat"], "LIVE ORPHAN", TWO, *LOSSES)


def test_hazard_B5_the_lost_delete_of_a_failed_try() -> None:
    world = contenders(SEQUENTIAL_TRY, 2)
    assert_swept(QUEUE["step back once"], "ORPHAN", world, *LOSSES, "blip")


def test_hazard_B6_the_lost_delete_of_a_timed_out_attempt() -> None:
    world = contenders(SEQUENTIAL, 2, IMPATIENT)
    assert_swept(QUEUE["one cleaning"], "ORPHAN", world, *LOSSES, "blip")


@pytest.mark.parametrize("number", [1, 2])
def test_hazard_B7_an_interrupt_at_every_await(number: int) -> None:
    world = contenders(SEQUENTIAL, number)
    assert_harms(QUEUE["no cleaning"], "LIVE ORPHAN", lambda: cancel_everywhere(world))


def test_hazard_B10_the_node_ahead_goes_before_the_look() -> None:
    assert_swept(QUEUE["exists"], "LIVE", TWO, *LOSSES)


def test_hazard_B14_order_is_by_number_and_not_by_session() -> None:
    world = contenders(SEQUENTIAL, 3)
    assert_swept(QUEUE["by name"], "ME FIFO FENCE HERD", world, "cut")


def test_hazard_B20_a_holder_cut_off_or_standing_still_stops_claiming() -> None:
    assert_swept(QUEUE["no lease"], "ME FENCE", TWO, "partition", "pause", "expire")


def test_hazard_B21_the_claim_ends_before_the_delete_is_sent() -> None:
    assert_swept(QUEUE["late end"], "ME", TWO, *LOSSES, base=late_first)


def test_hazard_B22_a_holder_whose_node_is_deleted_is_told() -> None:
    world = contenders(SEQUENTIAL, 2, Usage(hold=15.0))
    assert_swept(QUEUE["no guard"], "STATE", world, "delete")


@pytest.mark.parametrize("late", ["", "a", "b"])
def test_hazard_B12_B23_a_waiter_whose_session_ends_is_granted_nothing(late: str) -> None:
    """At every step, so also between the holder's release and the waiter's next look."""
    assert_swept(QUEUE["hopeful"], "STATE", TWO, "expire", base=lambda: InTurn(late))


def test_hazard_B24_a_pause_makes_no_stale_holder() -> None:
    """What it writes behind its pause is refused: see the test of the same number with a server."""
    assert_swept(QUEUE["no lease"], "ME FENCE", TWO, "pause", base=late_first)


def test_hazard_B25_a_repeated_delete_ends_with_its_session_and_hits_nobody() -> None:
    faults = ("cut", "linger", "expire", "blip", "cancel")
    explore(various(BLOCKING), SEEDS, most=4, faults=faults)
    search = partial(explore, various(BLOCKING), UNTIL_FOUND, most=4, faults=faults)
    assert_found(SINGLE["deletes anything"], "ME FENCE", search)


def test_hazard_B27_an_attempt_that_timed_out_leaves_no_watch() -> None:
    world = contenders(SEQUENTIAL, 2, IMPATIENT)
    assert_swept(QUEUE["watch kept"], "WATCH HERD", world, "cut", "crash")


def test_hazard_B31_two_locks_of_one_session_are_two_contenders() -> None:
    world = contenders(SEQUENTIAL, 2, together=True)
    explore(world, SEEDS, most=3, faults=LOSSES)
    search = partial(explore, world, UNTIL_FOUND, most=3, faults=LOSSES)
    assert_found(QUEUE["session is name"], "ME FENCE ERROR LIVE FIFO ORPHAN", search)


# --- one node -------------------------------------------------------------------------------------


def test_hazard_C1_the_own_node_is_not_somebody_elses() -> None:
    world = contenders(BLOCKING, 2)
    assert_swept(SINGLE["exists means taken"], "LIVE ORPHAN", world, *LOSSES)


def test_hazard_C3_equal_content_proves_nothing() -> None:
    """Every contender writes the same; only the owner of the node tells them apart."""

    def alike(sim: Simulation) -> None:
        contenders(BLOCKING, 2)(sim)
        for client in sim.clients:
            client.world.unique = lambda: "x"  # type: ignore[method-assign]

    begin = "attempt = Attempt(runtime.session_id, runtime.unique(), (*runtime.pending_cleanups,))"
    same = Change(AsyncBlockingLock, "_acquire", begin, f"{begin}; attempt.id = 'the same'")
    bug, invariants = SINGLE["content is owner"], "ME FENCE STATE ORPHAN LIVE"
    with planted(same, BESIDE):
        assert_swept(bug, invariants, alike, *LOSSES)


def test_hazard_C4_a_late_release_leaves_the_next_owner_alone() -> None:
    faults = ("cut", "linger", "partition", "expire", "pause", "delete")
    explore(various(BLOCKING), SEEDS, most=4, faults=faults)
    with planted(*SINGLE["beside tokens"]), pytest.raises(FailedRunError, match="STATE"):
        explore(various(BLOCKING), UNTIL_FOUND, most=4, faults=["delete"])


def test_hazard_C6_the_holder_leaves_between_the_create_and_the_look() -> None:
    world = contenders(BLOCKING, 2, BRIEF)
    exhaust(world, depth=10, frames=False)
    assert_found(SINGLE["exists"], "LIVE", lambda: exhaust(world, depth=13, frames=False))


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


# --- the family -----------------------------------------------------------------------------------


def test_hazard_D1_a_reader_does_not_wait_for_a_later_writer() -> None:
    world = read_write(["write", "read", "write"], BRIEF)
    exhaust(world, depth=6, frames=False)
    search = partial(explore, world, range(100), faults=())
    assert_found(BUGS["a reader waits for later writers"].changes, "LIVE FIFO ONCE", search)


def test_hazard_D2_a_downgrade_lets_no_queued_writer_in() -> None:
    world = read_write(["downgrade", "write"], BRIEF)
    exhaust(world, depth=8, frames=False)
    sweep(world, faults=("cut",))
    assert_found(
        BUGS["a downgrade goes to the end"].changes, "LIVE ONCE", lambda: sweep(world, faults=())
    )


def test_hazard_D3_a_lost_listing_behind_a_lease_costs_no_lease() -> None:
    world = semaphore(1, 2, BRIEF)
    sweep(world, faults=("cut", "linger"))
    search = partial(sweep, world, faults=("cut", "linger", "cancel"))
    assert_found(LEASE_KEPT, "ORPHAN LIVE", search)


def test_hazard_D4_a_lease_between_its_create_and_its_hand_over() -> None:
    world = semaphore(1, 2, BRIEF)
    assert_harms(LEASE_KEPT, "ORPHAN LIVE", lambda: cancel_everywhere(world))


def test_hazard_D5_a_lease_whose_session_is_gone_does_not_count() -> None:
    """Holders crash or are cut off for longer than their session: the next one is served."""
    world = semaphore(1, 2, BRIEF)
    assert_swept(BUGS["no watch on the leases"].changes, "LIVE", world, "crash", "partition")


@pytest.mark.parametrize("count", [1, 2])
def test_hazard_D6_tries_that_overlap_take_no_lease_too_many(count: int) -> None:
    exhaust(semaphore(count, 3, BRIEF, wait=False), depth=7, frames=False)
    world = semaphore(count, 3, Usage(rounds=2, stay=9), wait=False)
    search = partial(explore, world, UNTIL_FOUND, faults=())
    assert_found(BUGS["one lease too many"].changes, "ME FENCE", search)


def test_hazard_D10_two_faults_make_no_second_leader() -> None:
    """An election is the fair lock; two quick losses, an expiry and a delete at any moments."""
    faults = ("cut", "linger", "expire", "delete")
    world = contenders(SEQUENTIAL, 3, Usage(rounds=2))
    explore(world, SEEDS, most=2, faults=faults)
    search = partial(explore, world, UNTIL_FOUND, most=2, faults=faults)
    assert_found(QUEUE["no second look"], "ME FIFO FENCE", search)
