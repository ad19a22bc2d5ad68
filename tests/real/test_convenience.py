"""ensure_path, delete_tree and walk: results, races with others, every request lost once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.lock_helpers import Running, Stage
from zkwire import (
    Client,
    ClientClosedError,
)
from zkwire.testing.proxy import Action, cut_after, cut_before

PATIENCE = 30.0
NAMES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"]


@pytest.fixture
def stage(tidy: Stage) -> Stage:
    return tidy


def make_tree(client: Client, top: str) -> set[str]:
    """A small tree; the paths of all its nodes."""
    client.create(top)
    for name in NAMES:
        client.create(f"{top}/{name}", name.encode())
    return {top, *(f"{top}/{name}" for name in NAMES)}


def assert_parents_first(paths: list[str]) -> None:
    """No node comes before its parent, and none twice."""
    assert len(set(paths)) == len(paths)
    for index, path in enumerate(paths[1:], 1):
        assert path.rpartition("/")[0] in paths[:index], path


# --- what they do ---------------------------------------------------------------------------------


@pytest.mark.own_server
@pytest.mark.parametrize("wrong", ["", "a", "/a/", "/a//b", "/a/../b"])
def test_wrong_paths_are_refused_at_once(stage: Stage, wrong: str, client: Client) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.ensure_path(wrong),
        lambda: client.delete_tree(wrong),
        lambda: list(client.walk(wrong)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"path|start|end|empty|'\.\.'"):
            call()
    with pytest.raises(ValueError, match="root cannot be deleted"):
        client.delete_tree("/")
    with pytest.raises(ValueError, match="must not be empty"):
        client.ensure_path("/a", [])
    assert [f for f in stage.proxy.frames() if f.number is not None] == []


def test_a_closed_client_says_so(fresh_path: str, client: Client) -> None:
    client.close()
    calls: list[Callable[[], Any]] = [
        lambda: client.ensure_path(fresh_path),
        lambda: client.delete_tree(fresh_path),
        lambda: list(client.walk(fresh_path)),
    ]
    for call in calls:
        with pytest.raises(ClientClosedError):
            call()


# --- others at the same time ----------------------------------------------------------------------


def test_many_make_and_delete_the_same_tree(stage: Stage, fresh_path: str) -> None:
    clients = [stage.client() for _ in range(4)]
    barrier = threading.Barrier(len(clients))

    def work(client: Client, number: int) -> None:
        for attempt in range(10):
            barrier.wait(PATIENCE)
            if (number + attempt) % 2:
                client.ensure_path(f"{fresh_path}/a/b/c")
            else:
                client.delete_tree(fresh_path)

    running = [Running(partial(work, client, n)) for n, client in enumerate(clients)]
    for each in running:
        each.result(60.0)
    stage.observer.ensure_path(f"{fresh_path}/a/b/c")
    for client in clients:
        client.sync()
        assert client.exists(f"{fresh_path}/a/b/c") is not None


# --- every request lost once ----------------------------------------------------------------------

Work = Callable[[Client, str], None]


def ensure(client: Client, top: str) -> None:
    """Make a path of three, and look."""
    client.ensure_path(f"{top}/a/b")


def delete(client: Client, top: str) -> None:
    """Delete the tree."""
    client.delete_tree(top)


def walk(client: Client, top: str) -> None:
    """Walk over the tree, and look."""
    walked = list(client.walk(top))
    assert_parents_first(walked)
    assert set(walked) == {top, *(f"{top}/{name}" for name in NAMES)}


WORKS: dict[str, Work] = {"ensure": ensure, "delete": delete, "walk": walk}
# A look at each of eight nodes, their deletion, and a look at what is left: nothing.
REQUESTS = {"ensure": 5, "delete": 8 + 8 + 1, "walk": 8}


def requests(stage: Stage) -> int:
    return sum(frame.number is not None for frame in stage.proxy.frames())


def watched(work: Work, stage: Stage, top: str, fault: tuple[int, Action] | None) -> int:
    """Do the work on a new client, with a fault at one of its requests; how many it had."""
    observer = stage.observer
    if work is not ensure:
        make_tree(observer, top)
    client = stage.client()
    stage.proxy.reset()
    if fault is not None:
        stage.proxy.on_frame(*fault)
    work(client, top)
    sent = requests(stage)
    assert (observer.exists(top) is None) is (work is delete)
    if work is ensure:
        assert observer.get_all_children_number(top) == 2
    stage.proxy.clear()
    client.close()
    observer.delete_tree(top)
    return sent


@pytest.mark.since("3.6")
@pytest.mark.parametrize("fault", [cut_before, cut_after], ids=["before", "behind"])
@pytest.mark.parametrize("name", WORKS)
def test_a_lost_connection_at_every_request(
    stage: Stage, fresh_path: str, name: str, fault: Action
) -> None:
    stage.observer.create(fresh_path)
    count = watched(WORKS[name], stage, f"{fresh_path}/whole", None)
    assert count == REQUESTS[name]
    for number in range(count):
        watched(WORKS[name], stage, f"{fresh_path}/{number}", (number, fault))
