"""Watches of both clients, and the callbacks that they call."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE
from tests.support.aio_helpers import eventually
from tests.support.both_clients import Side, both, done
from tests.support.fake_server import FakeServer
from zkwire import (
    ACL,
    AsyncClient,
    Client,
    Event,
    NoAuthError,
    Perms,
    digest_id,
)
from zkwire.testing import Server

# --- callbacks of threads -------------------------------------------------------------------------


def test_hazard_A25_a_callback_may_block_and_the_session_lives_on(fake: FakeServer) -> None:
    """Pings go on, and so do calls, for longer than the session timeout."""
    entered, leave = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    with Client(fake.hosts, session_timeout=2.4) as client:
        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        fake.wait_for(lambda: fake.count("ping") >= 4)
        assert client.exists("/a") is not None
        leave.set()
        assert len(fake.sessions) == 1


def test_a_callback_that_raises_is_reported_and_the_next_one_runs(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one that nobody awaits; and a hook of the program's own may fail as callbacks do."""
    reported: list[threading.ExceptHookArgs] = []
    hooks: list[type[BaseException]] = []
    called = [threading.Event(), threading.Event()]

    async def note(event: Event) -> None:
        raise AssertionError("awaited")

    def broken(args: threading.ExceptHookArgs) -> None:
        raise ArithmeticError("in the hook")

    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: hooks.append(kind))
    monkeypatch.setattr(threading, "excepthook", reported.append)
    for watch in (lambda event: 1 / 0, note, lambda event: called[0].set()):
        client.exists(fresh_path, watch=watch)
    client.create(fresh_path)
    assert called[0].wait(PATIENCE)
    first, second = reported
    assert first.exc_type is ZeroDivisionError
    assert first.thread is not None
    assert "callbacks" in first.thread.name
    expected = "note is async: callbacks of a Client are not awaited"
    assert expected in str(second.exc_value)
    monkeypatch.setattr(threading, "excepthook", broken)
    for watch in (lambda event: 1 / 0, lambda event: called[1].set()):
        client.get_data(fresh_path, watch=watch)
    client.delete(fresh_path)
    assert called[1].wait(PATIENCE)
    assert hooks == [ArithmeticError]


# --- callbacks of watches forever -----------------------------------------------------------------

watches = pytest.mark.parametrize("watch", ["watch_data", "watch_children"])


@both
@watches
async def test_a_callback_that_returns_false_ends_its_watch(
    side: Side, watch: str, server: Server
) -> None:
    async with side.opened(server.hosts) as client:
        seen = list[Any]()

        def once(state: Any) -> bool:
            seen.append(state)
            return len(seen) < 2

        async def change(name: str) -> None:
            makes = client.create if watch == "watch_children" else client.set_data
            await done(makes(name) if watch == "watch_children" else makes("/", name.encode()))

        begun = getattr(client, watch)("/", once)
        assert await done(begun.wait_called(PATIENCE)) is True
        assert [state.stat.version for state in seen] == [0]
        await change("/a")
        await eventually("twice", lambda: len(seen) == 2)
        await eventually("no watch is left", lambda: not server.watches(client.session_id))
        await change("/b")
        assert len(seen) == 2
        begun.close()
        for seconds in (0, None):
            assert await done(begun.wait_called(seconds)) is True


async def test_wait_called_waits_for_a_coroutine_function(server: Server) -> None:
    """And one that returns false ends its watch."""
    async with AsyncClient(server.hosts) as client:
        gate, ended = asyncio.Event(), list[int]()

        async def callback(_: object) -> bool:
            await gate.wait()
            ended.append(1)
            return False

        watch = client.watch_data("/", callback)
        assert not await watch.wait_called(0.05)
        gate.set()
        assert await watch.wait_called(PATIENCE)
        assert ended == [1]
        await eventually("no watch is left", lambda: not server.watches(client.session_id))


def test_wait_called_tells_a_timeout_a_refusal_and_a_missing_callback(server: Server) -> None:
    gate = threading.Event()
    with Client(server.hosts) as client:
        watch = client.watch_data("/", lambda _: gate.wait(PATIENCE) and 0)
        assert not watch.wait_called(0.05)
        gate.set()
        assert watch.wait_called(PATIENCE)
        assert server.watches(client.session_id) == ["/"], "other false values end nothing"
        client.create("/secret", b"", [ACL(Perms.ALL, digest_id("bob", "secret"))])
        refused = client.watch_data("/secret", print)
        with pytest.raises(NoAuthError):
            refused.wait_called(PATIENCE)
        with pytest.raises(RuntimeError, match="there is no callback"):
            client.watch_data("/").wait_called()


@both
@watches
async def test_a_callback_with_other_parameters_is_refused_at_once(
    side: Side, watch: str, server: Server
) -> None:
    client: Any = side.Client(server.hosts)
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
    await eventually("no watch is left", lambda: not server.watches(client.session_id))
    await done(client.close())
