"""Watches and callbacks of the blocking client."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, PAUSE, SLACK, seen, within
from tests.support.fake_server import FakeServer
from tests.support.lock_helpers import Running
from zkwire import (
    Client,
    ClientClosedError,
    Event,
    EventType,
    SessionExpiredError,
    State,
    Watch,
)

# --- watches --------------------------------------------------------------------------------------


def test_each_read_sets_the_watch_that_fires_for_it(client: Client, fresh_path: str) -> None:
    reads = {
        "exists": EventType.NODE_DATA_CHANGED,
        "get_data": EventType.NODE_DATA_CHANGED,
        "get_children": EventType.NODE_CHILDREN_CHANGED,
        "get_children_with_stat": EventType.NODE_CHILDREN_CHANGED,
    }
    client.create(fresh_path)
    for number, (verb, expected) in enumerate(reads.items()):
        watch = Watch()
        getattr(client, verb)(fresh_path, watch=watch)
        assert not watch.ready
        client.set_data(fresh_path, b"x")
        client.create(f"{fresh_path}/{number}")
        assert seen(watch) == Event(expected, fresh_path, State.CONNECTED)


def test_wait_ends_at_its_limit_and_finds_a_later_event(client: Client, fresh_path: str) -> None:
    watch = Watch()
    client.exists(fresh_path, watch=watch)
    with within(0.1 + SLACK):
        assert watch.wait(0.1) is None
    waiting = Running(lambda: seen(watch))
    client.create(fresh_path)
    assert waiting.result().type == EventType.NODE_CREATED


def test_iterating_ends_when_the_watch_is_no_longer_set(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    watch, seen = Watch(), []
    client.get_data(fresh_path, watch=watch)
    client.pipeline.set_data(fresh_path, b"")
    for event in watch:
        seen.append(event.type)
        if len(seen) < 3:
            client.get_data(fresh_path, watch=watch)
            client.pipeline.set_data(fresh_path, b"")
    assert seen == [EventType.NODE_DATA_CHANGED] * 3


def test_a_closed_watch_ends_its_waiters_and_is_forgotten_by_the_server() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        waiting = Running(lambda: watch.wait(PATIENCE))
        watch.close()
        watch.close()
        with pytest.raises(ClientClosedError, match="watch"):
            waiting.result()
        with pytest.raises(ClientClosedError, match="watch"):
            watch.wait()
        server.wait_for(lambda: server.count("remove_watches"))
        assert list(watch) == []
        assert server.count("remove_watches") == 1


def test_a_closed_watch_does_not_take_anothers_away(client: Client, fresh_path: str) -> None:
    one, two = Watch(), Watch()
    for watch in (one, two):
        client.exists(fresh_path, watch=watch)
    one.close()
    client.create(fresh_path)
    assert two.wait(PATIENCE) is not None


def test_watches_end_with_the_session() -> None:
    called: list[Event] = []
    with FakeServer() as server, Client(server.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        client.exists("/a", watch=called.append)
        waiting = Running(lambda: watch.wait(PATIENCE))
        server.expire(client.session_id)
        with pytest.raises(SessionExpiredError):
            waiting.result()
        with pytest.raises(SessionExpiredError):
            watch.wait()
    assert called == [Event(EventType.NONE, "", State.EXPIRED)]


def test_watches_survive_a_lost_connection() -> None:
    """Those of all kinds, each fires once, for what happened before, between and after."""
    with FakeServer() as server, Client(server.hosts) as client, Client(server.hosts) as other:
        for path in ("/data", "/gone", "/children", "/idle"):
            client.create(path)
        watches = {name: Watch() for name in ("data", "gone", "children", "idle", "new")}
        client.get_data("/data", watch=watches["data"])
        client.get_data("/gone", watch=watches["gone"])
        client.get_children("/children", watch=watches["children"])
        client.get_data("/idle", watch=watches["idle"])
        client.exists("/new", watch=watches["new"])
        mine = server.connections[0]
        mine.watches.clear()  # this server loses them, and the changes are made behind its back
        other.set_data("/data", b"changed")
        other.delete("/gone")
        other.create("/new")
        mine.sock.shutdown(socket.SHUT_RDWR)
        types = {
            name: event.type if (event := watch.wait(PATIENCE)) else None
            for name, watch in watches.items()
            if name not in ("idle", "children")
        }
        assert types == {
            "data": EventType.NODE_DATA_CHANGED,
            "gone": EventType.NODE_DELETED,
            "new": EventType.NODE_CREATED,
        }
        other.set_data("/idle", b"later")
        other.create("/children/one")
        assert watches["idle"].wait(PATIENCE) is not None
        assert watches["children"].wait(PATIENCE) is not None
        assert server.count("set_watches") == 1


# --- callbacks ------------------------------------------------------------------------------------


def test_callbacks_run_in_order_in_a_thread_of_their_own(client: Client, fresh_path: str) -> None:
    seen: list[tuple[str, str]] = []
    done = threading.Event()

    def note(event: Event) -> None:
        seen.append((event.path, threading.current_thread().name))
        if len(seen) == 100:
            done.set()

    paths = [f"{fresh_path}-{n}" for n in range(100)]
    for path in paths:
        client.exists(path, watch=note)
    for reply_ in [client.pipeline.create(path) for path in paths]:
        reply_.result()
    assert done.wait(PATIENCE)
    assert [path for path, _ in seen] == paths
    (name,) = {name for _, name in seen}
    assert name.startswith("zkwire") and name.endswith("callbacks")  # noqa: PT018


def test_a_callback_may_block_and_the_session_lives_on() -> None:
    """A25: pings go on, and so do calls, for longer than the session timeout."""
    entered, leave = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    with FakeServer() as server, Client(server.hosts, session_timeout=2.4) as client:
        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        server.wait_for(lambda: server.count("ping") >= 4)
        assert client.exists("/a") is not None
        leave.set()
        assert len(server.sessions) == 1


def test_a_callback_may_call_the_client_and_wait(client: Client, fresh_path: str) -> None:
    """A26: also for an event that another thread has to bring about, and for its own."""
    results: list[Any] = []
    done = threading.Event()

    def ask(event: Event) -> None:
        results.append(client.get_data(fresh_path).data)
        results.append(client.pipeline.set_data(fresh_path, b"y").result(PATIENCE).version)
        watch = Watch()
        client.get_data(fresh_path, watch=watch)
        client.set_data(fresh_path, b"z")
        fired = watch.wait(PATIENCE)
        results.append(fired and fired.type)
        done.set()

    client.exists(fresh_path, watch=ask)
    client.create(fresh_path, b"x")
    assert done.wait(PATIENCE)
    assert results == [b"x", 1, EventType.NODE_DATA_CHANGED]


def test_a_callback_may_set_itself_again(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    versions: list[int] = []
    done = threading.Event()

    def again(event: Event) -> None:
        if event.type == EventType.NONE:
            return
        versions.append(client.get_data(fresh_path, watch=again).stat.version)
        done.set() if versions[-1] == 20 else client.set_data(fresh_path, b"")

    client.get_data(fresh_path, watch=again)
    client.set_data(fresh_path, b"")
    assert done.wait(PATIENCE)
    assert versions == list(range(1, 21))


def test_a_callback_that_raises_is_reported_and_the_next_one_runs(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    called = threading.Event()

    def fail(event: Event) -> None:
        raise ArithmeticError("of the user's own")

    client.exists(fresh_path, watch=fail)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    (report,) = reported
    assert report.exc_type is ArithmeticError
    assert report.thread is not None
    assert "callbacks" in report.thread.name


def test_a_coroutine_function_as_a_callback_is_reported(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never be awaited."""
    reported, called = list[str](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(str(args.exc_value)))

    async def note(event: Event) -> None:
        raise AssertionError("awaited")

    client.exists(fresh_path, watch=note)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    assert len(reported) == 1
    assert "note is async: callbacks of a Client are not awaited" in reported[0]


def test_a_hook_that_raises_ends_no_callbacks(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is the program's own, and may fail as its callbacks do."""
    reported: list[type[BaseException]] = []

    def hook(args: threading.ExceptHookArgs) -> None:
        raise ArithmeticError("in the hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: reported.append(kind))
    called = threading.Event()
    client.exists(fresh_path, watch=lambda event: 1 / 0)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    assert reported == [ArithmeticError]


def test_a_callback_may_close_the_client(client: Client, fresh_path: str) -> None:
    """E8."""
    took: list[float] = []
    done = threading.Event()

    def close(event: Event) -> None:
        started = time.monotonic()
        client.close()
        took.append(time.monotonic() - started)
        done.set()

    client.exists(fresh_path, watch=close)
    client.pipeline.create(fresh_path)
    assert done.wait(PATIENCE)
    assert took[0] < CLOSE_BOUND + PAUSE
    assert client.state is State.CLOSED
