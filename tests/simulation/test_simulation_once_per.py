"""What is due once per period, in the simulated world: faults, cancellations, planted bugs."""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_once_per import NETWORK, PLANTED, asking
from tests.support.simulation_parts import A_SIXTH
from zkwire.recipes.once_per import AsyncOncePer
from zkwire.testing.simulation import FailedRunError, InTurn, cancel_everywhere, explore, sweep

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(200 * FACTOR)


def test_every_single_fault_at_every_sixth_step() -> None:
    print(sweep(asking(2, 2), lambda: InTurn(""), faults=NETWORK, **A_SIXTH))


def test_a_cancellation_at_every_await() -> None:
    print(cancel_everywhere(asking(2, 2), lambda: InTurn("")))


@pytest.mark.parametrize("servers", [1, 3])
def test_random_runs_with_several_faults(servers: int) -> None:
    seeds = range(SEED, SEED + RUNS)
    print(explore(asking(3, 2), seeds, most=4, faults=NETWORK, servers=servers))


@pytest.mark.parametrize("core", PLANTED, ids=lambda core: core.__name__)
def test_a_planted_bug_is_found(core: type[AsyncOncePer]) -> None:
    with pytest.raises(FailedRunError) as caught:
        explore(asking(2, 2, core), range(2000), most=4, faults=("cut", "linger", "cancel", "slow"))
    assert caught.value.invariant in PLANTED[core]
    print(f"{core.__name__}: {caught.value.invariant}, in run {caught.value.runs}")
