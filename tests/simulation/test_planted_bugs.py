"""Planted bugs: each is found, by the faults that reveal it, always in the same run.

`ZKWIRE_SIMULATION=10` lets the search go on ten times as long.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from tests.support.planted_bugs import BUGS
from zkwire.testing.simulation import FailedRunError, exhaust, explore

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
UNTIL_FOUND = int(4000 * FACTOR)


@pytest.mark.parametrize("name", [n for n, bug in BUGS.items() if FACTOR > 1 or not bug.minutes])
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    if bug.patch is not None:
        monkeypatch.setattr(*bug.patch)
    options: dict[str, Any] = {"faults": bug.faults, "tick": bug.tick}
    search = partial(explore, seeds=range(UNTIL_FOUND), most=4)
    if bug.every:
        search = partial(exhaust, most=3, frames=False)
    with pytest.raises(FailedRunError) as caught:
        search(bug.scenario(), **options)
    error = caught.value
    assert error.invariant in bug.invariants
    assert {fault.split()[0] for fault in error.faults} <= set(bug.faults)
    faults = ", ".join(error.faults) or "no fault"
    print(f"{name}: {error.invariant} by {faults}, in run {error.runs}")


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 30
