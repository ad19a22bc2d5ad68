"""A cache on a server, as both clients show it: what it has and tells, and what each end leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import PATIENCE, Running, Stage, watch_count
from tests.support.real_servers import EmbeddedServer
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    Cache,
    CacheEvent,
    CacheFullError,
    Client,
    ClientClosedError,
    Id,
    NoAuthError,
    Perms,
    Watch,
)
from zkwire.testing import Server

HIDDEN = [ACL(Perms.ALL & ~Perms.READ, Id("world", "anyone"))]
SHORT = 0.2
PATHS = ("", "/a", "/a/x", "/b")
Told = list[tuple[str, str, bytes | None]]


@pytest.fixture
def stage(tidy: Stage, fresh_path: str) -> Stage:
    """A server behind a proxy, and a small tree."""
    for path in PATHS:
        tidy.observer.create(fresh_path + path, path.encode())
    return tidy


@pytest.fixture
def cache(stage: Stage, fresh_path: str) -> Iterator[Cache]:
    with Cache(stage.observer, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        yield cache


def told(events: Any, count: int, path: str) -> Told:
    """The next events, with paths below ``path``."""
    found = [events.next(PATIENCE) for _ in range(count)]
    assert None not in found
    return [(one.kind, one.path.removeprefix(path), one.data) for one in found]


def test_it_shows_the_tree(stage: Stage, fresh_path: str, cache: Cache) -> None:
    assert cache.ready
    assert cache.fresh
    assert cache.path == fresh_path
    assert sorted(cache) == [fresh_path + path for path in PATHS]
    assert len(cache) == 4
    assert f"{fresh_path}/a" in cache
    assert f"{fresh_path}/c" not in cache
    assert cache.children(fresh_path) == ["a", "b"]
    assert cache.children(f"{fresh_path}/b") == []
    node = cache.get(f"{fresh_path}/a/x")
    assert node is not None
    assert (node.path, node.data, node.value) == (f"{fresh_path}/a/x", b"/a/x", b"/a/x")
    assert node.stat == stage.observer.exists(node.path)
    assert "version 0" in repr(node)
    assert cache.get(f"{fresh_path}/c") is None
    for look in (cache.get, cache.children):
        with pytest.raises(ValueError, match="not in this cache"):
            look("/elsewhere")
    cache.close()
    assert not cache.fresh
    for ask in (lambda: cache.get(fresh_path), lambda: len(cache), lambda: fresh_path in cache):
        with pytest.raises(ClientClosedError, match=f"the Cache of {fresh_path} has been"):
            ask()


def test_values_are_decoded_by_the_reader_once(stage: Stage, fresh_path: str) -> None:
    """And what decode raises is for the reader."""
    decoded: list[bytes] = []

    def decode(data: bytes) -> int:
        decoded.append(data)
        return len(data)

    with Cache(stage.observer, fresh_path, decode=decode) as cache:
        assert cache.wait_ready(PATIENCE)
        assert not decoded
        node = cache.get(f"{fresh_path}/a")
        assert node is not None
        assert (node.value, node.value) == (2, 2)
        assert decoded == [b"/a"]
        # The stat of the parent is another one then, and the node another object.
        stage.observer.create(f"{fresh_path}/a/y")
        soon("it is seen", lambda: len(cache) == 5 and cache.fresh)
        later = cache.get(f"{fresh_path}/a")
        assert later is not None
        assert (later.stat.num_children, later.value, decoded) == (2, 2, [b"/a"])
    with Cache(stage.observer, fresh_path, decode=int) as wrong:
        assert wrong.wait_ready(PATIENCE)
        unread = wrong.get(f"{fresh_path}/a")
        assert unread is not None
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal"):
                _ = unread.value
        assert unread.data == b"/a"


# --- events ---------------------------------------------------------------------------------------


def test_events(stage: Stage, fresh_path: str, cache: Cache) -> None:
    client, events, others = stage.observer, cache.events(), cache.events()
    first = told(events, 4, fresh_path)
    told(others, 4, fresh_path)
    assert first[0] == ("added", "", b"")
    assert sorted(first) == [("added", path, path.encode()) for path in PATHS]
    for number in range(3):  # those that wait become one
        client.set_data(f"{fresh_path}/b", b"%d" % number)
        told(others, 1, fresh_path)
    client.create(f"{fresh_path}/c")
    told(others, 1, fresh_path)
    event = events.next(PATIENCE)  # handed over before the second had come
    assert event is not None
    assert (event.kind, event.path, event.data) == ("changed", f"{fresh_path}/b", b"0")
    assert event.value == b"0"
    assert event.stat is not None
    assert event.stat.version == 1
    assert "changed" in repr(event)
    assert told(events, 2, fresh_path) == [("changed", "/b", b"2"), ("added", "/c", b"")]
    client.delete_tree(f"{fresh_path}/a")
    assert told(events, 2, fresh_path) == [("removed", "/a/x", b"/a/x"), ("removed", "/a", b"/a")]
    assert events.next(0.0) is None
    events.close()
    with pytest.raises(ClientClosedError):
        events.next()
    assert list(events) == []


def test_a_loop_ends_with_the_cache_or_its_client(stage: Stage, fresh_path: str) -> None:
    seen: list[str] = []
    with Cache(stage.observer, fresh_path, depth=0) as cache:
        for event in cache.events():
            seen.append(event.kind)
            stage.observer.set_data(fresh_path, b"x")
            if len(seen) == 2:
                cache.close()
    assert seen == ["added", "changed"]
    for call in (cache.wait_ready, cache.events):
        with pytest.raises(ClientClosedError):
            call()
    with Client(stage.hosts) as client:
        other = Cache(client, fresh_path)
        events = iter(other.events())
        assert next(events).path == fresh_path
    with pytest.raises(ClientClosedError):
        list(events)
    other.close()


def test_a_reader_that_is_too_far_behind(
    stage: Stage, fresh_path: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkwire.recipes.cache._FEW", 2)
    events = cache.events()
    told(events, 4, fresh_path)
    stage.observer.set_data(fresh_path, b"handed over")
    soon("it is handed over", lambda: len(events._algorithm._handed))
    for path in ("/a/x", "/a", "/b"):
        stage.observer.delete(fresh_path + path)
    soon("it is seen", lambda: len(cache) == 1)
    assert told(events, 2, fresh_path) == [("changed", "", b"handed over"), ("resynced", "", None)]
    stage.observer.create(f"{fresh_path}/c")
    assert told(events, 1, fresh_path) == [("added", "/c", b"")]
    assert CacheEvent("resynced", "/", None).value is CacheEvent("resynced", "/", None).stat


def test_a_callback_that_raises_does_not_miss_the_next(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: SimpleQueue[object] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.put(args.exc_value))

    def fail(event: CacheEvent) -> None:
        raise KeyError(event.path)

    with Cache(stage.observer, fresh_path, on_event=fail):
        errors = [str(reported.get(timeout=PATIENCE)) for _ in PATHS]
    assert {error.strip("'") for error in errors} == {fresh_path + path for path in PATHS}


@pytest.mark.parametrize("depth", [None, 0])
def test_a_missing_root(stage: Stage, fresh_path: str, depth: int | None) -> None:
    path = f"{fresh_path}/c"
    with Cache(stage.observer, path, depth=depth) as cache:
        assert cache.wait_ready(PATIENCE)
        assert len(cache) == 0
        assert cache  # though it is empty
        events = cache.events()
        for data in (b"1", b"2"):
            stage.observer.create(path, data)
            assert told(events, 1, path) == [("added", "", data)]
            stage.observer.delete(path)
            assert told(events, 1, path) == [("removed", "", data)]


@pytest.mark.parametrize("depth", [None, 1])
def test_what_may_be_read_again_comes_by_itself(
    stage: Stage, fresh_path: str, depth: int | None
) -> None:
    """No event tells of a new access list.  A call that waits is not kept from its own answer."""
    problems: SimpleQueue[Exception | None] = SimpleQueue()
    hidden, other = f"{fresh_path}/hidden", f"{fresh_path}/hidden-2"
    for path in (hidden, other):
        stage.observer.create(path, b"1", HIDDEN)
    with Cache(stage.observer, hidden) as refused:
        with pytest.raises(NoAuthError):
            refused.wait_ready(PATIENCE)
        with pytest.raises(NoAuthError):
            refused.get(hidden)
    with Cache(stage.observer, fresh_path, depth=depth, on_problem=problems.put) as cache:
        assert cache.wait_ready(PATIENCE)
        assert cache.children(fresh_path) == ["a", "b"]
        assert cache.fresh
        events = cache.events()
        told(events, len(cache), fresh_path)
        assert events.next(SHORT) is None
        assert isinstance(problems.get(timeout=PATIENCE), NoAuthError)
        stage.observer.set_acl(hidden, OPEN_ACL_UNSAFE)
        assert told(events, 1, fresh_path) == [("added", "/hidden", b"1")]
        assert isinstance(cache.problem, NoAuthError)
        stage.observer.delete(other)
        assert problems.get(timeout=PATIENCE) is None
        assert cache.problem is None
        assert cache.fresh


# --- outages and ends -----------------------------------------------------------------------------


def outage(stage: Stage, cache: Cache) -> None:
    stage.proxy.refuse()
    stage.proxy.cut_all()
    soon("it is not fresh", lambda: not cache.fresh)


@pytest.mark.parametrize("depth", [None, 0])
@pytest.mark.parametrize("changed", [True, False])
def test_hazard_F3_a_program_can_wait_until_a_cache_is_fresh_again(
    stage: Stage, fresh_path: str, depth: int | None, changed: bool
) -> None:
    with Cache(stage.client(), fresh_path, depth=depth) as cache:
        assert cache.wait_fresh(PATIENCE)
        assert cache.ready
        outage(stage, cache)
        assert not cache.wait_fresh(0.01)
        assert cache.get(fresh_path) is not None, "it shows what was read last"
        waiting = Running(lambda: cache.wait_fresh(PATIENCE))
        if changed:
            stage.observer.set_data(fresh_path, b"new")
        stage.proxy.refuse(False)
        assert waiting.result()
        node = cache.get(fresh_path)
        assert node is not None
        assert node.data == (b"new" if changed else b"")
        outage(stage, cache)
        waiting = Running(lambda: cache.wait_fresh(PATIENCE))
        cache.close()
        with pytest.raises(ClientClosedError):
            waiting.result()


def watches(server: ZooKeeperServer) -> int:
    """How many watches a server has, of all clients and kinds."""
    if not isinstance(server, EmbeddedServer):
        return watch_count(server)
    service = server._member
    assert isinstance(service, Server)
    return service._running().call(lambda: len(service._processor.state.watchers))


@pytest.mark.since("3.5")
def test_what_ends_a_cache_leaves_no_watch(stage: Stage, fresh_path: str) -> None:
    """A close; more than it may hold; and a function of the program that fails."""

    def nothing() -> None:
        soon("no watch", lambda: watches(stage.server) == before, PATIENCE)

    before = watches(stage.server)
    caches = [Cache(stage.observer, fresh_path, depth=depth) for depth in (None, 0, 1)]
    for cache in caches:
        assert cache.wait_ready(PATIENCE)
    assert watches(stage.server) > before
    for cache in caches:
        cache.close()
        cache.close()
    nothing()
    size = sum(len(fresh_path) + 2 * len(path) for path in PATHS)
    with Cache(stage.observer, fresh_path, max_bytes=size) as cache:
        assert cache.wait_ready(PATIENCE)
        stage.observer.set_data(fresh_path, b"x")
        with pytest.raises(CacheFullError, match=f"{size} bytes, of at most {size}"):
            list(cache.events())
        assert not cache.fresh
        nothing()
    skips: dict[str, Any] = {
        r"skip\(.*/[ab]'\) has failed: ZeroDivisionError": lambda path: 1 / 0,
        # What is to be awaited is true: it would leave out everything, in silence.
        "it is async, and is not awaited": lambda path: Watch(),
    }
    for says, skip in skips.items():
        with Cache(stage.observer, fresh_path, skip=skip) as cache:
            with pytest.raises(ValueError, match=says):
                cache.wait_ready(PATIENCE)
            nothing()


@pytest.mark.since("3.6")
def test_watches_that_the_program_removes_are_set_again(
    stage: Stage, fresh_path: str, cache: Cache
) -> None:
    client = stage.observer
    with Cache(client, f"{fresh_path}/b", depth=0) as node:
        assert node.wait_ready(PATIENCE)
        both = cache.events(), node.events()
        told(both[0], 4, fresh_path)
        told(both[1], 1, fresh_path)
        client.remove_watches(fresh_path)
        client.remove_watches(f"{fresh_path}/b")
        client.set_data(f"{fresh_path}/b", b"new")
        for events in both:
            assert told(events, 1, fresh_path) == [("changed", "/b", b"new")]


async def later(event: CacheEvent) -> None:
    raise AssertionError("awaited")


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"path": "no"}, ValueError, "must start with"),
    ({"path": b"/a"}, TypeError, "must be a str"),
    ({"depth": -1}, ValueError, "depth must not be negative"),
    ({"depth": True}, TypeError, "depth must be a number"),
    ({"max_bytes": -1}, ValueError, "max_bytes must not be negative"),
    ({"skip": "no"}, TypeError, "skip must be a function"),
    ({"decode": 1}, TypeError, "decode must be a function"),
    ({"on_event": []}, TypeError, "on_event must be a function"),
    ({"on_event": later}, TypeError, "later.* is async: a thread calls it"),
]


@pytest.mark.own_server
def test_bad_arguments(observer: Client) -> None:
    for arguments, error, says in BAD:
        with pytest.raises(error, match=says):
            Cache(**{"client": observer, "path": "/", **arguments})
        assert not observer._driver.services
