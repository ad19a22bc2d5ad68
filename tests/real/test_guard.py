"""Guarded writes: the server itself refuses a holder that has lost the lock without knowing it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.family_helpers import holding, lease_of, soon
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running, Stage, Workers
from zkwire import (
    Check,
    Client,
    Create,
    Delete,
    GetData,
    LockLostError,
    ReadWriteLock,
    SequentialLock,
    SetData,
    ZooKeeperError,
)
from zkwire.blocking.locks import QueueLock
from zkwire.testing.proxy import Gate, hold

LOCKS: dict[str, Callable[[Client, str], QueueLock]] = {
    "SequentialLock": SequentialLock,
    "read": lambda client, path: ReadWriteLock(client, path).read,
    "write": lambda client, path: ReadWriteLock(client, path).write,
    "lease": lease_of,
}
all_locks = pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS.keys())


class Target:
    """Nodes that a lock guards."""

    def __init__(self, stage: Stage, path: str) -> None:
        self._client = stage.observer
        self.path = f"{path}-target"
        self._client.create(self.path, b"old")

    @property
    def data(self) -> bytes:
        return self._client.get_data(self.path)[0]

    @property
    def version(self) -> int:
        return self._client.get_data(self.path)[1].version


@pytest.fixture
def target(stage: Stage, fresh_path: str) -> Target:
    return Target(stage, fresh_path)


def node_of(stage: Stage, path: str) -> str:
    """The one holder's node."""
    (node,) = stage.nodes(f"{path}/leases") or stage.nodes(path)
    return node


# --- while it is held -----------------------------------------------------------------------------


@all_locks
def test_holder_writes(
    stage: Stage, fresh_path: str, target: Target, make: Callable[[Client, str], QueueLock]
) -> None:
    lock = make(stage.client(), fresh_path)
    for _ in range(2):
        with holding(lock):
            stat, path, checked, gone = lock.guard(
                [
                    SetData(target.path, b"new"),
                    Create(f"{target.path}/child"),
                    Check(target.path, target.version + 1),
                    Delete(f"{target.path}/child"),
                ]
            )
            assert stat.version == target.version
            assert path == f"{target.path}/child"
            assert checked is gone is None
        assert target.data == b"new"


def test_wrong_operations_are_refused_before_anything_is_sent(
    stage: Stage, fresh_path: str
) -> None:
    with SequentialLock(stage.client(), fresh_path) as lock:
        with pytest.raises(TypeError, match="not an operation"):
            lock.guard(["nonsense"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="cannot be part"):
            lock.guard([GetData("/")])
        assert not [f for f in stage.proxy.frames() if f.op == "multi"]


@all_locks
def test_content_written_over_changes_nothing(
    stage: Stage, fresh_path: str, target: Target, make: Callable[[Client, str], QueueLock]
) -> None:
    lock = make(stage.client(), fresh_path)
    with holding(lock):
        stage.observer.set_data(node_of(stage, fresh_path), b"something else")
        assert lock.held
        assert lock.guard([SetData(target.path, b"new")])
    assert target.data == b"new"


# --- who has lost it without knowing --------------------------------------------------------------


@all_locks
def test_server_refuses_whose_node_is_gone(
    stage: Stage, fresh_path: str, target: Target, make: Callable[[Client, str], QueueLock]
) -> None:
    """Another has the lock by now; the news of it is on its way behind the multi."""
    lock, gate = make(stage.client(), fresh_path), Gate()
    rival = make(stage.client(direct=True), fresh_path)
    assert lock.acquire(GRACE)
    soon("a lease's queue is left", lambda: stage.nodes(f"{fresh_path}/locks") == [])
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(target.path, b"stale")]))
    gate.wait_reached()
    stage.observer.delete(node_of(stage, fresh_path))
    assert rival.acquire(GRACE)
    gate.release()
    with pytest.raises(LockLostError, match="the server does not find its node"):
        writing.result()
    assert target.version == 0
    assert lock.lost.wait(PATIENCE)
    assert rival.guard([SetData(target.path, b"fresh")])
    rival.release()
    assert target.data == b"fresh"


def test_write_of_a_holder_cut_off_never_arrives(
    stage: Stage, fresh_path: str, target: Target
) -> None:
    """Asked for while it held; by the time that it could arrive another holds."""
    client = stage.client(timeout=SHORT)
    lock, gate = SequentialLock(client, fresh_path), Gate()
    rival = SequentialLock(stage.client(direct=True), fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(target.path, b"stale")]))
    gate.wait_reached()
    stage.proxy.black_hole()
    assert rival.acquire(PATIENCE)
    assert not lock.held
    gate.release()
    stage.heal()
    stage.proxy.cut_all()
    with pytest.raises(ZooKeeperError):
        writing.result()
    assert lock.lost.wait(PATIENCE)
    with pytest.raises(LockLostError):
        lock.guard([SetData(target.path, b"stale")])
    assert rival.held
    assert target.version == 0
    rival.release()


def test_stopped_holder_writes_nothing(stage: Stage, fresh_path: str, target: Target) -> None:
    """The process slept while its session expired, and does not look before it writes."""
    rival = SequentialLock(stage.client(direct=True), fresh_path)
    with Workers() as workers:
        worker = workers.start("guarding", stage.hosts, fresh_path, target.path, SHORT)
        worker.expect("held")
        worker.say("first")
        worker.expect("written")
        os.kill(worker.pid, signal.SIGSTOP)
        assert rival.acquire(PATIENCE)
        assert rival.guard([SetData(target.path, b"rival")])
        worker.say("stale")
        os.kill(worker.pid, signal.SIGCONT)
        worker.expect("LockLostError")
    assert target.data == b"rival"
    rival.release()
