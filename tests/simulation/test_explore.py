"""A small part of `python3 -m tests.interop.explore`, and that its command does what it says.

`ZKWIRE_SIMULATION=10` looks at ten times as much, and at worlds of three to their end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.conftest import SEED
from tests.interop import explore
from tests.interop.explore import RANDOM, SMALL, World
from tests.support.planted_bugs import BESIDE, QUEUE, SINGLE
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    Manners,
    contenders,
    various,
)
from tests.support.simulation_parts import FACTOR, Judge, make, planted
from zkwire.errors import NodeExistsError, ZooKeeperError
from zkwire.operations import Operations
from zkwire.session.waitable import Watch
from zkwire.testing.simulation import (
    FailedRunError,
    Figures,
    InTurn,
    Scenario,
    Seeded,
    exhaust,
)
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.fingerprint import state_fingerprint
from zkwire.testing.simulation.simulation import Check, Simulation


@pytest.mark.parametrize("name", SMALL)
def test_a_small_world_has_no_way_to_fail(name: str) -> None:
    done = explore.through(name, int(150 * FACTOR), 3600.0)
    print(done.figures)
    assert not done.failure


@pytest.mark.parametrize("name", RANDOM)
def test_random_histories_with_all_faults(name: str) -> None:
    done = explore.at_random(name, SEED, int(10 * FACTOR))
    print(done.figures)
    assert not done.failure


SHORT = [name for name in SMALL if not name.startswith(("semaphore", "new", "multi-lock"))]
"""What is small enough to be followed to its end here."""


@pytest.mark.parametrize("name", [name for name in SHORT if FACTOR > 1 or "2" in name])
def test_without_a_fault_everything_is_followed(name: str) -> None:
    figures = exhaust(SMALL[name].scenario, faults=(), frames=False)
    print(figures)
    assert figures.complete
    assert figures.states > 5


if FACTOR > 1:  # the worlds of `test_what_is_left_out_makes_no_difference` have one fault, too

    @pytest.mark.parametrize("name", [name for name in SHORT if FACTOR >= 10 or "2" in name])
    def test_with_one_fault_everything_is_followed(name: str) -> None:
        done = explore.through(name, 10**9, 24 * 3600.0, 1)
        print(done.figures)
        assert not done.failure
        assert done.figures.complete
        assert done.figures.states > 1000


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
        assert few.states < many.states


class Witness(Judge):
    """Remembers what was to be seen when, so that it is part of the state and of the end."""

    def __init__(self) -> None:
        self.seen: dict[str, object] = {}

    def step(self, sim: Simulation) -> None:
        self.seen["outcomes"] = outcomes(sim)
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


def late_writer(sim: Simulation, seen: Witness) -> None:
    """Its deadline may have come while what it wrote is still under way."""
    a = sim.client()

    async def write(path: str) -> object:
        await a.sleep(2.0)
        return await told(a.world.operations.create(path))

    for path in ("/x", "/y"):
        a.spawn(write(path))


def writer(sim: Simulation, seen: Witness) -> None:
    """It notes when it was told."""
    a = sim.client()

    async def write() -> object:
        outcome = await told(a.world.operations.create("/x"))
        return outcome, sim.now

    a.spawn(write())


def watcher(sim: Simulation, seen: Witness) -> None:
    """The event comes before the answer to what it is about."""
    a = sim.client()
    watch = Watch(lambda event: seen.seen.setdefault("event", event.path))

    async def write() -> object:
        operations = a.world.operations
        await told(operations.exists("/x", watch=watch))
        return await told(operations.create("/x"))

    a.spawn(write())


DELICATE = {
    "a deadline and what is under way": (late_writer, ("slow",), 1, False),
    "a slow one and what lingers": (writer, ("slow", "linger"), 2, False),
    "frame by frame": (watcher, ("cut",), 1, True),
}


@pytest.mark.parametrize("name", DELICATE)
def test_nor_does_it_where_a_step_can_take_something_away(name: str) -> None:
    world, faults, most, frames = DELICATE[name]

    def scenario(sim: Simulation) -> None:
        seen = Witness()
        world(sim, seen)
        sim.checks.append(seen)

    (few, found), (many, all_there_are) = (
        ends(scenario, faults, memory, most, frames=frames, reduced=reduced)
        for reduced in (True, False)
    )
    print(few, many, len(found), sep=" | ")
    assert found == all_there_are


def memory(sim: Simulation) -> object:
    [seen] = [check for check in sim.checks if isinstance(check, Witness)]
    return seen.comparison_key()


def outcomes(sim: Simulation) -> tuple[str, ...]:
    """What its contenders were told, whoever of them it was."""
    return tuple(sorted(f"{task.result} {task.error!r}" for task in sim.ended))


def test_who_ends_a_claim_puts_nothing_off() -> None:
    """Or else the one who claims too long has always ended it before the other one begins."""
    for kind, of in ((SEQUENTIAL, QUEUE), (BLOCKING, SINGLE)):
        with planted(*of["late end"], BESIDE), pytest.raises(FailedRunError, match="ME"):
            exhaust(contenders(kind, 2, Manners(stay=0)), frames=False, faults=())


class Inside:
    """ME of contenders that say themselves when they are inside."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def step(self, sim: Simulation) -> None:
        if len(self.names) > 1:
            raise ViolationError("ME", " and ".join(self.names))

    def end(self, sim: Simulation) -> None:
        pass


