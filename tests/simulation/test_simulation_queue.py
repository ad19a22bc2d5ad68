"""The queue in the simulated world; see test_simulation.py."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_parts import A_SIXTH
from tests.support.simulation_queue import PLANTED, Plan, queues, various
from zkwire.testing.simulation import (
    FailedRunError,
    InTurn,
    Scenario,
    Scripted,
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
