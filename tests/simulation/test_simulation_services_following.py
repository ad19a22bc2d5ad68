"""Watching forever in the simulated world: no fault, in no order, makes it miss the last state.

Planted bugs show that what is checked can fail.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_following import (
    FAULTS,
    PLANTED,
    Kind,
    StaysBehind,
    following,
)
from tests.support.simulation_parts import A_SIXTH
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch
from zkwire.session.watch_table import WatchTable
from zkwire.testing.simulation import (
    FailedRunError,
    InTurn,
    Simulation,
    ViolationError,
    cancel_everywhere,
    explore,
    sweep,
)

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(400 * FACTOR)
UNTIL_FOUND = int(4000 * FACTOR)

kinds = pytest.mark.parametrize("kind", [AsyncDataWatch, AsyncChildrenWatch])


@kinds
@pytest.mark.parametrize("sessions", [1, 3])
def test_many_random_runs_with_several_faults(kind: Kind, sessions: int) -> None:
    scenario = following(kind, sessions=sessions, number=5)
    seeds = range(SEED, SEED + RUNS)
    print(explore(scenario, seeds, faults=FAULTS, most=4, servers=3))


@kinds
def test_every_single_fault_at_every_sixth_step(kind: Kind) -> None:
    print(sweep(following(kind, number=2), InTurn, faults=FAULTS, seed=1, **A_SIXTH))


@kinds
def test_a_cancellation_of_the_reader_at_every_await(kind: Kind) -> None:
    print(cancel_everywhere(following(kind), faults=("cancel",)))


def behind(kind: Kind, seed: int, *, synced: bool = True) -> None:
    """A run of two sessions, the servers of which are behind one another."""
    sim = Simulation(seed=seed, faults=("lag",))
    following(kind, sessions=2, synced=synced)(sim)
    sim.run(StaysBehind(seed))


@kinds
def test_the_server_of_the_next_session_may_be_behind(kind: Kind) -> None:
    for seed in range(SEED, SEED + RUNS):
        behind(kind, seed)


# --- planted bugs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_planted_bug_is_found(kind: Kind) -> None:
    faults, invariants = PLANTED[kind]
    with pytest.raises(FailedRunError) as caught:
        explore(following(kind), range(UNTIL_FOUND), faults=faults, most=4)
    assert caught.value.invariant in invariants
    print(f"{caught.value.invariant} in run {caught.value.runs}")


def test_a_session_that_begins_without_a_sync_is_found() -> None:
    def search() -> None:
        for seed in range(UNTIL_FOUND):
            behind(AsyncDataWatch, seed, synced=False)

    with pytest.raises(ViolationError, match="ORDER"):
        search()


def test_watches_that_are_not_set_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchTable, "frames", lambda *_: iter(()))
    with pytest.raises(FailedRunError) as caught:
        explore(following(), range(UNTIL_FOUND), faults=("cut",), most=4)
    assert caught.value.invariant == "LAST"