def late_leavers(sim: Simulation) -> None:
    """Whoever has made the node is inside until it is told that the node is gone: too long."""
    inside = Inside()
    sim.checks.append(inside)

    async def use(client: Client) -> None:
        with suppress(NodeExistsError):
            await client.world.operations.create("/mine", ephemeral=True)
            inside.names.append(client.name)
            await client.turn()
            await client.world.operations.delete("/mine")
            inside.names.remove(client.name)

    for _ in range(2):
        client = sim.client()
        client.spawn(use(client))


def test_for_a_check_that_says_nothing_of_itself_no_order_is_left_out() -> None:
    with pytest.raises(FailedRunError, match="ME"):
        exhaust(late_leavers, faults=())


class Order:
    """ORDER: b was not first with a behind it; it remembers that, and says it in the end."""

    def __init__(self) -> None:
        self.names = ""

    def step(self, sim: Simulation) -> None:
        if len(self.names) < 2:
            self.names += sim.done[-1].subject

    def end(self, sim: Simulation) -> None:
        if self.names == "ba":
            raise ViolationError("ORDER", self.names)


class Told:
    """TOLD: nobody was told this in the end."""

    def __init__(self, what: object) -> None:
        self._what = what

    def step(self, sim: Simulation) -> None:
        pass

    def end(self, sim: Simulation) -> None:
        if self._what in [task.result for task in sim.ended]:
            raise ViolationError("TOLD", repr(self._what))


def reader_and_writer(check: Check) -> Scenario:
    """After the second read nothing is left of what the first one has seen, but the result."""

    async def look(operations: Operations) -> bytes | None:
        first, _ = await operations.get_data("/n")
        await operations.get_data("/n")
        return first

    def scenario(sim: Simulation) -> None:
        make(sim, "/n")
        sim.checks.append(check)
        a, b = sim.client(), sim.client()
        for client in (a, b):
            client.spawn(client.sleep(1.0))
        a.spawn(look(a.world.operations))
        b.spawn(told(b.world.operations.set_data("/n", b"1")))

    return scenario


@pytest.mark.parametrize("what", [b"", b"1"])
def test_how_tasks_have_ended_is_part_of_a_state(what: bytes) -> None:
    with pytest.raises(FailedRunError, match="TOLD"):
        exhaust(reader_and_writer(Told(what)), faults=(), frames=False)


def test_what_a_check_remembers_is_part_of_a_state_without_its_saying_so() -> None:
    def scenario(sim: Simulation) -> None:
        sim.checks.append(Order())
        for _ in range(2):
            client = sim.client()
            client.spawn(client.turn())

    with pytest.raises(FailedRunError, match="ORDER"):
        exhaust(scenario, faults=())


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(RANDOM, "wrong", World(various(SEQUENTIAL), ("cut",), 2))
    with planted(*QUEUE["no second look"]):
        done = explore.at_random("wrong", 0, 500)
        world, _, rest = done.failure.rpartition('--replay "')[2].partition('" --seed ')
        seed, _, steps = rest.partition(' --steps "')
        explore.main(["--replay", world, "--seed", seed, "--steps", steps.rstrip('"')])
    assert capsys.readouterr().out.strip().splitlines()[-1] in done.failure


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


def test_the_same_by_another_way_is_the_same() -> None:
    found = set()
    for order in ("a", "b"):
        sim = Simulation()
        contenders(SEQUENTIAL)(sim)
        both = [step for step in sim.steps() if step.kind == "run"]
        for step in sorted(both, key=lambda step: step.subject != order):
            sim.perform(step)
        found.add(state_fingerprint(sim))
        sim.run(InTurn())
    assert len(found) == 1


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
