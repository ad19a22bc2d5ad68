"""Every public name, used as its users would: for the type checkers.

Nothing here is run; `tests/unit/test_exports.py` sees to it that no name is missing, and
`check.py types` that mypy and pyright (both strict) accept it and see the types that are meant.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator
from datetime import timedelta
from typing import Any, assert_type

import zkwire as zk


def operations(client: zk.Client) -> None:
    acl = [
        zk.ACL(zk.Perms.READ | zk.Perms.WRITE, zk.digest_id("bob", "secret")),
        zk.ACL(31, zk.Id("ip", "::1")),
    ]
    assert_type(client.create("/a", b"x", acl, ephemeral=True, sequential=True), str)
    assert_type(client.create("/c", container=True), str)
    assert_type(client.create_with_stat("/t", b"", zk.CREATOR_ALL_ACL, ttl=60.0), zk.PathAndStat)
    assert_type(client.delete("/a", 3), None)
    assert_type(client.exists("/a"), zk.Stat | None)
    found = assert_type(client.get_data("/a"), zk.DataAndStat)
    data, stat = found
    assert_type(found.is_null, bool)
    client.create("/n", None)
    client.set_data("/n", None)
    assert_type(data, bytes)
    assert_type(client.set_data("/a", data, stat.version), zk.Stat)
    names, _ = assert_type(client.get_children_with_stat("/"), zk.ChildrenAndStat)
    assert_type(names, list[str])
    assert_type(client.get_children("/"), list[str])
    entries, _ = assert_type(client.get_acl("/a"), zk.AclAndStat)
    assert_type(entries, list[zk.ACL])
    client.set_acl("/a", zk.READ_ACL_UNSAFE)
    client.sync("/")
    client.add_auth(*zk.digest_auth("bob", "secret"))
    assert_type(client.who_am_i(), list[zk.ClientInfo])
    assert_type(client.get_ephemerals(), list[str])
    assert_type(client.get_all_children_number("/"), int)
    assert_type(client.get_config(), zk.DataAndStat)
    client.reconfig(leaving=["3"], version=4)
    client.ensure_path("/a/b", zk.OPEN_ACL_UNSAFE)
    client.delete_tree("/a")
    for path in client.walk("/"):
        assert_type(path, str)
    reply = client.pipeline.get_data("/a")
    assert_type(reply.result(1.0), zk.DataAndStat)
    assert_type(reply.ready, bool)
    reply.add_done_callback(lambda reply: print(reply.result().data))


def values(stat: zk.Stat) -> None:
    assert_type(stat._asdict(), dict[str, Any])
    assert_type(stat._replace(version=3), zk.Stat)
    match stat:
        case zk.Stat(czxid, version=4):
            assert_type(czxid, int)
        case _:
            pass
    print(zk.Create("/a") == zk.Check("/a", 1))


def several(client: zk.Client) -> None:
    client.multi(
        [zk.Create("/a", ephemeral=True), zk.Check("/b", 2), zk.SetData("/b", b""), zk.Delete("/c")]
    )
    client.multi_read([zk.GetData("/a"), zk.GetChildren("/")])
    transaction = assert_type(client.transaction(), zk.Transaction)
    try:
        with transaction as t:
            t.check("/a", 1)
            t.create("/b")
    except zk.MultiError as error:
        print(error.index, error.results, error.code)
    print(transaction.results)


def watches(client: zk.Client) -> None:
    watch = zk.Watch()
    client.get_data("/a", watch=watch)
    client.exists("/a", watch=lambda event: print(event.type, event.zxid))
    assert_type(watch.wait(1.0), zk.Event | None)
    lasting = assert_type(client.add_watch("/a", zk.Watch(), recursive=True), zk.Watch)
    for event in lasting:
        if event.type is zk.EventType.REREAD:
            break
    lasting.close()
    client.remove_watches("/a", zk.WatchType.DATA)


class Noted(zk.Observer):
    """An observer of a user's."""

    def request_submitted(self, op: str, path: str | None) -> float:
        return 1.0

    def request_ended(self, begun: float, end: zk.RequestEnd) -> None:
        assert_type(end.outcome, str)
        assert_type(end.server, tuple[str, int] | None)


