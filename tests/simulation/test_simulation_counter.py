"""Counters in the simulated world: every single fault, cancellations at each await, random runs."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_counter import NETWORK, PLANTED, REVEALING, adding
from tests.support.simulation_parts import A_SIXTH
from zkwire.testing.simulation import FailedRunError, InTurn, cancel_everywhere, explore, sweep

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(300 * FACTOR)


@pytest.mark.parametrize("late", ["", "a"])
def test_every_single_fault_at_every_sixth_step(late: str) -> None:
    scenario = adding(2, 2, crowded=bool(late))
    print(sweep(scenario, lambda: InTurn(late), faults=NETWORK, **A_SIXTH))


@pytest.mark.parametrize("crowded", [False, True])
def test_a_cancellation_at_every_await(crowded: bool) -> None:
    print(cancel_everywhere(adding(2, 2, crowded=crowded), lambda: InTurn("")))


@pytest.mark.parametrize(("servers", "crowded"), [(1, False), (1, True), (3, False), (3, True)])
def test_random_runs_with_several_faults(servers: int, crowded: bool) -> None:
    scenario, seeds = adding(3, 2, crowded=crowded), range(SEED, SEED + RUNS)
    print(explore(scenario, seeds, most=4, faults=NETWORK, servers=servers))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    core, invariants = PLANTED[name]
    with pytest.raises(FailedRunError) as caught:
        explore(adding(2, 2, core), range(2000), most=4, faults=REVEALING.get(name, NETWORK))
    assert caught.value.invariant in invariants
    print(f"{name}: {caught.value.invariant} by {caught.value.faults}, in run {caught.value.runs}")
