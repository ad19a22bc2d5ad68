"""What both clients say of their session and their servers, and what begins and breaks it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.aio_helpers import blocking, eventually
from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient, Client, ClientClosedError, State
from zkwire.testing import Server

both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])
Kind = type[Client] | type[AsyncClient]


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if hasattr(answer, "__await__") else answer


# --- start ----------------------------------------------------------------------------------------


@both
async def test_start_connects_without_waiting(kind: Kind, server: Server) -> None:
    client = kind(server.hosts)
    assert client.state is State.NOT_STARTED
    client.start()
    client.start()
    assert client.state is not State.NOT_STARTED or kind is Client
    await eventually("connected", lambda: client.state is State.CONNECTED)
    await done(client.close())


@both
async def test_start_returns_although_no_server_answers(kind: Kind, server: Server) -> None:
    await blocking(server.stop)
    client = kind(server.hosts)
    client.start()
    await eventually("it tries", lambda: client.state in {State.CONNECTING, State.DISCONNECTED})
    await blocking(server.start)
    waited = client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
    assert await done(waited) is State.CONNECTED
    await done(client.close())


@both
async def test_start_after_the_end_raises_it(kind: Kind, server: Server) -> None:
    client = kind(server.hosts)
    await done(client.close())
    with pytest.raises(ClientClosedError):
        client.start()


def test_start_without_a_loop_is_refused(server: Server) -> None:
    client = AsyncClient(server.hosts)
    with pytest.raises(RuntimeError, match="no running event loop"):
        client.start()
    assert client.state is State.NOT_STARTED
    asyncio.run(client.close())