def connections() -> None:
    def trace(frame: zk.TraceFrame) -> None:
        print(frame.op, frame.size)

    with zk.Client(
        "zoo:2281/app",
        session_timeout=timedelta(hours=2),
        operation_timeout=2.0,
        auth=[zk.digest_auth("bob", "secret")],
        sasl=zk.DigestMD5("bob", "secret"),
        tls=ssl.create_default_context(),
        read_only=True,
        shuffle_hosts=False,
        follow_reconfig=True,
        receive_limit=1 << 20,
        send_limit=4 << 20,
        lease_margin=2.0,
        trace=trace,
        observer=Noted(),
    ) as client:
        client.add_state_listener(lambda state: print(state.value))
        assert_type(client.wait_for_state(zk.State.CONNECTED, timeout=1.0), zk.State | None)
        resume = assert_type(client.detach(), zk.Credentials)
    again = zk.Client("zoo:2281", resume=resume, default_acl=zk.CREATOR_ALL_ACL)
    again.connect(5.0)


class Mechanism:
    """A SASL mechanism of a user's."""

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        challenge = yield b""
        yield challenge + host.encode()


def with_own_mechanism() -> zk.Client:
    return zk.Client("zoo:2181", sasl=Mechanism())


def locks(client: zk.Client) -> None:
    with zk.SequentialLock(client, "/l", "worker 1", acl=zk.CREATOR_ALL_ACL) as lock:
        assert_type(lock.fence, int)
        assert_type(lock.lost, zk.Lost)
        assert_type(lock.contenders(), list[zk.Contender])
        lock.guard([zk.SetData("/a", b"")])
        lock.lost.add_callback(lambda lost: print(lost.reason))
        lock.check()
    assert_type(zk.Lock(client, "/l").acquire(1.0, on_position=print), bool)
    assert_type(zk.BlockingLock(client, "/b").try_acquire(), bool)
    assert_type(zk.NonBlockingLock(client, "/n").lease_remaining(), float)
    table = zk.ReadWriteLock(client, "/rw")
    with table.write, table.read:
        pass
    with assert_type(zk.Semaphore(client, "/s", 3).lease(), zk.Lease) as lease:
        print(lease.held)
    with zk.MultiLock(table.read, lock) as both:
        print(both.lost.is_set())
    with zk.ReentrantLock(client, "/r") as again, again:
        print(again.lock.fence)
    election = zk.Election(client, "/e", "me")
    with election.lead() as leadership:
        print(leadership.held)
    assert_type(election.leader(), zk.Contender | None)
    with zk.PersistentNode(client, "/p", b"data") as node:
        assert_type(node.wait_present(1.0), bool)
        assert_type(node.conflict, zk.Stat | None)
    with zk.Group(client, "/g") as members:
        assert_type(members.join(b"data", "me"), zk.PersistentNode)
        for list_of_members in members.changes():
            assert_type(list_of_members, list[zk.Member])
    with zk.Cache(client, "/c", max_bytes=10**6, decode=str) as cache:
        assert_type(cache.wait_ready(1.0), bool)
        assert_type(cache.wait_fresh(1.0), bool)
        assert_type(cache.get("/c/a"), zk.CachedNode | None)
        assert_type(cache.children("/c"), list[str])
        for change in cache.events():
            assert_type(change, zk.CacheEvent)
    assert issubclass(zk.CacheFullError, ValueError)
    with zk.Partitioner(client, "/p", ["a", "b"], name="me") as partitioner:
        assert_type(partitioner.next(1.0), zk.Share | None)
        for share in partitioner:
            assert_type(share, zk.Share)
            assert_type(share["a"], int)
            assert_type(share.wait(1.0), bool)
    counter = zk.Counter(client, "/c", format="int64")
    assert_type(counter.add(2, timeout=1.0), int)
    assert_type(counter.compare_and_set(2, 3), bool)
    assert_type(counter.version, int)
    assert_type(zk.Barrier(client, "/b").wait(1.0), bool)
    with zk.DoubleBarrier(client, "/d", 2, "me") as member:
        assert_type(member.leave(1.0), bool)
    assert_type(zk.OncePer(client, "/o", timedelta(hours=1)).claim(), bool)


