"""Recipes on a server that plays 3.4: found out once for each connection, and whatever is cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.embedded_servers import EmbeddedServer
from tests.support.lock_helpers import PATIENCE, Stage, acquire_as_third_party, calm, requests
from tests.support.sweeping import Life, sweep
from zkwire import (
    Client,
    ConnectionLossError,
    DoubleBarrier,
    ReadWriteLock,
    Semaphore,
    SequentialLock,
)
from zkwire.testing import Server


@pytest.fixture
def old() -> Iterator[EmbeddedServer]:
    with Server(version="3.4", timeouts=(0.1, 60.0)) as server:
        yield EmbeddedServer(server, server.close)


@pytest.fixture
def observer(old: EmbeddedServer) -> Iterator[Client]:
    with Client(old.hosts, session_timeout=60.0) as client:
        yield calm(client, old)


def refusals(stage: Stage) -> int:
    """How many requests the server has not known."""
    known = {"create2", "create_container", "remove_watches", "add_watch", "set_watches2"}
    return sum(frame.op in known for frame in requests(stage.proxy.frames()))


def test_a_connection_finds_out_once(old: EmbeddedServer) -> None:
    """The first request that the server does not know tells of all others."""
    with Stage(old) as stage:
        client = stage.client()
        for connection in range(1, 4):
            for kind in range(3):
                path = f"/deep/{connection}/{kind}/lock"
                with SequentialLock(client, path) as lock:
                    (node,) = client.get_children(path)
                    stat = client.exists(f"{path}/{node}")
                    assert stat is not None
                    assert lock.fence == stat.czxid
            assert refusals(stage) == connection
            stage.proxy.cut_all()
            with suppress(ConnectionLossError):
                client.sync("/")


def sequential(stage: Stage, client: Client, path: str) -> None:
    lock = SequentialLock(client, path)
    assert lock.acquire(PATIENCE)
    lock.release()
    acquire_as_third_party(stage, SequentialLock, path)
    stage.wait_no_nodes(path)


def read_write(stage: Stage, client: Client, path: str) -> None:
    lock = ReadWriteLock(client, path)
    with lock.write, lock.read:
        assert lock.write.held
    stage.wait_no_nodes(path)


def semaphore(stage: Stage, client: Client, path: str) -> None:
    with Semaphore(client, path, 1).lease():
        assert not Semaphore(stage.observer, path, 1).lease().try_acquire()
    stage.wait_no_nodes(f"{path}/leases")


def barrier(stage: Stage, client: Client, path: str) -> None:
    with DoubleBarrier(client, path, 1):
        assert stage.observer.exists(f"{path}/ready")
    stage.wait_no_nodes(path)


@pytest.mark.parametrize("life", [sequential, read_write, semaphore, barrier])
def test_every_cut_on_an_old_server(old: EmbeddedServer, observer: Client, life: Life) -> None:
    assert sweep(old, observer, "/old", life) > 1
