"""Prints of states: whatever decides about what comes is part of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.simulation_locks import SEQUENTIAL, contenders
from zkwire.testing.simulation import FAULTS, InTurn, Seeded
from zkwire.testing.simulation.client import Suspend
from zkwire.testing.simulation.fingerprint import Reader, state_fingerprint
from zkwire.testing.simulation.simulation import Simulation
from zkwire.testing.simulation.stage import StaleServer, TreeHistory

NOW = 107.5


def nothing(_: object) -> None:
    """No change."""


def finished() -> Simulation:
    """Nobody has anything to do any more; the past is known."""
    sim = Simulation(servers=2)
    contenders(SEQUENTIAL)(sim)
    sim.run(InTurn())
    sim.tree_history.remember(sim.tree)
    return sim


def printed(value: object) -> int:
    return Reader(NOW).fingerprint(value)


# --- the server -----------------------------------------------------------------------------------


def link(sim: Simulation, client: int = 0) -> Any:
    found = sim.clients[client].link
    assert found is not None
    return found


def fall_behind(sim: Simulation) -> StaleServer:
    stale = sim.stale_servers[link(sim).connection] = StaleServer(sim.tree)
    return stale


def change_past(sim: Simulation) -> None:
    """Somebody else owned a node that is gone now: the same number of nodes, the same zxid."""
    sim.tree_history._trees[-1].nodes["/lock"].owner ^= 1


def look_at_another_past(sim: Simulation) -> None:
    stale, past = fall_behind(sim), TreeHistory(wanted=True)
    past.remember(sim.tree)
    stale.tree = past._trees[0]
    stale.tree.nodes["/lock"].owner ^= 1


def reorder(sim: Simulation) -> None:
    sim.tree.nodes["/"] = sim.tree.nodes.pop("/")


CHANGES: tuple[Callable[[Simulation], object], ...] = (
    change_past,
    reorder,
    fall_behind,
    look_at_another_past,
    lambda sim: fall_behind(sim)._events.add((4, "/lock")),  # type: ignore[arg-type]
    lambda sim: setattr(sim.processor, "_reap_at", sim.processor._reap_at + 1),
    lambda sim: setattr(next(iter(sim.sessions)), "passwd", b"another"),
    lambda sim: setattr(link(sim).connection, "session", link(sim, 1).connection.session),
    lambda sim: setattr(link(sim).connection, "greeted", False),
    lambda sim: sim.processor._without_session.update({link(sim).connection: sim.now + 5}),
)


def after_change(change: Callable[[Simulation], object], zxid: int = 0) -> int:
    """The print of a finished simulation; clients have seen so many changes, if that is said."""
    sim = finished()
    for client in sim.clients if zxid else ():
        client.session._requests.last_zxid = sim.tree.zxid + zxid
    change(sim)
    return state_fingerprint(sim)


def test_states_that_differ_in_one_thing_have_different_prints() -> None:
    prints = {after_change(change) for change in (nothing, *CHANGES)}
    assert len(prints) == 1 + len(CHANGES)


def test_equal_states_have_equal_prints_and_others_have_not() -> None:
    prints = []
    for _ in range(2):
        sim, schedule = Simulation(seed=3, faults=FAULTS), Seeded(5, 4)
        contenders(SEQUENTIAL, 3)(sim)
        prints.append([state_fingerprint(sim)])
        while (step := schedule.next(sim)) is not None:
            sim.perform(step)
            prints[-1].append(state_fingerprint(sim))
        sim.run(InTurn())
    assert prints[0] == prints[1]
    assert len(set(prints[0])) > len(prints[0]) * 3 // 4


def test_what_nobody_can_see_any_more_is_no_part() -> None:
    assert after_change(nothing, zxid=1) == after_change(change_past, zxid=1)


# --- a process ------------------------------------------------------------------------------------


async def _raises(errors: list[Exception]) -> None:
    try:
        raise errors.pop()
    finally:
        await Suspend(None)


async def _goes_through(numbers: range) -> None:
    for _ in numbers:
        await Suspend(None)


async def _has_seen(things: list[int]) -> int:
    seen = things.pop()
    await Suspend(None)
    return seen


async def _waits_with(things: list[object]) -> object:
    return [things.pop(), await Suspend(None)]  # type: ignore[func-returns-value]


def after(coroutine: Coroutine[Any, Any, object], sends: int = 1) -> int:
    """The print of a coroutine that has come to its so manieth await."""
    for _ in range(sends):
        coroutine.send(None)
    found = printed(coroutine)
    with suppress(KeyError, ValueError):
        coroutine.close()
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: after(_raises([KeyError()])), lambda: after(_raises([ValueError()]))),
        (lambda: after(_goes_through(range(5)), 2), lambda: after(_goes_through(range(5)), 3)),
        (lambda: after(_has_seen([1])), lambda: after(_has_seen([2]))),
        (lambda: after(_waits_with([1])), lambda: after(_waits_with(["1"]))),
        (lambda: printed(NOW - 1), lambda: printed(NOW - 2)),
        (lambda: printed(-1), lambda: printed(-2)),
        (lambda: printed(iter([1, 2])), lambda: printed(iter([2, 2]))),
        (lambda: printed([].append), lambda: printed([1].append)),
        (lambda: printed(lambda: 1), lambda: printed(lambda: 2)),
    ],
)
def test_what_a_task_does_next_is_part_of_it(
    one: Callable[[], int], other: Callable[[], int]
) -> None:
    assert one() == one()
    assert one() != other()


def test_a_thing_in_a_set_is_the_same_one_elsewhere() -> None:
    first, second = (partial(print, 1) for _ in range(2))
    assert printed([{first}, first]) == printed([{second}, second])
    assert printed([{first}, first]) != printed([{first}, second])


def test_what_cannot_be_looked_into_is_an_error() -> None:
    with pytest.raises(TypeError, match="memoryview"):
        printed(memoryview(b""))
