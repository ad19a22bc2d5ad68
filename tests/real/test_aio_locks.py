"""The async locks: what only tasks can show.

The algorithms are those of the locks for threads, so their scenarios are run there; what a lost
connection does to the async ones is in `tests/connection_loss/recipes.py`, a cancellation in
`test_aio_cancellation`.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import zkwire
from tests.real.test_lock_processes import outrun
from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import (
    AsyncKind,
    async_kinds,
    async_waiting_kinds,
    awaited,
    blocking,
    eventually,
    run,
    watch_count,
)
from tests.support.lock_helpers import (
    GRACE,
    LONG,
    PATIENCE,
    SHORT,
    Kind,
    Workers,
    all_kinds,
    assert_strictly_rising,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncBlockingLock,
    AsyncClient,
    AsyncNonBlockingLock,
    AsyncSequentialLock,
    Client,
    ClientClosedError,
    ForkedError,
    LockLostError,
    LockTakenError,
    NoNodeError,
)
from zkwire.net.timing import DEFER_SECONDS
from zkwire.session.session import Session
from zkwire.testing import Server

WAITERS = 1000


# --- between processes ----------------------------------------------------------------------------


@pytest.mark.own_server
@all_kinds
def test_stopped_holder_knows_when_it_wakes(
    zookeeper: ZooKeeperServer, kind: Kind, fresh_path: str, tmp_path: Path
) -> None:
    """Stopped for longer than its session lives; what it must look at waits for it already."""
    register = tmp_path / "register"
    with Client(zookeeper.hosts, session_timeout=LONG) as client, Workers() as workers:
        rival = kind(client, fresh_path)
        arguments = (zookeeper.hosts, kind.__name__, fresh_path, SHORT, register)
        worker = workers.start("writing_in_a_task", *arguments)
        outrun(worker, rival, register)


# --- tasks ----------------------------------------------------------------------------------------


async def nodes(client: AsyncClient, path: str) -> list[str]:
    try:
        names, stat = await client.get_children_with_stat(path)
    except NoNodeError:
        return []
    return [path] if stat.ephemeral_owner else names


@pytest.mark.own_server
@async_kinds
async def test_tasks_of_one_client_exclude_each_other(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    inside = 0
    turns: list[tuple[int, int]] = []

    async def work(number: int) -> None:
        nonlocal inside
        lock = kind(client, fresh_path)
        for _ in range(5):
            while not await lock.acquire():
                await asyncio.sleep(0)
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            assert lock.held
            turns.append((number, lock.fence))
            inside -= 1
            await lock.release()

    async with AsyncClient(zookeeper.hosts) as client:
        await asyncio.gather(*map(work, range(8)))
        assert len(turns) == 40
        assert_strictly_rising(fence for _, fence in turns)
        assert await nodes(client, fresh_path) == []
        await eventually("no watch is left", lambda: watch_count(client) == 0)


@pytest.mark.own_server
@async_kinds
async def test_one_object_is_for_one_task(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        lock = kind(client, fresh_path)
        with pytest.raises(RuntimeError, match="does not hold"):
            await lock.release()
        first = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another thread or task"):
            await lock.acquire()
        assert await first
        with pytest.raises(RuntimeError, match="not re-entrant"):
            await lock.try_acquire()
        await lock.release()
        for wrong in (-1, "1", float("nan")):
            with pytest.raises((ValueError, TypeError), match="timeout must"):
                await lock.acquire(wrong)  # type: ignore[arg-type]


@pytest.mark.own_server
@async_kinds
async def test_async_with(zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str) -> None:
    async with AsyncClient(zookeeper.hosts) as client, AsyncClient(zookeeper.hosts) as other:
        lock = kind(client, fresh_path)
        async with lock as entered:
            assert entered is lock
            assert lock.held
            if kind is AsyncNonBlockingLock:
                with pytest.raises(LockTakenError):
                    await kind(other, fresh_path).__aenter__()
        assert not lock.held
        with pytest.raises(KeyError):
            await _losing(lock, other, fresh_path, KeyError())
        with pytest.raises(LockLostError):
            await _losing(lock, other, fresh_path, None)
        assert await nodes(client, fresh_path) == []

        async def body() -> None:
            async with lock:
                await asyncio.Event().wait()

        task = asyncio.ensure_future(body())
        await eventually("it holds", lambda: lock.held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lock.held
        assert await kind(other, fresh_path).try_acquire()


async def _losing(lock: Any, other: AsyncClient, path: str, error: BaseException | None) -> None:
    async with lock:
        (node,) = await nodes(other, path)
        await other.delete(node if node == path else f"{path}/{node}")
        assert await lock.lost
        if error is not None:
            raise error


@pytest.mark.own_server
@async_waiting_kinds
async def test_acquire_in_an_asyncio_timeout(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts) as client, AsyncClient(zookeeper.hosts) as other:
        rival, lock = kind(other, fresh_path), kind(client, fresh_path)
        async with rival:
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await lock.acquire()
            assert not await lock.acquire(0.01)

            async def alone() -> bool:
                return len(await nodes(other, fresh_path)) == 1

            await eventually("only the holder's node is left", alone)
            assert rival.held
        async with asyncio.timeout(PATIENCE), lock:
            pass
        await eventually("no watch is left", lambda: watch_count(client) == 0)


@async_kinds
async def test_both_worlds_on_one_path(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    with Client(zookeeper.hosts) as threaded:
        theirs = getattr(zkwire, kind.__name__.removeprefix("Async"))(threaded, fresh_path)
        async with AsyncClient(zookeeper.hosts) as client:
            ours = kind(client, fresh_path)
            fences = []
            for _ in range(5):
                assert await blocking(theirs.acquire, GRACE)
                assert not await ours.try_acquire()
                fences.append(theirs.fence)
                waiting = asyncio.ensure_future(ours.acquire())
                if kind is AsyncNonBlockingLock:
                    assert not await waiting
                await blocking(theirs.release)
                if kind is AsyncNonBlockingLock:
                    waiting = asyncio.ensure_future(ours.acquire())
                assert await waiting
                fences.append(ours.fence)
                assert not await blocking(theirs.try_acquire)
                await ours.release()
            assert_strictly_rising(fences)


@pytest.mark.own_server
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@async_kinds
async def test_forked_child_holds_nothing(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    async with AsyncClient(zookeeper.hosts) as client:
        lock, other = kind(client, fresh_path), kind(client, f"{fresh_path}-other")
        assert await lock.acquire()
        session_id = client.session_id

        def child() -> None:
            async def use() -> None:
                for call in (lock.release, other.try_acquire, other.acquire):
                    with pytest.raises(ForkedError):
                        await call()

            assert not lock.held
            assert lock.lease_remaining() == 0.0
            asyncio.run(use())

        in_child(child)
        assert lock.held
        assert not lock.lost.is_set()
        await lock.release()
        assert client.session_id == session_id
        assert await nodes(client, fresh_path) == []


@pytest.mark.own_server
@async_kinds
async def test_a_closed_client_tells_waiters_and_holders(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    client = AsyncClient(zookeeper.hosts)
    async with client:
        lock = kind(client, fresh_path)
        assert await lock.acquire()
        waiting = asyncio.ensure_future(kind(client, fresh_path).acquire())
        lost = asyncio.ensure_future(awaited(lock.lost))
        if kind is AsyncNonBlockingLock:
            assert not await waiting
        else:
            # The next one in a queue watches its own node as well.
            count = 3 if kind is AsyncSequentialLock else 2
            await eventually("it waits", lambda: watch_count(client) == count)
    assert await lost is True
    assert not lock.held
    if kind is not AsyncNonBlockingLock:
        with pytest.raises(ClientClosedError):
            await waiting
    with pytest.raises(LockLostError):
        await lock.release()


async def test_no_server_can_tell() -> None:
    with Server() as server:
        async with AsyncClient(server.hosts, session_timeout=LONG) as client:
            await blocking(server.stop)
            assert not await AsyncNonBlockingLock(client, "/l").acquire(0.1)
            assert not await AsyncSequentialLock(client, "/l").acquire(0.1)
            assert not await AsyncBlockingLock(client, "/l").acquire(0.1)
            await blocking(server.start)
            async with asyncio.timeout(PATIENCE), AsyncSequentialLock(client, "/l"):
                pass


@pytest.mark.own_server
async def test_create_and_listing_leave_in_one_write(
    zookeeper: ZooKeeperServer, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy may see two writes as one; the driver knows."""
    async with AsyncClient(zookeeper.hosts) as client:
        await client.create(fresh_path)
        link = client._driver.current_connection
        assert link is not None
        writes: list[int] = []
        handed_out = Session.data_to_send

        def data_to_send(session: Session, now: float) -> bytes:
            before = session.queued
            data = handed_out(session, now)
            writes.append(before - session.queued)
            return data

        monkeypatch.setattr(Session, "data_to_send", data_to_send)
        lock = AsyncSequentialLock(client, fresh_path)
        assert await lock.acquire()
        assert writes == [2], "create and listing"
        async with asyncio.timeout(PATIENCE):
            while len(writes) < 2:
                await asyncio.sleep(DEFER_SECONDS)
        assert writes == [2, 1], "the guard, by itself"
        await lock.release()
        writes.clear()
        assert await lock.acquire()
        await lock.release()
        assert writes == [2, 1], "released at once: the delete, and no guard"


