"""Kept nodes and groups in the simulated world; see test_simulation.py.

Every single fault, a cancellation at every await, many random runs with several faults, and
planted bugs that must be found.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_membership import (
    PLANTED,
    Life,
    NoSyncBeforeDelete,
    group,
    keepers,
    various_group,
    various_keepers,
)
from tests.support.simulation_parts import A_SIXTH
from zkwire.recipes.persistent_node import AsyncPersistentNode, PersistentModeKeeper
from zkwire.testing.simulation import (
    FailedRunError,
    InTurn,
    Scenario,
    cancel_everywhere,
    explore,
    replay,
    sweep,
)

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(300 * FACTOR)
UNTIL_FOUND = int(4000 * FACTOR)

SCENARIOS: dict[str, Scenario] = {
    "one node": keepers(1, Life(sets=2)),
    "two processes, one path": keepers(2),
    "two objects of one client": keepers(2, together=True),
    "no parent": keepers(1, prepared=False),
    "node of no session": keepers(1, Life(patience=9.0), kind=PersistentModeKeeper),
    "group": group(2),
    "group, one name": group(2, named=True),
}
RANDOM: dict[str, Scenario] = {
    "nodes": various_keepers(),
    "nodes of no session": various_keepers(PersistentModeKeeper),
    "groups": various_group(),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_single_fault_at_every_sixth_step(name: str) -> None:
    print(sweep(SCENARIOS[name], lambda: InTurn(""), **A_SIXTH))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_cancellation_at_every_await(name: str) -> None:
    print(cancel_everywhere(SCENARIOS[name], lambda: InTurn("a")))


@pytest.mark.parametrize("name", RANDOM)
def test_random_runs_with_several_faults(name: str) -> None:
    print(explore(RANDOM[name], range(SEED, SEED + RUNS), most=4))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = PLANTED[name]
    with pytest.raises(FailedRunError) as caught:
        explore(bug.scenario(), range(UNTIL_FOUND), faults=bug.faults, most=4)
    assert caught.value.invariant in bug.invariants
    assert {fault.split()[0] for fault in caught.value.faults} <= set(bug.faults)
    print(f"{name}: {caught.value.invariant}, in run {caught.value.runs}")


BEHIND = (
    "run a; run a.background; up a; cut a; cancel a; dial a; lag a; up a; down a; "
    "run a.background; up a; down a; run a.background; run a"
)
"""The reply to the create is lost, the owner closes, the next server does not know of the node."""


@pytest.mark.parametrize("kind", [AsyncPersistentNode, NoSyncBeforeDelete])
def test_a_server_that_is_behind_does_not_hide_a_node(kind: type[AsyncPersistentNode]) -> None:
    history = replay(keepers(1, Life(sets=0, stay=0), kind=kind), BEHIND)
    found = history[-1].strip().startswith("LEFT")
    assert found == (kind is NoSyncBeforeDelete), "\n".join(history)
