"""What both clients say of their session, their servers and their replies."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.shell.test_client import late
from tests.support.aio_helpers import blocking, complaints, eventually
from tests.support.both_clients import Side, asking, both, done, ending
from tests.support.fake_server import FakeServer, mute
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    AsyncClient,
    Client,
    ClientClosedError,
    NoNodeError,
    OutcomeUnknownError,
    State,
)
from zkwire.net.server_list import ServerListUpdates
from zkwire.testing import Server, break_connection

# --- the list of servers --------------------------------------------------------------------------


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


# --- replies that no caller waits for -------------------------------------------------------------

PUBLIC = ["add_done_callback", "ready", "result"]
OF_A_COROUTINE = ["close", "send", "throw"]


@both
async def test_a_reply_has_the_few_public_attributes(side: Side, server: Server) -> None:
    client: Any = side.Client(server.hosts)
    reply = asking(client).get_data("/")
    more = OF_A_COROUTINE if side.asyncio else []
    assert [n for n in dir(reply) if n[0] != "_"] == sorted(PUBLIC + more)
    assert repr(reply) == "<reply of get_data /: not yet>"
    assert not reply.ready
    await done(client.connect())
    await eventually("answered", lambda: reply.ready)
    assert repr(reply) == "<reply of get_data /: ended>"
    assert reply.result().data == b""
    await done(client.close())


@both
async def test_a_done_callback_gets_refusals_losses_and_the_end(side: Side) -> None:
    gate, errors = threading.Event(), list[Any]()

    def see(reply: Any) -> None:
        errors.append(type(ending(reply)))

    with FakeServer() as refusing:
        async with side.opened(refusing.hosts) as client:
            asking(client).get_data("/missing").add_done_callback(see)
            await eventually("refused", lambda: len(errors) == 1)
    with FakeServer(late(gate), mute) as fake:
        async with side.opened(fake.hosts) as client:
            asking(client).create("/a").add_done_callback(see)
            await blocking(fake.wait_for, lambda: fake.count("create") == 1)
            fake.connections[0].reset()
            gate.set()
            await eventually("lost", lambda: len(errors) == 2)
            asking(client).exists("/").add_done_callback(see)
        await eventually("the end", lambda: len(errors) == 3)
    assert errors == [NoNodeError, OutcomeUnknownError, ClientClosedError]


def test_a_done_callback_of_threads_may_block_and_may_fail(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the callback thread; after a close its caller runs it."""
    reported, names, told = list[Any](), list[str](), threading.Event()

    def hook(args: threading.ExceptHookArgs) -> None:
        reported.append(args.exc_value)
        told.set()

    def ask(reply: Any) -> None:
        client.create("/from-a-callback")
        names.append(threading.current_thread().name)

    monkeypatch.setattr(threading, "excepthook", hook)
    with Client(server.hosts) as client:
        reply = client.pipeline.exists("/")
        reply.add_done_callback(ask)
        reply.add_done_callback(lambda _: 1 // 0)
        assert told.wait(PATIENCE)
        assert client.exists("/from-a-callback") is not None
    assert isinstance(reported[0], ZeroDivisionError)
    assert names[0].endswith("-callbacks")
    seen = list[threading.Thread]()
    reply.add_done_callback(lambda _: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


async def test_a_done_callback_may_be_a_coroutine_function_under_asyncio(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        stats = list[Any]()

        async def follow(reply: Any) -> None:
            stats.append(await client.exists(await reply))

        client.create("/a").add_done_callback(follow)
        assert stats == [], "never from within the call"
        await eventually("called", lambda: stats)
        assert stats[0].version == 0
        client.exists("/").add_done_callback(lambda _: 1 // 0)
        await eventually("reported", lambda: complaints().take())


@both
async def test_a_done_callback_that_cannot_be_called_is_refused(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        reply = asking(client).exists("/")
        with pytest.raises(TypeError, match="function must be callable"):
            reply.add_done_callback(None)
        assert await reply is not None
        if not side.asyncio:
            with pytest.raises(TypeError, match="nothing awaits it"):
                reply.add_done_callback(asyncio.sleep)
