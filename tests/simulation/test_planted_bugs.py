"""Planted bugs: each is found, by the faults that reveal it, always in the same run."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.planted_bugs import BUGS
from tests.support.simulation_parts import FACTOR, planted
from zkwire.testing.simulation import FailedRunError, exhaust, explore, runs

UNTIL_FOUND = int(4000 * FACTOR)


@pytest.mark.parametrize(
    "name", [n for n, bug in BUGS.items() if FACTOR > 1 or "minutes" not in bug.how]
)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)  # that it is found is enough
    search = partial(explore, seeds=range(UNTIL_FOUND), most=4)
    if "every" in bug.how:
        search = partial(exhaust, most=3, frames=False)
    faults = tuple(bug.faults.split())
    with planted(*bug.changes), pytest.raises(FailedRunError) as caught:
        search(bug.scenario, faults=faults, tick=0.25 if "tick" in bug.how else 2.0)
    error = caught.value
    print(f"{name}: {error.invariant} by {error.faults or 'no fault'}, in run {error.runs}")
    assert error.invariant in bug.invariants.split()
    assert {fault.split()[0] for fault in error.faults} <= set(faults)
