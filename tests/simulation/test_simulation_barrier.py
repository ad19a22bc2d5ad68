"""Double barriers in the simulated world: single faults, cancellations, random runs, bugs."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_barrier import NETWORK, PLANTED, meeting
from tests.support.simulation_parts import A_SIXTH
from zkwire.recipes.barrier import AsyncDoubleBarrier
from zkwire.testing.simulation import FailedRunError, InTurn, cancel_everywhere, explore, sweep

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(120 * FACTOR)


@pytest.mark.parametrize("late", ["", "a"])
def test_every_single_fault_at_every_sixth_step(late: str) -> None:
    print(sweep(meeting(2, 1), lambda: InTurn(late), faults=NETWORK, **A_SIXTH))


def test_a_cancellation_at_every_await() -> None:
    print(cancel_everywhere(meeting(2, 2), lambda: InTurn("")))


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(("count", "more"), [(1, 0), (2, 0), (3, 0), (2, 1)])
def test_random_runs_with_several_faults(count: int, more: int, servers: int) -> None:
    seeds = range(SEED, SEED + RUNS)
    print(explore(meeting(count, 2, more=more), seeds, most=4, faults=NETWORK, servers=servers))


@pytest.mark.parametrize("core", PLANTED, ids=lambda core: core.__name__)
def test_a_planted_bug_is_found(core: type[AsyncDoubleBarrier]) -> None:
    faults, invariants = PLANTED[core]
    with pytest.raises(FailedRunError) as caught:
        explore(meeting(2, 2, core, more=1), range(2000), most=4, faults=faults)
    assert caught.value.invariant in invariants
    print(f"{core.__name__}: {caught.value.invariant}, in run {caught.value.runs}")
