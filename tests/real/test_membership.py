"""Kept nodes and groups against a server: every fault at every request, ended sessions.

What their algorithms do in every order of events is shown in simulation; here are both clients and
the wire.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import pytest

from tests.shell.test_client_threads import forks, in_child
from tests.support.lock_helpers import LONG, PATIENCE, Stage, watch_table_size
from tests.support.server_control import ZooKeeperServer, poll
from tests.support.sweeping import SINGLES, Life, sweep
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    AsyncGroup,
    AsyncPersistentNode,
    Client,
    ClientClosedError,
    ForkedError,
    Group,
    Id,
    Member,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
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


# --- every cut at every request -------------------------------------------------------------------


def node_of_a_thread(stage: Stage, client: Client, path: str, *, ephemeral: bool = True) -> None:
    """Make it, write it, have it deleted, close it."""
    owner = client.session_id if ephemeral else 0
    with PersistentNode(client, path, b"1", ephemeral=ephemeral) as node:
        assert node.wait_present(PATIENCE)
        node.set_data(b"2", PATIENCE)
        assert shown(stage.observer, path) == (b"2", owner)
        stage.observer.delete(path)
        poll("it is back", lambda: shown(stage.observer, path) == (b"2", owner) or None, PATIENCE)
    assert stage.observer.exists(path) is None
    assert watch_table_size(client) == 0
    assert client.session_id == owner or not ephemeral


def node_of_no_session(stage: Stage, client: Client, path: str) -> None:
    node_of_a_thread(stage, client, path, ephemeral=False)
    parent, _, name = path.rpartition("/")
    with suppress(NoNodeError):  # it is a container: when it is empty the server removes it
        assert [n for n in stage.observer.get_children(parent) if n.startswith(name)] == []


def node_of_a_task(stage: Stage, client: Client, path: str) -> None:
    async def live() -> None:
        async with AsyncClient(stage.proxy.hosts, session_timeout=LONG) as task:
            async with AsyncPersistentNode(task, path, b"1") as node:
                assert await node.wait_present(PATIENCE)
                await node.set_data(b"2", PATIENCE)
                seen = await asyncio.to_thread(shown, stage.observer, path)
                assert seen == (b"2", task.session_id)
            assert await asyncio.to_thread(stage.observer.exists, path) is None

    asyncio.run(live())


def group_of_threads(stage: Stage, client: Client, path: str) -> None:
    with Group(client, path) as group, Group(stage.observer, path) as others:
        changes = others.changes()
        assert next(changes) == []
        membership = group.join(b"1", "me", PATIENCE)
        me = Member("me", b"1", client.session_id, membership.stat.czxid if membership.stat else 0)
        assert group.members(PATIENCE) == next(changes) == [me]
        membership.set_data(b"2", PATIENCE)
        assert (
            group.members(PATIENCE)
            == next(changes)
            == [Member("me", b"2", me.session_id, me.fence)]
        )
        group.leave(PATIENCE)
        assert group.members(PATIENCE) == next(changes) == []
    assert watch_table_size(client) == 0


def group_of_tasks(stage: Stage, client: Client, path: str) -> None:
    async def live() -> None:
        async with (
            AsyncClient(stage.proxy.hosts, session_timeout=LONG) as task,
            AsyncGroup(task, path) as group,
        ):
            changes = group.changes()
            assert await anext(changes) == []
            await group.join(b"1", "me")
            assert [member.data for member in await anext(changes)] == [b"1"]
            assert await group.wait_for(1, PATIENCE)
            await group.leave(PATIENCE)
            assert await anext(changes) == await group.members(PATIENCE) == []
            await changes.aclose()

    asyncio.run(live())


LIVES: list[Life] = [
    node_of_a_thread, node_of_no_session, node_of_a_task, group_of_threads, group_of_tasks,
]  # fmt: skip


@pytest.mark.parametrize("life", LIVES)
def test_every_cut_at_every_request(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str, life: Life
) -> None:
    def below(stage: Stage, client: Client, path: str) -> None:
        life(stage, client, f"{path}/node")

    faults = {name: (fault,) for name, fault in SINGLES.items()}
    sweep(zookeeper, observer, fresh_path, below, lambda *_: faults)


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


@pytest.mark.own_server
def test_wrong_arguments(observer: Client) -> None:
    wrong: list[tuple[Any, tuple[object, ...], type[Exception]]] = [
        (PersistentNode, ("relative",), ValueError),
        (PersistentNode, ("/",), ValueError),
        (PersistentNode, ("/a", "text"), TypeError),
        (Group, ("relative",), ValueError),
        (Group, ("/",), ValueError),
    ]
    for kind, arguments, error in wrong:
        with pytest.raises(error):
            kind(observer, *arguments)
        with pytest.raises(TypeError):
            kind(observer, "/a", acl=OPEN_ACL_UNSAFE[0])
        with pytest.raises(TypeError):
            kind("127.0.0.1:2181", "/a")


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


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_neither(observer: Client, fresh_path: str) -> None:
    with PersistentNode(observer, fresh_path) as node:
        assert node.wait_present(PATIENCE)

        def child() -> None:
            with pytest.raises(ForkedError):
                node.set_data(b"child", PATIENCE)
            node.close()

        in_child(child)
        assert node.present
        assert shown(observer, fresh_path) == (b"", observer.session_id)
