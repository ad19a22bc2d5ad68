"""How many descriptors a client has: a service with hundreds of clients reaches `ulimit -n`."""

from __future__ import annotations

import os
import select
import selectors
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.both_clients import Side, answer, asking, both, done, event_of
from zkwire import Watch
from zkwire.testing import Server

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc"
)
CLIENTS = 10


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def use(client: Any) -> None:
    """In every way: a read, a watch, an operation whose answer nobody waits for."""
    path, watch = f"/{client.session_id}", Watch()
    await done(client.exists(path, watch=watch))
    await answer(asking(client).create(path))
    assert await event_of(watch, client)


@both
@pytest.mark.parametrize("epoll", [True, False])
async def test_a_client_has_few_descriptors_and_none_when_it_is_closed(
    side: Side, epoll: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not epoll:
        monkeypatch.delattr(select, "epoll")
        monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    async with side.opened(server.hosts):
        pass  # what the process itself gets once
    own, theirs = 5 if not side.asyncio else 1, 1  # the server, here too, has the other end
    before = descriptors()
    async with AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            await use(await stack.enter_async_context(side.opened(server.hosts)))
        assert CLIENTS < descriptors() - before <= (own + theirs) * CLIENTS
    assert descriptors() <= before + theirs * CLIENTS
