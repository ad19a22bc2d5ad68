"""A small part of `python3 -m tests.interop.explore`: every schedule, but of equal states only one.

`ZKWIRE_SIMULATION=10` looks at ten times as much, and follows three contenders to their end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.interop import explore
from tests.simulation.scenarios import SMALL
from tests.support.planted_bugs import EVERY
from tests.support.simulation_locks import BLOCKING, SEQUENTIAL, Usage, contenders
from tests.support.simulation_parts import FACTOR, Judge, planted
from zkwire.errors import NodeExistsError, ZooKeeperError
from zkwire.session.waitable import Watch
from zkwire.testing.simulation import FailedRunError, Figures, Scenario, ViolationError, exhaust
from zkwire.testing.simulation.client import Client
from zkwire.testing.simulation.fingerprint import state_fingerprint
from zkwire.testing.simulation.simulation import Simulation

SHORT = [name for name in SMALL if not name.startswith(("semaphore", "new", "multi-lock"))]
"""What is small enough to be followed to its end here."""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_world_has_no_way_to_fail(name: str) -> None:
    done = explore.through(name, int(150 * FACTOR), 3600.0)
    print(done.figures)
    assert not done.failure


# --- what is left out -----------------------------------------------------------------------------


def ends(
    scenario: Scenario,
    faults: tuple[str, ...],
    what: Callable[[Simulation], object] = state_fingerprint,
    most: int = 1,
    **options: Any,
) -> tuple[Figures, set[object]]:
    """How it can end."""
    found = set[object]()

    class Last(Judge):
        def end(self, sim: Simulation) -> None:
            found.add(what(sim))

    def with_last(sim: Simulation) -> None:
        scenario(sim)
        sim.checks.append(Last())

    options = {"frames": False, **options}
    figures = exhaust(with_last, most=most if faults else 0, faults=faults, **options)
    assert figures.complete
    return figures, found


SOME = {"blocking, trying, 2": ("crash",)}


@pytest.mark.parametrize("name", [name for name in SHORT if "2" in name])
def test_what_is_left_out_makes_no_difference(name: str) -> None:
    faults = SMALL[name].faults if FACTOR > 1 else SOME.get(name, ())
    for which in [(), *((fault,) for fault in faults)]:
        (few, found), (many, all_there_are) = (
            ends(SMALL[name].scenario, which, reduced=reduced) for reduced in (True, False)
        )
        print(which, few, many, len(found), sep=" | ")
        assert found == all_there_are
        assert 5 < few.states < many.states


class Memory(Judge):
    """Remembers what was to be seen when, so that it is part of the state and of the end."""

    def __init__(self) -> None:
        self.seen: dict[str, object] = {}

    def step(self, sim: Simulation) -> None:
        ends = (f"{task.result} {task.error!r}" for task in sim.ended)
        self.seen["outcomes"] = tuple(sorted(ends))
        done = str(sim.done[-1])
        if done == "time":
            self.seen["nodes the last time that time passed"] = tuple(sim.tree.nodes)
        if done in {"cut a", "dial a"}:
            self.seen[done] = sim.now, "event" in self.seen

    def end(self, sim: Simulation) -> None:
        self.seen["in the end"] = len(sim.tree.nodes)

    def comparison_key(self) -> tuple[object, ...]:
        return tuple(sorted(self.seen.items()))


async def told(call: Awaitable[object]) -> object:
    try:
        return await call
    except ZooKeeperError as error:
        return type(error)


async def write_late(a: Client, path: str, _: Memory) -> object:
    """Its deadline may have come while what it wrote is still under way."""
    await a.sleep(2.0)
    return await told(a.world.operations.create(path))


async def watch_and_write(a: Client, path: str, memory: Memory) -> object:
    """The event comes before the answer to what it is about."""
    watch = Watch(lambda event: memory.seen.setdefault("event", event.path))
    await told(a.world.operations.exists(path, watch=watch))
    return await told(a.world.operations.create(path))


@pytest.mark.parametrize(
    ("work", "paths", "faults", "most", "frames"),
    [
        pytest.param(write_late, "xy", ("slow",), 1, False, id="a deadline and what is under way"),
        pytest.param(watch_and_write, "x", ("cut",), 1, True, id="frame by frame"),
    ],
)
def test_nor_does_it_where_a_step_can_take_something_away(
    work: Any, paths: str, faults: tuple[str, ...], most: int, frames: bool
) -> None:
    def scenario(sim: Simulation) -> None:
        memory, a = Memory(), sim.client()
        for path in paths:
            a.spawn(work(a, f"/{path}", memory))
        sim.checks.append(memory)

    def remembered(sim: Simulation) -> object:
        [memory] = [check for check in sim.checks if isinstance(check, Memory)]
        return memory.comparison_key()

    (_, found), (_, all_there_are) = (
        ends(scenario, faults, remembered, most, frames=frames, reduced=reduced)
        for reduced in (True, False)
    )
    assert found == all_there_are


def test_who_ends_a_claim_puts_nothing_off() -> None:
    """Or else the one who claims too long has always ended it before the other one begins."""
    for kind in (SEQUENTIAL, BLOCKING):
        bug = EVERY[f"{kind.name}: late end"]
        with planted(*bug.changes), pytest.raises(FailedRunError, match="ME"):
            exhaust(contenders(kind, 2, Usage(stay=0)), frames=False, faults=())


# --- what is part of a state ----------------------------------------------------------------------


class Never:
    """WRONG: this was so behind a step, or in the end; it says nothing of itself, as a user's."""

    def __init__(self, at_step: Callable[[Simulation], bool], at_end: bool = False) -> None:
        self.names = ""
        self._wrong = at_step
        self._at_end = at_end

    def step(self, sim: Simulation) -> None:
        if len(self.names) < 2:
            self.names += sim.done[-1].subject
        if not self._at_end:
            self.end(sim)

    def end(self, sim: Simulation) -> None:
        if self._wrong(sim):
            raise ViolationError("WRONG", "it was so")


def late_leavers(sim: Simulation) -> None:
    """Whoever has made the node is inside until it is told that the node is gone: too long."""
    inside: list[str] = []
    sim.checks.append(Never(lambda _: len(inside) > 1))

    async def use(client: Client) -> None:
        with suppress(NodeExistsError):
            await client.world.operations.create("/mine", ephemeral=True)
            inside.append(client.name)
            await client.turn()
            await client.world.operations.delete("/mine")
            inside.remove(client.name)

    for _ in range(2):
        client = sim.client()
        client.spawn(use(client))


def by_order(sim: Simulation) -> None:
    """A check that remembers who was first, and says it in the end."""
    check = Never(lambda _: check.names == "ba", at_end=True)
    sim.checks.append(check)
    for _ in range(2):
        client = sim.client()
        client.spawn(client.turn())


@pytest.mark.parametrize(
    ("scenario", "frames"),
    [
        (late_leavers, True),  # for a check that says nothing of itself no order is left out
        (by_order, True),  # what it remembers is part of the state all the same
    ],
)
def test_what_a_check_can_tell_apart_is_part_of_a_state(scenario: Scenario, frames: bool) -> None:
    with pytest.raises(FailedRunError, match="WRONG"):
        exhaust(scenario, faults=(), frames=frames)
