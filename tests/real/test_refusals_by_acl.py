"""What a server refuses by an access list: raised, or right again by itself when that is mended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.lock_helpers import ALICE, GRACE, LONG, PATIENCE
from tests.support.recipe_samples import RECIPES, is_service, made, used
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    Client,
    Id,
    NoAuthError,
    Perms,
    PersistentNode,
    SequentialLock,
)

pytestmark = pytest.mark.real
ANYONE = Id("world", "anyone")


def only(perms: Perms) -> list[ACL]:
    """Anyone has these rights, and alice all."""
    return [ACL(perms, ANYONE), *CREATOR_ALL_ACL]


@pytest.fixture
def alice(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Client]:
    """The owner of the path, who may do everything below it."""
    with Client(zookeeper.hosts, auth=[ALICE], session_timeout=LONG) as client:
        client.create(fresh_path, b"", only(Perms.READ))
        yield client
        client.set_acl(fresh_path, OPEN_ACL_UNSAFE)
        client.delete_tree(fresh_path)


@pytest.fixture
def bob(zookeeper: ZooKeeperServer) -> Iterator[Client]:
    with Client(zookeeper.hosts, session_timeout=LONG) as client:
        yield client


@pytest.mark.parametrize("name", RECIPES)
def test_a_parent_that_may_not_be_written_raises_no_auth(
    alice: Client, bob: Client, fresh_path: str, name: str
) -> None:
    """What the caller asks for is refused to the caller; only what runs by itself is repeated."""
    if is_service(made(name, bob, fresh_path)):
        pytest.skip("a service")
    path = f"{fresh_path}/x"
    with pytest.raises(NoAuthError) as caught:
        used(name, bob, path)
    assert not caught.value.maybe_applied
    assert alice.get_children(fresh_path) == []
    alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    used(name, bob, path)


NO_DELETE = only(Perms.READ | Perms.WRITE | Perms.CREATE)


def test_a_refused_release_raises_and_is_made_up_for(
    alice: Client, bob: Client, fresh_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    alice.set_acl(fresh_path, NO_DELETE)
    lock = SequentialLock(bob, fresh_path)
    assert lock.acquire(PATIENCE)
    with pytest.raises(NoAuthError):
        lock.release()
    assert not lock.held
    poll("a warning", lambda: "refuses to delete it" in caplog.text or None, GRACE)
    assert len(alice.get_children(fresh_path)) == 1
    alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    poll("its node is gone", lambda: not alice.get_children(fresh_path) or None, PATIENCE)


def test_a_waiter_that_may_not_leave_leaves_later(
    alice: Client, bob: Client, fresh_path: str
) -> None:
    alice.set_acl(fresh_path, NO_DELETE)
    held = SequentialLock(alice, fresh_path)
    with held:
        assert not SequentialLock(bob, fresh_path).acquire(0.1)
    assert len(alice.get_children(fresh_path)) == 1
    alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    assert held.acquire(PATIENCE)
    held.release()


def test_a_holder_that_may_not_watch_its_node_loses(
    alice: Client, bob: Client, fresh_path: str
) -> None:
    """Who waits needs no READ on the nodes of others; who holds needs it on its own, to know."""
    alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    lock = SequentialLock(bob, fresh_path, acl=[ACL(Perms.WRITE, ANYONE)])
    assert lock.acquire(PATIENCE)
    assert lock.lost.wait(PATIENCE)
    assert "may not be watched" in str(lock.lost.reason)


def test_a_kept_node_that_is_refused_comes_later(
    alice: Client, bob: Client, fresh_path: str
) -> None:
    with PersistentNode(bob, f"{fresh_path}/node") as node:
        with pytest.raises(NoAuthError):
            node.wait_present(PATIENCE)
        assert isinstance(node.problem, NoAuthError)
        alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
        assert poll("it is there", lambda: node.present or None, PATIENCE)
        assert node.problem is None
