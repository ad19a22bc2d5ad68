"""Prints of states: whatever decides about what comes is part of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.simulation_locks import SEQUENTIAL, contenders
from zkwire.testing.simulation import InTurn
from zkwire.testing.simulation.client import Suspend
from zkwire.testing.simulation.fingerprint import Reader, state_fingerprint
from zkwire.testing.simulation.simulation import Simulation
from zkwire.testing.simulation.stage import StaleServer, TreeHistory

NOW = 107.5


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


def _change_past(sim: Simulation) -> None:
    """Somebody else owned a node that is gone now: the same number of nodes, the same zxid."""
    old = sim.tree_history._trees[-1]
    old.nodes["/lock"].owner ^= 1


def _reorder(sim: Simulation) -> None:
    nodes = sim.tree.nodes
    nodes["/"] = nodes.pop("/")


def _put_off(sim: Simulation) -> None:
    sim.processor._reap_at += 1


def _change_password(sim: Simulation) -> None:
    next(iter(sim.sessions)).passwd = b"another"


def _take_another_session(sim: Simulation) -> None:
    first, second = (client.link for client in sim.clients)
    assert first is not None
    assert second is not None
    first.connection.session = second.connection.session


def _forget_greeting(sim: Simulation) -> None:
    link = sim.clients[0].link
    assert link is not None
    link.connection.greeted = False


def _wait_for_greeting(sim: Simulation) -> None:
    link = sim.clients[0].link
    assert link is not None
    sim.processor._without_session[link.connection] = sim.now + 5


def _fall_behind(sim: Simulation) -> None:
    link = sim.clients[0].link
    assert link is not None
    sim.stale_servers[link.connection] = StaleServer(sim.tree)


def _look_at_another_past(sim: Simulation) -> None:
    _fall_behind(sim)
    [stale] = sim.stale_servers.values()
    past = TreeHistory(wanted=True)
    past.remember(sim.tree)
    stale.tree = past._trees[0]
    stale.tree.nodes["/lock"].owner ^= 1


def _have_told(sim: Simulation) -> None:
    _fall_behind(sim)
    [stale] = sim.stale_servers.values()
    stale._events.add((4, "/lock"))  # type: ignore[arg-type]  # NODE_CHILDREN_CHANGED


CHANGES: list[Callable[[Simulation], None]] = [
    _change_past, _reorder, _put_off, _change_password, _take_another_session, _forget_greeting,
    _wait_for_greeting, _fall_behind, _look_at_another_past, _have_told,
]  # fmt: skip


def test_states_that_differ_in_one_thing_have_different_prints() -> None:
    prints = set()
    for change in [None, *CHANGES]:
        sim = finished()
        if change is not None:
            change(sim)
        prints.add(state_fingerprint(sim))
    assert len(prints) == 1 + len(CHANGES)


def test_what_nobody_can_see_any_more_is_no_part() -> None:
    prints = []
    for change in [None, _change_past]:
        sim = finished()
        for client in sim.clients:
            client.session._requests.last_zxid = sim.tree.zxid + 1
        if change is not None:
            change(sim)
        prints.append(state_fingerprint(sim))
    assert prints[0] == prints[1]


def test_a_round_of_the_reaper_that_finds_nothing_is_no_event() -> None:
    sim = Simulation()
    client = sim.client()
    client.spawn(client.sleep(200))
    assert sim.run(InTurn(), patience=1000)
    assert sim.processor._reap_at - sim.now == pytest.approx(60)


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
