"""A node's states forever, as both clients show them: which come, and what each end leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from tests.shell.test_client_threads import forks, in_child
from tests.support.aio_helpers import blocking, complaints
from tests.support.following_helpers import assert_in_order, wait_watched, watches
from tests.support.lock_helpers import LONG, PATIENCE, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    AsyncDataWatch,
    Client,
    ClientClosedError,
    DataWatch,
    ForkedError,
    Id,
    NoAuthError,
    Perms,
    SeenData,
    SessionExpiredError,
    Watch,
)
from zkwire.testing.proxy import Gate, cut_after, cut_before, hold, rst_after, truncate

HIDDEN = [ACL(Perms.ALL & ~Perms.READ, Id("world", "anyone"))]


@pytest.fixture
def stage(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Stage]:
    """A server behind a proxy; what is left below ``fresh_path`` is removed."""
    with Stage(zookeeper) as stage:
        yield stage
        stage.heal()
        stage.observer.delete_tree(fresh_path)


class Reported(SimpleQueue[BaseException]):
    """What the program is told of exceptions that have no caller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda args: self.put(args.exc_value))


# --- the states -----------------------------------------------------------------------------------


def test_each_state_of_the_data(stage: Stage, fresh_path: str) -> None:
    seen: list[tuple[bytes | None, bool]] = []
    changes: list[Callable[[], object]] = [
        lambda: stage.observer.create(fresh_path, b"0"),
        lambda: stage.observer.set_data(fresh_path, b"1"),
        lambda: stage.observer.delete(fresh_path),
        lambda: stage.observer.create(fresh_path, b"2"),
        lambda: stage.observer.set_acl(fresh_path, OPEN_ACL_UNSAFE),
        lambda: stage.observer.set_data(fresh_path, b"3"),
    ]
    for one in stage.client().watch_data(fresh_path):
        seen.append((one.data, one.skipped))
        if len(seen) == 5:
            changes.pop(0)()  # is no change of the data
        if not changes:
            break
        changes.pop(0)()
    assert seen == [
        (None, False), (b"0", True), (b"1", False), (None, True), (b"2", True), (b"3", False),
    ]  # fmt: skip


def test_each_state_of_the_children(stage: Stage, fresh_path: str) -> None:
    with stage.client().watch_children(fresh_path) as watch:
        seen = [watch.next()]
        for change in (
            lambda: stage.observer.create(fresh_path),
            lambda: stage.observer.create(f"{fresh_path}/b"),
            lambda: stage.observer.create(f"{fresh_path}/a"),
            lambda: stage.observer.delete(f"{fresh_path}/b"),
            lambda: stage.observer.delete_tree(fresh_path),
        ):
            change()
            seen.append(watch.next())
        while seen[-1] is not None and seen[-1].children is not None:
            seen.append(watch.next())  # of the tree the child goes first
    found = [(one.children, one.skipped) for one in seen if one is not None]
    assert found[:5] == [
        (None, False), ([], True), (["b"], False), (["a", "b"], False), (["a"], False),
    ]  # fmt: skip
    assert found[-1] == (None, True)