# --- a thousand -----------------------------------------------------------------------------------


@pytest.mark.own_server
def test_a_thousand_waiters_on_one_client(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Acquired in order; what it costs is printed."""

    async def main() -> tuple[float, float]:
        async with AsyncClient(zookeeper.hosts, session_timeout=30) as client:
            holder = AsyncSequentialLock(client, fresh_path)
            assert await holder.acquire()
            order: list[tuple[int, int]] = []

            async def wait(number: int) -> None:
                lock = AsyncSequentialLock(client, fresh_path)
                assert await lock.acquire()
                order.append((number, lock.fence))
                assert lock.held
                await lock.release()

            tasks = [asyncio.ensure_future(wait(number)) for number in range(WAITERS)]
            await eventually("all wait", lambda: watch_count(client) == WAITERS + 2, 4 * PATIENCE)
            started = time.monotonic()
            await holder.release()
            await asyncio.gather(*tasks)
            took = time.monotonic() - started
            assert [number for number, _ in order] == list(range(WAITERS))
            assert_strictly_rising(fence for _, fence in order)
            assert await client.get_children(fresh_path) == []
            await eventually("no watch is left", lambda: watch_count(client) == 0)
            return took, started

    async def weight() -> float:
        """Bytes of a waiter, its task and its lock, once it waits."""
        count = 200
        async with AsyncClient(zookeeper.hosts, session_timeout=30) as client:
            holder = AsyncSequentialLock(client, f"{fresh_path}-w")
            assert await holder.acquire()
            tracemalloc.start()
            try:
                locks = [AsyncSequentialLock(client, holder.path) for _ in range(count)]
                tasks = [asyncio.ensure_future(lock.acquire()) for lock in locks]
                await eventually("all wait", lambda: watch_count(client) == count + 2)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await holder.release()
            return held / count

    begun = time.monotonic()
    took, started = run(main, debug=False)
    bytes_each = run(weight, debug=False)
    with capsys.disabled():
        print(
            f"\n{WAITERS} waiters: {1000 * (started - begun) / WAITERS:.2f} ms each to queue, "
            f"{1000 * took / WAITERS:.2f} ms each from release to release, "
            f"{bytes_each / 1024:.1f} KiB each"
        )
    assert bytes_each < 64 * 1024
