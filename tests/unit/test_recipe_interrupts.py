"""Recipes, step by step: interrupts at every instruction, and objects in two hands."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client_threads import Interruption
from tests.support.examples import STRIDE
from tests.support.scripted import Answer
from tests.unit.test_recipe_steps import (
    Nodes,
    Runtime,
    an_attempt,
    client_of,
    refuse,
    sequential,
)
from zkwire import AsyncClient, AsyncReentrantLock, AsyncSequentialLock
from zkwire.aio.waiting import cancelled_by
from zkwire.blocking.locks import (
    BlockingLock,
    MultiLock,
    NonBlockingLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
)
from zkwire.blocking.run import run
from zkwire.errors import LockTakenError, NoNodeError, OperationTimeoutError
from zkwire.recipes.semaphore import AsyncLease

ROOT = Path(__file__).resolve().parents[2]

# --- interrupts -----------------------------------------------------------------------------------


def a_lease_in_vain(client: Any) -> None:
    assert not Semaphore(client, "/s", 1).lease().acquire(1.0)


def a_lease_in_vain_at_once(client: Any) -> None:
    assert not Semaphore(client, "/s", 1).lease().acquire(0)


def a_lease_for_a_body(client: Any) -> None:
    with Semaphore(client, "/t", 1).lease():
        pass
    with Semaphore(client, "/t", 1).lease().within(1.0):
        pass


def a_lock_within_a_limit(client: Any) -> None:
    with SequentialLock(client, "/a").within(1.0):
        pass


def several_locks(client: Any) -> None:
    with MultiLock(SequentialLock(client, "/a"), SequentialLock(client, "/b")):
        pass


def twice_the_same(client: Any) -> None:
    with ReentrantLock(client, "/a") as lock, lock:
        pass


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, LookupError])
@pytest.mark.parametrize(
    "scenario",
    [
        a_lease_in_vain,
        a_lease_in_vain_at_once,
        a_lease_for_a_body,
        a_lock_within_a_limit,
        several_locks,
        twice_the_same,
    ],
)
def test_an_interrupt_anywhere_leaves_no_node(
    scenario: Callable[[Any], None], kind: type[BaseException]
) -> None:
    """But for one before anything of `__exit__` has run."""
    n, clients = (
        1 - STRIDE,
        list[Any](),
    )  # all of them: an interrupt of a finalizer is raised nowhere
    while True:
        n += STRIDE
        world = Nodes()
        client = client_of(world)
        clients.append(client)
        raised: BaseException | None = None
        with Interruption(n, kind) as interruption:
            try:
                scenario(client)
            except (kind, LockTakenError) as error:
                raised = error
        where = interruption.where
        if where is None:
            break
        assert isinstance(raised, kind), f"swallowed: {where}"
        if not where.endswith("__exit__"):
            assert world.clean_up() == [], where
    assert n > (90 if sys.version_info >= (3, 13) else 100)
    assert world.clean_up() == []


NO_WORD = """
import sys
from tests.unit.test_recipe_interrupts import *
for n in range(1, 400):
    with Interruption(n, LookupError) as interruption:
        try:
            a_lock_within_a_limit(client_of(Nodes()))
        except LookupError as error:
            error = None
    if interruption.where is None:
        sys.exit(n < 100)
sys.exit("it has no end")
"""


def test_an_interrupt_anywhere_says_nothing_by_itself() -> None:
    """Such as that a coroutine was never awaited."""
    arguments = [sys.executable, "-W", "always", "-c", NO_WORD]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.returncode) == ("", 0)


class Unconnected(Runtime):
    """A client that finds no server; ``limits`` are the deadlines up to which it has looked."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float | None] = []

    async def connected(self, deadline: float | None) -> None:
        self.limits.append(deadline)
        raise OperationTimeoutError("no server could be reached in time")


def test_no_time_at_all_is_no_time_to_look_for_a_server() -> None:
    world: Any = Unconnected()
    locks: list[Any] = [NonBlockingLock, BlockingLock, SequentialLock, ReentrantLock]
    for kind in locks:
        assert not kind(client_of(world), "/a").acquire(0)
    assert not MultiLock(SequentialLock(client_of(world), "/a")).acquire(0)
    assert not Semaphore(client_of(world), "/s", 1).lease().acquire(0)
    assert world.limits == [world.time] * 6


# --- in two hands ---------------------------------------------------------------------------------


def test_what_is_being_released_cannot_be_acquired() -> None:
    """Or else what is owed to the server would be that of two attempts."""
    core, world = sequential()
    assert run(core._acquire_by(None, True))
    tried: list[object] = []

    def delete(*_: object) -> Answer:
        with pytest.raises(RuntimeError, match="releasing"):
            run(core._acquire_by(None, True))
        tried.append(core._is_active)
        return Answer(None)

    world.delete = delete  # type: ignore[attr-defined]
    run(core._release_by(None))
    assert tried == [True]
    assert not core._is_active
    assert not world.active_locks
    assert run(core._acquire_by(None, True))


def test_who_waits_as_long_as_it_takes_does_so_for_what_is_missing_above() -> None:
    late = OperationTimeoutError("no server for two session timeouts")
    core, world = sequential(create_with_stat=[NoNodeError("no parent")], create=[late, "/lock"])
    assert run(core._acquire_by(None, True))
    assert world.asked.count("create") == 2


def test_a_body_does_not_run_without_its_lock() -> None:
    world: Any = Nodes()
    world.nodes.append("/a/other-lock-0000000000")
    lock = ReentrantLock(client_of(world), "/a")
    algorithm: Any = lock.lock._algorithm
    algorithm._acquire_by = refuse
    with pytest.raises(LockTakenError, match="/a is held"), lock:
        pytest.fail("the body runs")


