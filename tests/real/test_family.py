"""The family on a server: re-entrance, readers and writers, multi-locks, semaphores.

What cuts do to all of them is in `test_recipe_cuts`, other faults in `test_lock_sweep`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.family_helpers import lease_nodes, leased, soon
from tests.support.lock_helpers import A_WHILE, GRACE, LONG, Running, Stage, assert_strictly_rising
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    Client,
    LockLostError,
    LockTimeoutError,
    MultiLock,
    NonBlockingLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
)
from zkwire.testing.proxy import Frame

# ruff: noqa: PT012 - how a scope ends is what some of these tests are about

# Seconds in which even a busy machine sees that all leases are taken; else the error is another.
LOOKED = 2.0


def test_thread_that_holds_may_acquire_again(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    assert not lock.held
    with lock as entered:
        assert entered is lock
        fence = lock.lock.fence
        assert lock.acquire(0)
        assert lock.try_acquire()
        assert lock.lease_remaining() > 0
        with lock:
            assert len(stage.nodes(fresh_path)) == 1
            assert lock.lock.fence == fence
        lock.release()
        lock.release()
        assert lock.held
        rival = ReentrantLock(stage.observer, fresh_path)
        assert not rival.try_acquire()
    assert not lock.held
    assert stage.nodes(fresh_path) == []
    assert rival.try_acquire()
    assert rival.lock.fence > fence
    rival.release()
    with lock:
        assert lock.lock.fence > fence


def test_contenders_that_go_while_they_are_listed(stage: Stage, fresh_path: str) -> None:
    """Listed, and gone before they were looked at."""
    with SequentialLock(stage.client(direct=True), fresh_path, "stays"):
        node = f"{fresh_path}/x-lock-"
        gone = [stage.observer.create(node, ephemeral=True, sequential=True) for _ in range(2)]
        lock = SequentialLock(stage.client(), fresh_path)
        deleting: list[Running[Any]] = []

        def delete(frame: Frame) -> None:
            if frame.op == "get_children" and frame.direction == "s2c":
                deleting.append(Running(lambda: list(map(stage.observer.delete, gone))))
                deleting[-1].result()

        stage.proxy.rule(delete)
        assert [contender.text for contender in lock.contenders()] == ["stays"]
        assert deleting


# --- readers and writers --------------------------------------------------------------------------


def test_another_thread_does_not_read_beside_the_writer(stage: Stage, fresh_path: str) -> None:
    """Neither has a thread that uses the same object any place in the queue of its own."""
    lock = ReadWriteLock(stage.client(direct=True), fresh_path)
    with lock.write:

        def read() -> None:
            with lock.read:
                pass

        for call in (read, lock.read.try_acquire):
            with pytest.raises(RuntimeError, match="each needs an object of its own"):
                Running(call).result()
        assert lock.write.held
        assert not lock.read.held
        assert len(stage.nodes(fresh_path)) == 1
        with lock.read:
            assert lock.write.held
    stage.wait_no_nodes(fresh_path)


def test_upgrade_is_refused(stage: Stage, fresh_path: str) -> None:
    lock = ReadWriteLock(stage.client(direct=True), fresh_path)
    with lock.read:
        for upgrade in (lock.write.acquire, lock.write.try_acquire, lock.write.__enter__):
            with pytest.raises(RuntimeError, match="release it first"):
                upgrade()
        assert lock.read.held
        assert len(stage.nodes(fresh_path)) == 1
    assert lock.write.try_acquire()
    lock.write.release()


# --- several locks in one -------------------------------------------------------------------------


def several(client: Client, path: str, names: str) -> MultiLock:
    return MultiLock(*(SequentialLock(client, f"{path}/{name}") for name in names))


def test_all_are_held_and_released(stage: Stage, fresh_path: str, client: Client) -> None:
    def nodes() -> list[str]:
        return [node for name in "abc" for node in stage.nodes(f"{fresh_path}/{name}")]

    lock = several(client, fresh_path, "cab")
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    with lock as entered:
        assert entered is lock
        assert lock.held
        assert all(part.held for part in lock.locks)
        assert 0 < lock.lease_remaining() <= LONG
        assert_strictly_rising(p.fence for p in sorted(lock.locks, key=lambda p: p.path))
        with pytest.raises(RuntimeError, match="not re-entrant"):
            lock.acquire()
        assert lock.held
        assert len(nodes()) == 3
        lock.check()
    with pytest.raises(LockLostError, match="one of the locks is not held: not acquired, or no l"):
        lock.check()
    assert not lock.held
    assert not any(part.held for part in lock.locks)
    assert nodes() == []
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


def test_a_lock_that_does_not_wait_does_not_wait_here(stage: Stage, fresh_path: str) -> None:
    """It counts as taken whatever client is there; and what was acquired before is given back."""
    client = stage.client()
    first, tried = SequentialLock(client, f"{fresh_path}-a"), f"{fresh_path}-b"
    stage.observer.create(tried, ephemeral=True)
    assert not Running(MultiLock(first, NonBlockingLock(client, tried)).acquire).result()
    assert not first.held
    soon("the first is free", lambda: stage.nodes(first.path) == [])
    stage.observer.delete(tried)


# --- the semaphore --------------------------------------------------------------------------------


def far(stage: Stage, path: str, count: int) -> Semaphore:
    """A semaphore on a client of its own, out of the proxy's reach."""
    return Semaphore(stage.client(direct=True), path, count)


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_as_there_are(stage: Stage, fresh_path: str, count: int) -> None:
    semaphores = [far(stage, fresh_path, count) for _ in range(count + 1)]
    assert {semaphore.count for semaphore in semaphores} == {count}
    leases = [leased(semaphore, GRACE) for semaphore in semaphores[:-1]]
    assert all(lease.held for lease in leases)
    assert stage.observer.get_data(fresh_path)[0] == str(count).encode()
    for timeout in (0, A_WHILE):
        assert not semaphores[-1].lease().acquire(timeout)
    for timeout in (0, LOOKED):
        said = f"none of {count} leases was free in time$"
        with pytest.raises(LockTimeoutError, match=said), semaphores[-1].lease().within(timeout):
            pytest.fail("the body runs")
    leases.pop(0).release()
    with semaphores[-1].lease().within(GRACE) as lease:
        assert lease.held
        assert all(other.held for other in leases)
    for other in leases:
        other.release()
    soon("no node is left", lambda: not lease_nodes(stage, fresh_path))


