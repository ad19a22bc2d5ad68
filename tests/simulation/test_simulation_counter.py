"""Counters in the simulated world: every single fault, cancellations at each await, random runs."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_counter import NETWORK, PLANTED, REVEALING, adding
from zkwire.testing.simulation import FailedRunError, InTurn, cancel_everywhere, explore, sweep

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(300 * FACTOR)


@pytest.mark.parametrize("late", ["", "a"])
def test_every_single_fault_at_every_step(late: str) -> None:
    print(sweep(adding(2, 2), lambda: InTurn(late), faults=NETWORK))


def test_a_cancellation_at_every_await() -> None:
    print(cancel_everywhere(adding(3, 2), lambda: InTurn("")))


@pytest.mark.parametrize("servers", [1, 3])
def test_random_runs_with_several_faults(servers: int) -> None:
    seeds = range(SEED, SEED + RUNS)
    print(explore(adding(3, 2), seeds, most=4, faults=NETWORK, servers=servers))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    core, invariants = PLANTED[name]
    with pytest.raises(FailedRunError) as caught:
        explore(adding(2, 2, core), range(2000), most=4, faults=REVEALING.get(name, NETWORK))
    assert caught.value.invariant in invariants
    print(f"{name}: {caught.value.invariant} by {caught.value.faults}, in run {caught.value.runs}")
