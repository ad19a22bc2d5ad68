"""What both clients say of their session and their servers, and what begins and breaks it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.aio_helpers import blocking, eventually
from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient, Client, ClientClosedError, State
from zkwire.net.server_list import ServerListUpdates
from zkwire.testing import Ensemble, Server

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


# --- the server, and what it has shown ------------------------------------------------------------


@both
async def test_server_is_the_address_of_the_connected_one(kind: Kind, server: Server) -> None:
    client = kind(f"localhost:{server.port}")
    assert client.server is None
    await done(client.connect())
    assert client.server == ("127.0.0.1", server.port)
    await blocking(server.stop)
    await eventually("disconnected", lambda: client.server is None)
    await done(client.close())
    assert client.server is None


@both
async def test_server_is_the_next_one_after_a_loss(kind: Kind) -> None:
    with Ensemble(2) as ensemble:
        client = kind(ensemble.hosts)
        await done(client.connect())
        ports = {member.port: member for member in ensemble.servers}
        first = client.server
        assert first is not None
        await blocking(ports.pop(first[1]).stop)
        await eventually("the other", lambda: client.server == ("127.0.0.1", *ports))
        await done(client.close())


@both
async def test_last_zxid_grows_with_what_answers_show(kind: Kind, server: Server) -> None:
    client = kind(server.hosts)
    assert client.last_zxid == 0
    path, stat = await done(client.create_with_stat("/a"))
    assert client.last_zxid == stat.czxid > 0
    with Client(server.hosts) as other:
        changed = other.set_data(path, b"new").mzxid
    assert client.last_zxid < changed
    await done(client.get_data(path))
    shown = client.last_zxid  # the end of the other session has one, too
    assert shown >= changed
    await done(client.close())
    assert client.last_zxid >= shown


# --- the list of servers --------------------------------------------------------------------------


@both
async def test_set_hosts_is_for_the_next_connection(kind: Kind) -> None:
    with Server() as one, Server() as two:
        with Client(two.hosts) as ahead:  # a server that is behind would refuse the client
            for name in "abcd":
                ahead.create(f"/{name}")
        client = kind(one.hosts)
        await done(client.connect())
        client.set_hosts(two.hosts)
        await done(client.exists("/"))
        assert client.server == ("127.0.0.1", one.port), "a connection stays"
        assert repr(client) == f"<{kind.__name__} {two.hosts} connected>"
        await blocking(one.stop)
        expired = client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
        assert await done(expired) is State.EXPIRED, "the other ensemble does not know the session"
        await done(client.close())


@both
async def test_set_hosts_before_the_first_use_and_from_a_thread(kind: Kind, server: Server) -> None:
    client = kind("nowhere.invalid:1")
    client.set_hosts(server.hosts)
    assert client.state is State.NOT_STARTED
    await done(client.connect())
    await blocking(client.set_hosts, f"localhost:{server.port}")
    await blocking(server.cut_all)
    await eventually("again", lambda: client.server == ("127.0.0.1", server.port))
    await done(client.close())


@both
async def test_set_hosts_keeps_the_chroot(kind: Kind, server: Server) -> None:
    with Client(server.hosts) as other:
        other.create("/app", b"x")
    client = kind("nowhere.invalid:1/app")
    with pytest.raises(ValueError, match="the chroot of a client stays, '/app'"):
        client.set_hosts(f"{server.hosts}/other")
    with pytest.raises(ValueError, match="names no server"):
        client.set_hosts("")
    client.set_hosts(f"{server.hosts}/app")
    client.set_hosts(server.hosts)
    assert repr(client) == f"<{kind.__name__} {server.hosts}/app not started>"
    assert (await done(client.get_data("/"))).data == b"x"
    await done(client.close())


@both
async def test_without_shuffle_hosts_the_first_is_tried_first(kind: Kind) -> None:
    with Ensemble(5) as ensemble:
        ports = [member.port for member in ensemble.servers]
        for first in range(5):
            turned = ensemble.servers[first:] + ensemble.servers[:first]
            client = kind(",".join(each.hosts for each in turned), shuffle_hosts=False)
            await done(client.connect())
            assert client.server == ("127.0.0.1", ports[first])
            await done(client.close())


async def test_set_hosts_is_what_follow_reconfig_keeps_with_tls() -> None:
    updates = ServerListUpdates(SimpleNamespace(tls=object()), [("a", 1)])  # type: ignore[arg-type]
    client = AsyncClient("a:1", follow_reconfig=True)
    client._updates = updates
    client.set_hosts("b:2")
    assert updates._given == [("b", 2)]
    await client.close()