def test_something_else_in_the_node_is_no_count(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path, b"2\nFORGED " + b"x" * 100_000)
    with pytest.raises(ValueError, match=r"semaphore of b'2\\nFORGED x+', not of 1") as caught:
        leased(far(stage, fresh_path, 1), GRACE)
    assert len(str(caught.value)) < 300
    assert lease_nodes(stage, fresh_path) == []


@pytest.mark.own_server
def test_wrong_arguments_are_refused_early(observer: Client, fresh_path: str) -> None:
    counts: tuple[Any, ...] = (0, -1, True, 1.5, "2", None)
    for count in counts:
        with pytest.raises(ValueError, match="at least one lease"):
            Semaphore(observer, fresh_path, count)
    with pytest.raises(ValueError, match="root"):
        Semaphore(observer, "/", 1)
    lock = SequentialLock(observer, fresh_path)
    for locks in ((), (lock, lock), (lock, SequentialLock(observer, fresh_path))):
        with pytest.raises(ValueError, match="each on another path"):
            MultiLock(*locks)
    timeouts: tuple[Any, ...] = (-1, float("nan"), "1")
    for timeout in timeouts:
        with pytest.raises((ValueError, TypeError)):
            MultiLock(lock).acquire(timeout)


# --- acting on loss, under asyncio ----------------------------------------------------------------


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (asyncio.CancelledError, LockLostError, "its node .* was deleted"),
        (None, LockLostError, "was lost"),
        (KeyError, KeyError, "^$"),
    ],
)
async def test_loss_cancels_the_body(
    zookeeper: ZooKeeperServer,
    fresh_path: str,
    error: type[BaseException] | None,
    expected: type[Exception],
    says: str,
) -> None:
    """Also one that swallows that, or makes an error of it, which stays; it counts no longer."""
    async with AsyncClient(zookeeper.hosts) as client, AsyncClient(zookeeper.hosts) as observer:
        task, lock = asyncio.current_task(), AsyncSequentialLock(client, fresh_path)
        assert task is not None
        for _ in range(2):
            with pytest.raises(expected, match=says):
                async with lock, lock.cancel_on_loss() as entered:
                    assert entered is lock
                    (name,) = await observer.get_children(fresh_path)
                    try:
                        await observer.delete(f"{fresh_path}/{name}")
                        await asyncio.Event().wait()
                        pytest.fail("the end is reached")
                    except asyncio.CancelledError:
                        if error:
                            raise error from None
            assert task.cancelling() == 0
            await client.sync()
        with pytest.raises(LockLostError, match="is not held"):
            async with lock.cancel_on_loss():
                raise AssertionError
