"""The read-write lock on a real server: who may hold together, and in which order they come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.family_helpers import Queue
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Running,
    Stage,
    Workers,
    assert_strictly_rising,
    wait_until_waiting,
)
from zkwire import LockLostError, ReadWriteLock, SequentialLock
from zkwire.testing.proxy import Gate, hold


def far(stage: Stage, path: str) -> ReadWriteLock:
    """A lock on a client of its own, out of the proxy's reach."""
    return ReadWriteLock(stage.client(direct=True), path)


def test_downgrade_lets_readers_in_and_keeps_writers_out(stage: Stage, fresh_path: str) -> None:
    lock, reader, writer = (far(stage, fresh_path) for _ in range(3))
    assert lock.write.acquire(GRACE)
    assert lock.read.acquire(GRACE)
    assert lock.write.held
    assert lock.read.held
    assert not reader.read.try_acquire()
    lock.write.release()
    assert lock.read.held
    assert not writer.write.try_acquire()
    assert reader.read.try_acquire()
    assert lock.read.held
    reader.read.release()
    lock.read.release()
    assert writer.write.try_acquire()
    writer.write.release()
    assert stage.nodes(fresh_path) == []


@pytest.mark.parametrize("waits", ["read", "write"])
def test_downgrade_passes_those_who_wait(stage: Stage, fresh_path: str, waits: str) -> None:
    """A writer that waits meanwhile neither stops the downgrade nor enters beside the reader."""
    lock, queue = far(stage, fresh_path), Queue(stage, fresh_path)
    assert lock.write.acquire(GRACE)
    queue.join(waits, getattr(far(stage, fresh_path), waits))
    queue.join("last", far(stage, fresh_path).write)
    assert lock.read.acquire(GRACE), "it waits for somebody who waits for it"
    queue.expect_nobody()
    lock.write.release()
    if waits == "read":
        queue.expect("read")
    else:
        # Whoever was woken has looked again by the time that a later contender is refused.
        assert not far(stage, fresh_path).read.try_acquire()
    queue.expect_nobody()
    assert lock.read.held
    lock.read.release()
    if waits == "read":
        queue.expect_nobody()
    else:
        queue.expect("write")
    queue.leave(waits)
    queue.expect("last")
    queue.leave("last")
    assert stage.nodes(fresh_path) == []


def test_downgrade_passes_a_plain_lock_that_waits(stage: Stage, fresh_path: str) -> None:
    """It counts as a writer, and must not believe that nobody comes in where a writer stood."""
    lock = far(stage, fresh_path)
    assert lock.write.acquire(GRACE)
    plain = SequentialLock(stage.client(), fresh_path)
    waiting = Running(plain.acquire)
    wait_until_waiting(stage)
    assert lock.read.acquire(GRACE)
    lock.write.release()
    wait_until_waiting(stage, 2)  # it has looked again, and waits for the reader
    assert not plain.held
    lock.read.release()
    waiting.result()
    plain.release()
    assert stage.nodes(fresh_path) == []


def test_downgrade_can_be_taken_back(stage: Stage, fresh_path: str) -> None:
    """The write lock outlives the read lock, and the next downgrade is a new one."""
    lock, queue = far(stage, fresh_path), Queue(stage, fresh_path)
    assert lock.write.acquire(GRACE)
    queue.join("W", far(stage, fresh_path).write)
    fences = [lock.write.fence]
    for _ in range(3):
        with lock.read:
            fences.append(lock.read.fence)
        assert lock.write.held
    assert_strictly_rising(fences)
    lock.write.release()
    queue.expect("W")
    assert not lock.read.try_acquire(), "no write lock, no precedence"
    queue.leave("W")
    assert stage.nodes(fresh_path) == []


def test_downgrade_of_a_lost_write_lock_waits_like_everybody(stage: Stage, fresh_path: str) -> None:
    """Its node is gone, a rival writes, and the holder has not heard of it yet."""
    rival, gate = far(stage, fresh_path), Gate()
    lock = ReadWriteLock(stage.client(timeout=PATIENCE), fresh_path)
    holder = ThreadPoolExecutor(1)
    assert holder.submit(lock.write.acquire, GRACE).result(2 * GRACE)
    stage.proxy.wait_for(lambda frames: frames[-1].op == "get_children2" and bool(frames[-1].zxid))
    (node,) = stage.nodes(fresh_path)
    stage.proxy.on("notification", action=hold(gate))
    stage.observer.delete(node)
    assert rival.write.acquire(GRACE)
    gate.wait_reached()
    assert lock.write.held, "nobody has told it"
    with holder:
        reading = holder.submit(lock.read.acquire, PATIENCE)
        gate.release()
        wait_until_waiting(stage)
        assert not lock.read.held
        assert rival.write.held
        rival.write.release()
        assert reading.result(PATIENCE)
    lock.read.release()
    with pytest.raises(LockLostError):
        lock.write.release()


def test_another_thread_does_not_read_beside_the_writer(stage: Stage, fresh_path: str) -> None:
    """Neither has a thread that uses the same object any place in the queue of its own."""
    lock = far(stage, fresh_path)
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
    lock = far(stage, fresh_path)
    with lock.read:
        for upgrade in (lock.write.acquire, lock.write.try_acquire, lock.write.__enter__):
            with pytest.raises(RuntimeError, match="release it first"):
                upgrade()
        assert lock.read.held
        assert len(stage.nodes(fresh_path)) == 1
    assert lock.write.try_acquire()
    lock.write.release()


# --- processes ------------------------------------------------------------------------------------

WRITERS, READERS, TIMES = 3, 3, 15


def test_processes_see_no_torn_state(stage: Stage, fresh_path: str, tmp_path: Path) -> None:
    """Writers count two files up, one after the other; readers never see them differ."""
    for name in ("first", "second"):
        (tmp_path / name).write_text("0")
    with Workers() as workers:
        arguments = (stage.hosts, fresh_path, TIMES, tmp_path)
        writers = [workers.start("writing_two", *arguments) for _ in range(WRITERS)]
        readers = [workers.start("reading_two", *arguments) for _ in range(READERS)]
        for worker in writers + readers:
            worker.expect("ready")
        for worker in writers + readers:
            worker.say("go")
        seen = [line for reader in readers for line in reader.end(4 * PATIENCE)]
        fences = [int(line) for writer in writers for line in writer.end(4 * PATIENCE)]
    assert len(seen) == READERS * TIMES
    assert all(first == second for first, second in map(str.split, seen)), seen
    assert len(set(fences)) == WRITERS * TIMES
    for name in ("first", "second"):
        assert (tmp_path / name).read_text() == str(WRITERS * TIMES)
    assert stage.nodes(fresh_path) == []
