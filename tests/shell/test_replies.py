"""Replies of requests that no caller waits for: what they show, and what they call at their end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.shell.test_client import late
from tests.support.aio_helpers import blocking, complaints, eventually
from tests.support.fake_server import FakeServer
from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient, Client, ClientClosedError, NoNodeError, OutcomeUnknownError
from zkwire.testing import Server

both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])
Kind = type[Client] | type[AsyncClient]
PUBLIC = ["add_done_callback", "ready", "result"]
OF_A_COROUTINE = ["close", "send", "throw"]


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if hasattr(answer, "__await__") else answer


def operations(client: Any) -> Any:
    return client if isinstance(client, AsyncClient) else client.pipeline


@both
async def test_a_reply_has_the_few_public_attributes(kind: Kind, server: Server) -> None:
    client = kind(server.hosts)
    reply = operations(client).get_data("/")
    more = OF_A_COROUTINE if kind is AsyncClient else []
    assert [n for n in dir(reply) if n[0] != "_"] == sorted(PUBLIC + more)
    assert repr(reply) == "<reply of get_data /: not yet>"
    assert not reply.ready
    await done(client.connect())
    await eventually("answered", lambda: reply.ready)
    assert repr(reply) == "<reply of get_data /: ended>"
    assert reply.result().data == b""
    await done(client.close())


@both
async def test_done_callbacks_come_in_the_order_of_the_answers(kind: Kind, server: Server) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.connect())
    replies = [operations(client).exists("/") for _ in range(100)]
    for reply in replies:
        reply.add_done_callback(seen.append)
    await eventually("all", lambda: len(seen) == len(replies))
    assert seen == replies
    assert all(reply.ready for reply in seen)
    await done(client.close())


@both
async def test_a_done_callback_comes_between_the_events_around_it(
    kind: Kind, server: Server
) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.create("/a"))
    await done(client.get_data("/a", watch=lambda event: seen.append("event")))
    reply = operations(client).set_data("/a", b"new")  # the event comes before its answer
    reply.add_done_callback(lambda _: seen.append("answer"))
    await eventually("both", lambda: len(seen) == 2)
    assert seen == ["event", "answer"]
    await done(client.close())


@both
async def test_a_done_callback_of_an_ended_reply_is_called(kind: Kind, server: Server) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.connect())
    reply = operations(client).exists("/missing")
    await eventually("answered", lambda: reply.ready)
    reply.add_done_callback(seen.append)
    reply.add_done_callback(seen.append)
    await eventually("twice", lambda: seen == [reply, reply])
    assert reply.result() is None
    await done(client.close())


@both
async def test_a_done_callback_gets_refusals_and_losses(kind: Kind) -> None:
    gate, errors = threading.Event(), list[Exception]()

    def see(reply: Any) -> None:
        try:
            reply.result()
        except Exception as error:
            errors.append(error)

    with FakeServer() as refusing:
        client = kind(refusing.hosts)
        operations(client).get_data("/missing").add_done_callback(see)
        await eventually("refused", lambda: len(errors) == 1)
        await done(client.close())
    with FakeServer(late(gate)) as fake:
        client = kind(fake.hosts)
        await done(client.connect())
        operations(client).create("/a").add_done_callback(see)
        await blocking(fake.wait_for, lambda: fake.count("create") == 1)
        for connection in fake.connections:
            connection.reset()
        gate.set()
        await eventually("lost", lambda: len(errors) == 2)
        await done(client.close())
    assert [type(error) for error in errors] == [NoNodeError, OutcomeUnknownError]


@both
async def test_close_calls_what_was_not_done(kind: Kind) -> None:
    gate = threading.Event()
    with FakeServer(late(gate)) as fake:
        client, seen = kind(fake.hosts), list[Any]()
        await done(client.connect())
        reply = operations(client).exists("/")
        reply.add_done_callback(seen.append)
        await done(client.close())
        gate.set()
        await eventually("the end", lambda: seen == [reply])
        with pytest.raises(ClientClosedError):
            reply.result()


def test_a_done_callback_runs_in_the_callback_thread_and_may_block(server: Server) -> None:
    with Client(server.hosts) as client:
        names, answered = list[str](), threading.Event()

        def ask(reply: Any) -> None:
            client.create("/from-a-callback")
            names.append(threading.current_thread().name)
            answered.set()

        client.pipeline.exists("/").add_done_callback(ask)
        assert answered.wait(PATIENCE)
        assert names[0].endswith("-callbacks")


def test_a_done_callback_after_close_is_called_by_the_caller(server: Server) -> None:
    with Client(server.hosts) as client:
        reply = client.pipeline.exists("/")
        reply.result()
    seen = list[threading.Thread]()
    reply.add_done_callback(lambda _: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


def test_a_done_callback_that_fails_is_reported(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, told = list[Any](), threading.Event()

    def hook(args: threading.ExceptHookArgs) -> None:
        reported.append(args.exc_value)
        told.set()

    monkeypatch.setattr(threading, "excepthook", hook)
    with Client(server.hosts) as client:
        client.pipeline.exists("/").add_done_callback(lambda _: 1 // 0)
        assert told.wait(PATIENCE)
        assert client.exists("/") is not None
    assert isinstance(reported[0], ZeroDivisionError)


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
async def test_a_done_callback_that_cannot_be_called_is_refused(kind: Kind, server: Server) -> None:
    client = kind(server.hosts)
    reply = operations(client).exists("/")
    bad: Any = None
    with pytest.raises(TypeError, match="function must be callable"):
        reply.add_done_callback(bad)
    if kind is Client:
        with pytest.raises(TypeError, match="nothing awaits it"):
            reply.add_done_callback(asyncio.sleep)
    await done(reply)
    await done(client.close())
