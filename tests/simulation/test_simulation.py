"""Every order of events within bounds, every single fault, every cancellation, and random runs.

Planted bugs, and so that each check can fail, are in test_hazards_simulated.py.
`ZKWIRE_SIMULATION=10` makes ten times as many random runs, and `ZKWIRE_SEED` other ones. A failure
names what to give to `zkwire.testing.simulation.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.conftest import SEED
from tests.simulation.planted_bugs import EVERY
from tests.simulation.scenarios import (
    BRIEF,
    LARGER,
    LOCKS,
    MEMBERS,
    QUEUES,
    RANDOM,
    READERS,
    SIMPLE,
)
from tests.support import simulation_sessions as sessions
from tests.support.simulation_locks import BLOCKING, KINDS, Kind, Usage, contenders, read_write
from tests.support.simulation_parts import A_SIXTH, FACTOR, NETWORK, lives, planted
from tests.support.simulation_shared import KeptNodes, Life
from zkwire.testing.simulation import (
    FAULTS,
    InTurn,
    Scenario,
    Schedule,
    Scripted,
    Seeded,
    Step,
    cancel_everywhere,
    exhaust,
    explore,
    replay,
    sweep,
)

LITTLE = FACTOR <= 1
SOME = ("cut", "unsent", "expire", "delete", "cancel", "crash")
"""With little time not every fault is tried where what is for the first client comes late."""

late = partial(InTurn, "a")
"""What is for the first client reaches it last."""

# --- every fault ----------------------------------------------------------------------------------


class Sweep(NamedTuple):
    """What is swept, by which schedule, with which faults."""

    name: str
    scenario: Scenario
    schedule: Callable[[], Schedule] = InTurn
    faults: tuple[str, ...] = FAULTS
    seed: int = 0
    servers: int = 1


def sweeps() -> Iterator[Sweep]:
    for kind in KINDS:
        two = contenders(kind, 2)
        yield from (Sweep(f"{kind.name} {who}", two, partial(InTurn, who)) for who in ("", *"ab"))
        for name, number, usage in (
            ("of whom none waits for ever", 3, Usage(patience=9.0)),
            ("released at once", 2, Usage(give=0.0)),
            ("released in time", 2, Usage(give=3.0)),
        ):
            yield Sweep(f"{kind.name}, {name}", contenders(kind, number, usage))
        no_parent = contenders(kind, 2, Usage(prepared=False))
        yield Sweep(f"{kind.name}, no parent", no_parent, partial(Seeded, SEED), FAULTS, SEED, 2)
    for name, world in LOCKS.items():
        long = name == "semaphore of 2"
        first = ("unsent", "linger", "close", "cancel", "crash") if long and LITTLE else FAULTS
        second = ("cut", "expire", "delete") if long else SOME
        yield Sweep(name, world, InTurn, first)
        yield Sweep(f"{name}, late", world, late, second if LITTLE else FAULTS)
    for name, world in QUEUES.items():
        long = LITTLE and name in ("flat, get", "two consumers")
        yield Sweep(name, world, InTurn, ("linger", "crash") if long else FAULTS)
    for name, world in MEMBERS.items():
        yield Sweep(name, world)
    for name, reader in READERS.items():
        yield Sweep(name, sessions.following(reader, number=2), InTurn, sessions.WATCHING, 1)
    for name, world in SIMPLE.items():
        if name != "barrier, twice":
            yield Sweep(name, world, late if "crowded" in name else InTurn, NETWORK)
    yield Sweep("barrier, late", SIMPLE["barrier"], late, NETWORK)


@pytest.mark.parametrize("row", list(sweeps()), ids=lambda row: row.name)
def test_every_single_fault_at_every_sixth_step(row: Sweep) -> None:
    _, world, schedule, faults, seed, servers = row
    print(sweep(world, schedule, faults=faults, seed=seed, servers=servers, **A_SIXTH))


# --- cancellation ---------------------------------------------------------------------------------


CUT = [Step("run", "a"), Step("up", "a"), Step("cut", "a")]


def broken(who: str, turns: int) -> Callable[[], Schedule]:
    """A request arrives and the connection breaks before the answer, after so many turns."""
    steps = [Step(kind, who) for kind in ("down", "run", "up")] * turns
    return lambda: Scripted([*steps, Step("cut", who)])


def cancellations() -> Iterator[tuple[str, Scenario, Callable[[], Schedule]]]:
    for kind in KINDS:
        for number in (1, 2, 3):
            for prepared in (True, False):
                world = contenders(kind, number, Usage(rounds=2, prepared=prepared))
                for who in ("", *"ab"):
                    yield f"{number} {kind.name}, {prepared}, {who}", world, partial(InTurn, who)
        yield f"{kind.name}, on a bad network", contenders(kind, 2), lambda: Scripted(CUT)
    for name, world in {**LOCKS, **LARGER}.items():
        yield name, world, InTurn
        yield f"{name}, on a bad network", world, broken("a", 1)
        if name in LOCKS or not LITTLE:
            yield f"{name}, late", world, late
            yield f"{name}, on a bad network, later", world, broken("a", 4)
    for name, world in QUEUES.items():
        yield name, world, late
        yield f"{name}, on a bad network", world, broken("b", 4)
    yield from ((name, world, late) for name, world in MEMBERS.items())
    yield from ((name, sessions.following(kind), InTurn) for name, kind in READERS.items())
    yield from ((name, world, InTurn) for name, world in SIMPLE.items() if name != "barrier")


@pytest.mark.parametrize("row", list(cancellations()), ids=lambda row: row[0])
def test_a_cancellation_at_every_await(row: tuple[str, Scenario, Callable[[], Schedule]]) -> None:
    print(cancel_everywhere(*row[1:]))


# --- every order, and many faults -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("number", "together", "depth"), [(2, False, 15), (3, False, 9), (2, True, 8)]
)
def test_every_order(kind: Kind, number: int, together: bool, depth: int) -> None:
    """So many steps, or with more time as far as it goes."""
    bounds: dict[str, Any] = {"runs": int(5000 * FACTOR)} if FACTOR > 1 else {"depth": depth}
    print(
        exhaust(
            contenders(kind, number, Usage(stay=1, together=together)), **bounds, frames=together
        )
    )


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("name", RANDOM)
def test_random_runs_with_several_faults(name: str, servers: int) -> None:
    """With three servers a fourth of them."""
    world, faults, runs = RANDOM[name]
    seeds = range(SEED, SEED + int(runs * FACTOR) // (1 if servers == 1 else 4))
    most = 4 if runs < 150 else 5
    print(explore(world, seeds, most=most, faults=faults, servers=servers))


# --- schedules by hand, and bugs that only they show ---------------------------------------------


BY_HAND = {
    # a's release is executed and not answered; its new server still shows its node, where b's is.
    "a claim by a node that is gone": (
        contenders(BLOCKING, 2, BRIEF),
        "run a; up a; down a; run a; run a; up a; down a; up a; cut a; run b; up b; down b; run b; "
        "run a; run a.background; dial a; lag a; up a; down a; up a; down a; run a.background; "
        "up a",
        False,
        "brief: no sync before looking",
        "STATE: b claims by a node that is gone",
    ),
    # The answer to a downgrade is lost, the write lock is released, and the reader cancelled.
    "a reader beside a released writer has one node": (
        read_write(["hasty"], BRIEF),
        "run a; up a; down a; run a; run a2; run a; linger a; run a2; late a; dial a; up a; "
        "down a; up a; down1 a; run a2; cancel a2",
        True,
        "first try forgotten",
        "ORPHAN",
    ),
    # The reply to the create is lost, the owner closes, the next server does not know of the node.
    "a server that is behind does not hide a node": (
        lives(1, partial(KeptNodes, Life(sets=0, stay=0))),
        "run a; run a.background; up a; cut a; cancel a; dial a; lag a; up a; down a; "
        "run a.background; up a; down a; run a.background; run a",
        True,
        "no sync before delete",
        "LEFT",
    ),
}


@pytest.mark.parametrize("row", BY_HAND.values(), ids=BY_HAND)
def test_a_schedule_by_hand(row: tuple[Scenario, str, bool, str, str]) -> None:
    """Nothing is wrong, and with the bug it is."""
    scenario, steps, frames, bug, found = row
    told = replay(scenario, steps, frames=frames)
    assert found not in told[-1], "\n".join(told)
    for step in steps.split("; "):
        assert any(step in line for line in told), step
    with planted(*EVERY[bug].changes):
        assert found in replay(scenario, steps, frames=frames)[-1]


def test_a_guard_that_was_not_answered_is_asked_again() -> None:
    """Its watch is restored, but on a node that somebody else has made meanwhile, unheard of."""
    scenario = contenders(BLOCKING, 2, Usage(hold=15.0, together=True))
    steps = "run a; up a; delete a; down a; run a2; up a; run a; down a; cut a"
    told = replay(scenario, steps)
    assert "STATE" not in told[-1], "\n".join(told)
    assert any("get_children2" in line for line in told)
