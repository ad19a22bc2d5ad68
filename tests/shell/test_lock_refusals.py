"""What a server refuses for the moment only must not leave a lock's node behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.family_helpers import Lockable, lease_of, soon
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running
from tests.support.server_control import poll
from zkwire import (
    ACL,
    BlockingLock,
    Client,
    Election,
    Id,
    MultiLock,
    NoAuthError,
    NodeExistsError,
    NonBlockingLock,
    Perms,
    ReadWriteLock,
    SequentialLock,
    SetData,
)
from zkwire.blocking.locks import PathLock
from zkwire.testing import Server

BUSY = [-118, -122, -127]
NOT_READ_ONLY = -119
kinds = pytest.mark.parametrize("kind", [BlockingLock, SequentialLock])
# The request that gives it up.
FREES: dict[type[PathLock], str] = {BlockingLock: "multi", SequentialLock: "delete"}


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    clients = [Client(server.hosts) for _ in range(3)]
    try:
        for client in clients:
            client.connect()
        yield clients
    finally:
        for client in clients:
            client.close()


def made(kind: type[PathLock], client: Client) -> PathLock:
    return kind(client, "/lock")  # type: ignore[call-arg]


@kinds
@pytest.mark.parametrize("code", BUSY)
def test_a_release_that_is_refused_for_now_is_no_error(
    server: Server, clients: list[Client], kind: type[PathLock], code: int
) -> None:
    lock = made(kind, clients[0])
    assert lock.acquire(GRACE)
    server.refuse_next(FREES[kind], code)
    lock.release()
    assert made(kind, clients[1]).acquire(PATIENCE)


@pytest.mark.parametrize("code", BUSY)
def test_a_clean_up_that_is_refused_for_now_is_repeated(
    server: Server, clients: list[Client], code: int
) -> None:
    holder, waiter, third = (SequentialLock(client, "/lock") for client in clients)
    assert holder.acquire(GRACE)
    server.refuse_next("delete", code)
    assert not waiter.acquire(SHORT)
    holder.release()
    assert third.acquire(PATIENCE)


@kinds
def test_a_read_only_server_is_asked_again_when_it_may_be_another(
    server: Server, clients: list[Client], kind: type[PathLock]
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
    clients[1].set_acl(f"/lock/{name}", [ACL(Perms.WRITE, Id("world", "anyone"))])
    with pytest.raises(NoAuthError):
        lock.guard([SetData("/lock", b"")])
    assert lock.held
    lock.release()


WAITING: dict[str, tuple[Callable[[Client], Lockable], str]] = {
    "blocking": (lambda client: BlockingLock(client, "/lock"), "/lock"),
    "non-blocking": (lambda client: NonBlockingLock(client, "/lock"), "/lock"),
    "queue": (lambda client: SequentialLock(client, "/lock"), "/lock/a-lock-0000000000"),
    "leader": (lambda client: Election(client, "/lock").lead(), "/lock/a-0000000000"),
    "reader": (lambda client: ReadWriteLock(client, "/lock").read, "/lock/a__WRIT__0000000000"),
    "writer": (lambda client: ReadWriteLock(client, "/lock").write, "/lock/a__READ__0000000000"),
    "lease": (lambda client: lease_of(client, "/lock"), "/lock/leases/a-0000000000"),
    "a lease's queue": (lambda client: lease_of(client, "/lock"), "/lock/locks/a-0000000000"),
    "several": (lambda client: MultiLock(BlockingLock(client, "/lock")), "/lock"),
}


@pytest.mark.parametrize("which", WAITING)
def test_hazard_B33_nobody_waits_for_a_node_that_is_not_ephemeral(
    clients: list[Client], which: str
) -> None:
    make, node = WAITING[which]
    lock = make(clients[1])
    clients[0].ensure_path(node)
    asks: list[Callable[[], bool]] = [
        lambda: lock.acquire(GRACE), lambda: lock.acquire(0), lock.try_acquire,
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(NodeExistsError, match=f"{node} is no lock: the node there is n") as e:
            ask()
        assert e.value.path == node
    with pytest.raises(NodeExistsError), lock:  # type: ignore[attr-defined]
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
    maker.create("/lock", b"", [ACL(Perms.CREATE | Perms.READ, Id("world", "anyone"))])
    assert SequentialLock(holder, "/lock").acquire(GRACE)
    assert not SequentialLock(late, "/lock").acquire(SHORT)
    soon("somebody is warned", lambda: "a node stays until this session ends" in caplog.text)
    assert "/lock: " in caplog.text
