"""A small part of `python3 -m tests.interop.explore`: every schedule, but of equal states only one.

`ZKWIRE_SIMULATION=10` looks at ten times as much, and follows three contenders to their end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.interop import explore
from tests.simulation.scenarios import RANDOM, SMALL, Various
from tests.support.planted_bugs import BESIDE, QUEUE, SINGLE
from tests.support.simulation_locks import BLOCKING, SEQUENTIAL, Usage, contenders, various
from tests.support.simulation_parts import FACTOR, Judge, make, planted
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


if FACTOR > 1:  # `test_what_is_left_out_makes_no_difference` follows two to their end

    @pytest.mark.parametrize("name", [name for name in SHORT if FACTOR >= 10 or "2" in name])
    def test_with_one_fault_everything_is_followed(name: str) -> None:
        assert exhaust(SMALL[name].scenario, faults=(), frames=False).complete
        done = explore.through(name, 10**9, 24 * 3600.0, 1)
        print(done.figures)
        assert not done.failure
        assert done.figures.complete
        assert done.figures.states > 1000


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


async def write(a: Client, path: str, _: Memory) -> object:
    """It notes when it was told."""
    return await told(a.world.operations.create(path)), a.world.now()


async def watch_and_write(a: Client, path: str, memory: Memory) -> object:
    """The event comes before the answer to what it is about."""
    watch = Watch(lambda event: memory.seen.setdefault("event", event.path))
    await told(a.world.operations.exists(path, watch=watch))
    return await told(a.world.operations.create(path))


@pytest.mark.parametrize(
    ("work", "paths", "faults", "most", "frames"),
    [
        pytest.param(write_late, "xy", ("slow",), 1, False, id="a deadline and what is under way"),
        pytest.param(write, "x", ("slow", "linger"), 2, False, id="a slow one and what lingers"),
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
    for kind, of in ((SEQUENTIAL, QUEUE), (BLOCKING, SINGLE)):
        with planted(*of["late end"], BESIDE), pytest.raises(FailedRunError, match="ME"):
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


def reader_and_writer(seen: bytes) -> Scenario:
    """After the second read nothing is left of what the first one has seen, but the result."""

    async def look(client: Client) -> bytes | None:
        first, _ = await client.world.operations.get_data("/n")
        await client.world.operations.get_data("/n")
        return first

    def scenario(sim: Simulation) -> None:
        make(sim, "/n")
        told_so = lambda sim: seen in [task.result for task in sim.ended]  # noqa: E731
        sim.checks.append(Never(told_so, at_end=True))
        a, b = sim.client(), sim.client()
        for client in (a, b):
            client.spawn(client.sleep(1.0))
        a.spawn(look(a))
        b.spawn(told(b.world.operations.set_data("/n", b"1")))

    return scenario


@pytest.mark.parametrize(
    ("scenario", "frames"),
    [
        (late_leavers, True),  # for a check that says nothing of itself no order is left out
        (by_order, True),  # what it remembers is part of the state all the same
        (reader_and_writer(b""), False),  # how tasks have ended is, too
        (reader_and_writer(b"1"), False),
    ],
)
def test_what_a_check_can_tell_apart_is_part_of_a_state(scenario: Scenario, frames: bool) -> None:
    with pytest.raises(FailedRunError, match="WRONG"):
        exhaust(scenario, faults=(), frames=frames)


# --- the command ----------------------------------------------------------------------------------


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(RANDOM, "wrong", Various(various(SEQUENTIAL), ("cut",), 2))
    with planted(*QUEUE["no second look"]):
        done = explore.at_random("wrong", 0, 500)
        world, _, rest = done.failure.rpartition('--replay "')[2].partition('" --seed ')
        seed, _, steps = rest.partition(' --steps "')
        explore.main(["--replay", world, "--seed", seed, "--steps", steps.rstrip('"')])
    assert capsys.readouterr().out.strip().splitlines()[-1] in done.failure


def test_the_watch_of_one_that_has_left_the_queue_wakes_nobody() -> None:
    """Its answer was on its way when b gave up, so nobody could take it back before a's release."""
    steps = (
        "run a; run b; up a; down a; up b; down b; run b; up b; cancel b; run b.background; run a; "
        "up b; run c; up c; down c; run c; up c; up a; run a; down a; up a"
    )
    told = explore.show("sequential, waiting, 3", steps, 0)
    (end,) = [number for number, line in enumerate(told) if "up a: delete" in line]
    name = told[end].split()[-1]
    gone = [line for line in told if f"NODE_DELETED {name}" in line]
    assert [line.split()[3:5] for line in gone] == [["down", name] for name in ("a:", "b:", "c:")]
    assert "HERD" not in "".join(told)
