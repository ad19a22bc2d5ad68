"""What of the operations takes a server that does it: time, credentials, transactions.

What each answers is in the recorded conversations, see `tests/testbed/recorded.py`, and in the
columns of `tests/interop/matrix`; what becomes of `reconfig`, in `tests/connection_loss`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.lock_helpers import Running, Stage
from tests.support.server_control import Backend, Settings, ZooKeeperServer, poll
from zkwire import (
    ACL,
    Client,
    ClientClosedError,
    GetData,
    MultiError,
    NoAuthError,
    Perms,
    SequentialLock,
    State,
    digest_auth,
    digest_id,
)

PATIENCE = 30.0
ALICE = digest_auth("alice", "wonder:land")
ALICE_ALL = [ACL(Perms.ALL, digest_id("alice", "wonder:land"))]


@pytest.fixture
def client(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Client]:
    """With ``fresh_path`` created for the length of the test."""
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        yield client
        client.add_auth(*ALICE)
        client.delete_tree(fresh_path)


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_a_server_deletes_containers_and_what_has_outlived_its_time(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        client.create("/stays", ttl=3600.0)
        client.create("/container", container=True)
        client.create("/container/child")
        short = [client.create("/t", ttl=0.1), client.create("/ts-", ttl=0.1, sequential=True)]
        client.delete("/container/child")
        paths = (*short, "/container")
        poll("gone", lambda: not any(map(client.exists, paths)) or None, PATIENCE)
        assert client.exists("/stays") is not None


@pytest.mark.since("3.5")
def test_authentication_takes_effect_for_the_requests_behind_it(
    zookeeper: ZooKeeperServer, client: Client, fresh_path: str
) -> None:
    path = client.create(f"{fresh_path}/secret", b"data", ALICE_ALL)
    with Client(zookeeper.hosts) as alice:
        pipeline = alice.pipeline
        early, authentication = pipeline.get_data(path), pipeline.add_auth(*ALICE)
        replies = [pipeline.get_data(path) for _ in range(50)]
        with pytest.raises(NoAuthError):
            early.result(PATIENCE)
        assert authentication.result(PATIENCE) is None
        assert [reply.result(PATIENCE).data for reply in replies] == [b"data"] * 50
    with Client(zookeeper.hosts, auth=[ALICE]) as alice:
        assert alice.get_data(path).data == b"data"
    wrong = digest_auth("alice", "wrong")
    with Client(zookeeper.hosts, auth=[wrong]) as mallory, pytest.raises(NoAuthError):
        mallory.get_data(path)


def test_transaction(client: Client, fresh_path: str) -> None:
    base = fresh_path
    with client.transaction() as t:
        created = t.create(f"{base}/a", b"1")
        t.set_data(f"{base}/a", b"2", 0)
        t.check(f"{base}/a", 1)
        with pytest.raises(RuntimeError):
            created.result()  # not yet
        assert client.exists(f"{base}/a") is None
        t.create(f"{base}/b-", sequential=True)
        t.delete(f"{base}/a", 1)
    assert t.results[0] == created.result() == f"{base}/a"
    assert t.results[1].version == 1
    assert t.results[2:] == [None, f"{base}/b-0000000001", None]
    t = client.transaction()
    t.create(f"{base}/c")
    t.check(f"{base}/a")
    with pytest.raises(MultiError) as caught:
        t.commit()
    assert caught.value.index == 1
    with pytest.raises(ZeroDivisionError), client.transaction() as t:  # noqa: PT012
        t.create(f"{base}/c")
        raise ZeroDivisionError
    assert client.get_children(base) == ["b-0000000001"]
    with client.transaction() as t:  # a block that has committed commits nothing more
        t.create(f"{base}/once")
        t.commit()
    assert t.results == [f"{base}/once"]


def test_wrong_arguments_are_refused_before_anything_is_sent(client: Any, fresh_path: str) -> None:
    lock = SequentialLock(client, fresh_path)
    wrong: tuple[tuple[Callable[[], object], type[Exception], str], ...] = (
        (lambda: client.add_state_listener("x"), TypeError, "listener must be callable"),
        (client.wait_for_state, TypeError, "one or more State"),
        (lambda: client.wait_for_state(State.CONNECTED, timeout="1"), TypeError, "a number"),
        (lambda: client.wait_for_state(State.CONNECTED, timeout=-1), ValueError, "negative"),
        (lambda: lock.guard([GetData("/")]), ValueError, "cannot be part"),
    )
    assert lock.acquire(PATIENCE)
    for call, error, says in wrong:
        with pytest.raises(error, match=says):
            call()
    lock.release()


# --- trees of nodes: ensure_path, delete_tree, walk; cuts are in `test_recipe_cuts` --------------


@pytest.mark.own_server
def test_wrong_paths_are_refused_at_once(stage: Stage) -> None:
    client = stage.client()

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
