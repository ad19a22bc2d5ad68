"""Hazards of the recipes, provoked where every step is chosen: in the simulation.

That a recipe keeps its invariants under each fault at each step, test_simulation.py shows; here a
recipe with a hazard's bug does not, always in the same run.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.planted_bugs import BESIDE, BUGS, EVERY
from tests.support.simulation_locks import BLOCKING, PATH, SEQUENTIAL, Usage, contend, contenders
from tests.support.simulation_parts import FACTOR, Change, Judge, planted
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.simulation import (
    Claims,
    FailedRunError,
    Simulation,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    runs,
    sweep,
)

UNTIL_FOUND = int(4000 * FACTOR)
QUICK = [name for name, bug in BUGS.items() if FACTOR > 1 or "minutes" not in bug.how]


@pytest.fixture(autouse=True)
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a planted bug is found is enough; nobody reads how."""
    monkeypatch.setattr(runs, "_SHRINKING_RUNS", 0)


def assert_found(name: str) -> None:
    """By the faults that reveal it, and by nothing else than what it breaks."""
    bug = BUGS[name]
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


def of_worlds(*worlds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [n for n in QUICK if n.startswith(worlds)])


FAIR, SINGLE = ("sequential", "try", "alone"), ("blocking", "brief")
FAMILY = ("read-write", "readers", "semaphore", "disagreement", "multi-lock")


BOTH = [n for n in QUICK if "blocking" + n.removeprefix("sequential") in {*BUGS} - {n}]


@pytest.mark.parametrize("name", BOTH)
def test_hazard_A6_B6_B11_B12_B20_B21_B24_B32_D10_of_both_kinds(name: str) -> None:
    assert_found(name)


@pytest.mark.parametrize("name", [n for n in QUICK if n.startswith("sequential") and n not in BOTH])
def test_hazard_B1_B2_B3_B4_B9_B10_B14_B16_B22_B23_B27_B28_B31_B35_C5_fair(name: str) -> None:
    assert_found(name)


@of_worlds("try", "alone")
def test_hazard_B5_B30_of_one_try(name: str) -> None:
    assert_found(name)


@of_worlds(*SINGLE)
def test_hazard_B25_C1_C4_C6_of_a_lock_of_one_node(name: str) -> None:
    assert_found(name)


@of_worlds(*FAMILY)
def test_hazard_D1_D2_D3_D4_D5_D6_D9_of_the_family_of_locks(name: str) -> None:
    assert_found(name)


@pytest.mark.parametrize("name", [n for n in QUICK if not n.startswith((*FAIR, *SINGLE, *FAMILY))])
def test_a_planted_bug_is_found(name: str) -> None:
    assert_found(name)


@pytest.mark.parametrize("number", [1, 2])
def test_hazard_B7_an_interrupt_at_every_await(number: int) -> None:
    world = contenders(SEQUENTIAL, number)
    cancel_everywhere(world)
    with (
        planted(*EVERY["sequential: no cleaning"].changes),
        pytest.raises(FailedRunError, match=r"LIVE|ORPHAN"),
    ):
        cancel_everywhere(world)


def test_hazard_C2_C3_equal_content_proves_nothing() -> None:
    """Every contender writes the same; only the owner of the node tells them apart."""

    def alike(sim: Simulation) -> None:
        contenders(BLOCKING, 2)(sim)
        for client in sim.clients:
            client.world.unique = lambda: "x"  # type: ignore[method-assign]

    begin = "attempt = Attempt(runtime)"
    same = Change(AsyncBlockingLock, "_acquire", ((begin, f"{begin}; attempt.id = 'the same'"),))
    run = partial(sweep, alike, faults=("cut", "unsent", "linger"))
    with planted(same, BESIDE):
        run()
        with planted(*EVERY["content is owner"].changes), pytest.raises(FailedRunError):
            run()


def test_hazard_C8_the_fair_lock_serves_all_alike() -> None:
    """Nobody is served again before all others were, who wanted it all the time."""
    number, times = 4, 6
    names: list[str] = []

    class Last(Judge):
        def end(self, sim: Simulation) -> None:
            names.extend(grant.claim.client.name for grant in claims.grants)

    claims = Claims()

    def scenario(sim: Simulation) -> None:
        sim.checks += [claims, Last()]
        for _ in range(number):
            client = sim.client()
            lock = AsyncSequentialLock(client.world, PATH)
            claims.add(lock, client)
            client.spawn(contend(client, lock, Usage(rounds=times)))

    replay(scenario, "time")
    assert len(names) == number * times
    for at in range(number, len(names), number):
        assert len(set(names[at : at + number])) == number, names
