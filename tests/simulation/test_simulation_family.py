"""The rest of the family of locks in the simulated world; see test_simulation.py.

Read-write lock, semaphore and multi-lock: every single fault, a cancellation at every await, and
many random runs with several faults.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import SEED
from tests.support.simulation_family import (
    ForgetsFirstTry,
    ReadWrite,
    disagreement,
    meeting,
    multi_lock,
    read_write,
    semaphore,
    various_multi_lock,
    various_read_write,
    various_semaphore,
)
from tests.support.simulation_locks import Manners
from tests.support.simulation_parts import A_SIXTH
from zkwire.recipes.read_write import AsyncReadLock
from zkwire.testing.simulation import (
    InTurn,
    Scenario,
    Scripted,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    sweep,
)
from zkwire.testing.simulation.client import Step
from zkwire.testing.simulation.fault_choice import FAULTS

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))
RUNS = int(400 * FACTOR)

BRIEF = Manners(stay=1)

SCENARIOS: dict[str, Scenario] = {
    "reader, writer": read_write(["read", "write"], BRIEF),
    "writer, reader": read_write(["write", "read"], BRIEF),
    "downgrade, writer": read_write(["downgrade", "write"], BRIEF),
    "hasty downgrade, writer": read_write(["hasty", "write"], BRIEF),
    "semaphore of 1": semaphore(1, 2, BRIEF),
    "semaphore of 2": semaphore(2, 3, BRIEF),
    "multi-lock": multi_lock(2, BRIEF),
}
LONGEST = "semaphore of 2"
"""So long that with little time not every fault is tried."""
SOME = ("cut", "unsent", "expire", "delete", "cancel", "crash")
BRIEFLY = ("cut", "expire", "delete")
OTHERS = ("unsent", "linger", "close", "cancel", "crash")

LARGER: dict[str, Scenario] = {
    "readers and writers": read_write(["read", "write", "read", "write"], BRIEF),
    "downgrade among others": read_write(["downgrade", "write", "read"], BRIEF),
    "readers that meet": meeting(),
    "semaphore that is not there": semaphore(1, 2, BRIEF, prepared=False),
    "semaphore, try": semaphore(1, 2, BRIEF, wait=False),
    "multi-lock and lock": multi_lock(2, BRIEF, single=True),
    "multi-lock, try": multi_lock(2, BRIEF, single=True, wait=False),
    "multi-lock, limited": multi_lock(2, Manners(stay=1, patience=3.0, hold=5.0)),
}
RANDOM: dict[str, Scenario] = {
    "read-write": various_read_write(),
    "semaphore": various_semaphore(),
    "multi-lock": various_multi_lock(),
}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("late", ["", "a"])
def test_every_single_fault_at_every_sixth_step(name: str, late: str) -> None:
    faults: tuple[str, ...] = FAULTS
    if FACTOR <= 1 and (late or name == LONGEST):
        faults = OTHERS if not late else BRIEFLY if name == LONGEST else SOME
    print(sweep(SCENARIOS[name], lambda: InTurn(late), faults=faults, **A_SIXTH))


all_scenarios = {**SCENARIOS, **LARGER}
twice = [(name, second) for name in all_scenarios for second in (False, True)]
some_twice = twice if FACTOR > 1 else [(n, two) for n, two in twice if n in SCENARIOS or not two]


@pytest.mark.parametrize(("name", "slow"), some_twice)
def test_a_cancellation_at_every_await(name: str, slow: bool) -> None:
    print(cancel_everywhere(all_scenarios[name], lambda: InTurn("a" if slow else "")))


@pytest.mark.parametrize(("name", "later"), some_twice)
def test_a_cancellation_at_every_await_on_a_bad_network(name: str, later: bool) -> None:
    """A request arrives and the connection breaks before the answer: the first, or a later one."""
    turns = [Step(kind, "a") for kind in ("down", "run", "up")] * (4 if later else 1)
    script = [*turns, Step("cut", "a")]
    print(cancel_everywhere(all_scenarios[name], lambda: Scripted(script)))


@pytest.mark.parametrize("name", RANDOM)
def test_random_runs_with_several_faults(name: str) -> None:
    print(explore(RANDOM[name], range(SEED, SEED + RUNS), most=4))


def test_random_runs_with_several_servers() -> None:
    for name, scenario in RANDOM.items():
        print(name, explore(scenario, range(SEED, SEED + RUNS // 6), most=4, servers=3))


def test_two_who_do_not_agree_on_the_number() -> None:
    print(exhaust(disagreement(), faults=(), frames=False, states=2000))
    print(explore(disagreement(), range(SEED, SEED + RUNS // 8), faults=("cut", "cancel", "slow")))


HASTE = (
    "run a; up a; down a; run a; run a2; run a; linger a; run a2; late a; dial a; up a; down a; "
    "up a; down1 a; run a2; cancel a2"
)
"""The answer to a downgrade is lost, the write lock is released, and the reader cancelled."""


@pytest.mark.parametrize("core", [AsyncReadLock, ForgetsFirstTry])
def test_a_reader_beside_a_released_writer_has_one_node(core: type[AsyncReadLock]) -> None:
    scenario = read_write(["hasty"], BRIEF, kind=ReadWrite(core))
    history = replay(scenario, HASTE)
    found = history[-1].strip().startswith("ORPHAN")
    assert found == (core is ForgetsFirstTry), "\n".join(history)
    assert any("linger" in line for line in history)
    assert any("Cancelled" in line for line in history)