def test_a_multi_lock_that_is_not_held_releases_nothing() -> None:
    world: Any = Nodes()
    client = client_of(world)
    one, two = SequentialLock(client, "/a"), SequentialLock(client, "/b")
    both = MultiLock(one, two)
    assert one.acquire()
    for call in (both.release, both.acquire):
        with pytest.raises(RuntimeError):
            call()
    assert one.held
    assert not two.held


def test_a_semaphore_that_was_deleted_is_agreed_upon_again() -> None:
    """Another one may have been made in its place, of another count."""
    world: Any = Nodes()
    core = AsyncLease(world, "/s", 1)
    attempt = an_attempt("/s/leases/gone")
    attempt.entered = True
    run(core._join(attempt, None))
    assert world.asked == ["get_data", "create_with_stat", "get_children"]


# --- what only an interrupt, or somebody else's hand, can reach -----------------------------------


async def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_as_the_body_ends_gives_the_lock_up() -> None:
    world: Any = Nodes()
    lock = SequentialLock(client_of(world), "/a")
    algorithm: Any = lock._algorithm
    with pytest.raises(KeyboardInterrupt), lock:
        algorithm.release = interrupted
    assert not lock.held
    assert world.clean_up() == []


def test_an_interrupt_as_the_body_ends_gives_the_lock_up_under_asyncio() -> None:
    world: Any = Nodes()
    lock = AsyncSequentialLock(client_of(world, AsyncClient), "/a")

    algorithm: Any = lock

    async def body() -> None:
        async with lock:
            algorithm.release = interrupted

    with pytest.raises(KeyboardInterrupt):
        run(body())
    assert not lock.held
    assert world.clean_up() == []


def test_a_second_interrupt_as_a_release_is_cleaned_up_leaves_no_node() -> None:
    class Twice(AsyncSequentialLock):
        second = False
        _free = interrupted  # type: ignore[assignment]

        def _clean_up_pending(self) -> None:
            if self.second:
                self.second = False
                raise KeyboardInterrupt
            super()._clean_up_pending()

    world: Any = Nodes()
    core = Twice(world, "/a")
    assert run(core._acquire_by(None, True))
    core.second = True
    with pytest.raises(KeyboardInterrupt):
        run(core._release_by(None))
    assert world.clean_up() == []


def test_a_reentrant_lock_whose_release_is_interrupted_is_to_be_released_still() -> None:
    lock = ReentrantLock(client_of(Nodes()), "/a")
    algorithm: Any = lock.lock._algorithm
    release = algorithm.release
    assert lock.acquire()
    algorithm.release = interrupted
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert lock.held
    algorithm.release = release
    assert lock.acquire()
    lock._algorithm._release_in_background()
    assert lock.held
    lock._algorithm._release_in_background()
    assert not lock.held


def test_the_same_under_asyncio() -> None:
    async def main() -> None:
        lock = AsyncReentrantLock(client_of(Nodes(), AsyncClient), "/a")
        release = lock.lock._algorithm.release
        assert await lock.acquire()

        async def failing(*_: object) -> None:
            raise LookupError

        lock.lock._algorithm.release = failing
        with pytest.raises(LookupError):
            await lock.release()
        assert lock.held
        lock.lock.release = release  # type: ignore[method-assign]
        assert await lock.acquire()
        lock._algorithm._release_in_background()
        assert lock.held
        async with lock:
            assert lock._owned
        lock._algorithm._release_in_background()
        assert not lock.held
        algorithm: Any = lock.lock
        algorithm._acquire_by = refuse
        with pytest.raises(LockTakenError, match="/a is held"):
            await lock.__aenter__()

    asyncio.run(main())


def test_outside_of_a_task_there_is_nobody_to_hold_or_to_cancel() -> None:
    client = client_of(Nodes(), AsyncClient)
    mine = AsyncReentrantLock(client, "/a")
    refused: list[str] = []
    never: Any = None

    def look() -> None:
        for call in (lambda: mine.held, lambda: run(cancelled_by(never, KeyError).__aenter__())):
            with pytest.raises(RuntimeError) as caught:
                call()
            refused.append(str(caught.value))

    loop = asyncio.new_event_loop()
    loop.call_soon(look)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert [text.rpartition(" ")[2] for text in refused] == ["task", "none"]


def test_what_is_in_other_hands_is_left_to_them() -> None:
    client = client_of(Nodes())
    both = MultiLock(SequentialLock(client, "/a"), SequentialLock(client, "/b"))
    assert both.acquire()
    all_locks: Any = both._algorithm
    things: list[Any] = [*all_locks._parts, all_locks]
    for thing in things:
        thing._busy = True
        thing._release_in_background()
        with pytest.raises(RuntimeError, match="another thread or task"):
            run(thing._acquire_by(None, True))
        thing._busy = False
    assert both.held
    core = all_locks._parts[0]
    core._set_inactive()
    assert core in core._runtime.active_locks


def test_wrong_arguments_are_refused_when_a_lock_is_made() -> None:
    world: Any = Runtime()
    with pytest.raises(TypeError, match="text must be a str"):
        AsyncSequentialLock(world, "/a", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="surrogate"):
        AsyncSequentialLock(world, "/a", "\ud800")
    with pytest.raises(TypeError, match="must be a Client or a Supervisor, not str"):
        SequentialLock("localhost", "/a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        AsyncSequentialLock(world, "/a").lost.add_callback(5)  # type: ignore[arg-type]
