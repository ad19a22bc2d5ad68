"""kazoo, which knows nothing of zkwire, from its start to its stop on the embedded server."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from zkwire.testing.server.server import Ensemble, Server

SECONDS = 30.0


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def client(kazoo: Any, server: Server) -> Iterator[Any]:
    made = kazoo.client.KazooClient(server.hosts)
    made.start(SECONDS)
    yield made
    made.stop()
    made.close()


def test_nodes(kazoo: Any, client: Any) -> None:
    assert client.server_version() == (3, 8, 0)  # by `envi`, which says what a server can do
    assert client.create("/a/b", b"x", makepath=True) == "/a/b"
    data, stat = client.get("/a/b")
    assert (data, stat.version, stat.data_length) == (b"x", 0, 1)
    assert client.set("/a/b", b"y").version == 1
    with pytest.raises(kazoo.exceptions.BadVersionError):
        client.set("/a/b", b"z", version=0)
    assert client.create("/a/s-", sequence=True, ephemeral=True) == "/a/s-0000000001"
    assert sorted(client.get_children("/a")) == ["b", "s-0000000001"]
    path, stat = client.create("/c", include_data=True)
    assert (path, stat.numChildren) == ("/c", 0)
    client.delete("/a", recursive=True)
    assert client.exists("/a") is None
    with pytest.raises(kazoo.exceptions.NoNodeError):
        client.get("/a")
    client.add_auth("digest", "u:p")
    client.create("/d", acl=[kazoo.security.make_digest_acl("u", "p", all=True)])
    assert [entry.id.scheme for entry in client.get_acls("/d")[0]] == ["digest"]


def test_watches(client: Any) -> None:
    events: queue.Queue[tuple[str, str]] = queue.Queue()

    def watch(event: Any) -> None:
        events.put((event.type, event.path))

    steps: tuple[tuple[Any, Any, str], ...] = (
        (client.exists, lambda: client.create("/a"), "CREATED"),
        (client.get, lambda: client.set("/a", b"x"), "CHANGED"),
        (client.get_children, lambda: client.create("/a/b"), "CHILD"),
    )
    for set_watch, change, seen in steps:
        set_watch("/a", watch=watch)
        change()
        assert events.get(timeout=SECONDS) == (seen, "/a")
    assert events.empty()


def test_lock(kazoo: Any, server: Server, client: Any) -> None:
    other = kazoo.client.KazooClient(server.hosts)
    other.start(SECONDS)
    try:
        with client.Lock("/lock", "first"):
            rival = other.Lock("/lock", "second")
            assert not rival.acquire(blocking=False)
            assert rival.contenders() == ["first"]
        assert rival.acquire(timeout=SECONDS)
        rival.release()
    finally:
        other.stop()
        other.close()


def test_transaction(kazoo: Any, client: Any) -> None:
    client.create("/a")
    good = client.transaction()
    good.create("/a/b", b"x")
    good.check("/a", 0)
    good.set_data("/a", b"y")
    good.delete("/a/b")
    path, checked, stat, deleted = good.commit()
    assert (path, checked, stat.version, deleted) == ("/a/b", True, 1, True)
    bad = client.transaction()
    bad.create("/z")
    bad.delete("/none")
    bad.create("/y")
    kinds = [type(result) for result in bad.commit()]
    errors = kazoo.exceptions
    assert kinds == [errors.RolledBackError, errors.NoNodeError, errors.RuntimeInconsistency]
    assert client.exists("/z") is None


def test_a_lost_server(kazoo: Any) -> None:
    with Ensemble(3) as ensemble:
        client = kazoo.client.KazooClient(ensemble.hosts)
        client.start(SECONDS)
        try:
            session_id, _ = client.client_id
            client.create("/a", ephemeral=True)
            member = ensemble.server_for_session(session_id)
            assert member is not None
            member.stop()
            stat = client.retry(client.exists, "/a")
            assert stat.ephemeralOwner == session_id
        finally:
            client.stop()
            client.close()
