"""Callbacks of watches forever: their first call, the event, how they end, which are refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.support.aio_helpers import eventually
from tests.support.lock_helpers import PATIENCE
from zkwire import (
    ACL,
    AsyncClient,
    AsyncSupervisor,
    Client,
    Event,
    EventType,
    NoAuthError,
    Perms,
    Supervisor,
    digest_id,
)
from zkwire.testing import Server

both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["threads", "asyncio"])
watches = pytest.mark.parametrize("watch", ["watch_data", "watch_children"])
Kind = type[Client] | type[AsyncClient]


async def done(answer: Any) -> Any:
    """What a method returns, with either client."""
    return await answer if hasattr(answer, "__await__") else answer


@both
@watches
async def test_wait_called_returns_after_the_first_call(
    kind: Kind, watch: str, server: Server
) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.create("/a", b"x"))
    begun = getattr(client, watch)("/a", seen.append)
    assert await done(begun.wait_called(PATIENCE)) is True
    assert [state.stat.version for state in seen] == [0]
    assert await done(begun.wait_called(0)) is True
    begun.close()
    assert await done(begun.wait_called()) is True
    await done(client.close())


async def test_wait_called_waits_for_a_coroutine_function(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        gate, ended = asyncio.Event(), list[int]()

        async def callback(_: object) -> None:
            await gate.wait()
            ended.append(1)

        watch = client.watch_data("/", callback)
        assert not await watch.wait_called(0.05)
        gate.set()
        assert await watch.wait_called(PATIENCE)
        assert ended == [1]
        watch.close()


def test_wait_called_tells_a_timeout_a_refusal_and_a_missing_callback(server: Server) -> None:
    gate = threading.Event()
    with Client(server.hosts) as client:
        watch = client.watch_data("/", lambda _: gate.wait(PATIENCE) and None)
        assert not watch.wait_called(0.05)
        gate.set()
        assert watch.wait_called(PATIENCE)
        client.create("/secret", b"", [ACL(Perms.ALL, digest_id("bob", "secret"))])
        refused = client.watch_data("/secret", print)
        with pytest.raises(NoAuthError):
            refused.wait_called(PATIENCE)
        with pytest.raises(RuntimeError, match="there is no callback"):
            client.watch_data("/").wait_called()


@both
async def test_the_event_is_passed_if_it_is_asked_for(kind: Kind, server: Server) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.create("/a", b"x"))
    watch = client.watch_data("/a", lambda *given: seen.append(given), with_event=True)
    await eventually("first", lambda: len(seen) == 1)
    state, event = seen[0]
    assert (state.data, event) == (b"x", None)
    await done(client.set_data("/a", b"y"))
    await eventually("second", lambda: len(seen) == 2)
    state, event = seen[1]
    assert state.data == b"y"
    assert isinstance(event, Event)
    assert (event.type, event.path) == (EventType.NODE_DATA_CHANGED, "/a")
    await done(client.delete("/a"))
    await eventually("deleted", lambda: len(seen) == 3)
    state, event = seen[2]
    assert state.data is None
    assert event.type is EventType.NODE_DELETED
    watch.close()
    await done(client.close())


@both
@watches
async def test_a_callback_that_returns_false_ends_its_watch(
    kind: Kind, watch: str, server: Server
) -> None:
    client, seen = kind(server.hosts), list[Any]()
    await done(client.connect())

    def once(state: Any) -> bool:
        seen.append(state)
        return len(seen) < 2

    begun = getattr(client, watch)("/", once)
    await done(begun.wait_called(PATIENCE))
    await done(client.create("/a") if watch == "watch_children" else client.set_data("/", b"1"))
    await eventually("twice", lambda: len(seen) == 2)
    await eventually("no watch is left", lambda: not server.watches(client.session_id))
    await done(client.create("/b") if watch == "watch_children" else client.set_data("/", b"2"))
    assert len(seen) == 2
    begun.close()
    await done(client.close())


async def test_a_coroutine_function_that_returns_false_ends_its_watch(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:

        async def once(_: object) -> bool:
            return False

        watch = client.watch_data("/", once)
        assert await watch.wait_called(PATIENCE)
        await eventually("no watch is left", lambda: not server.watches(client.session_id))


def test_other_false_values_end_nothing(server: Server) -> None:
    with Client(server.hosts) as client:
        watch = client.watch_data("/", lambda _: 0)
        assert watch.wait_called(PATIENCE)
        assert server.watches(client.session_id) == ["/"]
        watch.close()


@both
@watches
async def test_a_callback_with_other_parameters_is_refused_at_once(
    kind: Kind, watch: str, server: Server
) -> None:
    client = kind(server.hosts)
    begin = getattr(client, watch)
    refusals: list[tuple[Any, bool, str]] = [
        (lambda data, stat: None, False, "with the state alone, without with_event=True"),
        (lambda: None, False, "with the state alone"),
        (lambda state: None, True, "with the state and the event"),
        (lambda *, state: None, False, "with the state alone"),
        (7, False, "must be callable"),
    ]
    for callback, with_event, message in refusals:
        with pytest.raises(TypeError, match=message):
            begin("/", callback, with_event=with_event)
    with pytest.raises(TypeError, match="with_event needs a callback"):
        begin("/", with_event=True)
    with pytest.raises(TypeError, match="with_event must be True or False"):
        begin("/", print, with_event="yes")
    for callback, with_event in [(print, False), (lambda *given: None, True), ([].append, False)]:
        begin("/", callback, with_event=with_event).close()
    assert not server.watches(client.session_id)
    await done(client.close())


def test_a_supervisor_passes_them_on(server: Server) -> None:
    with Supervisor(server.hosts) as supervisor:
        seen = list[Any]()

        def once(_: object, event: Event | None) -> bool:
            seen.append(event)
            return False

        watch = supervisor.watch_data("/", once, with_event=True)
        assert watch.wait_called(PATIENCE)
        assert seen == [None]


async def test_a_supervisor_passes_them_on_under_asyncio(server: Server) -> None:
    async with AsyncSupervisor(server.hosts) as supervisor:
        seen = list[Any]()
        watch = supervisor.watch_children("/", lambda s, e: seen.append(e), with_event=True)
        assert await watch.wait_called(PATIENCE)
        assert seen == [None]
        watch.close()
