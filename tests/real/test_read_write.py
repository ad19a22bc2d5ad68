"""The read-write lock on a real server: who may hold together, and in which order they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lock_helpers import PATIENCE, Running, Stage, Workers
from zkwire import ReadWriteLock


def far(stage: Stage, path: str) -> ReadWriteLock:
    """A lock on a client of its own, out of the proxy's reach."""
    return ReadWriteLock(stage.client(direct=True), path)


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
