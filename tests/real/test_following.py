"""A node's states forever, as both clients show them: which come, and what each end leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.shell.test_client_threads import forks, in_child
from tests.support.aio_helpers import complaints
from tests.support.following_helpers import assert_in_order, watches
from tests.support.lock_helpers import LONG, PATIENCE, Running, Stage, requests
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    OPEN_ACL_UNSAFE,
    AsyncClient,
    ClientClosedError,
    ForkedError,
    SeenData,
)
from zkwire.testing.proxy import cut_after, cut_before, rst_after, truncate

# --- the states -----------------------------------------------------------------------------------

DATA = [(None, False), (b"0", True), (b"1", False), (None, True), (b"2", True), (b"3", False)]


def test_each_state(stage: Stage, fresh_path: str) -> None:
    other, seen = stage.observer, list[tuple[bytes | None, bool]]()
    changes: list[Callable[[], object]] = [
        lambda: other.create(fresh_path, b"0"),
        lambda: other.set_data(fresh_path, b"1"),
        lambda: other.delete(fresh_path),
        lambda: other.create(fresh_path, b"2"),
        lambda: (other.set_acl(fresh_path, OPEN_ACL_UNSAFE), other.set_data(fresh_path, b"3")),
    ]
    for one in stage.client().watch_data(fresh_path):  # an ACL is no change of the data
        seen.append((one.data, one.skipped))
        if not changes:
            break
        changes.pop(0)()
    assert seen == DATA
    other.delete(fresh_path)
    with stage.client().watch_children(fresh_path) as watch:
        states = [watch.next()]
        for change in (
            lambda: other.create(fresh_path),
            lambda: other.create(f"{fresh_path}/b"),
            lambda: other.create(f"{fresh_path}/a"),
            lambda: other.delete(f"{fresh_path}/b"),
            lambda: other.delete_tree(fresh_path),
        ):
            change()
            states.append(watch.next())
        while states[-1] is not None and states[-1].children is not None:
            states.append(watch.next())  # of the tree the child goes first
    found = [(one.children, one.skipped) for one in states if one is not None]
    names: list[list[str] | None] = [None, [], ["b"], ["a", "b"], ["a"]]
    assert found[:5] == list(zip(names, [False, True, False, False, False], strict=True))
    assert found[-1] == (None, True)


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


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_so_and_a_second_reader_refused(
    stage: Stage, fresh_path: str
) -> None:
    client = stage.client()
    watch, other = client.watch_data(fresh_path), client.watch_data(fresh_path)
    states = iter(watch)
    next(states)

    def refused() -> None:
        for one in (watch, other):
            with pytest.raises(ForkedError):
                one.next()
            one.close()

    in_child(refused)
    waiting = Running(lambda: next(states))
    while not watch._algorithm._wanted:
        pass
    with pytest.raises(RuntimeError, match="one reader"):
        next(iter(watch))
    stage.observer.create(fresh_path, b"0")
    assert waiting.result().data == b"0"
    watch.close()


# --- asyncio --------------------------------------------------------------------------------------


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
