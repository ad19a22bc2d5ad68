"""cancel() ends an acquisition of any lock from outside; node names the lock's own node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from tests.support.aio_helpers import blocking, eventually
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from zkwire import AsyncClient, AsyncSupervisor, Client, LockCancelledError, Supervisor
from zkwire.testing import Server

# By name: what makes a contender of a client and the prefix of its classes, "" or "Async".
KINDS: dict[str, Callable[[Any, str], Any]] = {
    "sequential": lambda c, a: kind(a, "SequentialLock")(c, "/lock"),
    "blocking": lambda c, a: kind(a, "BlockingLock")(c, "/lock"),
    "read": lambda c, a: kind(a, "ReadWriteLock")(c, "/lock").write,
    "semaphore": lambda c, a: kind(a, "Semaphore")(c, "/lock", 1).lease(),
    "election": lambda c, a: kind(a, "Election")(c, "/lock").lead(),
    "reentrant": lambda c, a: kind(a, "ReentrantLock")(c, "/lock"),
    "multi": lambda c, a: kind(a, "MultiLock")(
        kind(a, "SequentialLock")(c, "/lock"), kind(a, "SequentialLock")(c, "/other")
    ),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def kind(prefix: str, name: str) -> Any:
    return getattr(zkwire, prefix + name)


def paths(server: Server, *below: str) -> list[str]:
    """The nodes of contenders."""
    return sorted(p for p in server.tree.nodes if p.startswith(("/lock/", "/other/", *below)))


def is_contending(lock: Any) -> bool:
    algorithm = getattr(lock, "_algorithm", lock)
    return bool(algorithm._busy or getattr(algorithm, "_contending", False))


@each_kind
def test_a_thread_that_waits_is_cancelled(make: Any, server: Server) -> None:
    with Client(server.hosts) as other, Client(server.hosts) as client:
        holder, lock = make(other, ""), make(client, "")
        holder.acquire()
        before = paths(server)
        assert not lock.cancel()
        waiting = Running(lock.acquire)
        poll("it waits", lambda: server.watches(client.session_id) or None, PATIENCE)
        assert lock.cancel()
        with pytest.raises(LockCancelledError, match="nothing is held"):
            waiting.result(PATIENCE)
        assert not lock.held
        poll("its node goes", lambda: paths(server) == before or None, PATIENCE)
        assert holder.held
        holder.release()
        assert lock.acquire(PATIENCE), "the lock can be acquired again"
        assert not lock.cancel()
        assert lock.held
        lock.release()
        assert client.exists("/") is not None


@each_kind
async def test_a_task_that_waits_is_cancelled(make: Any, server: Server) -> None:
    async with AsyncClient(server.hosts) as other, AsyncClient(server.hosts) as client:
        holder, lock = make(other, "Async"), make(client, "Async")
        await holder.acquire()
        before = paths(server)
        assert not lock.cancel()
        for from_a_thread in (False, True):
            waiting = asyncio.create_task(lock.acquire())
            # A watch of the acquisition before may still be set.
            await eventually("it begins", lambda: is_contending(lock))
            await eventually("it waits", lambda: server.watches(client.session_id))
            assert (await blocking(lock.cancel) if from_a_thread else lock.cancel()) is True
            with pytest.raises(LockCancelledError):
                await asyncio.wait_for(waiting, PATIENCE)
            assert not waiting.cancelled()
            await eventually("its node goes", lambda: paths(server) == before)
        await holder.release()
        assert await lock.acquire(PATIENCE)
        await lock.release()


def test_a_wait_for_a_server_is_cancelled(server: Server) -> None:
    with Client(server.hosts, session_timeout=60.0) as client:
        lock = zkwire.SequentialLock(client, "/lock")
        client.connect()
        server.stop()
        poll("disconnected", lambda: client.server is None or None, PATIENCE)
        waiting = Running(lock.acquire)
        poll("it waits", lambda: is_contending(lock) or None, PATIENCE)
        lock.cancel()
        with pytest.raises(LockCancelledError):
            waiting.result(PATIENCE)
        server.start()


def test_a_with_and_a_try_are_cancelled(server: Server) -> None:
    with Client(server.hosts) as other, Client(server.hosts) as client:
        holder = zkwire.SequentialLock(other, "/lock")
        holder.acquire()
        lock = zkwire.SequentialLock(client, "/lock")

        def enter() -> None:
            with lock.within(PATIENCE):
                raise AssertionError("it is held by another")

        waiting = Running(enter)
        poll("it waits", lambda: server.watches(client.session_id) or None, PATIENCE)
        lock.cancel()
        with pytest.raises(LockCancelledError):
            waiting.result(PATIENCE)


def test_other_waits_of_the_client_go_on(server: Server) -> None:
    with Client(server.hosts) as other, Client(server.hosts) as client:
        holder = zkwire.SequentialLock(other, "/lock")
        holder.acquire()
        locks = [zkwire.SequentialLock(client, "/lock") for _ in range(3)]
        waits = [Running(lock.acquire) for lock in locks]
        poll("all wait", lambda: len(paths(server)) == 4 or None, PATIENCE)
        assert locks[1].cancel()
        with pytest.raises(LockCancelledError):
            waits[1].result(PATIENCE)
        holder.release()
        for _ in range(2):  # in the order of arrival, which is the kernel's
            holds = poll("one holds", lambda: next((k for k in locks if k.held), None), PATIENCE)
            holds.release()
        assert [waits[index].result(PATIENCE) for index in (0, 2)] == [True, True]


def test_a_supervised_lock_is_cancelled(server: Server) -> None:
    with Client(server.hosts) as other, Supervisor(server.hosts) as supervisor:
        holder = zkwire.SequentialLock(other, "/lock")
        holder.acquire()
        lock = zkwire.SequentialLock(supervisor, "/lock")
        waiting = Running(lock.acquire)
        poll("it waits", lambda: len(paths(server)) == 2 or None, PATIENCE)
        assert lock.cancel()
        with pytest.raises(LockCancelledError):
            waiting.result(PATIENCE)


async def test_a_supervised_lock_is_cancelled_under_asyncio(server: Server) -> None:
    async with AsyncClient(server.hosts) as other, AsyncSupervisor(server.hosts) as supervisor:
        holder = zkwire.AsyncSequentialLock(other, "/lock")
        await holder.acquire()
        lock = zkwire.AsyncSequentialLock(supervisor, "/lock")
        waiting = asyncio.create_task(lock.acquire())
        await eventually("it waits", lambda: len(paths(server)) == 2)
        assert lock.cancel()
        with pytest.raises(LockCancelledError):
            await waiting


# --- node -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SequentialLock", "BlockingLock"])
def test_node_is_the_own_node_while_held_or_queued(name: str, server: Server) -> None:
    with Client(server.hosts) as client, Client(server.hosts) as client2:
        first, second = kind("", name)(client, "/lock"), kind("", name)(client2, "/lock")
        assert first.node is None
        first.acquire()
        assert server.tree.nodes[str(first.node)].owner == client.session_id
        waiting = Running(second.acquire)
        poll("it waits", lambda: server.watches(client2.session_id) or None, PATIENCE)
        if name == "SequentialLock":
            assert sorted([first.node, second.node]) == paths(server)
        else:
            assert str(first.node) == "/lock"
            assert second.node is None
        first.release()
        assert first.node is None
        waiting.result(PATIENCE)
        assert second.node == (paths(server)[0] if name == "SequentialLock" else "/lock")
        client2.delete(second.node)
        assert second.lost.wait(PATIENCE)
        assert second.node is None


async def test_node_of_a_lease_and_under_asyncio(server: Server) -> None:
    async with AsyncClient(server.hosts) as client, AsyncClient(server.hosts) as client2:
        first = zkwire.AsyncSemaphore(client, "/s", 1).lease()
        second = zkwire.AsyncSemaphore(client2, "/s", 1).lease()
        await first.acquire()
        assert first.node is not None
        assert first.node.startswith("/s/leases/")
        waiting = asyncio.create_task(second.acquire())
        await eventually("queued", lambda: second.node in server.tree.nodes)
        await first.release()
        await waiting
        assert second.node in server.tree.nodes
        await second.release()
        assert second.node is None


def test_cancel_between_two_threads_never_hits_a_later_call(server: Server) -> None:
    """Whatever comes first: an acquisition ends in one of two ways, and the next call is whole."""
    with Client(server.hosts) as client:
        lock, ends = zkwire.SequentialLock(client, "/lock"), list[str]()
        stop = threading.Event()

        def cancel() -> None:
            while not stop.is_set():
                lock.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            for _ in range(200):
                try:
                    assert lock.acquire(PATIENCE)
                except LockCancelledError:
                    ends.append("cancelled")
                    assert not lock.held
                else:
                    ends.append("held")
                    lock.release()
                assert client.exists("/") is not None
        finally:
            stop.set()
            canceller.join()
        assert len(ends) == 200
        poll("nothing is left", lambda: not paths(server) or None, PATIENCE)
