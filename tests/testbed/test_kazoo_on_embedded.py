"""kazoo, which knows nothing of zkwire, from its start to its stop on the embedded server."""

from __future__ import annotations

import threading
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


def test_the_version_is_told(client: Any) -> None:
    """By `envi`, which clients ask for what a server can do."""
    assert client.server_version() == (3, 8, 0)


def test_nodes(kazoo: Any, client: Any) -> None:
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


def test_watches(client: Any) -> None:
    seen: list[tuple[str, str]] = []
    told = threading.Semaphore(0)

    def watch(event: Any) -> None:
        seen.append((event.type, event.path))
        told.release()

    assert client.exists("/a", watch=watch) is None
    client.create("/a")
    assert told.acquire(timeout=SECONDS)
    client.get("/a", watch=watch)
    client.set("/a", b"x")
    assert told.acquire(timeout=SECONDS)
    client.get_children("/a", watch=watch)
    client.create("/a/b")
    assert told.acquire(timeout=SECONDS)
    assert seen == [("CREATED", "/a"), ("CHANGED", "/a"), ("CHILD", "/a")]


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


def test_acl(kazoo: Any, client: Any) -> None:
    client.add_auth("digest", "u:p")
    client.create("/a", acl=[kazoo.security.make_digest_acl("u", "p", all=True)])
    acl, _ = client.get_acls("/a")
    assert [entry.id.scheme for entry in acl] == ["digest"]


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
