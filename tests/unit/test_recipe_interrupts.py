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
from tests.support.both_clients import done, entered
from tests.support.examples import STRIDE
from tests.unit.test_recipe_steps import PREFIXES, Nodes, a_lock, client_of, refuse
from zkwire import AsyncClient, AsyncReentrantLock, SequentialLock
from zkwire.aio.driver import cancelled_by
from zkwire.blocking.sync import run
from zkwire.errors import LockTakenError

ROOT = Path(__file__).resolve().parents[2]

# --- interrupts -----------------------------------------------------------------------------------


def a_lease_in_vain(world: Nodes) -> None:
    assert not a_lock("", "Semaphore", "/s", 1, world=world).lease().acquire(1.0)


def a_lease_in_vain_at_once(world: Nodes) -> None:
    assert not a_lock("", "Semaphore", "/s", 1, world=world).lease().acquire(0)


def a_lease_for_a_body(world: Nodes) -> None:
    semaphore = a_lock("", "Semaphore", "/t", 1, world=world)
    with semaphore.lease():
        pass
    with semaphore.lease().within(1.0):
        pass


def a_lock_within_a_limit(world: Nodes) -> None:
    with a_lock("", "SequentialLock", "/a", world=world).within(1.0):
        pass


def several_locks(world: Nodes) -> None:
    client = client_of(world)
    with a_lock("", "MultiLock", SequentialLock(client, "/a"), SequentialLock(client, "/b")):
        pass


def twice_the_same(world: Nodes) -> None:
    with a_lock("", "ReentrantLock", "/a", world=world) as lock, lock:
        pass


SCENARIOS = [a_lease_in_vain, a_lease_in_vain_at_once, a_lease_for_a_body, a_lock_within_a_limit]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, LookupError])
@pytest.mark.parametrize("scenario", [*SCENARIOS, several_locks, twice_the_same])
def test_hazard_D12_an_interrupt_anywhere_leaves_no_node(
    scenario: Callable[[Nodes], None], kind: type[BaseException]
) -> None:
    """But for one before anything of `__exit__` has run."""
    n, worlds = 1 - STRIDE, list[Nodes]()  # all: an interrupt of a finalizer is raised nowhere
    while True:
        n += STRIDE
        worlds.append(world := Nodes())
        raised: BaseException | None = None
        with Interruption(n, kind) as interruption:
            try:
                scenario(world)
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
            a_lock_within_a_limit(Nodes())
        except LookupError as error:
            error = None
    if interruption.where is None:
        sys.exit(n < 100)
sys.exit("it has no end")
"""


def test_an_interrupt_anywhere_says_nothing_by_itself() -> None:
    """Such as that a coroutine was never awaited."""
    arguments = [sys.executable, "-W", "always", "-c", NO_WORD]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


# --- in two hands ---------------------------------------------------------------------------------


def test_a_multi_lock_that_is_not_held_releases_nothing() -> None:
    client = client_of(Nodes())
    one, two = SequentialLock(client, "/a"), SequentialLock(client, "/b")
    both = a_lock("", "MultiLock", one, two)
    assert one.acquire()
    for call in (both.release, both.acquire):
        with pytest.raises(RuntimeError):
            call()
    assert one.held
    assert not two.held


def test_what_is_in_other_hands_is_left_to_them() -> None:
    client = client_of(Nodes())
    both = a_lock("", "MultiLock", SequentialLock(client, "/a"), SequentialLock(client, "/b"))
    assert both.acquire()
    all_locks = getattr(both, "_algorithm", both)
    for thing in (*all_locks._parts, all_locks):
        thing._busy = True
        thing._release_in_background()
        with pytest.raises(RuntimeError, match="another thread or task"):
            run(thing._acquire_by(None, True))
        thing._busy = False
    assert both.held
    all_locks._busy, all_locks._acquired = True, False  # still being acquired
    with pytest.raises(RuntimeError, match="another thread or task"):
        run(all_locks._acquire_by(None, True))
    assert both.held
    core = all_locks._parts[0]
    core._set_inactive()
    assert core in core._runtime.active_locks


# --- what only an interrupt, or somebody else's hand, can reach -----------------------------------


async def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_reentrant_lock_whose_release_fails_is_to_be_released_still(prefix: str) -> None:
    async def failing(*_: object) -> None:
        raise LookupError

    async def scenario() -> None:
        lock = a_lock(prefix, "ReentrantLock", "/a", world=Nodes())
        algorithm = getattr(lock.lock, "_algorithm", lock.lock)
        own = getattr(lock, "_algorithm", lock)
        release, algorithm.release = algorithm.release, failing
        assert await done(lock.acquire())
        with pytest.raises(LookupError):
            await done(lock.release())
        assert lock.held
        algorithm.release = release
        assert await done(lock.acquire())
        own._release_in_background()
        assert lock.held
        own._release_in_background()
        assert not lock.held
        algorithm._acquire_by = refuse
        with pytest.raises(LockTakenError, match="/a is held"):
            async with entered(lock):
                pytest.fail("the body runs")

    asyncio.run(scenario())


def test_outside_of_a_task_there_is_nobody_to_hold_or_to_cancel() -> None:
    mine = AsyncReentrantLock(client_of(Nodes(), AsyncClient), "/a")
    refused: list[str] = []
    never: Any = None

    def look() -> None:
        outside = cancelled_by(never, KeyError, None)
        for call in (lambda: mine.held, lambda: run(outside.__aenter__())):
            with pytest.raises(RuntimeError) as caught:
                call()
            refused.append(str(caught.value))

    loop = asyncio.new_event_loop()
    loop.call_soon(look)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert [text.rpartition(" ")[2] for text in refused] == ["task", "none"]
