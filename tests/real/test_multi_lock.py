"""The multi-lock on a real server: all of its locks or none, and one lost is all lost."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tests.support.family_helpers import lease_of, lose, soon
from tests.support.lock_helpers import (
    GRACE,
    LONG,
    PATIENCE,
    Running,
    Stage,
    wait_until_waiting,
)
from zkwire import (
    BlockingLock,
    Client,
    LockLostError,
    LockTakenError,
    MultiLock,
    NonBlockingLock,
    ReadWriteLock,
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


def test_waits_for_each_in_turn(stage: Stage, fresh_path: str) -> None:
    lock, rival = both(stage.client(), fresh_path), both(stage.client(direct=True), fresh_path)
    assert rival.try_acquire()
    waiting = Running(lambda: lock.acquire(PATIENCE))
    wait_until_waiting(stage)
    rival.locks[0].release()
    wait_until_waiting(stage, nth=2)
    assert lock.locks[0].held
    assert not lock.held
    rival.locks[1].release()
    assert waiting.result()
    assert lock.held
    lock.release()


def test_kinds_can_be_mixed(stage: Stage, fresh_path: str) -> None:
    def mixed(client: Client) -> MultiLock:
        return MultiLock(
            BlockingLock(client, f"{fresh_path}-d"),
            ReadWriteLock(client, f"{fresh_path}-c").read,
            lease_of(client, f"{fresh_path}-b", 2),
            NonBlockingLock(client, f"{fresh_path}-a"),
        )

    lock, rival = mixed(stage.client()), mixed(stage.client(direct=True))
    with lock:
        assert lock.held
        assert not rival.try_acquire()
    with rival:
        assert not lock.acquire(0)


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


def test_part_that_is_held_already_is_left_alone(stage: Stage, fresh_path: str) -> None:
    """It is the caller's own: not taken twice, and not given up behind its back."""
    lock = both(stage.client(), fresh_path)
    second = lock.locks[1]
    assert second.acquire(GRACE)
    with pytest.raises(RuntimeError, match="not re-entrant"):
        lock.acquire()
    assert second.held
    assert not lock.locks[0].held
    soon("the first is free", lambda: stage.nodes(f"{fresh_path}/a") == [])
    second.release()


def test_release_gives_all_up_whatever_happens_to_one(stage: Stage, fresh_path: str) -> None:
    lock = both(stage.client(), fresh_path)
    assert lock.acquire(GRACE)
    lock.locks[1].release()  # by itself: a mistake
    assert not lock.held
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    assert not lock.locks[0].held
    soon("none is left", lambda: nodes(stage, fresh_path) == [])
    with lock:
        assert lock.held


# --- loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", "ab")
def test_loss_of_one_is_the_loss_of_all(stage: Stage, fresh_path: str, gone: str) -> None:
    lock = both(stage.client(), fresh_path)
    assert lock.acquire(GRACE)
    lost = lock.lost
    told: SimpleQueue[Loss] = SimpleQueue()
    lost.add_callback(told.put)
    waiting = Running(lambda: lost.wait(PATIENCE))
    assert not lost.is_set()
    assert lost.reason is None
    (node,) = stage.nodes(f"{fresh_path}/{gone}")
    stage.observer.delete(node)
    assert waiting.result()
    assert told.get(timeout=PATIENCE) is lost
    assert lost.is_set()
    assert lost.reason == f"its node {node} was deleted"
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    other = lock.locks["ba".index(gone)]
    assert other.held, "by itself it is"
    with pytest.raises(LockLostError, match=f"/{gone} had been lost"):
        lock.release()
    assert not other.held
    soon("all are free", lambda: nodes(stage, fresh_path) == [])
    assert told.empty()
    assert lock.acquire(GRACE), "the object is as new"
    assert not lock.lost.is_set()
    lock.release()


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


def test_looking_at_the_loss_costs_nothing(stage: Stage, fresh_path: str) -> None:
    """A loop that looks again and again must not leave something behind each time."""
    lock = both(stage.client(), fresh_path)
    with lock:
        for _ in range(100):
            assert not lock.lost.is_set()
        assert sum(len(part.lost._wakers) for part in lock.locks) <= 2 * len(lock.locks)


def test_first_lost_while_waiting_for_the_second(stage: Stage, fresh_path: str) -> None:
    lock, rival = both(stage.client(), fresh_path), stage.client(direct=True)
    second = SequentialLock(rival, f"{fresh_path}/b")
    assert second.acquire(GRACE)
    waiting = Running(lambda: lock.acquire(PATIENCE))
    wait_until_waiting(stage)
    lose(stage, lock.locks[0], stage.nodes(f"{fresh_path}/a")[0])
    second.release()
    with pytest.raises(LockLostError, match="while another was acquired"):
        waiting.result()
    assert not any(part.held for part in lock.locks)
    soon("none is left", lambda: nodes(stage, fresh_path) == [])


# --- timeouts, interrupts -------------------------------------------------------------------------


def test_with_on_a_taken_lock_waits(stage: Stage, fresh_path: str) -> None:
    lock = both(stage.client(), fresh_path)
    with SequentialLock(stage.client(direct=True), f"{fresh_path}/a"):
        entering = Running(lock.__enter__)
        wait_until_waiting(stage)
    assert entering.result() is lock
    lock.release()
    with pytest.raises(LockTakenError):
        raise_taken(lock)


def raise_taken(lock: MultiLock) -> None:
    """What ``with`` raises if acquire says no."""

    async def refuse(timeout: float | None) -> bool:
        return False

    lock._algorithm._take = refuse  # type: ignore[method-assign]
    with lock:
        raise AssertionError
