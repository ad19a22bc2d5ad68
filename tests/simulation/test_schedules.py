"""Runs that chance does not make: schedules by hand, and bugs that only they show."""

from __future__ import annotations

import pytest

from tests.conftest import SEED
from tests.simulation.scenarios import BRIEF, READERS
from tests.support import simulation_following as watches
from tests.support.planted_bugs import SINGLE
from tests.support.simulation_family import FIRST_TRY_FORGOTTEN, disagreement, read_write
from tests.support.simulation_locks import BLOCKING, Usage, contenders
from tests.support.simulation_membership import NO_SYNC_BEFORE_DELETE, Life, keepers
from tests.support.simulation_parts import FACTOR, Change, planted
from tests.support.simulation_queue import Ledger, Plan, queues
from zkwire.errors import LockLostError
from zkwire.recipes.queue import Taking
from zkwire.recipes.watching import AsyncDataWatch
from zkwire.testing.simulation import (
    InTurn,
    Scenario,
    Simulation,
    Step,
    ViolationError,
    exhaust,
    explore,
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
        SINGLE["no sync before looking"],
        "STATE: b claims by a node that is gone",
    ),
    # The answer to a downgrade is lost, the write lock is released, and the reader cancelled.
    "a reader beside a released writer has one node": (
        read_write(["hasty"], BRIEF),
        "run a; up a; down a; run a; run a2; run a; linger a; run a2; late a; dial a; up a; "
        "down a; up a; down1 a; run a2; cancel a2",
        True,
        FIRST_TRY_FORGOTTEN,
        "ORPHAN",
    ),
    # The reply to the create is lost, the owner closes, the next server does not know of the node.
    "a server that is behind does not hide a node": (
        keepers(1, Life(sets=0, stay=0)),
        "run a; run a.background; up a; cut a; cancel a; dial a; lag a; up a; down a; "
        "run a.background; up a; down a; run a.background; run a",
        True,
        (NO_SYNC_BEFORE_DELETE,),
        "LEFT",
    ),
}


@pytest.mark.parametrize("row", BY_HAND.values(), ids=BY_HAND)
def test_a_schedule_by_hand(row: tuple[Scenario, str, bool, tuple[Change, ...], str]) -> None:
    """Nothing is wrong, and with the bug it is."""
    scenario, steps, frames, bug, found = row
    told = replay(scenario, steps, frames=frames)
    assert found not in told[-1], "\n".join(told)
    for step in steps.split("; "):
        assert any(step in line for line in told), step
    with planted(*bug):
        assert found in replay(scenario, steps, frames=frames)[-1]


def test_a_guard_that_was_not_answered_is_asked_again() -> None:
    """Its watch is restored, but on a node that somebody else has made meanwhile, unheard of."""
    scenario = contenders(BLOCKING, 2, Usage(hold=15.0), together=True)
    steps = "run a; up a; delete a; down a; run a2; up a; run a; down a; cut a"
    told = replay(scenario, steps)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("get_children2" in line for line in told)


def test_hazard_D9_two_who_do_not_agree_on_the_number() -> None:
    print(exhaust(disagreement(), faults=(), frames=False, states=2000))
    seeds = range(SEED, SEED + int(50 * FACTOR))
    print(explore(disagreement(), seeds, faults=("cut", "cancel", "slow")))


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
