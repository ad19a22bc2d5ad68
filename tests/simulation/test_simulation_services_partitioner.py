"""Partitioners in the simulated world: one owner of each item, whatever happens."""

from __future__ import annotations

import os

import pytest

from tests.support.simulation_partitioner import FAULTS, PLANTED, shared_out
from zkwire.testing.simulation import FailedRunError, explore, runs

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(40 * FACTOR)
UNTIL_FOUND = int(150 * FACTOR)


@pytest.mark.parametrize("faults", [(), FAULTS], ids=["no faults", "faults"])
def test_each_item_has_one_owner(faults: tuple[str, ...]) -> None:
    print(explore(shared_out(), range(RUNS), most=4, faults=faults))


def test_with_several_servers() -> None:
    print(explore(shared_out(), range(RUNS // 3), most=4, faults=FAULTS, servers=3))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)  # a run has a thousand steps
    monkeypatch.setattr(bug.home, bug.attribute, bug.new)
    with pytest.raises(FailedRunError) as caught:
        explore(shared_out(), range(UNTIL_FOUND), most=4, faults=bug.faults)
    assert caught.value.invariant in bug.invariants
    print(f"{name}: {caught.value.invariant} in run {caught.value.runs}, {caught.value.faults}")
