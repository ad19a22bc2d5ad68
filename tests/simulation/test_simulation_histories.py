"""What simulated histories tell of the queue, and which bugs only that shows.

Here claims are not judged as they come: only `tests.support.history` finds anything, in what was
recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.history import Record, check
from tests.support.planted_bugs import QUEUE
from tests.support.simulation_histories import Recorder, users
from tests.support.simulation_parts import planted
from zkwire.testing.simulation import FailedRunError, Seeded, explore
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.invariants import Claim
from zkwire.testing.simulation.simulation import Simulation

SEEDS = range(1000)


def anybody(_: Sequence[Claim]) -> bool:
    """A rule that lets anybody hold."""
    return True


def recorded(seed: int, faults: tuple[str, ...] = ()) -> list[Record]:
    """The history of a run, unchecked."""
    sim = Simulation(seed=seed, faults=faults)
    users(rule=anybody)(sim)
    [recorder] = [check for check in sim.checks if isinstance(check, Recorder)]
    sim.checks = [check for check in sim.checks if check is not recorder]
    schedule = Seeded(seed, 4 if faults else 0)
    while (step := schedule.next(sim)) is not None:
        sim.perform(step)
        recorder.step(sim)
    return recorder.records


def of_places(history: list[Record]) -> list[Record]:
    return [record for record in history if record.who.startswith("place ")]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_granted_has_arrived_and_left_after_it(seed: int) -> None:
    history = recorded(seed)
    grants = [record for record in history if record.what == "grant"]
    assert grants
    for grant in grants:
        arrived, left = (
            record for record in of_places(history) if record.fence == grant.fence
        )  # both, and nothing else
        assert (arrived.what, left.what) == ("arrive", "give up")
        assert arrived.at < grant.at < left.at


def test_whoever_asks_gets_it_or_gives_up() -> None:
    notes = set()
    for seed in range(60):
        open_ones = set()
        for record in recorded(seed, ("cancel",)):
            if record.what == "ask":
                assert record.who not in open_ones
                open_ones.add(record.who)
            elif record.what in ("grant", "give up"):
                open_ones.discard(record.who)
                notes.add(record.note)
        assert not open_ones
    assert notes == {"", "Cancelled"}


def test_with_faults_there_is_all_of_it() -> None:
    whats = {record.what for seed in range(60) for record in recorded(seed, FAULTS)}
    assert whats == {
        "lock", "ask", "arrive", "grant", "give up", "lose", "pause", "resume", "wake", "write",
        "read",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bug", "faults", "name", "needed"),
    [
        ("no second look", ("cancel",), "FIFO", "arrive"),
        ("lowest watched", (), "HERD", "wake"),
        ("no deadline", ("pause",), "TIME", "ask"),
    ],
)
def test_a_planted_bug_shows_in_the_history(
    bug: str, faults: tuple[str, ...], name: str, needed: str
) -> None:
    """Not without the records of that kind."""
    with planted(*QUEUE[bug]):
        histories = (recorded(seed, faults) for seed in SEEDS)
        history = next(history for history in histories if name in names(history))
        assert name not in names([record for record in history if record.what != needed])
        with pytest.raises(FailedRunError) as caught:
            explore(users(rule=anybody), seeds=SEEDS, faults=faults, most=4)
    assert caught.value.invariant == name


def names(history: list[Record]) -> set[str]:
    return {text.partition(":")[0] for text in check(history)}
