"""One test for both clients: a coroutine, which the calls of a `Client` block in place."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient, Client, ZooKeeperError
from zkwire.aio.replies import AsyncReply

Kind = type[Client] | type[AsyncClient]
both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if isinstance(answer, Coroutine) else answer


def asking(client: Any) -> Any:
    """Where an operation returns a reply."""
    return client if isinstance(client, AsyncClient) else client.pipeline


async def answer(reply: Any, seconds: float = PATIENCE) -> Any:
    """What such a reply comes to; given up after so long."""
    if isinstance(reply, AsyncReply):
        return await reply._request.within(seconds)
    return reply.result(seconds)


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


@asynccontextmanager
async def opened(kind: Kind, hosts: str, **options: Any) -> AsyncIterator[Any]:
    """A connected client, which is closed in the end."""
    client: Any = functools.partial(kind, hosts)(**options)
    try:
        await done(client.connect(PATIENCE))
        yield client
    finally:
        await done(client.close())
