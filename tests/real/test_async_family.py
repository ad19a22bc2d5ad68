"""The family for asyncio: the algorithms are shared, so this is about the client.

And about acting on loss: what `cancel_on_loss` cancels, and what it leaves alone. Under asyncio a
real server meets the family in `tests.connection_loss`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from weakref import ref

import pytest

from tests.support.aio_helpers import eventually
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    AsyncMultiLock,
    AsyncReentrantLock,
    AsyncSequentialLock,
    LockLostError,
    NoNodeError,
)
from zkwire.testing.proxy import FaultProxy

# ruff: noqa: PT012 - how a scope ends is what these tests are about

pytestmark = pytest.mark.own_server


class Stage:
    """A server and a proxy before it, without any thread of a client."""

    observer: AsyncClient

    def __init__(self, server: ZooKeeperServer, proxy: FaultProxy) -> None:
        self.hosts = server.hosts
        self.proxy = proxy

    async def nodes(self, path: str) -> list[str]:
        """The nodes of the contenders, in their order."""
        try:
            names = await self.observer.get_children(path)
        except NoNodeError:
            return []
        return [f"{path}/{name}" for name in sorted(names, key=lambda n: n[-10:])]

    def heal(self) -> None:
        """The network works again."""
        self.proxy.black_hole(False)
        self.proxy.cut_all()


@pytest.fixture
def stage(zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    with FaultProxy(upstream=zookeeper.hosts) as proxy:
        yield Stage(zookeeper, proxy)


@asynccontextmanager
async def clients(
    stage: Stage, count: int = 2, timeout: float = PATIENCE
) -> AsyncIterator[list[AsyncClient]]:
    """Clients; the first one is behind the proxy."""
    async with AsyncExitStack() as stack:
        stage.observer = await stack.enter_async_context(AsyncClient(stage.hosts))
        made = [
            AsyncClient(stage.hosts if number else stage.proxy.hosts, session_timeout=timeout)
            for number in range(count)
        ]
        yield [await stack.enter_async_context(client) for client in made]


async def lose(stage: Stage, path: str) -> None:
    """Somebody deletes the only contender's node."""
    (node,) = await stage.nodes(path)
    await stage.observer.delete(node)


async def queued(stage: Stage, path: str, count: int) -> None:
    """Wait until there are so many contenders."""

    async def look() -> bool:
        return len(await stage.nodes(path)) == count

    await eventually(f"{count} nodes", look)


# --- the locks ------------------------------------------------------------------------------------


async def test_a_body_under_several_locks_or_one_taken_twice_is_cancelled_by_a_loss(
    stage: Stage, fresh_path: str
) -> None:
    async with clients(stage, 1) as (client,):
        several = AsyncMultiLock(
            AsyncSequentialLock(client, fresh_path), AsyncSequentialLock(client, f"{fresh_path}/b")
        )
        for lock in (several, AsyncReentrantLock(client, fresh_path)):
            with pytest.raises(LockLostError, match=r"was lost: its node .* was deleted"):
                async with lock, lock.cancel_on_loss():
                    lock.check()
                    for node in await stage.nodes(fresh_path):
                        if "-lock-" in node:
                            await stage.observer.delete(node)
                    await asyncio.sleep(PATIENCE)
            with pytest.raises(LockLostError, match="is not held"):
                lock.check()


async def test_multi_lock_is_not_released_in_another_loop(stage: Stage, fresh_path: str) -> None:
    async with AsyncClient(stage.hosts) as client:
        lock = AsyncMultiLock(AsyncSequentialLock(client, fresh_path))
        assert await lock.acquire(GRACE)
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(lock.release()))
        assert lock.held
        await lock.release()


