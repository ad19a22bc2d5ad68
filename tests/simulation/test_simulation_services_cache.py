"""A cache in the simulated world: equal to the tree in each quiet moment, whatever happens."""

from __future__ import annotations

import os

import pytest

from tests.support.simulation_cache import FAULTS, PLANTED, mirror
from zkwire.testing.simulation import FailedRunError, explore

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(100 * FACTOR)
UNTIL_FOUND = int(2000 * FACTOR)

WORLDS = {
    "recursive": mirror(),
    "recursive, before 3.9": mirror(version="3.8"),
    "one by one": mirror(version="3.5"),
    "children": mirror(depth=1),
    "node": mirror(depth=0),
    "children, one by one": mirror(version="3.4", depth=1),
    "one by one, 3.4": mirror(version="3.4"),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_cache_is_the_tree(name: str) -> None:
    """10,000 changes in all."""
    figures = explore(WORLDS[name], range(RUNS), most=4, faults=FAULTS)
    print(f"{name}: {figures}")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    monkeypatch.setattr(bug.home, bug.attribute, bug.new)
    with pytest.raises(FailedRunError) as caught:
        explore(mirror(**bug.world), range(UNTIL_FOUND), most=4, faults=bug.faults)
    assert caught.value.invariant in bug.invariants
    print(f"{name}: {caught.value.invariant} in run {caught.value.runs}, {caught.value.faults}")
