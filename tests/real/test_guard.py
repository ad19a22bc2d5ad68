"""Guarded writes: the server itself refuses a holder that has lost the lock without knowing it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.family_helpers import holding, lease_of, lose, soon
from tests.support.lock_helpers import GRACE, PATIENCE, SHORT, Running, Stage, Workers, make_path
from zkwire import (
    BadVersionError,
    Check,
    Client,
    Create,
    Delete,
    GetData,
    LockLostError,
    MultiError,
    NoNodeError,
    OutcomeUnknownError,
    ReadWriteLock,
    RuntimeInconsistencyError,
    SequentialLock,
    SetData,
    ZooKeeperError,
)
from zkwire.blocking.locks import QueueLock
from zkwire.testing.proxy import Gate, cut_after, cut_before, hold

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


def test_operations_may_be_none_or_many_or_large(
    stage: Stage, fresh_path: str, target: Target
) -> None:
    with SequentialLock(stage.client(), fresh_path) as lock:
        assert lock.guard([]) == []
        many = [Create(f"{target.path}/{n}") for n in range(500)]
        assert lock.guard(iter(many)) == [f"{target.path}/{n}" for n in range(500)]
        lock.guard(Delete(f"{target.path}/{n}") for n in range(500))
        lock.guard([SetData(target.path, bytes(1_000_000))])
        assert target.data == bytes(1_000_000)


@pytest.mark.parametrize("sizes", [[2_000_000], [600_000, 600_000]])
def test_operations_beyond_what_a_server_takes(
    stage: Stage, fresh_path: str, target: Target, sizes: list[int]
) -> None:
    with SequentialLock(stage.client(), fresh_path) as lock:
        with pytest.raises(ValueError, match=r"jute\.maxbuffer"):
            lock.guard(SetData(target.path, bytes(size)) for size in sizes)
        assert not [f for f in stage.proxy.frames() if f.op == "multi"]
        assert lock.guard([SetData(target.path, b"new")])
        assert lock.held


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


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_errors_are_about_the_users_own_list(
    stage: Stage, fresh_path: str, target: Target, wrong: int
) -> None:
    with SequentialLock(stage.client(), fresh_path) as lock:
        operations = [SetData(target.path, b"new") for _ in range(3)]
        operations[wrong] = Delete(f"{target.path}/none")
        with pytest.raises(MultiError, match=f"operation {wrong} was refused") as caught:
            lock.guard(operations)
        error = caught.value
        assert error.index == wrong
        assert error.code == NoNodeError.code
        assert isinstance(error.__cause__, NoNodeError)
        assert error.results[wrong] is error.__cause__
        assert len(error.results) == 3
        assert error.results[:wrong] == [None] * wrong
        after = error.results[wrong + 1 :]
        assert all(isinstance(result, RuntimeInconsistencyError) for result in after)
        assert lock.held
        assert lock.guard([SetData(target.path, b"new")]), "it holds on"
    assert target.version == 1


def test_bad_version_of_the_users_own_node_is_no_loss(
    stage: Stage, fresh_path: str, target: Target
) -> None:
    with SequentialLock(stage.client(), fresh_path) as lock:
        with pytest.raises(MultiError) as caught:
            lock.guard([SetData(target.path, b"new", 7)])
        assert (caught.value.index, caught.value.code) == (0, BadVersionError.code)
        assert lock.held


@pytest.mark.parametrize("fault", [cut_before, cut_after])
def test_lost_connection_passes_through(
    stage: Stage, fresh_path: str, target: Target, fault: object
) -> None:
    assert callable(fault)
    with SequentialLock(stage.client(), fresh_path) as lock:
        stage.proxy.on("multi", action=fault)
        with pytest.raises(OutcomeUnknownError) as caught:
            lock.guard([SetData(target.path, b"new")])
        assert caught.value.maybe_applied
        assert target.version == (fault is cut_after), "and it is not sent again"
        assert lock.held
        lock.guard([SetData(target.path, b"newer")])
    assert target.data == b"newer"


@all_locks
def test_who_does_not_hold_sends_nothing(
    stage: Stage, fresh_path: str, target: Target, make: Callable[[Client, str], QueueLock]
) -> None:
    lock = make(stage.client(), fresh_path)
    write = [SetData(target.path, b"new")]
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.guard(write)
    with holding(lock):
        pass
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.guard(write)
    assert lock.acquire(GRACE)
    lose(stage, lock, node_of(stage, fresh_path))
    with pytest.raises(LockLostError, match="had been lost before it was used: its node"):
        lock.guard(write)
    assert not [f for f in stage.proxy.frames() if f.op == "multi"]
    with pytest.raises(LockLostError):
        lock.release()
    assert target.version == 0


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


def test_refusal_tells_why(stage: Stage, fresh_path: str, target: Target) -> None:
    lock, gate = SequentialLock(stage.client(), fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(target.path, b"stale")]))
    gate.wait_reached()
    node = node_of(stage, fresh_path)
    stage.observer.delete(node)
    gate.release()
    with pytest.raises(LockLostError) as caught:
        writing.result()
    cause = caught.value.__cause__
    assert isinstance(cause, MultiError)
    assert cause.index == 0
    assert isinstance(cause.results[0], NoNodeError)


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


def test_guard_waits_for_a_connection(stage: Stage, fresh_path: str, target: Target) -> None:
    """A short outage costs nothing: the write goes out on the next connection."""
    make_path(stage.observer, fresh_path)
    with SequentialLock(stage.client(), fresh_path) as lock:
        stage.proxy.refuse()
        stage.proxy.cut_all()
        writing = Running(lambda: lock.guard([SetData(target.path, b"new")]))
        stage.proxy.refuse(False)
        try:
            writing.result()
        except OutcomeUnknownError:  # the cut came while it was on its way
            assert lock.guard([SetData(target.path, b"new")])
    assert target.data == b"new"
