"""The multi-lock on a real server: all of its locks or none, and one lost is all lost."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tests.support.family_helpers import lose, soon
from tests.support.lock_helpers import GRACE, LONG, PATIENCE, Running, Stage
from zkwire import (
    Client,
    LockLostError,
    MultiLock,
    NonBlockingLock,
    SequentialLock,
)
from zkwire.recipes._recipe import Loss


def both(client: Client, path: str, order: str = "ab") -> MultiLock:
    """A lock of two, below one path."""
    return MultiLock(*(SequentialLock(client, f"{path}/{name}") for name in order))


def nodes(stage: Stage, path: str, names: str = "ab") -> list[str]:
    """The nodes of all contenders."""
    return [node for name in names for node in stage.nodes(f"{path}/{name}")]


# --- all or none ----------------------------------------------------------------------------------


def test_all_are_held_and_released(stage: Stage, fresh_path: str, client: Client) -> None:
    parts = [SequentialLock(client, f"{fresh_path}/{name}") for name in "cab"]
    lock = MultiLock(*parts)
    assert lock.locks == tuple(parts)
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    with lock as entered:
        assert entered is lock
        assert lock.held
        assert all(part.held for part in parts)
        assert 0 < lock.lease_remaining() <= LONG
        fences = {part.path[-1]: part.fence for part in parts}
        assert sorted(fences.values()) == [fences["a"], fences["b"], fences["c"]], "by path"
        with pytest.raises(RuntimeError, match="not re-entrant"):
            lock.acquire()
        assert lock.held
        lock.check()
    with pytest.raises(
        LockLostError, match="one of the locks is not held: not acquired, or no longer"
    ):
        lock.check()
    assert not lock.held
    assert not any(part.held for part in parts)
    assert nodes(stage, fresh_path, "abc") == []
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


def test_a_lock_that_does_not_wait_does_not_wait_here(stage: Stage, fresh_path: str) -> None:
    """It counts as taken whatever client is there; and what was acquired before is given back."""
    client = stage.client()
    first, tried = SequentialLock(client, f"{fresh_path}-a"), f"{fresh_path}-b"
    stage.observer.create(tried, ephemeral=True)
    both = MultiLock(first, NonBlockingLock(client, tried))
    assert not Running(both.acquire).result()
    assert not first.held
    soon("the first is free", lambda: stage.nodes(first.path) == [])
    stage.observer.delete(tried)


def test_arguments_are_checked(stage: Stage, fresh_path: str) -> None:
    lock = SequentialLock(stage.observer, fresh_path)
    for locks in ((), (lock, lock), (lock, SequentialLock(stage.observer, fresh_path))):
        with pytest.raises(ValueError, match="each on another path"):
            MultiLock(*locks)
    for timeout in (-1, float("nan"), "1"):
        with pytest.raises((ValueError, TypeError)):
            MultiLock(lock).acquire(timeout)  # type: ignore[arg-type]


# --- loss -----------------------------------------------------------------------------------------


def test_loss_that_nobody_has_answered_is_forgotten_by_the_next_acquisition(
    stage: Stage, fresh_path: str
) -> None:
    lock = both(stage.client(), fresh_path)
    for gone in "ab":
        assert lock.acquire(GRACE)
        (node,) = stage.nodes(f"{fresh_path}/{gone}")
        lose(stage, lock.locks["ab".index(gone)], node)
        assert not lock.held
    assert lock.acquire(GRACE)
    assert lock.held
    assert len(nodes(stage, fresh_path)) == 2
    lock.release()


def test_release_is_no_loss(stage: Stage, fresh_path: str) -> None:
    lock = both(stage.client(), fresh_path)
    told: SimpleQueue[Loss] = SimpleQueue()
    with lock:
        lost = lock.lost
        assert lock.lost is lost, "one object for one acquisition"
        lost.add_callback(told.put)
        waiting = Running(lambda: lost.wait(PATIENCE))
    assert not waiting.result()
    assert not lost.is_set()
    with lock:
        assert lock.lost is not lost
        lock.lost.add_callback(told.put)
        stage.observer.delete(stage.nodes(f"{fresh_path}/b")[0])
        assert told.get(timeout=PATIENCE) is lock.lost
        with pytest.raises(LockLostError):
            lock.release()
        assert lock.acquire(GRACE)
