"""What a server refuses by an access list: raised, or right again by itself when that is mended."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

import zkwire
from tests.support.lock_helpers import ALICE, LONG, PATIENCE
from tests.support.recipe_samples import RECIPES, called, is_service, made, used
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    Client,
    Id,
    NoAuthError,
    Perms,
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


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_makes_has_the_access_list_that_it_was_given(
    observer: Client, fresh_path: str, name: str
) -> None:
    if "acl" not in inspect.signature(getattr(zkwire, name)).parameters:
        pytest.skip("it makes nothing, or is made of others")
    own, path = [*OPEN_ACL_UNSAFE, ACL(Perms.READ, Id("ip", "127.0.0.1"))], f"{fresh_path}/x/y"
    recipe = made(name, observer, path, acl=own)
    with recipe if is_service(recipe) else nullcontext():
        assert called(name, recipe) is not False
        nodes = [node for node in observer.walk(fresh_path) if node != fresh_path]
        assert nodes
        assert [node for node in nodes if observer.get_acl(node).acl != own] == []


def test_a_holder_that_may_not_watch_its_node_loses(
    alice: Client, bob: Client, fresh_path: str
) -> None:
    """Who waits needs no READ on the nodes of others; who holds needs it on its own, to know."""
    alice.set_acl(fresh_path, OPEN_ACL_UNSAFE)
    lock = SequentialLock(bob, fresh_path, acl=[ACL(Perms.WRITE, ANYONE)])
    assert lock.acquire(PATIENCE)
    assert lock.lost.wait(PATIENCE)
    assert "may not be watched" in str(lock.lost.reason)