async def test_reentrant_lock_is_the_tasks(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock = AsyncReentrantLock(client, fresh_path)
        order: list[str] = []

        async def other() -> None:
            assert not lock.held
            with pytest.raises(RuntimeError, match="this thread or task does not hold"):
                await lock.release()
            assert not await lock.acquire(0)
            async with lock:
                order.append("other")

        with pytest.raises(RuntimeError, match="this thread or task does not hold"):
            await lock.release()
        async with lock:
            task = asyncio.ensure_future(other())
            async with lock:
                await queued(stage, fresh_path, 2)
                assert lock.held
            await queued(stage, fresh_path, 2)
            assert lock.held
            order.append("first")
        await task
        assert order == ["first", "other"]
        with pytest.raises(LockLostError):
            async with lock, lock:
                await lose(stage, fresh_path)
                await lock.lock.lost
                assert not lock.held
                with pytest.raises(LockLostError):
                    await lock.acquire()
        async with lock:
            assert lock.held
        assert await stage.nodes(fresh_path) == []


async def test_tasks_that_end_are_forgotten(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock = AsyncReentrantLock(client, fresh_path)
        used: list[ref[AsyncSequentialLock]] = []

        async def use() -> None:
            async with lock:
                used.append(ref(lock.lock))

        for _ in range(5):
            await asyncio.ensure_future(use())
        await asyncio.sleep(0)
        gc.collect()
        assert sum(one() is not None for one in used) <= 1


# --- acting on loss -------------------------------------------------------------------------------


async def test_loss_cancels_the_body(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        task = asyncio.current_task()
        assert task is not None
        for _ in range(2):
            reached = []
            lock = AsyncSequentialLock(client, fresh_path)
            with pytest.raises(LockLostError, match=r"its node .* was deleted"):
                async with lock, lock.cancel_on_loss() as entered:
                    assert entered is lock
                    await lose(stage, fresh_path)
                    await asyncio.Event().wait()
                    reached.append("the end")
            assert not reached
            assert task.cancelling() == 0
            await client.sync()


async def test_a_body_that_has_ended_is_remembered_by_nobody(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,), AsyncSequentialLock(client, fresh_path) as lock:
        for _ in range(3):
            async with lock.cancel_on_loss():
                assert len(lock.lost._wakers) == 1
        assert not lock.lost._wakers


async def test_partition_cancels_the_body(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1, SHORT) as (client,):
        lock = AsyncSequentialLock(client, fresh_path)
        with pytest.raises(LockLostError, match="was lost"):
            async with lock, lock.cancel_on_loss():
                stage.proxy.black_hole()
                await asyncio.Event().wait()
        stage.heal()


async def test_body_without_a_loss_is_left_alone(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock = AsyncSequentialLock(client, fresh_path)
        async with lock:
            async with lock.cancel_on_loss():
                await client.sync()
            with pytest.raises(KeyError):
                async with lock.cancel_on_loss():
                    raise KeyError
            # What comes after the scope is nobody's to cancel.
            await lose(stage, fresh_path)
            assert await lock.lost
            await client.sync()
            with pytest.raises(LockLostError):
                await lock.release()
            assert await lock.acquire(GRACE)


async def test_scope_of_a_lock_not_held_is_not_entered(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock = AsyncSequentialLock(client, fresh_path)
        with pytest.raises(LockLostError, match="is not held"):
            async with lock.cancel_on_loss():
                raise AssertionError


async def test_cancellation_from_outside_stays_one(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock, inside = AsyncSequentialLock(client, fresh_path), asyncio.Event()

        async def body() -> None:
            async with lock, lock.cancel_on_loss():
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(body())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lock.held
        await queued(stage, fresh_path, 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lock, lock.cancel_on_loss():
                await asyncio.Event().wait()


async def test_cancellation_from_outside_together_with_a_loss(
    stage: Stage, fresh_path: str
) -> None:
    """Whoever has cancelled the task waits for it to be cancelled."""
    async with clients(stage, 1) as (client,):
        lock, inside = AsyncSequentialLock(client, fresh_path), asyncio.Event()

        async def body() -> None:
            async with lock, lock.cancel_on_loss():
                task = asyncio.current_task()
                assert task is not None
                lock.lost.add_callback(lambda _: task.cancel())
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(body())
        await inside.wait()
        await lose(stage, fresh_path)
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("first", ["body", "scope"])
async def test_loss_right_at_the_end_of_the_body(stage: Stage, fresh_path: str, first: str) -> None:
    """The body ends in the turn of the loop in which the loss is noticed: just before, just after.

    Whichever it is, no cancellation is left for what comes next.
    """
    async with clients(stage, 1) as (client,):
        task, noticed, ended = asyncio.current_task(), asyncio.Event(), False
        assert task is not None
        lock = AsyncSequentialLock(client, fresh_path)
        assert await lock.acquire(GRACE)
        if first == "body":
            client._driver.when_ready(lock.lost, noticed.set)
        losing = asyncio.ensure_future(lose(stage, fresh_path))
        with suppress(LockLostError):
            async with lock.cancel_on_loss():
                if first == "scope":
                    client._driver.when_ready(lock.lost, noticed.set)
                await noticed.wait()
            ended = True
        assert ended == (first == "body")
        assert task.cancelling() == 0
        await losing
        await client.sync()
        with pytest.raises(LockLostError):
            await lock.release()


@pytest.mark.parametrize("error", [None, KeyError])
async def test_body_that_swallows_the_cancellation_or_turns_it_into_an_error(
    stage: Stage, fresh_path: str, error: type[Exception] | None
) -> None:
    """Its error stays; the cancellation has done its work and must not count any longer."""
    async with clients(stage, 1) as (client,):
        task, swallowed = asyncio.current_task(), False
        assert task is not None
        lock = AsyncSequentialLock(client, fresh_path)
        assert await lock.acquire(GRACE)
        losing = asyncio.ensure_future(lose(stage, fresh_path))
        with pytest.raises(error or LockLostError, match=None if error else "was lost"):
            async with lock.cancel_on_loss():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    swallowed = True
                    if error:
                        raise error from None
        assert swallowed
        cancelling = task.cancelling()
        while task.cancelling():
            task.uncancel()
        await losing
        with pytest.raises(LockLostError):
            await lock.release()
        assert cancelling == 0
