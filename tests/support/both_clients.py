"""One test for threads and for asyncio: a coroutine, in which the calls of a `Client` block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

import zkwire
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.recipe_samples import lock
from zkwire import AsyncClient, ConnectionLossError, ZooKeeperError
from zkwire.aio.replies import AsyncReply
from zkwire.blocking.sync import run

T = TypeVar("T")
LOCKS = {
    "non-blocking": "NonBlockingLock",
    "blocking": "BlockingLock",
    "sequential": "SequentialLock",
    "re-entrant": "ReentrantLock",
    "read": "ReadWriteLock.read",
    "write": "ReadWriteLock.write",
    "lease": "Semaphore",
    "leadership": "Election",
    "multi": "MultiLock",
}
"""The kinds of locks, and what `recipe_samples` calls them."""


class Side:
    """The classes for threads, or with the prefix "Async" those for asyncio, by the same names."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.asyncio = bool(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(zkwire, self.prefix + name)

    def lock(self, kind: str, client: Any, path: str, **named: Any) -> Any:
        """A lock of one of LOCKS."""
        return lock(LOCKS[kind], client, path, **named)

    def function(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
        """What a user gives to this side in order to be called back."""
        return work if self.asyncio else lambda argument: run(work(argument))

    def start(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it in a task or in a thread, for :func:`result`."""
        if self.asyncio:
            return asyncio.ensure_future(function(*arguments))
        return Running(lambda: function(*arguments))

    @asynccontextmanager
    async def opened(self, hosts: str, **options: Any) -> AsyncIterator[Any]:
        """A connected client, which is closed in the end."""
        async with using(self.Client(hosts, **options)) as client:
            await done(client.connect(PATIENCE))
            yield client


both = pytest.mark.parametrize("side", [Side(""), Side("Async")], ids=["threads", "asyncio"])


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if isinstance(answer, Coroutine) else answer


async def result(started: Any) -> Any:
    """What has been started comes to."""
    if isinstance(started, Running):
        return await asyncio.to_thread(started.result)
    return await asyncio.wait_for(started, PATIENCE)


@asynccontextmanager
async def using(thing: Any) -> AsyncIterator[Any]:
    """It is closed in the end."""
    try:
        yield thing
    finally:
        await done(thing.close())


@asynccontextmanager
async def entered(manager: Any) -> AsyncIterator[Any]:
    """The body of a `with`, or of an `async with`."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


async def each(things: Any) -> AsyncIterator[Any]:
    """The elements, as they come."""
    if hasattr(things, "__aiter__"):
        async for thing in things:
            yield thing
    else:
        for thing in things:
            yield thing


def asking(client: Any) -> Any:
    """Where an operation returns a reply."""
    return client if isinstance(client, AsyncClient) else client.pipeline


async def answer(reply: Any, seconds: float = PATIENCE) -> Any:
    """What such a reply comes to; given up after so long."""
    if isinstance(reply, AsyncReply):
        return await reply._request.within(seconds)
    return reply.result(seconds)


def again(call: Callable[[], T]) -> T:
    """Repeat what a lost connection has ended."""
    while True:
        with suppress(ConnectionLossError):
            return call()


def ending(reply: Any, seconds: float = PATIENCE) -> ZooKeeperError | None:
    """How a reply has ended: its error, or None for a result."""
    try:
        reply.result(seconds)
    except ZooKeeperError as error:
        return error
    return None


async def ended(replies: list[Any]) -> list[ZooKeeperError | None]:
    """Wait until all have ended; how."""
    for reply in replies:
        with suppress(ZooKeeperError):
            await answer(reply)
    return [ending(reply) for reply in replies]


async def event_of(watch: Any, client: Any) -> Any:
    """The next event of a watch."""
    return await watch if isinstance(client, AsyncClient) else watch.wait(PATIENCE)
