"""Runs that chance does not make: schedules by hand, and bugs that only they show."""

from __future__ import annotations

import pytest

from tests.conftest import SEED
from tests.simulation.scenarios import BRIEF, READERS
from tests.support import simulation_following as watches
from tests.support.planted_bugs import EVERY
from tests.support.simulation_family import read_write
from tests.support.simulation_locks import BLOCKING, Usage, contenders
from tests.support.simulation_membership import Life, keepers
from tests.support.simulation_parts import FACTOR, planted
from zkwire.recipes.watching import AsyncDataWatch
from zkwire.testing.simulation import (
    Scenario,
    Simulation,
    ViolationError,
    replay,
)

BY_HAND = {
    # a's release is executed and not answered; its new server still shows its node, where b's is.
    "a claim by a node that is gone": (
        contenders(BLOCKING, 2, BRIEF),
        "run a; up a; down a; run a; run a; up a; down a; up a; cut a; run b; up b; down b; run b; "
        "run a; run a.background; dial a; lag a; up a; down a; up a; down a; run a.background; "
        "up a",
        False,
        "brief: no sync before looking",
        "STATE: b claims by a node that is gone",
    ),
    # The answer to a downgrade is lost, the write lock is released, and the reader cancelled.
    "a reader beside a released writer has one node": (
        read_write(["hasty"], BRIEF),
        "run a; up a; down a; run a; run a2; run a; linger a; run a2; late a; dial a; up a; "
        "down a; up a; down1 a; run a2; cancel a2",
        True,
        "first try forgotten",
        "ORPHAN",
    ),
    # The reply to the create is lost, the owner closes, the next server does not know of the node.
    "a server that is behind does not hide a node": (
        keepers(1, Life(sets=0, stay=0)),
        "run a; run a.background; up a; cut a; cancel a; dial a; lag a; up a; down a; "
        "run a.background; up a; down a; run a.background; run a",
        True,
        "no sync before delete",
        "LEFT",
    ),
}


@pytest.mark.parametrize("row", BY_HAND.values(), ids=BY_HAND)
def test_a_schedule_by_hand(row: tuple[Scenario, str, bool, str, str]) -> None:
    """Nothing is wrong, and with the bug it is."""
    scenario, steps, frames, bug, found = row
    told = replay(scenario, steps, frames=frames)
    assert found not in told[-1], "\n".join(told)
    for step in steps.split("; "):
        assert any(step in line for line in told), step
    with planted(*EVERY[bug].changes):
        assert found in replay(scenario, steps, frames=frames)[-1]


def test_a_guard_that_was_not_answered_is_asked_again() -> None:
    """Its watch is restored, but on a node that somebody else has made meanwhile, unheard of."""
    scenario = contenders(BLOCKING, 2, Usage(hold=15.0), together=True)
    steps = "run a; up a; delete a; down a; run a2; up a; run a; down a; cut a"
    told = replay(scenario, steps)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("get_children2" in line for line in told)


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