def test_a_reader_that_is_slow_gets_the_newest_by_one_read(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    with stage.client().watch_data(fresh_path) as watch:
        watch.next()
        for number in range(50):
            stage.observer.set_data(fresh_path, b"%d" % number)
        newest = watch.next()
        assert newest is not None
        assert (newest.data, newest.skipped) == (b"49", True)
        assert watch.next(0.05) is None
    reads = [frame for frame in requests(stage.proxy.frames()) if frame.op == "get_data"]
    assert len(reads) == 2


def test_what_comes_behind_a_time_limit_is_kept(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    with stage.client().watch_data(fresh_path) as watch:
        while watch.next(0) is None:
            pass
        assert watch.next(0.05) is None
        stage.observer.set_data(fresh_path, b"1")
        while (seen := watch.next(0)) is None:
            pass
        assert seen.data == b"1"


FAULTS = {
    "cut before": (cut_before, False),
    "cut after": (cut_after, False),
    "reset after": (rst_after, False),
    "cut behind the reply": (cut_after, True),
    "a torn reply": (truncate(11), True),
}


@pytest.mark.parametrize(
    "fault",
    [
        "cut after",
        *(pytest.param(f, marks=pytest.mark.own_server) for f in FAULTS if f != "cut after"),
    ],
)
@pytest.mark.parametrize("kind", ["data", "children"])
def test_every_request_of_it_cut_off(stage: Stage, fresh_path: str, kind: str, fault: str) -> None:
    """And the node is other than before when the connection is back."""
    action, reply = FAULTS[fault]
    stage.observer.create(fresh_path, b"0")
    read = "get_data" if kind == "data" else "get_children2"
    before, client = watches(stage.server), stage.client()
    for op, nth in ((read, 1), (read, 2), ("exists", 1), ("set_watches", 1)):
        with getattr(client, f"watch_{kind}")(fresh_path) as watch:
            stage.proxy.on(op, action=action, nth=nth, reply=reply)
            seen = [watch.next(PATIENCE)]
            if op == "set_watches":
                stage.proxy.cut_all()
            stage.observer.set_data(fresh_path, f"{op}-{nth}".encode())
            stage.observer.create(f"{fresh_path}/{op}-{nth}")
            while not shows(seen[-1], op, nth):
                seen.append(watch.next(PATIENCE))
            if op == "exists":
                stage.observer.delete_tree(fresh_path)
                while seen[-1].stat is not None:
                    seen.append(watch.next(PATIENCE))
                stage.observer.create(fresh_path, b"back")
                while seen[-1].stat is None:
                    seen.append(watch.next(PATIENCE))
            assert_in_order(seen)
        assert not stage.proxy.unfired
        stage.proxy.clear()
    poll("no watch is left", lambda: watches(stage.server) <= before or None, PATIENCE)


def shows(seen: Any, op: str, nth: int) -> bool:
    """Whether this is the state behind the change that is about this request."""
    assert seen is not None
    if isinstance(seen, SeenData):
        return seen.data == f"{op}-{nth}".encode()
    return seen.children is not None and f"{op}-{nth}" in seen.children


@pytest.mark.since("3.6")
def test_an_add_watch_on_the_same_path_at_the_same_time(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path, b"0")
    client, gate, other = stage.client(), Gate(), Watch()
    stage.proxy.on("add_watch", action=hold(gate), reply=True)
    adding = Running(lambda: client.add_watch(fresh_path, other))
    gate.wait_reached(PATIENCE)
    with client.watch_data(fresh_path) as watch:
        assert watch.next(0.05) is None
        gate.release()
        adding.result()
        assert watch.next(PATIENCE) is not None
        stage.observer.set_data(fresh_path, b"1")
        seen = watch.next(PATIENCE)
        assert seen is not None
        assert seen.data == b"1"
    other.close()


# --- the ways to leave ----------------------------------------------------------------------------


def _break(watch: DataWatch) -> None:
    for _ in watch:
        break


def _raise(watch: DataWatch) -> None:
    with suppress(KeyError):
        for _ in watch:
            raise KeyError


def _drop(watch: DataWatch) -> None:
    next(iter(watch))


def _leave(watch: DataWatch) -> None:
    with watch:
        watch.next()


def _closed_by_another(watch: DataWatch) -> None:
    states = iter(watch)
    next(states)
    waiting = Running(lambda: list(states))
    while not watch._algorithm._wanted:
        pass
    watch.close()
    assert waiting.result() == []
    with pytest.raises(ClientClosedError, match="the watch_data of "):
        watch.next()


@pytest.mark.parametrize(
    "leave", [_break, _raise, _drop, _leave, _closed_by_another], ids=lambda f: f.__name__
)
def test_no_watch_is_left(stage: Stage, fresh_path: str, leave: Callable[[Any], None]) -> None:
    client = stage.client()
    watch = client.watch_data(fresh_path)
    leave(watch)
    watch.close()
    wait_watched(stage.server, fresh_path, False)
    assert client._session.watch_count == 0
    assert not client._driver.services


@pytest.mark.parametrize("held", ["get_data", "exists"])
def test_closed_while_it_reads(stage: Stage, fresh_path: str, held: str) -> None:
    if held == "get_data":
        stage.observer.create(fresh_path)
    client, gate = stage.client(), Gate()
    stage.proxy.on(held, action=hold(gate), reply=True)
    watch = client.watch_data(fresh_path)
    assert watch.next(0) is None
    wait_watched(stage.server, fresh_path, True)
    watch.close()
    gate.release()
    wait_watched(stage.server, fresh_path, False)


# --- errors ---------------------------------------------------------------------------------------


def test_what_is_refused_at_once_leaves_nothing(stage: Stage, fresh_path: str) -> None:
    client = stage.client()

    async def later(_: SeenData) -> None: ...

    class Later:
        async def __call__(self, _: SeenData) -> None: ...

    for wrong, path, error in (
        (later, fresh_path, TypeError),
        (partial(later), fresh_path, TypeError),
        (Later(), fresh_path, TypeError),
        ("later", fresh_path, TypeError),
        (None, fresh_path[1:], ValueError),
    ):
        with pytest.raises(error):
            client.watch_data(path, wrong)  # type: ignore[arg-type]
    watch = client.watch_data(fresh_path)
    for limit, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="timeout"):
            watch.next(limit)  # type: ignore[arg-type]
    assert not client._driver.services
    assert not [frame for frame in requests(stage.proxy.frames()) if frame.path == fresh_path]


def test_a_node_that_may_not_be_read(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path, acl=HIDDEN)
    client = stage.client()
    watch = client.watch_data(fresh_path)
    for _ in range(2):
        with pytest.raises(NoAuthError):
            watch.next()
    told: SimpleQueue[object] = SimpleQueue()
    called = client.watch_data(fresh_path, lambda seen: told.put(seen.data), on_problem=told.put)
    assert isinstance(told.get(timeout=PATIENCE), NoAuthError)
    assert isinstance(called.problem, NoAuthError)
    stage.observer.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    assert {told.get(timeout=PATIENCE) for _ in range(2)} == {None, b""}
    assert watch.next(PATIENCE) is not None
    assert watch.problem is called.problem is None


@pytest.mark.parametrize(
    ("end", "error"),
    [(lambda _, c: c.close(), ClientClosedError), (Stage.expire, SessionExpiredError)],
    ids=["closed", "expired"],
)
def test_the_end_of_the_client_is_raised(
    stage: Stage, fresh_path: str, end: Callable[[Stage, Client], None], error: type[Exception]
) -> None:
    client = stage.client()
    watch = client.watch_data(fresh_path)
    states = iter(watch)
    next(states)
    waiting = Running(lambda: next(states))
    end(stage, client)
    with pytest.raises(error):
        waiting.result()
    with pytest.raises(ClientClosedError):  # leaving the loop has closed it
        watch.next()
    with pytest.raises(error):
        client.watch_data(fresh_path).next()
    with pytest.raises(error):
        client.watch_data(fresh_path, print)


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_so(stage: Stage, fresh_path: str) -> None:
    client = stage.client()
    watch, other = client.watch_data(fresh_path), client.watch_data(fresh_path)
    watch.next()

    def refused() -> None:
        for one in (watch, other):
            with pytest.raises(ForkedError):
                one.next()
            one.close()

    in_child(refused)
    stage.observer.create(fresh_path)
    assert watch.next(PATIENCE) is not None


def test_the_second_of_two_readers_is_refused(stage: Stage, fresh_path: str) -> None:
    watch = stage.client().watch_data(fresh_path)
    states = iter(watch)
    next(states)
    waiting = Running(lambda: next(states))
    while not watch._algorithm._wanted:
        pass
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.create(fresh_path, b"0")
    assert waiting.result().data == b"0"
    watch.close()


# --- a callback -----------------------------------------------------------------------------------


def test_a_callback_gets_each_and_may_fail(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, seen = Reported(monkeypatch), SimpleQueue[SeenData]()

    def fail(one: SeenData) -> None:
        seen.put(one)
        raise KeyError(one.data)

    watch = stage.client().watch_data(fresh_path, fail)
    assert seen.get(timeout=PATIENCE).data is None
    stage.observer.create(fresh_path, b"0")
    assert seen.get(timeout=PATIENCE).data == b"0"
    assert repr(reported.get(timeout=PATIENCE)) == "KeyError(None)"
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.set_data(fresh_path, b"1")
    assert seen.get(timeout=PATIENCE).data == b"1"
    watch.close()
    wait_watched(stage.server, fresh_path, False)
    stage.observer.set_data(fresh_path, b"2")
    assert seen.empty()


def test_what_a_callback_would_have_to_await_is_reported(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = Reported(monkeypatch)

    async def later() -> None: ...

    watch = stage.client().watch_data(fresh_path, lambda _: later())
    assert isinstance(reported.get(timeout=PATIENCE), TypeError)
    stage.observer.create(fresh_path)
    assert isinstance(reported.get(timeout=PATIENCE), TypeError)  # it goes on
    watch.close()


# --- asyncio --------------------------------------------------------------------------------------


async def _async_break(watch: AsyncDataWatch) -> None:
    async for _ in watch:
        break


async def _async_raise(watch: AsyncDataWatch) -> None:
    with suppress(KeyError):
        async for _ in watch:
            raise KeyError


async def _async_leave(watch: AsyncDataWatch) -> None:
    async with watch:
        await watch.next()


async def _cancelled(watch: AsyncDataWatch) -> None:
    async def read() -> None:
        async for _ in watch:
            pass

    task = asyncio.create_task(read())
    while watch._last is None or watch._next is not None or not watch._wanted:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _closed_in_another_task(watch: AsyncDataWatch) -> None:
    task = asyncio.create_task(_all(watch))
    while watch._last is None or watch._next is not None or not watch._wanted:
        await asyncio.sleep(0)
    watch.close()
    assert len(await task) == 1


async def _all(watch: AsyncDataWatch) -> list[SeenData]:
    return [one async for one in watch]


@pytest.mark.parametrize(
    "leave",
    [
        _cancelled,
        *(
            pytest.param(f, marks=pytest.mark.own_server)
            for f in (_async_break, _async_raise, _async_leave, _closed_in_another_task)
        ),
    ],
    ids=lambda f: f.__name__,
)
async def test_no_watch_is_left_under_asyncio(
    zookeeper: ZooKeeperServer, fresh_path: str, leave: Callable[[Any], Any]
) -> None:
    async with AsyncClient(zookeeper.hosts, session_timeout=LONG) as client:
        await leave(client.watch_data(fresh_path))
        await blocking(wait_watched, zookeeper, fresh_path, False)
        assert client._session.watch_count == 0
        assert not client._driver.services


async def test_each_state_under_asyncio(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    path = fresh_path
    async with AsyncClient(zookeeper.hosts, session_timeout=LONG) as client:
        called: list[list[str] | None] = []

        async def call(seen: Any) -> None:
            await client.exists(path)
            called.append(seen.children)
            if len(called) == 1:
                raise KeyError

        watch = client.watch_children(path, call)
        seen: list[tuple[bytes | None, bool]] = []
        async for one in client.watch_data(path):
            seen.append((one.data, one.skipped))
            match len(seen):
                case 1:
                    await client.create(path, b"0")
                case 2:
                    await client.set_data(path, b"1")
                case 3:
                    await client.delete(path)
                case 4:
                    break
        assert seen == [(None, False), (b"0", True), (b"1", False), (None, True)]
        while called[-1:] != [None] or len(called) < 2:
            await asyncio.sleep(0.005)
        assert complaints().take() == ["a callback has failed: KeyError()"]
        watch.close()
        await client.close()
        with pytest.raises(ClientClosedError):
            await client.watch_data(path).next()


async def test_the_end_of_the_session_under_asyncio(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts, session_timeout=LONG) as client:
        states = aiter(client.watch_data(fresh_path))
        await anext(states)
        waiting = asyncio.ensure_future(anext(states))
        async with AsyncClient(zookeeper.hosts, resume=client.credentials):
            pass
        with pytest.raises(SessionExpiredError):
            await waiting
