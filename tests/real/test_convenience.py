"""ensure_path, delete_tree and walk: results, races with others, every request lost once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.lock_helpers import Running, Stage
from tests.support.server_control import ZooKeeperServer
from tests.support.sweeping import CUTS, sweep
from zkwire import (
    Client,
    ClientClosedError,
)

PATIENCE = 30.0


@pytest.mark.own_server
def test_wrong_paths_are_refused_at_once(stage: Stage, client: Client) -> None:
    def calls(path: str) -> list[Callable[[], Any]]:
        return [
            lambda: client.ensure_path(path),
            lambda: client.delete_tree(path),
            lambda: list(client.walk(path)),
        ]

    for wrong in ("", "a", "/a/", "/a//b", "/a/../b"):
        for call in calls(wrong):
            with pytest.raises(ValueError, match=r"path|start|end|empty|'\.\.'"):
                call()
    with pytest.raises(ValueError, match="root cannot be deleted"):
        client.delete_tree("/")
    with pytest.raises(ValueError, match="must not be empty"):
        client.ensure_path("/a", [])
    assert [f for f in stage.proxy.frames() if f.number is not None] == []
    client.close()
    for call in calls("/a"):
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

NAMES = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"]
# A look at each of eight nodes, their deletion, and a look at what is left: nothing.
REQUESTS = {"ensure": 5, "delete": 8 + 8 + 1, "walk": 8}


def do(verb: str, client: Client, top: str) -> None:
    """Make a path of three, delete the tree, or walk over it: no node before its parent."""
    if verb == "ensure":
        client.ensure_path(f"{top}/a/b")
    elif verb == "delete":
        client.delete_tree(top)
    else:
        walked = list(client.walk(top))
        assert sorted(walked) == [top, *(f"{top}/{name}" for name in NAMES)]
        for index, path in enumerate(walked[1:], 1):
            assert path.rpartition("/")[0] in walked[:index], path


@pytest.mark.since("3.6")
@pytest.mark.parametrize("verb", REQUESTS)
def test_a_lost_connection_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, verb: str
) -> None:
    def life(stage: Stage, client: Client, top: str) -> None:
        for name in ("", *NAMES) if verb != "ensure" else ():
            observer.create(f"{top}/{name}".rstrip("/"), name.encode())
        do(verb, client, top)
        assert (observer.exists(top) is None) is (verb == "delete")
        if verb == "ensure":
            assert observer.get_all_children_number(top) == 2
        asked.append(sum(frame.number is not None for frame in stage.proxy.frames()))

    asked: list[int] = []
    faults = {name: (fault,) for name, fault in CUTS.items()}
    assert sweep(zookeeper, observer, fresh_path, life, lambda *_: faults) == 2 * REQUESTS[verb]
    assert asked[0] == REQUESTS[verb]
    observer.delete_tree(fresh_path)
