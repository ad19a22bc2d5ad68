"""Kept nodes and groups on zkwire's own server: what only that one can be made to do."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from zkwire import (
    AsyncClient,
    AsyncGroup,
    AsyncPartitioner,
    AsyncPersistentNode,
    Client,
    ClientClosedError,
    Group,
    Member,
    OncePer,
    OperationTimeoutError,
    Partitioner,
    PersistentNode,
    ReentrantLock,
)
from zkwire.testing import Server

SECONDS = 10.0
NO_NODE, BUSY, READ_ONLY = -101, -127, -119


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_a_read_only_server_is_waited_out(server: Server, client: Client, operation: str) -> None:
    server.refuse_next(operation, READ_ONLY)
    node = PersistentNode(client, "/node")
    if operation == "create":
        assert not node.wait_present(0.05)
    else:
        assert node.wait_present(SECONDS)
        with pytest.raises(OperationTimeoutError):
            node.close(0.05)
    poll("it is refused", lambda: not server.unfired or None, SECONDS)
    server.stop()  # which is another state
    server.start()
    assert operation == "delete" or node.wait_present(SECONDS)
    node.close(SECONDS)
    poll("it is gone", lambda: "/node" not in server.tree.nodes or None, SECONDS)


REFUSED = [(op, BUSY) for op in ("create", "exists", "set_data", "delete", "sync", "get_children")]


@pytest.mark.parametrize(
    ("operation", "code"),
    [*REFUSED, ("get_data", BUSY), ("get_children", NO_NODE)],
)
def test_a_busy_server_is_asked_again(
    server: Server, client: Client, operation: str, code: int
) -> None:
    """As is one on which a group is made between two looks."""
    server.refuse_next(operation, code)
    for ephemeral in (True, False):
        with PersistentNode(client, "/node", b"1", ephemeral=ephemeral) as node:
            assert node.wait_present(SECONDS)
            node.set_data(b"2", SECONDS)
            assert server.tree.nodes["/node"].data == b"2"
    with Group(client, "/group") as group:
        assert group.members(SECONDS) == []
        group.join(b"1", timeout=SECONDS)
        assert len(group.members(SECONDS)) == 1


@pytest.mark.parametrize("ephemeral", [True, False])
def test_a_node_that_goes_while_it_is_deleted(
    server: Server, client: Client, ephemeral: bool
) -> None:
    node = PersistentNode(client, "/node", ephemeral=ephemeral)
    assert node.wait_present(SECONDS)
    server.refuse_next("delete", NO_NODE)
    node.close(SECONDS)
    with PersistentNode(client, "/node"):
        pass


def test_a_call_with_a_time_limit_that_is_none_has_no_effect(
    server: Server, client: Client
) -> None:
    node, group = PersistentNode(client, "/node", b"1"), Group(client, "/group")
    partitioner, job = Partitioner(client, "/shared", ["a"]), OncePer(client, "/job", 60.0)
    lock = ReentrantLock(client, "/lock")
    member = group.join(timeout=SECONDS)
    share = partitioner.next(SECONDS)
    assert node.wait_present(SECONDS)
    assert job.claim()
    assert lock.acquire()
    assert lock.acquire()
    ends: list[Callable[[float], object]] = [
        *(node.close, member.close, group.leave, group.close, partitioner.close),
        *(job.give_back, lock.release, partial(node.set_data, b"2")),
    ]
    for end in ends:
        with pytest.raises(ValueError, match="timeout must not be negative"):
            end(-1.0)
    client.sync()
    assert node.present
    assert node._algorithm._wishes == []
    assert server.tree.nodes["/node"].data == b"1"
    assert member.present
    assert share is not None
    assert not share.changed
    job.give_back()
    lock.release()
    assert lock.held
    with pytest.raises(ValueError, match="timeout must not be negative"):
        lock.acquire(-1.0)


def test_what_ends_the_changes(server: Server) -> None:
    client = Client(server.hosts)
    client.connect()
    group, other = Group(client, "/group"), Group(client, "/group")
    seen: queue.Queue[list[Member]] = queue.Queue()
    ended = Running(lambda: list(map(seen.put, group.changes())))
    failed = Running(lambda: list(other.changes()))
    assert other.members(SECONDS) == seen.get(timeout=SECONDS) == []
    group.close()
    assert ended.result() == [None]
    client.close()
    with pytest.raises(ClientClosedError):
        failed.result()


def test_members_in_time(server: Server, client: Client) -> None:
    group = Group(client, "/group")
    assert group.members(SECONDS) == []
    server.stop()
    with pytest.raises(OperationTimeoutError):
        group.members(0.05)
    assert not group.wait_for(1, 0.05)
    server.start()
    assert group.members(SECONDS) == []
    group.close()


def test_nothing_is_watched_behind_the_end(server: Server, client: Client) -> None:
    with Group(client, "/group") as group, PersistentNode(client, "/node") as node:
        group.join()
        assert len(group.members(SECONDS)) == 1
        assert node.wait_present(SECONDS)
        assert len(server._processor.state.watchers) > 0
    poll("no watch", lambda: len(server._processor.state.watchers) == 0 or None, SECONDS)


# --- asyncio --------------------------------------------------------------------------------------


async def test_a_join_that_is_cancelled_leaves_no_member(server: Server) -> None:
    async with AsyncClient(server.hosts) as client, AsyncGroup(client, "/group") as group:
        await client.ensure_path("/group/me")
        joining = asyncio.ensure_future(group.join(name="me"))
        await asyncio.sleep(0.05)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        await client.delete("/group/me")
        membership = await group.join(name="me")
        await membership.close()
        assert await group.members() == []


async def test_a_task_is_told_of_a_close_that_takes_too_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_long(*_: object) -> None:
        raise OperationTimeoutError("not in time")

    monkeypatch.setattr(AsyncPersistentNode, "close", too_long)
    async with AsyncClient(server.hosts) as client:
        with pytest.raises(KeyError):
            async with AsyncPersistentNode(client, "/node"):
                raise KeyError
        with pytest.raises(OperationTimeoutError):
            async with AsyncPersistentNode(client, "/other"):
                pass


async def test_what_another_loop_may_not_ask_has_no_effect(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        node = AsyncPersistentNode(client, "/node", b"first")
        partitioner = AsyncPartitioner(client, "/shares", ["item"])
        group = AsyncGroup(client, "/group")
        assert await node.wait_present(SECONDS)
        assert await partitioner.next(SECONDS) is not None
        for asked in (partial(node.set_data, b"refused"), partitioner.next, group.members):
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(asked()))  # noqa: B023
        await node.set_data(b"second", SECONDS)
        assert (await client.get_data("/node")).stat.version == 1, "the refused one is not written"
        assert partitioner._asked is not None
        assert partitioner._asked.share is None, "the refused one confirms nothing"
        assert await group.members(SECONDS) == []
        for thing in (node, partitioner, group):
            await thing.close(SECONDS)
