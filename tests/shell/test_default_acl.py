"""Who may do what with the nodes that a client and its recipes create: `default_acl` and `acl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkwire
from tests.support.both_clients import Side, both, entered, using
from tests.support.lock_helpers import LONG, PATIENCE, SHORT, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    Client,
    InvalidACLError,
    NoAuthError,
    NonBlockingLock,
    ReadWriteLock,
    SequentialLock,
    digest_auth,
)
from zkwire.testing import Server

OWN = [digest_auth("worker", "secret")]
CREATOR, OPEN = list(CREATOR_ALL_ACL), list(OPEN_ACL_UNSAFE)
PATH = "/locks/report"
NODE = PATH + "/l"

LOCKS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "non-blocking": lambda new: new("NonBlockingLock", NODE),
    "blocking": lambda new: new("BlockingLock", NODE),
    "sequential": lambda new: new("SequentialLock", PATH),
    "re-entrant": lambda new: new("ReentrantLock", PATH),
    "election": lambda new: new("Election", PATH).lead(),
    "read": lambda new: new("ReadWriteLock", PATH).read,
    "write": lambda new: new("ReadWriteLock", PATH).write,
    "semaphore": lambda new: new("Semaphore", PATH, 2).lease(),
}


def make(kind: str, client: Client | AsyncClient, acl: object) -> Any:
    """A lock of that kind, for threads or for asyncio, as the client is."""
    prefix = "Async" if isinstance(client, AsyncClient) else ""
    return LOCKS[kind](lambda name, *rest: getattr(zkwire, prefix + name)(client, *rest, acl=acl))


def open_nodes(server: Server) -> list[str]:
    """The nodes that anybody may do everything with."""
    own = [path for path in server.tree.nodes if not path.startswith("/zookeeper") and path != "/"]
    assert own
    return [path for path in own if list(server.tree.nodes[path].acl) == OPEN]


# --- the operations -------------------------------------------------------------------------------


def test_creator_all_needs_somebody_who_creates(server: Server) -> None:
    """A client that is nobody cannot own a node; the server says so, and nothing is open."""
    with Client(server.hosts, default_acl=CREATOR_ALL_ACL) as client:
        with pytest.raises(InvalidACLError):
            SequentialLock(client, PATH).acquire(PATIENCE)
        assert client.exists("/locks") is None


# --- the recipes ----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("given", ["default_acl", "acl"])
async def test_nothing_of_a_lock_is_open(side: Side, given: str) -> None:
    default = CREATOR if given == "default_acl" else OPEN
    for kind in LOCKS:
        with Server() as server:
            async with (
                using(side.Client(server.hosts, auth=OWN, default_acl=default)) as client,
                entered(make(kind, client, CREATOR if given == "acl" else None)),
            ):
                assert open_nodes(server) == []


def test_a_reader_in_its_writers_place_is_not_open(server: Server) -> None:
    """It is created in another way than the rest."""
    with Client(server.hosts, auth=OWN) as client:
        lock = ReadWriteLock(client, PATH, acl=CREATOR_ALL_ACL)
        with lock.write, lock.read:
            assert open_nodes(server) == []


def test_a_wrong_acl_of_a_lock_is_refused_at_once(server: Server) -> None:
    with Client(server.hosts) as client:
        for kind in LOCKS:
            with pytest.raises(TypeError, match="acl"):
                make(kind, client, "world:anyone")


# --- strangers, on a real server ------------------------------------------------------------------


def test_hazard_B37_a_stranger_cannot_take_the_lock_away(
    zookeeper: ZooKeeperServer, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(zookeeper.hosts, auth=OWN, default_acl=CREATOR, session_timeout=LONG) as client,
        Client(zookeeper.hosts) as stranger,
    ):
        lock = SequentialLock(client, f"{fresh_path}/lock")
        with lock:
            (name,) = client.get_children(lock.path)
            node = f"{lock.path}/{name}"
            for refused in (
                lambda: stranger.delete(node),
                lambda: stranger.set_data(node, b"mine"),
                lambda: stranger.set_acl(node, OPEN),
                lambda: stranger.get_data(node),
                lambda: stranger.get_children(lock.path),
                lambda: stranger.create(f"{lock.path}/in-front-0000000000"),
                lambda: stranger.set_acl(lock.path, OPEN),
                lambda: stranger.create(f"{fresh_path}/another"),
                lambda: SequentialLock(stranger, lock.path).acquire(PATIENCE),
                lambda: NonBlockingLock(stranger, f"{lock.path}/l").acquire(PATIENCE),
            ):
                with pytest.raises(NoAuthError):
                    refused()
            lock.check()
            lock.guard([])
        assert caplog.messages == []  # nothing of whoever was refused could stay behind
        client.delete_tree(fresh_path)


QUEUES = dict.fromkeys(("sequential", "re-entrant", "election", "read", "write"), "")
QUEUES["semaphore"] = "/leases"


@pytest.fixture
def two(zookeeper: ZooKeeperServer) -> Iterator[tuple[Client, Client]]:
    """Clients of users who may not read each other's nodes."""
    one, other = ([digest_auth(name, name)] for name in ("one", "two"))
    with (
        Client(zookeeper.hosts, auth=one, default_acl=CREATOR) as first,
        Client(zookeeper.hosts, auth=other, default_acl=CREATOR) as second,
    ):
        yield first, second


@pytest.mark.parametrize("kind", QUEUES)
def test_users_who_may_not_read_each_other_contend(
    two: tuple[Client, Client], observer: Client, fresh_path: str, kind: str
) -> None:
    """A server tells nothing of a node to who may not read it, not even by a watch (3.8.0)."""
    first, second = two

    def lock_of(client: Client, which: str) -> Any:
        return LOCKS[which](
            lambda name, _, *rest: getattr(zkwire, name)(
                client, fresh_path, *(1 for _ in rest), text="whose"
            )
        )

    def turn(lock: Any) -> bool:
        with lock.within(PATIENCE):
            return bool(lock.held)

    for folder in ("", "/leases", "/locks") if kind == "semaphore" else ("",):
        observer.ensure_path(fresh_path + folder)
    if kind == "semaphore":
        observer.set_data(fresh_path, b"1")
    holder = lock_of(first, "write" if kind == "read" else kind)
    waiter = lock_of(second, kind)
    assert holder.acquire(PATIENCE)
    assert not waiter.try_acquire()
    assert not waiter.acquire(SHORT)
    waiting = Running(lambda: turn(lock_of(second, kind)))
    folder = fresh_path + QUEUES[kind]
    poll("it waits", lambda: len(observer.get_children(folder)) == 2 or None, PATIENCE)
    seen = SequentialLock(second, folder).contenders()
    assert [one.text for one in seen] == [None, "whose"]
    assert seen[0].session_id in (0, first.session_id)
    holder.release()
    assert waiting.result()
    assert observer.get_children(folder) == []


def test_an_open_node_above_lets_a_stranger_be_first(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """The weakness of what stands open above: an empty parent can be exchanged for one's own."""
    with (
        Client(zookeeper.hosts, auth=OWN, default_acl=CREATOR) as client,
        Client(zookeeper.hosts) as stranger,
    ):
        stranger.create(fresh_path)
        with SequentialLock(client, f"{fresh_path}/lock"):
            pass
        stranger.delete(f"{fresh_path}/lock")
        stranger.create(f"{fresh_path}/lock")
        lock = SequentialLock(client, f"{fresh_path}/lock")
        assert lock.acquire()
        stranger.delete(f"{lock.path}/{lock._algorithm._node_name}")
        assert lock.lost.wait(PATIENCE)
        client.delete_tree(fresh_path)
