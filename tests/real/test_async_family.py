"""The family for asyncio: the algorithms are shared, so this is about the client.

And about acting on loss: what `cancel_on_loss` cancels, and what it leaves alone. Under asyncio a
real server meets the family in `tests.connection_loss`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support.lock_helpers import GRACE, PATIENCE
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
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


async def test_scope_of_a_lock_not_held_is_not_entered(stage: Stage, fresh_path: str) -> None:
    async with clients(stage, 1) as (client,):
        lock = AsyncSequentialLock(client, fresh_path)
        with pytest.raises(LockLostError, match="is not held"):
            async with lock.cancel_on_loss():
                raise AssertionError


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
