"""The locks in the simulated world: every order of events within bounds, every single fault, and
many random runs with several.  Planted bugs are in test_planted_bugs.py.

`ZKWIRE_SIMULATION=10` makes ten times as many random runs, and `ZKWIRE_SEED` other ones. A failure
names what to give to `zkwire.testing.simulation.replay`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conftest import SEED
from tests.support.planted_bugs import SINGLE
from tests.support.simulation_locks import (
    BLOCKING,
    KINDS,
    SEQUENTIAL,
    Kind,
    Manners,
    contenders,
    various,
)
from tests.support.simulation_parts import A_SIXTH, FACTOR, planted
from zkwire.testing.simulation import (
    InTurn,
    Scripted,
    Seeded,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    sweep,
)
from zkwire.testing.simulation.client import Step
from zkwire.testing.simulation.fault_choice import FAULTS

RUNS = int(1200 * FACTOR)
BRIEF = Manners(stay=1)

all_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@all_kinds
@pytest.mark.parametrize(
    ("number", "together", "depth"), [(2, False, 15), (3, False, 9), (2, True, 8)]
)
def test_every_order(kind: Kind, number: int, together: bool, depth: int) -> None:
    """So many steps, or with more time as far as it goes."""
    bounds: dict[str, Any] = {"runs": int(5000 * FACTOR)} if FACTOR > 1 else {"depth": depth}
    print(exhaust(contenders(kind, number, BRIEF, together=together), **bounds, frames=together))


# --- every fault ----------------------------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("late", ["", "a", "b"])
def test_every_single_fault_at_every_sixth_step(kind: Kind, late: str) -> None:
    print(sweep(contenders(kind, 2), lambda: InTurn(late), faults=FAULTS, **A_SIXTH))


@all_kinds
@pytest.mark.parametrize(
    ("number", "manners"),
    [(3, Manners(patience=9.0)), (2, Manners(give=0.0)), (2, Manners(give=3.0))],
    ids=["three of whom none waits for ever", "a release at once", "a release in time"],
)
def test_every_single_fault_where_time_is_limited(
    kind: Kind, number: int, manners: Manners
) -> None:
    print(sweep(contenders(kind, number, manners), InTurn, faults=FAULTS, **A_SIXTH))


@all_kinds
def test_every_single_fault_when_the_parent_is_missing(kind: Kind) -> None:
    scenario = contenders(kind, 2, prepared=False)
    base = partial(Seeded, SEED)
    print(sweep(scenario, base, seed=SEED, servers=2, faults=FAULTS, **A_SIXTH))


@pytest.mark.parametrize("kind", [BLOCKING, SEQUENTIAL], ids=lambda kind: kind.name)
def test_a_client_that_is_being_closed_claims_nothing(kind: Kind) -> None:
    sweep(contenders(kind, 2), lambda: InTurn("a"), faults=["close"])


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.queue], ids=lambda kind: kind.name)
def test_an_outsider_who_deletes_the_node_causes_no_deadlock(kind: Kind) -> None:
    seeds = range(SEED, SEED + RUNS // 4)
    print(explore(various(kind), seeds, faults=["delete", "cut", "slow"]))


def test_a_guard_that_was_not_answered_is_asked_again() -> None:
    """Its watch is restored, but on a node that somebody else has made meanwhile, unheard of."""
    scenario = contenders(BLOCKING, 2, Manners(hold=15.0), together=True)
    steps = "run a; up a; delete a; down a; run a2; up a; run a; down a; cut a"
    told = replay(scenario, steps)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("get_children2" in line for line in told)


TAKEN = (
    "run a; up a; down a; run a; run a; up a; down a; up a; cut a; run b; up b; down b; run b; "
    "run a; run a.background; dial a; lag a; up a; down a; up a; down a; run a.background; up a"
)
"""a's release is executed and not answered; its new server still shows its node, where b's is."""


def test_a_claim_by_a_node_that_is_gone_is_found() -> None:
    world = contenders(BLOCKING, 2, BRIEF)
    told = replay(world, TAKEN, frames=False)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("lag a" in line for line in told)
    with planted(*SINGLE["no sync before looking"]):
        told = replay(world, TAKEN, frames=False)
    assert told[-1].strip() == "STATE: b claims by a node that is gone", "\n".join(told)


# --- cancellation, and many faults ----------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("late", ["", "a", "b"])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_cancellation_at_every_await(kind: Kind, late: str, prepared: bool) -> None:
    for number in (1, 2, 3):
        scenario = contenders(kind, number, Manners(rounds=2), prepared=prepared)
        print(cancel_everywhere(scenario, lambda: InTurn(late)))


@all_kinds
def test_a_cancellation_at_every_await_on_a_bad_network(kind: Kind) -> None:
    cut = [Step("run", "a"), Step("up", "a"), Step("cut", "a")]
    print(cancel_everywhere(contenders(kind, 2), lambda: Scripted(cut)))


@all_kinds
def test_random_runs_with_several_faults(kind: Kind) -> None:
    print(explore(various(kind), range(SEED, SEED + RUNS), most=5, faults=FAULTS))


def test_random_runs_with_several_servers() -> None:
    seeds = range(SEED, SEED + RUNS // 2)
    print(explore(various(SEQUENTIAL), seeds, most=5, servers=3, faults=FAULTS))
