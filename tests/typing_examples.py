"""Public names as their users use them: what the type checkers make of them.

Nothing here is run.  `check.py types` sees to it that mypy and pyright (both strict) accept it, and
see the types that are meant where these are inferred: what an unpacking, a ``with``, a ``for``, a
callback or an ``await`` gives.  `tests/unit/test_type_completeness.py` says that none is missing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator
from datetime import timedelta
from typing import Any, assert_type

import zkwire as zk


def operations(client: zk.Client) -> None:
    acl = [zk.ACL(zk.Perms.READ | zk.Perms.WRITE, zk.digest_id("bob", "secret"))]
    assert_type(client.create("/a", b"x", acl, ephemeral=True, sequential=True), str)
    assert_type(client.create_with_stat("/t", b"", zk.CREATOR_ALL_ACL, ttl=60.0), zk.PathAndStat)
    assert_type(client.exists("/a"), zk.Stat | None)
    data, stat = assert_type(client.get_data("/a"), zk.DataAndStat)
    client.set_data("/n", None)
    assert_type(client.set_data("/a", data, stat.version), zk.Stat)
    names, _ = client.get_children_with_stat("/")
    assert_type(names, list[str])
    entries, _ = client.get_acl("/a")
    assert_type(entries, list[zk.ACL])
    client.add_auth(*zk.digest_auth("bob", "secret"))
    for path in client.walk("/"):
        assert_type(path, str)
    reply = client.pipeline.get_data("/a")
    assert_type(reply.result(1.0), zk.DataAndStat)
    reply.add_done_callback(lambda reply: print(reply.result().data))
    assert_type(stat._asdict(), dict[str, Any])
    assert_type(stat._replace(version=3), zk.Stat)
    match stat:
        case zk.Stat(czxid, version=4):
            assert_type(czxid, int)
        case _:
            pass


def several(client: zk.Client) -> None:
    client.multi(
        [zk.Create("/a", ephemeral=True), zk.Check("/b", 2), zk.SetData("/b", b""), zk.Delete("/c")]
    )
    client.multi_read([zk.GetData("/a"), zk.GetChildren("/")])
    transaction = assert_type(client.transaction(), zk.Transaction)
    try:
        with transaction as t:
            t.check("/a", 1)
    except zk.MultiError as error:
        print(error.index, error.results, error.code)


def watches(client: zk.Client) -> None:
    watch = zk.Watch()
    client.exists("/a", watch=lambda event: print(event.type, event.zxid))
    assert_type(watch.wait(1.0), zk.Event | None)
    for event in assert_type(client.add_watch("/a", watch, recursive=True), zk.Watch):
        if event.type is zk.EventType.REREAD:
            break
    states = assert_type(client.watch_data("/a"), zk.DataWatch)
    for state in states:
        assert_type(state.data, bytes | None)
    names = assert_type(client.watch_children("/a", print), zk.ChildrenWatch)
    assert_type(names.next(), zk.SeenChildren | None)
    client.watch_data("/a", lambda state, event: print(state.data, event), with_event=True)


class Noted(zk.Observer):
    """An observer of a user's."""

    def request_submitted(self, op: str, path: str | None) -> float:
        return 1.0

    def request_ended(self, begun: float, end: zk.RequestEnd) -> None:
        assert_type(end.outcome, str)
        assert_type(end.server, tuple[str, int] | None)


class Mechanism:
    """A SASL mechanism of a user's."""

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        challenge = yield b""
        yield challenge + host.encode()


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
        trace=trace,
        observer=Noted(),
    ) as client:
        client.add_state_listener(lambda state: print(state.value))
        assert_type(client.wait_for_state(zk.State.CONNECTED, timeout=1.0), zk.State | None)
        resume = assert_type(client.detach(), zk.Credentials)
    zk.Client("zoo:2281", resume=resume, sasl=Mechanism(), default_acl=zk.CREATOR_ALL_ACL)


def recipes(client: zk.Client) -> None:
    """Those for threads are written from those for asyncio: one of each shape."""
    with zk.SequentialLock(client, "/l", "worker 1", acl=zk.CREATOR_ALL_ACL) as lock:
        assert_type(lock.lost, zk.Lost)
        lock.guard([zk.SetData("/a", b"")])
        lock.lost.add_callback(lambda lost: print(lost.reason))
    assert_type(zk.Lock(client, "/l").acquire(1.0, on_position=print), bool)
    table = zk.ReadWriteLock(client, "/rw")
    with table.write, table.read:
        pass
    with assert_type(zk.Semaphore(client, "/s", 3).lease(), zk.Lease) as lease:
        print(lease.held)
    with zk.MultiLock(table.read, lock) as both:
        print(both.lost.is_set())
    with zk.ReentrantLock(client, "/r") as again, again:
        print(again.lock.fence)
    with zk.Election(client, "/e", "me").lead() as leadership:
        print(leadership.held)
    with zk.Group(client, "/g") as members:
        assert_type(members.join(b"data", "me"), zk.PersistentNode)
        for list_of_members in members.changes():
            assert_type(list_of_members, list[zk.Member])
    with zk.Cache(client, "/c", max_bytes=10**6, decode=str) as cache:
        for change in cache.events():
            assert_type(change, zk.CacheEvent)
    with zk.Partitioner(client, "/p", ["a", "b"], name="me") as partitioner:
        assert_type(partitioner.next(1.0), zk.Share | None)
        for share in partitioner:
            assert_type(share["a"], int)
    with zk.DoubleBarrier(client, "/d", 2, "me") as member:
        assert_type(member.leave(1.0), bool)
    queue = zk.Queue(client, "/q", flat=True, max_items=1000, acl=zk.CREATOR_ALL_ACL)
    with queue.take(1.0) as taken:
        assert_type(taken, zk.QueueItem)
    for item in queue:
        assert_type(item.deliveries, int)
    with zk.Supervisor("zoo:2181", session_timeout=5.0) as supervisor:
        candidacy = supervisor.lead("/l", lambda lock: print(lock.fence))
        assert_type(candidacy, zk.Leadership)
        for session in supervisor:
            with session as newest:
                assert_type(newest, zk.Client)
        zk.PersistentNode(supervisor, "/p", on_problem=print)


async def asynchronously(client: zk.AsyncClient) -> None:
    assert_type(await client.create("/a"), str)
    reply = client.get_data("/a")
    reply.add_done_callback(lambda reply: print(reply.result().data))
    data, _ = await reply
    assert_type(data, bytes)
    assert_type(await asyncio.create_task(client.exists("/a")), zk.Stat | None)
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(client.sync()), asyncio.Task[None])
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
        async for change in cache.events():
            assert_type(change, zk.CacheEvent)
    async with zk.AsyncPartitioner(client, "/p", ["a"]) as partitioner:
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
