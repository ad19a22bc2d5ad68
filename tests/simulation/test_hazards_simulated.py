"""Hazards of the recipes, provoked where every step is chosen: in the simulation.

Each test runs the schedule of its row twice: with the real recipe, which must keep every invariant
under the row's faults at each step, and with one that has the row's bug, which must not. So each
proves by itself that it would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.support import simulation_family as family
from tests.support import simulation_locks as locks
from tests.support.simulation_family import ReadWrite, read_write, semaphore
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    SEQUENTIAL_TRY,
    Manners,
    contend,
    contenders,
    planted,
    various,
)
from zkwire.errors import SessionExpiredError
from zkwire.recipes._node import Attempt
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
from zkwire.testing.simulation.invariants import Claims, exclusive
from zkwire.testing.simulation.simulation import Schedule, Simulation
from zkwire.wire.model import DataAndStat

LOSSES = ("cut", "unsent", "linger")
BRIEF = Manners(stay=1)
# Both want the lock, and the second one gives up before the first one lets go.
IMPATIENT = Manners(patience=3.0, hold=5.0)
SEEDS = range(100)
UNTIL_FOUND = range(4000)


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a planted bug is found is enough; nobody reads how."""
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)


def assert_found(invariants: str, run: Callable[[], object]) -> None:
    """The bug breaks one of these invariants."""
    with pytest.raises(FailedRunError) as caught:
        run()
    assert caught.value.invariant in invariants.split()


def assert_swept(
    good: Scenario,
    bad: Scenario,
    faults: Iterable[str],
    invariants: str,
    base: Callable[[], Schedule] = InTurn,
) -> None:
    """Each of these faults at each step harms the bad one only."""
    faults = tuple(faults)
    sweep(good, base, faults=faults)
    assert_found(invariants, lambda: sweep(bad, base, faults=faults))


def late_first() -> Schedule:
    """What is for the first client reaches it last."""
    return InTurn("a")


# --- the fair lock --------------------------------------------------------------------------------


def test_hazard_B1_a_failure_behind_the_create_leaves_no_node() -> None:
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.SequentialNoCleaning), 2)
    assert_swept(good, bad, ("cut", "cancel"), "LIVE ORPHAN")


def test_hazard_B3_a_lost_create_is_not_repeated_blindly() -> None:
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.BlindRepeat), 2)
    assert_swept(good, bad, LOSSES, "LIVE ORPHAN")


def test_hazard_B5_the_lost_delete_of_a_failed_try() -> None:
    bad = contenders(planted(locks.StepBackOnce, wait=False), 2)
    assert_swept(contenders(SEQUENTIAL_TRY, 2), bad, (*LOSSES, "blip"), "ORPHAN")


def test_hazard_B6_the_lost_delete_of_a_timed_out_attempt() -> None:
    bad = contenders(planted(locks.SequentialOneCleaning), 2, IMPATIENT)
    assert_swept(contenders(SEQUENTIAL, 2, IMPATIENT), bad, (*LOSSES, "blip"), "ORPHAN")


@pytest.mark.parametrize("number", [1, 2])
def test_hazard_B7_an_interrupt_at_every_await(number: int) -> None:
    cancel_everywhere(contenders(SEQUENTIAL, number))
    bad = contenders(planted(locks.SequentialNoCleaning), number)
    assert_found("LIVE ORPHAN", lambda: cancel_everywhere(bad))


def test_hazard_B10_the_node_ahead_goes_before_the_look() -> None:
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.Exists), 2)
    assert_swept(good, bad, LOSSES, "LIVE")


def test_hazard_B14_order_is_by_number_and_not_by_session() -> None:
    good, bad = contenders(SEQUENTIAL, 3), contenders(planted(locks.ByName), 3)
    assert_swept(good, bad, ("cut",), "ME FIFO FENCE HERD")


def test_hazard_B20_a_holder_cut_off_or_standing_still_stops_claiming() -> None:
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.SequentialNoLease), 2)
    assert_swept(good, bad, ("partition", "pause", "expire"), "ME FENCE")


def test_hazard_B21_the_claim_ends_before_the_delete_is_sent() -> None:
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.SequentialLateEnd), 2)
    assert_swept(good, bad, LOSSES, "ME", late_first)


def test_hazard_B22_a_holder_whose_node_is_deleted_is_told() -> None:
    stay = Manners(hold=15.0)
    good, bad = (
        contenders(SEQUENTIAL, 2, stay),
        contenders(planted(locks.SequentialNoGuard), 2, stay),
    )
    assert_swept(good, bad, ("delete",), "STATE")


