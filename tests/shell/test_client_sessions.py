"""What both clients say of their session and their servers, and what begins and breaks it."""

from __future__ import annotations

import ssl
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.shell.test_client import late
from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import Side, asking, both, done
from tests.support.certificates import Certificate
from tests.support.fake_server import FakeServer
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    Client,
    ClientClosedError,
    ConnectionLossError,
    OutcomeUnknownError,
    State,
)
from zkwire.net.server_list import ServerListUpdates
from zkwire.testing import Ensemble, Server, break_connection

# --- start, and the server ------------------------------------------------------------------------


@both
async def test_start_connects_without_waiting(side: Side, server: Server) -> None:
    """Whether a server answers or not."""
    await blocking(server.stop)
    client: Any = side.Client(server.hosts)
    assert client.state is State.NOT_STARTED
    client.start()
    client.start()
    await eventually("it tries", lambda: client.state in {State.CONNECTING, State.DISCONNECTED})
    await blocking(server.start)
    waited = client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
    assert await done(waited) is State.CONNECTED
    await done(client.close())
    with pytest.raises(ClientClosedError):
        client.start()


@both
async def test_server_is_the_address_of_the_connected_one(side: Side) -> None:
    with Ensemble(2) as ensemble:
        servers: dict[Any, Any] = {
            ("127.0.0.1", member.port): member for member in ensemble.servers
        }
        client: Any = side.Client(ensemble.hosts.replace("127.0.0.1", "localhost"))
        assert client.server is None
        await done(client.connect())
        first = servers.pop(client.server)
        await blocking(first.stop)
        await eventually("the other", lambda: client.server in servers)
        for last in servers.values():
            await blocking(last.stop)
        await eventually("disconnected", lambda: client.server is None)
        await done(client.close())


@both
async def test_last_zxid_grows_with_what_answers_show(side: Side, server: Server) -> None:
    client: Any = side.Client(server.hosts)
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
async def test_set_hosts_is_for_the_next_connection(side: Side) -> None:
    with Server() as one, Server() as two:
        with Client(two.hosts) as ahead:  # a server that is behind would refuse the client
            for name in "abcd":
                ahead.create(f"/{name}")
        async with side.opened(one.hosts) as client:
            client.set_hosts(two.hosts)
            await done(client.exists("/"))
            assert client.server == ("127.0.0.1", one.port), "a connection stays"
            assert repr(client) == f"<{side.prefix}Client {two.hosts} connected>"
            await blocking(one.stop)
            expired = client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
            assert await done(expired) is State.EXPIRED, "the other does not know the session"


@both
async def test_set_hosts_before_the_first_use_and_from_a_thread(side: Side, server: Server) -> None:
    client: Any = side.Client("nowhere.invalid:1/app")
    with pytest.raises(ValueError, match="the chroot of a client stays, '/app'"):
        client.set_hosts(f"{server.hosts}/other")
    with pytest.raises(ValueError, match="names no server"):
        client.set_hosts("")
    client.set_hosts(f"{server.hosts}/app")
    client.set_hosts(server.hosts)
    assert repr(client) == f"<{side.prefix}Client {server.hosts}/app not started>"
    with Client(server.hosts) as other:
        other.create("/app", b"x")
    assert (await done(client.get_data("/"))).data == b"x"
    await blocking(client.set_hosts, f"localhost:{server.port}")
    await blocking(server.cut_all)
    await eventually("again", lambda: client.server == ("127.0.0.1", server.port))
    await done(client.close())


@both
async def test_without_shuffle_hosts_the_first_is_tried_first(side: Side) -> None:
    with Ensemble(5) as ensemble:
        for first in range(5):
            turned = ensemble.servers[first:] + ensemble.servers[:first]
            hosts = ",".join(each.hosts for each in turned)
            async with side.opened(hosts, shuffle_hosts=False) as client:
                assert client.server == ("127.0.0.1", turned[0].port)


async def test_set_hosts_is_what_follow_reconfig_keeps_with_tls() -> None:
    updates = ServerListUpdates(SimpleNamespace(tls=object()), [("a", 1)])  # type: ignore[arg-type]
    client = AsyncClient("a:1", follow_reconfig=True)
    client._updates = updates
    client.set_hosts("b:2")
    assert updates._given == [("b", 2)]
    await client.close()


# --- a broken connection --------------------------------------------------------------------------


@both
async def test_break_connection_breaks_the_connection_alone(side: Side, whole: str) -> None:
    client: Any = side.Client(whole)
    states = list[State]()
    assert not break_connection(client)
    await done(client.connect())
    session = client.session_id
    client.add_state_listener(states.append)
    assert await blocking(break_connection, client)
    await eventually("it is back", lambda: states[-1:] == [State.CONNECTED])
    assert states[0] is State.DISCONNECTED
    assert client.session_id == session
    assert await done(client.exists("/")) is not None
    async with side.opened(whole, resume=client.credentials):
        pass  # which ends the session
    break_connection(client)
    expired = client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
    assert await done(expired) is State.EXPIRED
    await done(client.close())
    assert not break_connection(client)


@both
async def test_what_is_under_way_ends_with_a_broken_connection(side: Side) -> None:
    gate = threading.Event()
    with FakeServer(late(gate)) as fake:
        async with side.opened(fake.hosts) as client:
            reply = asking(client).create("/a")
            await blocking(fake.wait_for, lambda: fake.count("create") == 1)
            break_connection(client)
            await eventually("ended", lambda: reply.ready)
            gate.set()
            with pytest.raises(OutcomeUnknownError):
                reply.result()


@both
async def test_break_connection_through_tls(
    side: Side, shown: Certificate, trusting: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.both)
    with Server(tls=context) as server:
        async with side.opened(server.hosts, tls=trusting) as client:
            first, states = client.session_id, list[State]()
            client.add_state_listener(states.append)
            assert await blocking(break_connection, client)
            await eventually("it is back", lambda: states[-1:] == [State.CONNECTED])
            assert states[0] is State.DISCONNECTED
            assert client.session_id == first


def test_a_call_that_a_loss_has_failed_does_not_wait_for_listeners(server: Server) -> None:
    heard, gate = threading.Event(), threading.Event()

    def listener(_: State) -> None:
        heard.set()
        assert gate.wait(PATIENCE)

    with Client(server.hosts, session_timeout=2.0) as client:
        client.add_state_listener(listener)
        server.stop()
        with pytest.raises(ConnectionLossError):
            client.exists("/")
        assert heard.wait(PATIENCE)
        with pytest.raises(ConnectionLossError):  # while the listener still runs
            client.exists("/")
        gate.set()
