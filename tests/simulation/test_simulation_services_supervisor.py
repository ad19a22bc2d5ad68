"""Supervisors in the simulated world: sessions follow one another, whatever happens to them."""

from __future__ import annotations

import os

import pytest

from tests.support.simulation_supervisor import FAULTS, PLANTED, supervised
from zkwire.testing.simulation import FailedRunError, InTurn, explore, sweep

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(150 * FACTOR)
UNTIL_FOUND = int(3000 * FACTOR)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_supervisors_promise(number: int) -> None:
    print(explore(supervised(number), range(RUNS), most=5, faults=FAULTS))


def test_what_supervisors_promise_on_three_servers() -> None:
    print(explore(supervised(2), range(RUNS), most=5, faults=FAULTS, servers=3))


def test_a_later_session_sees_nothing_older_on_a_server_that_is_behind() -> None:
    print(explore(supervised(1, lagging=True), range(RUNS), most=5, faults=FAULTS))


def test_every_end_of_a_session_at_every_step() -> None:
    print(sweep(supervised(1), InTurn, faults=("expire", "abandon")))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    monkeypatch.setattr(bug.home, bug.attribute, bug.new)
    with pytest.raises(FailedRunError) as caught:
        explore(
            supervised(lagging="lag" in bug.faults), range(UNTIL_FOUND), most=4, faults=bug.faults
        )
    assert caught.value.invariant in bug.invariants
    print(f"{name}: {caught.value.invariant} in run {caught.value.runs}, {caught.value.faults}")