class Hopeful(AsyncSequentialLock):
    """Whoever has waited long enough holds, whatever became of its session meanwhile."""

    @property
    def _lasts(self) -> bool:
        return True

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        try:
            return await super()._contend(attempt, deadline, wait)
        except SessionExpiredError:
            return attempt.stat is not None

    def _grant(self, attempt: Attempt) -> None:
        assert attempt.stat is not None
        self._fence, self._granted, self._pending_cleanup = attempt.stat.czxid, attempt, None


@pytest.mark.parametrize("late", ["", "a", "b"])
def test_hazard_B23_a_waiter_whose_session_ends_is_granted_nothing(late: str) -> None:
    """At every step, so also between the holder's release and the waiter's next look."""
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(Hopeful), 2)
    assert_swept(good, bad, ("expire",), "STATE", lambda: InTurn(late))


def test_hazard_B24_a_pause_makes_no_stale_holder() -> None:
    """What it writes behind its pause is refused: see the test of the same number with a server."""
    good, bad = contenders(SEQUENTIAL, 2), contenders(planted(locks.SequentialNoLease), 2)
    assert_swept(good, bad, ("pause",), "ME FENCE", late_first)


def test_hazard_B25_a_repeated_delete_ends_with_its_session_and_hits_nobody() -> None:
    faults = ("cut", "linger", "expire", "blip", "cancel")
    explore(various(BLOCKING), SEEDS, most=4, faults=faults)
    bad = various(planted(locks.DeletesAnything))
    assert_found("ME FENCE", lambda: explore(bad, UNTIL_FOUND, most=4, faults=faults))


def test_hazard_B27_an_attempt_that_timed_out_leaves_no_watch() -> None:
    good, bad = (
        contenders(SEQUENTIAL, 2, IMPATIENT),
        contenders(planted(locks.WatchKept), 2, IMPATIENT),
    )
    assert_swept(good, bad, ("cut", "crash"), "WATCH HERD")


def test_hazard_B31_two_locks_of_one_session_are_two_contenders() -> None:
    good = contenders(SEQUENTIAL, 2, together=True)
    explore(good, SEEDS, most=3, faults=LOSSES)
    bad = contenders(planted(locks.SessionIsName), 2, together=True)
    assert_found(
        "ME FENCE ERROR LIVE FIFO ORPHAN",
        lambda: explore(bad, UNTIL_FOUND, most=3, faults=LOSSES),
    )


# --- one node -------------------------------------------------------------------------------------


def test_hazard_C1_the_own_node_is_not_somebody_elses() -> None:
    good, bad = contenders(BLOCKING, 2), contenders(planted(locks.ExistsMeansTaken), 2)
    assert_swept(good, bad, LOSSES, "LIVE ORPHAN")


def test_hazard_C3_equal_content_proves_nothing() -> None:
    """Every contender writes the same; only the owner of the node tells them apart."""

    def alike(core: type[AsyncBlockingLock]) -> Scenario:
        def scenario(sim: Simulation) -> None:
            contenders(planted(core), 2)(sim)
            for client in sim.clients:
                client.world.unique = lambda: "x"  # type: ignore[method-assign]

        return scenario

    assert_swept(alike(SameName), alike(ContentIsOwner), LOSSES, "ME FENCE STATE ORPHAN LIVE")


class SameName(AsyncBlockingLock):
    """Its content is the same for all, as a process's name would be."""

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        attempt.id = "the same"
        return await super()._contend(attempt, deadline, wait)


class ContentIsOwner(SameName):
    """A node of the same content is one's own."""

    def _is_own(self, attempt: Attempt, seen: DataAndStat) -> bool:
        return seen.data == attempt.id.encode()


def test_hazard_C4_a_late_release_leaves_the_next_owner_alone() -> None:
    faults = ("cut", "linger", "partition", "expire", "pause", "delete")
    explore(various(BLOCKING), SEEDS, most=4, faults=faults)
    bad = various(planted(locks.GrantedBesideTokens, judge=Claims))
    assert_found("STATE", lambda: explore(bad, UNTIL_FOUND, most=4, faults=["delete"]))


def test_hazard_C6_the_holder_leaves_between_the_create_and_the_look() -> None:
    exhaust(contenders(BLOCKING, 2, BRIEF), depth=10, frames=False)
    bad = contenders(planted(locks.SingleExists), 2, BRIEF)
    assert_found("LIVE", lambda: exhaust(bad, depth=13, frames=False))


