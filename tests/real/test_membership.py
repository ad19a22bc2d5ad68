"""Kept nodes and groups against a server: ended sessions, refusals and wrong use."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tests.support.lock_helpers import PATIENCE, Stage
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    Client,
    ClientClosedError,
    Group,
    Id,
    NoAuthError,
    NodeExistsError,
    Perms,
    PersistentNode,
    Supervisor,
)

HIDDEN = [ACL(Perms.ALL & ~Perms.READ, Id("world", "anyone"))]


def shown(client: Client, path: str) -> tuple[bytes, int] | None:
    """The data and the owner of a node that another client sees."""
    if client.exists(path) is None:
        return None
    data, stat = client.get_data(path)
    return data, stat.ephemeral_owner


# --- sessions, refusals, wrong use ----------------------------------------------------------------


def test_a_group_outlives_its_session(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    with (
        Supervisor(zookeeper.hosts) as supervisor,
        Group(supervisor, fresh_path) as group,
        Group(observer, fresh_path) as others,
    ):
        name = group.join(b"me").name
        (first,) = others.members(PATIENCE)
        credentials = supervisor.client(PATIENCE).credentials
        with Client(zookeeper.hosts, resume=credentials) as other:
            other.connect(PATIENCE)  # its end is the session's
        lists = others.changes()
        member = next(m for members in lists for m in members if m.session_id != first.session_id)
        assert (member.name, member.data) == (name, b"me")
        assert member.fence > first.fence
        assert group.members(PATIENCE) == [member]


def test_two_objects_of_one_client_are_refused(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    with Client(zookeeper.hosts) as client, PersistentNode(client, fresh_path, b"1") as node:
        assert node.wait_present(PATIENCE)
        with pytest.raises(NodeExistsError, match="another object of this client"):
            PersistentNode(client, fresh_path, b"2").wait_present(PATIENCE)
        with Group(client, fresh_path) as group, pytest.raises(ValueError, match="a slash"):
            group.join(b"", "a/b")
        with pytest.raises(RuntimeError, match="is held"):
            client.detach()
        assert shown(observer, fresh_path) == (b"1", client.session_id)


def test_a_member_that_may_be_read_again_comes_by_itself(stage: Stage, fresh_path: str) -> None:
    """No event tells of a new access list."""
    problems: SimpleQueue[Exception | None] = SimpleQueue()
    stage.observer.ensure_path(fresh_path)
    stage.observer.create(f"{fresh_path}/hidden", b"1", HIDDEN)
    with Group(stage.observer, fresh_path, on_problem=problems.put) as group:
        changes = group.changes()
        assert next(changes) == []
        assert isinstance(problems.get(timeout=PATIENCE), NoAuthError)
        stage.observer.set_acl(f"{fresh_path}/hidden", OPEN_ACL_UNSAFE)
        assert [member.name for member in next(changes)] == ["hidden"]
        assert problems.get(timeout=PATIENCE) is None
        assert group.problem is None


def test_a_closed_one_says_so(observer: Client, fresh_path: str) -> None:
    with Group(observer, fresh_path) as group:
        membership = group.join(name="me")
        assert repr(membership) == f"<PersistentNode {fresh_path}/me present>"
        with pytest.raises(NodeExistsError):
            group.join(name="me")
    for call, message in (
        (group.join, f"the Group of {fresh_path} has been closed"),
        (group.members, f"the Group of {fresh_path} has been closed"),
        (membership.wait_present, f"the PersistentNode of {fresh_path}/me has been closed"),
    ):
        with pytest.raises(ClientClosedError, match=message):
            call()
    assert list(group.changes()) == []
    group.close()
    membership.close()
