"""What a server refuses for the moment only must not leave a lock's node behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.both_clients import Side
from tests.support.family_helpers import lease_of, soon
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running
from tests.support.server_control import poll
from zkwire import ACL, Client, Id, NoAuthError, NodeExistsError, Perms, SequentialLock, SetData
from zkwire.testing import Server

BUSY = [-118, -122, -127]
NOT_READ_ONLY = -119
FREES = {"blocking": "multi", "sequential": "delete"}
"""The request that gives a lock up."""
ANYONE = Id("world", "anyone")


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.hosts)) for _ in range(3)]
        for client in clients:
            client.connect()
        yield clients


def made(kind: str, client: Client) -> Any:
    return Side("").lock(kind, client, "/lock")


@pytest.mark.parametrize("kind", FREES)
@pytest.mark.parametrize("code", BUSY)
def test_what_is_refused_for_now_is_repeated(
    server: Server, clients: list[Client], kind: str, code: int
) -> None:
    """A release, and the clean-up of an attempt in vain."""
    holder, waiter, third = (made(kind, client) for client in clients)
    assert holder.acquire(GRACE)
    if kind == "sequential":  # whose attempt leaves a node
        server.refuse_next("delete", code)
        assert not waiter.acquire(SHORT)
        poll("its clean-up is refused", lambda: not server.unfired or None, PATIENCE)
    server.refuse_next(FREES[kind], code)
    holder.release()
    assert server.unfired == []
    assert third.acquire(PATIENCE)


@pytest.mark.parametrize("kind", FREES)
def test_a_read_only_server_is_asked_again_when_it_may_be_another(
    server: Server, clients: list[Client], kind: str
) -> None:
    lock = made(kind, clients[0])
    assert lock.acquire(GRACE)
    for nth in (1, 2):
        server.refuse_next(FREES[kind], NOT_READ_ONLY, nth=nth)
    lock.release()
    poll("its clean-up is refused", lambda: not server.unfired or None, PATIENCE)
    assert not made(kind, clients[1]).acquire(SHORT), "it is asked again for no reason"
    server.cut_all()
    assert made(kind, clients[2]).acquire(PATIENCE)


def test_a_guarded_operation_says_who_refused_it(clients: list[Client]) -> None:
    """Nobody may read the lock's node, but it is there: the lock is not lost."""
    lock = SequentialLock(clients[0], "/lock")
    assert lock.acquire(GRACE)
    clients[0].sync()  # the guard has been answered
    (name,) = clients[1].get_children("/lock")
    clients[1].set_acl(f"/lock/{name}", [ACL(Perms.WRITE, ANYONE)])
    with pytest.raises(NoAuthError):
        lock.guard([SetData("/lock", b"")])
    assert lock.held
    lock.release()


WAITING = [
    ("blocking", ""),
    ("non-blocking", ""),
    ("sequential", "/a-lock-0000000000"),
    ("multi", "/a-lock-0000000000"),
    ("leadership", "/a-0000000000"),
    ("read", "/a__WRIT__0000000000"),
    ("write", "/a__READ__0000000000"),
    ("lease", "/leases/a-0000000000"),
    ("lease", "/locks/a-0000000000"),
]


@pytest.mark.parametrize(("kind", "name"), WAITING)
def test_hazard_B33_nobody_waits_for_a_node_that_is_not_ephemeral(
    clients: list[Client], kind: str, name: str
) -> None:
    lock, node = made(kind, clients[1]), f"/lock{name}"
    clients[0].ensure_path(node)
    for ask in (lambda: lock.acquire(GRACE), lambda: lock.acquire(0), lock.try_acquire):
        with pytest.raises(NodeExistsError, match=f"{node} is no lock: the node there is n") as e:
            ask()
        assert e.value.path == node
    with pytest.raises(NodeExistsError), lock:
        pass
    clients[0].delete(node)
    assert lock.acquire(GRACE), "something was left behind"


def test_a_lease_waits_as_long_as_one_ahead_may_go(clients: list[Client]) -> None:
    first = lease_of(clients[0], "/s", 2)
    assert first.acquire(GRACE)
    clients[0].create("/s/leases/a-", sequential=True)
    waiting = Running(lambda: lease_of(clients[1], "/s", 2).acquire(PATIENCE))
    soon("it waits", lambda: len(clients[0].get_children("/s/leases")) == 3)
    first.release()
    assert waiting.result()


def test_a_node_that_may_not_be_deleted_is_told_of(
    clients: list[Client], caplog: pytest.LogCaptureFixture
) -> None:
    """A lock's path must let its contenders create, read and delete."""
    maker, holder, late = clients
    maker.create("/lock", b"", [ACL(Perms.CREATE | Perms.READ, ANYONE)])
    assert SequentialLock(holder, "/lock").acquire(GRACE)
    assert not SequentialLock(late, "/lock").acquire(SHORT)
    soon("somebody is warned", lambda: "a node stays until this session ends" in caplog.text)
    assert "/lock: " in caplog.text