def rounds(kind: locks.Kind, number: int, times: int) -> list[str]:
    """Who was granted the lock, in order, if everybody comes back at once."""
    names: list[str] = []

    def scenario(sim: Simulation) -> None:
        claims = Claims(exclusive)
        sim.checks.append(claims)
        for _ in range(number):
            client = sim.client()
            lock = kind.core(client.world, locks.PATH)
            claims.add(lock, client)
            client.spawn(contend(client, lock, Manners(rounds=times), wait=True))
        sim.checks.append(Last(claims, names))

    replay(scenario, "time")
    return names


class Last:
    """Writes down at the end whom the lock was granted to."""

    def __init__(self, claims: Claims, names: list[str]) -> None:
        self._claims, self._names = claims, names

    def step(self, sim: Simulation) -> None:
        pass

    def end(self, sim: Simulation) -> None:
        self._names += [grant.claim.client.name for grant in self._claims.grants]


def test_hazard_C8_the_fair_lock_serves_all_alike() -> None:
    """Nobody is served again before all others were, who wanted it all the time."""
    number, times = 4, 6
    names = rounds(SEQUENTIAL, number, times)
    assert len(names) == number * times
    for at in range(number, len(names), number):
        assert len(set(names[at : at + number])) == number, names


# --- the family -----------------------------------------------------------------------------------


def test_hazard_D1_a_reader_does_not_wait_for_a_later_writer() -> None:
    roles = ["write", "read", "write"]
    exhaust(read_write(roles, BRIEF), depth=6, frames=False)
    bad = read_write(roles, BRIEF, kind=ReadWrite(family.WaitsForLaterWriters))
    assert_found("LIVE FIFO ONCE", lambda: explore(bad, range(100), faults=()))


def test_hazard_D2_a_downgrade_lets_no_queued_writer_in() -> None:
    roles = ["downgrade", "write"]
    exhaust(read_write(roles, BRIEF), depth=8, frames=False)
    sweep(read_write(roles, BRIEF), faults=("cut",))
    bad = read_write(roles, BRIEF, kind=ReadWrite(family.QueuesAgain))
    assert_found("LIVE ONCE", lambda: sweep(bad, faults=()))


class LeaseKept(family.QueueKept):
    """See its base: what fails behind the create of the lease is not cleaned up."""

    def _clean_up_pending(self) -> None:
        self._pending_cleanup = None


def test_hazard_D3_a_lost_listing_behind_a_lease_costs_no_lease() -> None:
    good, bad = semaphore(1, 2, BRIEF), semaphore(1, 2, BRIEF, core=LeaseKept)
    sweep(good, faults=("cut", "linger"))
    assert_found("ORPHAN LIVE", lambda: sweep(bad, faults=("cut", "linger", "cancel")))


def test_hazard_D4_a_lease_between_its_create_and_its_hand_over() -> None:
    cancel_everywhere(semaphore(1, 2, BRIEF))
    bad = semaphore(1, 2, BRIEF, core=LeaseKept)
    assert_found("ORPHAN LIVE", lambda: cancel_everywhere(bad))


def test_hazard_D5_a_lease_whose_session_is_gone_does_not_count() -> None:
    """Holders crash or are cut off for longer than their session: the next one is served."""
    sweep(semaphore(1, 2, BRIEF), faults=("crash", "partition"))
    bad = semaphore(1, 2, BRIEF, core=family.NoWatch)
    assert_found("LIVE", lambda: sweep(bad, faults=("crash", "partition")))


@pytest.mark.parametrize("count", [1, 2])
def test_hazard_D6_tries_that_overlap_take_no_lease_too_many(count: int) -> None:
    exhaust(semaphore(count, 3, BRIEF, wait=False), depth=7, frames=False)
    manners = Manners(rounds=2, stay=9)
    bad = semaphore(count, 3, manners, core=family.OneTooMany, wait=False)
    assert_found("ME FENCE", lambda: explore(bad, UNTIL_FOUND, faults=()))


def test_hazard_D10_two_faults_make_no_second_leader() -> None:
    """An election is the fair lock; two quick losses, an expiry and a delete at any moments."""
    faults = ("cut", "linger", "expire", "delete")
    explore(contenders(SEQUENTIAL, 3, Manners(rounds=2)), SEEDS, most=2, faults=faults)
    bad = contenders(planted(locks.NoSecondLook), 3, Manners(rounds=2))
    assert_found("ME FIFO FENCE", lambda: explore(bad, UNTIL_FOUND, most=2, faults=faults))