def for_ever(client: zk.Client) -> None:
    states = assert_type(client.watch_data("/a"), zk.DataWatch)
    assert_type(states.next(1.0), zk.SeenData | None)
    for state in states:
        assert_type(state.data, bytes | None)
    names = assert_type(client.watch_children("/a", print), zk.ChildrenWatch)
    assert_type(names.wait_called(1.0), bool)
    client.watch_data("/a", lambda state, event: print(state.data, event), with_event=True)
    assert_type(names.next(), zk.SeenChildren | None)
    with zk.Supervisor("zoo:2181", session_timeout=5.0) as supervisor:
        candidacy = assert_type(
            supervisor.lead("/l", lambda lock: print(lock.fence)), zk.Leadership
        )
        assert_type(candidacy.problem, Exception | None)
        assert_type(supervisor.client(1.0), zk.Client)
        for session in supervisor:
            with session as newest:
                assert_type(newest, zk.Client)
        zk.PersistentNode(supervisor, "/p", on_problem=print)
        supervisor.wait(1.0)


def queues(client: zk.Client) -> None:
    queue = zk.Queue(client, "/q", flat=True, max_items=1000, acl=zk.CREATOR_ALL_ACL)
    assert_type(queue.put(b"", 1, timeout=1.0), int)
    assert_type(queue.put_many([b""]), list[int])
    with queue.take(1.0) as item:
        assert_type(item, zk.QueueItem)
    assert_type(queue.get(1.0).data, bytes)
    assert_type(queue.peek(), zk.QueueItem | None)
    assert_type(queue.size() + len(queue), int)
    for item in queue:
        assert_type(item.deliveries, int)


def of_a_lock(lock: zk.SequentialLock | zk.AsyncSequentialLock) -> None:
    assert_type(lock.node, str | None)
    assert_type(lock.cancel(), bool)


def about_the_session(client: zk.Client | zk.AsyncClient) -> None:
    assert_type(client.start(), None)
    assert_type(client.server, tuple[str, int] | None)
    assert_type(client.last_zxid, int)
    assert_type(client.set_hosts("zoo2:2181"), None)


async def asynchronously(client: zk.AsyncClient) -> None:
    """Of the recipes one of each shape: those for threads are written from them."""
    assert_type(await client.create("/a"), str)
    reply = client.get_data("/a")
    reply.add_done_callback(lambda reply: print(reply.result().data))
    data, _ = await reply
    assert_type(data, bytes)
    assert_type(await asyncio.create_task(client.exists("/a")), zk.Stat | None)
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(client.sync()), asyncio.Task[None])
    assert_type(await client.exists("/a"), zk.Stat | None)
    watch = await client.add_watch("/a", zk.Watch())
    assert_type(await watch, zk.Event)
    async for event in watch:
        assert_type(event, zk.Event)
    transaction = assert_type(client.transaction(), zk.AsyncTransaction)
    async with transaction as t:
        t.delete("/a")
    async for path in client.walk("/"):
        assert_type(path, str)
    async with zk.AsyncSequentialLock(client, "/l") as lock, lock.cancel_on_loss():
        await lock.guard([zk.Create("/b")])
        assert_type(await lock.lost, bool)
    async with zk.AsyncCache(client, "/c", depth=1) as cache:
        assert_type(await cache.wait_ready(1.0), bool)
        async for change in cache.events():
            assert_type(change, zk.CacheEvent)
    async with zk.AsyncPartitioner(client, "/p", ["a"]) as partitioner:
        assert_type(await partitioner.next(1.0), zk.AsyncShare | None)
        async for share in partitioner:
            assert_type(await share.wait(), bool)
    async with zk.AsyncQueue(client, "/q").take(1.0) as item:
        assert_type(item, zk.QueueItem)
    async with assert_type(client.watch_data("/a"), zk.AsyncDataWatch) as states:
        async for state in states:
            assert_type(state, zk.SeenData)
    async with zk.AsyncSupervisor("zoo:2181") as supervisor:
        async for session in supervisor:
            async with session as newest:
                assert_type(newest, zk.AsyncClient)
    assert_type(await client.detach(), zk.Credentials)
