"""The queue in the simulated world; see test_simulation.py."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_parts import A_SIXTH
from tests.support.simulation_queue import PLANTED, Ledger, Plan, Queues, queues, various
from zkwire.errors import LockLostError
from zkwire.recipes.queue import Taking
from zkwire.testing.simulation import (
    FailedRunError,
    InTurn,
    Scenario,
    Scripted,
    Simulation,
    cancel_everywhere,
    explore,
    sweep,
)
from zkwire.testing.simulation.client import Step
from zkwire.testing.simulation.fault_choice import FAULTS

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(250 * FACTOR)

SCENARIOS: dict[str, Scenario] = {
    "put and get": queues(Plan()),
    "put and take": queues(Plan(consumers=("fail",))),
    "flat, get": queues(Plan(flat=True)),
    "two consumers": queues(Plan(consumers=("get", "take"), items=2, many=True)),
}

LONGEST = ("flat, get", "two consumers")
SOME = ("linger", "crash")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_single_fault_at_every_sixth_step(name: str) -> None:
    faults = SOME if FACTOR <= 1 and name in LONGEST else FAULTS
    print(sweep(SCENARIOS[name], lambda: InTurn(""), faults=faults, **A_SIXTH))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_cancellation_at_every_await(name: str, late: bool) -> None:
    turns = [Step(kind, "b") for kind in ("down", "run", "up")] * 4
    script = [*turns, Step("cut", "b")]
    make = (lambda: Scripted(script)) if late else (lambda: InTurn("a"))
    print(cancel_everywhere(SCENARIOS[name], make))


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
    flat: bool, at_work: bool, told: bool
) -> None:
    """Nor does it begin to work on that."""
    ends: list[tuple[int, str, bool]] = []

    class Noting(Taking):
        async def _leave_body(self, kind: type[BaseException] | None) -> None:
            assert self._item is not None
            lost, end = self._lost.is_set(), "removed"
            try:
                await super()._leave_body(kind)
            except LockLostError:
                end = "refused"
                raise
            finally:
                ends.append((self._item.deliveries, end, lost))

    sim, schedule = Simulation(), StandsStill(at_work, told)
    queues(Plan(consumers=("take", "take"), patience=None, flat=flat), Queues(taking=Noting))(sim)
    assert sim.run(schedule)
    assert schedule.name
    assert ends == [(2, "removed", False), *([(1, "refused", told)] * at_work)]


def test_random_runs_with_several_faults() -> None:
    print(explore(various(), range(SEED, SEED + RUNS), most=4))


def test_random_runs_with_several_servers() -> None:
    print(explore(various(), range(SEED, SEED + RUNS // 4), most=4, servers=3))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = PLANTED[name]
    scenario = various(bug.kind) if bug.plan is None else queues(bug.plan, bug.kind)
    with pytest.raises(FailedRunError) as caught:
        explore(scenario, range(int(4000 * FACTOR)), most=4, faults=bug.faults)
    assert caught.value.invariant in bug.invariants
    print(f"{name}: {caught.value.invariant} in run {caught.value.runs}")
