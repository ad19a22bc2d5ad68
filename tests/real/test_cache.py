"""A cache on a server, as both clients show it: what it has and tells, and what each end leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from tests.support.following_helpers import watches
from tests.support.lock_helpers import LONG, PATIENCE, Running, Stage
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncCache,
    AsyncClient,
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

HIDDEN = [ACL(Perms.ALL & ~Perms.READ, Id("world", "anyone"))]
SHORT = 0.2
Told = list[tuple[str, str, bytes | None]]


@pytest.fixture
def stage(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Stage]:
    """A server behind a proxy, and a small tree; what is left of it is removed."""
    with Stage(zookeeper) as stage:
        for path in ("", "/a", "/b", "/a/x"):
            stage.observer.create(fresh_path + path, path.encode())
        yield stage
        stage.heal()
        stage.observer.delete_tree(fresh_path)


def told(events: Any, count: int, path: str) -> Told:
    """The next events, with paths below ``path``."""
    found = [events.next(PATIENCE) for _ in range(count)]
    assert None not in found
    return [(one.kind, one.path.removeprefix(path), one.data) for one in found]


def fresh(cache: Any) -> None:
    poll("the cache is fresh", lambda: cache.fresh or None, PATIENCE)


# --- what it shows --------------------------------------------------------------------------------


def test_it_shows_the_tree(stage: Stage, fresh_path: str) -> None:
    with Cache(stage.observer, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        assert cache.ready
        assert cache.fresh
        assert cache.path == fresh_path
        assert sorted(cache) == [fresh_path + path for path in ("", "/a", "/a/x", "/b")]
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
    assert not cache.fresh
    for ask in (lambda: cache.get(fresh_path), lambda: len(cache), lambda: fresh_path in cache):
        with pytest.raises(ClientClosedError, match=f"the Cache of {fresh_path} has been"):
            ask()


def test_values_are_decoded_by_the_reader_once(stage: Stage, fresh_path: str) -> None:
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
        poll("it is seen", lambda: len(cache) == 5 or None, PATIENCE)
        fresh(cache)
        later = cache.get(f"{fresh_path}/a")
        assert later is not None
        assert later.stat.num_children == 2
        assert later.value == 2
        assert decoded == [b"/a"]


def test_what_decode_raises_is_for_the_reader(stage: Stage, fresh_path: str) -> None:
    with Cache(stage.observer, fresh_path, decode=int) as cache:
        assert cache.wait_ready(PATIENCE)
        node = cache.get(f"{fresh_path}/a")
        assert node is not None
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal"):
                _ = node.value
        assert node.data == b"/a"


# --- events ---------------------------------------------------------------------------------------


def test_events(stage: Stage, fresh_path: str) -> None:
    client = stage.observer
    with Cache(client, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        events = cache.events()
        first = told(events, 4, fresh_path)
        assert first[0] == ("added", "", b"")
        assert sorted(first) == [
            ("added", path, path.encode()) for path in ("", "/a", "/a/x", "/b")
        ]
        client.set_data(f"{fresh_path}/b", b"1")
        event = events.next(PATIENCE)
        assert event is not None
        assert (event.kind, event.path, event.data) == ("changed", f"{fresh_path}/b", b"1")
        assert event.value == b"1"
        assert event.stat is not None
        assert event.stat.version == 1
        assert "changed" in repr(event)
        client.delete_tree(f"{fresh_path}/a")
        assert told(events, 2, fresh_path) == [
            ("removed", "/a/x", b"/a/x"),
            ("removed", "/a", b"/a"),
        ]
        assert events.next(0.0) is None
        events.close()
        with pytest.raises(ClientClosedError):
            events.next()
        assert list(events) == []


def test_a_loop_ends_with_the_cache(stage: Stage, fresh_path: str) -> None:
    seen: list[str] = []
    with Cache(stage.observer, fresh_path, depth=0) as cache:
        for event in cache.events():
            seen.append(event.kind)
            stage.observer.set_data(fresh_path, b"x")
            if len(seen) == 2:
                cache.close()
    assert seen == ["added", "changed"]
    with pytest.raises(ClientClosedError):
        cache.wait_ready()
    with pytest.raises(ClientClosedError):
        cache.events()


def test_changes_that_wait_become_one(stage: Stage, fresh_path: str) -> None:
    with Cache(stage.observer, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        events, others = cache.events(), cache.events()
        told(events, 4, fresh_path)
        path = f"{fresh_path}/b"
        for number in range(3):
            stage.observer.set_data(path, b"%d" % number)
            told(others, 5 if number == 0 else 1, fresh_path)
        stage.observer.create(f"{fresh_path}/c")
        told(others, 1, fresh_path)
        # The first was handed over before the second had come.
        assert told(events, 3, fresh_path) == [
            ("changed", "/b", b"0"),
            ("changed", "/b", b"2"),
            ("added", "/c", b""),
        ]


def test_a_reader_that_is_too_far_behind(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkwire.recipes.cache._FEW", 2)
    with Cache(stage.observer, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        events = cache.events()
        told(events, 4, fresh_path)
        stage.observer.set_data(fresh_path, b"handed over")
        poll("it is handed over", lambda: len(events._algorithm._handed) or None, PATIENCE)
        for path in ("/a/x", "/a", "/b"):
            stage.observer.delete(fresh_path + path)
        poll("it is seen", lambda: len(cache) == 1 or None, PATIENCE)
        assert told(events, 2, fresh_path) == [
            ("changed", "", b"handed over"),
            ("resynced", "", None),
        ]
        stage.observer.create(f"{fresh_path}/c")
        event = events.next(PATIENCE)
        assert event is not None
        assert (event.kind, event.path) == ("added", f"{fresh_path}/c")
        assert CacheEvent("resynced", "/", None).value is CacheEvent("resynced", "/", None).stat


def test_a_callback_that_raises_does_not_miss_the_next(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: SimpleQueue[object] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.put(args.exc_value))

    def fail(event: CacheEvent) -> None:
        raise KeyError(event.path)

    with Cache(stage.observer, fresh_path, on_event=fail):
        errors = [str(reported.get(timeout=PATIENCE)) for _ in range(4)]
    assert {error.strip("'") for error in errors} == {
        fresh_path + path for path in ("", "/a", "/a/x", "/b")
    }


# --- a root that comes and goes -------------------------------------------------------------------


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


def test_what_may_not_be_read_is_left_out(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(f"{fresh_path}/hidden", b"", HIDDEN)
    with Cache(stage.observer, fresh_path) as cache:
        assert cache.wait_ready(PATIENCE)
        assert cache.children(fresh_path) == ["a", "b"]
        assert cache.fresh
        assert isinstance(cache.problem, NoAuthError)
    with Cache(stage.observer, f"{fresh_path}/hidden") as cache, pytest.raises(NoAuthError):
        cache.wait_ready(PATIENCE)
    stage.observer.delete(f"{fresh_path}/hidden")


@pytest.mark.parametrize("depth", [None, 1])
def test_what_may_be_read_again_comes_by_itself(
    stage: Stage, fresh_path: str, depth: int | None
) -> None:
    """No event tells of a new access list.  A call that waits is not kept from its own answer."""
    problems: SimpleQueue[Exception | None] = SimpleQueue()
    hidden, other = f"{fresh_path}/hidden", f"{fresh_path}/hidden-2"
    for path in (hidden, other):
        stage.observer.create(path, b"1", HIDDEN)
    with Cache(stage.observer, fresh_path, depth=depth, on_problem=problems.put) as cache:
        assert cache.wait_ready(PATIENCE)
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
    stage.observer.delete(hidden)


# --- outages and ends -----------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [None, 0])
@pytest.mark.parametrize("changed", [True, False])
def test_hazard_F3_a_program_can_wait_until_a_cache_is_fresh_again(
    stage: Stage, fresh_path: str, depth: int | None, changed: bool
) -> None:
    with Cache(stage.client(), fresh_path, depth=depth) as cache:
        assert cache.wait_fresh(PATIENCE)
        assert cache.ready
        stage.proxy.refuse()
        stage.proxy.cut_all()
        poll("it is not fresh", lambda: not cache.fresh or None, PATIENCE)
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
        stage.proxy.refuse()
        stage.proxy.cut_all()
        poll("it is not fresh", lambda: not cache.fresh or None, PATIENCE)
        waiting = Running(lambda: cache.wait_fresh(PATIENCE))
        cache.close()
        with pytest.raises(ClientClosedError):
            waiting.result()


def test_a_client_that_is_closed_ends_a_loop_with_its_error(stage: Stage, fresh_path: str) -> None:
    with Client(stage.hosts) as client:
        cache = Cache(client, fresh_path)
        events = iter(cache.events())
        assert next(events).path == fresh_path
    with pytest.raises(ClientClosedError):
        list(events)
    cache.close()


@pytest.mark.since("3.5")
def test_a_close_leaves_no_watch(stage: Stage, fresh_path: str) -> None:
    before = watches(stage.server)
    caches = [Cache(stage.observer, fresh_path, depth=depth) for depth in (None, 0, 1)]
    for cache in caches:
        assert cache.wait_ready(PATIENCE)
    assert watches(stage.server) > before
    for cache in caches:
        cache.close()
        cache.close()
    poll("no watch", lambda: watches(stage.server) == before or None, PATIENCE)


@pytest.mark.since("3.6")
def test_watches_that_the_program_removes_are_set_again(stage: Stage, fresh_path: str) -> None:
    client = stage.observer
    with Cache(client, fresh_path) as tree, Cache(client, f"{fresh_path}/b", depth=0) as node:
        assert tree.wait_ready(PATIENCE)
        assert node.wait_ready(PATIENCE)
        both = tree.events(), node.events()
        told(both[0], 4, fresh_path)
        told(both[1], 1, fresh_path)
        client.remove_watches(fresh_path)
        client.remove_watches(f"{fresh_path}/b")
        client.set_data(f"{fresh_path}/b", b"new")
        for events in both:
            assert told(events, 1, fresh_path) == [("changed", "/b", b"new")]


# --- bad input ------------------------------------------------------------------------------------


async def later(event: CacheEvent) -> None:
    raise AssertionError("awaited")


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"path": "no"}, ValueError, "must start with"),
        ({"path": b"/a"}, TypeError, "must be a str"),
        ({"depth": -1}, ValueError, "depth must not be negative"),
        ({"depth": True}, TypeError, "depth must be a number"),
        ({"max_bytes": -1}, ValueError, "max_bytes must not be negative"),
        ({"skip": "no"}, TypeError, "skip must be a function"),
        ({"decode": 1}, TypeError, "decode must be a function"),
        ({"on_event": []}, TypeError, "on_event must be a function"),
        ({"on_event": later}, TypeError, "later.* is async: a thread calls it"),
        ({"client": None}, TypeError, "must be a Client or a Supervisor"),
    ],
)
def test_bad_arguments(
    zookeeper: ZooKeeperServer, arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with Client(zookeeper.hosts) as client:
        with pytest.raises(error, match=says):
            Cache(**{"client": client, "path": "/", **arguments})
        assert not client._driver.services


@pytest.mark.since("3.5")
def test_too_much(stage: Stage, fresh_path: str) -> None:
    before = watches(stage.server)
    size = sum(len(fresh_path) + 2 * len(path) for path in ("", "/a", "/b", "/a/x"))
    with Cache(stage.observer, fresh_path, max_bytes=size) as cache:
        assert cache.wait_ready(PATIENCE)
        stage.observer.set_data(fresh_path, b"x")
        with pytest.raises(CacheFullError, match=f"{size} bytes, of at most {size}"):
            list(cache.events())
        assert not cache.fresh
        poll("no watch", lambda: watches(stage.server) == before or None, PATIENCE)


@pytest.mark.since("3.5")
def test_a_predicate_that_raises(stage: Stage, fresh_path: str) -> None:
    before = watches(stage.server)
    with Cache(stage.observer, fresh_path, skip=lambda path: 1 / 0) as cache:
        with pytest.raises(ValueError, match=r"skip\(.*/[ab]'\) has failed: ZeroDivisionError"):
            cache.wait_ready(PATIENCE)
        poll("no watch", lambda: watches(stage.server) == before or None, PATIENCE)


def test_a_predicate_that_is_async(stage: Stage, fresh_path: str) -> None:
    """What is to be awaited is true: it would leave out everything, in silence."""
    with (
        Cache(stage.observer, fresh_path, skip=lambda path: Watch()) as cache,
        pytest.raises(ValueError, match="it is async, and is not awaited"),
    ):
        cache.wait_ready(PATIENCE)


# --- asyncio --------------------------------------------------------------------------------------


def test_under_asyncio(stage: Stage, fresh_path: str) -> None:
    async def main() -> None:
        called: asyncio.Queue[str] = asyncio.Queue()

        async def on_event(event: CacheEvent) -> None:
            await asyncio.sleep(0)
            called.put_nowait(event.kind)

        async with (
            AsyncClient(stage.proxy.hosts, session_timeout=LONG) as client,
            AsyncCache(client, fresh_path, on_event=on_event) as cache,
        ):
            assert await cache.wait_ready(PATIENCE)
            assert cache.children(fresh_path) == ["a", "b"]
            await client.set_data(f"{fresh_path}/a", b"new")
            kinds: list[str] = []
            async for event in cache.events():
                kinds.append(event.kind)
                if event.data == b"new":
                    break
            assert set(kinds) <= {"added", "changed"}
            for _ in range(5):
                await asyncio.wait_for(called.get(), PATIENCE)
            events = cache.events()
            for _ in range(4):
                await events.next(PATIENCE)
            stage.proxy.refuse()
            stage.proxy.cut_all()
            stage.observer.delete(f"{fresh_path}/b")
            stage.proxy.refuse(False)
            event_or_none = await events.next(PATIENCE)
            assert await cache.wait_fresh(PATIENCE)
            assert cache.children(fresh_path) == ["a"]
            assert event_or_none is not None
            assert (event_or_none.kind, event_or_none.path) == ("removed", f"{fresh_path}/b")

    asyncio.run(main())
