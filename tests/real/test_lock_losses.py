"""How a holder loses its lock, what it leaves to the next one, and what it may still write."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import zkwire
from tests.shell.test_client_threads import forks, in_child
from tests.support.family_helpers import lease_of, soon
from tests.support.lock_helpers import (
    ALL_KINDS,
    GRACE,
    PATIENCE,
    PAUSE,
    SHORT,
    SLACK,
    Kind,
    Lock,
    Running,
    Stage,
    Workers,
    acquire_as_third_party,
    acquire_soon,
    all_kinds,
    answers,
    assert_exclusive,
    holding,
)
from tests.support.lock_workers import fenced_write, kind_named
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    Check,
    Client,
    Create,
    Delete,
    ForkedError,
    GetData,
    LockLostError,
    Lost,
    ReadWriteLock,
    SequentialLock,
    SessionExpiredError,
    SetData,
    ZooKeeperError,
)
from zkwire.blocking.locks import QueueLock
from zkwire.testing.proxy import Gate, cut_before, hold

# --- how a lock is lost ---------------------------------------------------------------------------


class Witness:
    """Is told of a lock's loss in each of the ways there are."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self._told: SimpleQueue[Lost] = SimpleQueue()
        lock.lost.add_callback(self._told.put)
        self._waiting = Running(lambda: lock.lost.wait(PATIENCE))

    def assert_lost(self, seconds: float = PATIENCE) -> None:
        """All ways tell, and agree; a release says that it comes too late."""
        lock = self.lock
        assert self._waiting.result(seconds)
        assert lock.lost.is_set()
        assert not lock.held
        assert lock.lease_remaining() == 0.0
        assert self._told.get(timeout=PATIENCE) is lock.lost
        with pytest.raises(LockLostError):
            lock.release()
        assert self._told.empty()


@all_kinds
def test_lost_when_the_session_ends(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    assert lock.acquire(GRACE)
    witness = Witness(lock)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")))  # its guard
    stage.expire(client)
    witness.assert_lost()
    stage.proxy.cut_all()
    with pytest.raises(SessionExpiredError):
        lock.acquire(GRACE)
    assert acquire_as_third_party(stage, kind, fresh_path) > lock.fence


@pytest.mark.apache  # its sessions do not expire while it is down
def test_lost_when_the_server_is_away_for_a_session_timeout(
    stage: Stage, zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """Nobody says that the session has expired, and it has not: the lease alone ends the claim."""
    client = stage.client(timeout=2 * SHORT)  # the client must be back in time
    locks: list[Lock] = [kind(client, f"{fresh_path}-{kind.__name__}") for kind in ALL_KINDS]
    assert all(lock.acquire(GRACE) for lock in locks)
    witnesses = [Witness(lock) for lock in locks]
    zookeeper.kill()
    for witness in witnesses:
        witness.assert_lost(2 * SHORT + SLACK + PAUSE)
    zookeeper.start()
    for lock in locks:
        stage.wait_no_nodes(lock.path, PATIENCE)
        assert lock.acquire(PATIENCE), "the session has survived, and the object is as new"
        lock.release()


@all_kinds
def test_partitioned_holder_has_let_go_when_a_rival_gets_the_lock(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock, rival = stage.lock(kind, fresh_path, timeout=SHORT), stage.rival(kind, fresh_path)
    assert lock.acquire(GRACE)
    witness = Witness(lock)
    stage.proxy.black_hole()
    acquire_soon(rival, PATIENCE)
    assert_exclusive(rival, lock)
    witness.assert_lost()
    rival.release()


# Who holds, and who gets it when the holder is stopped for too long.
STOPPED = {kind.__name__: kind.__name__ for kind in ALL_KINDS} | {
    "ReadLock": "WriteLock",
    "WriteLock": "ReadLock",
    "Lease": "Lease",
}
WORKERS = {
    **{holder: ("writing", holder) for holder in STOPPED},
    **{f"Async{kind.__name__}": ("writing_in_a_task", kind.__name__) for kind in ALL_KINDS},
}
OWN = WORKERS.keys() - {"SequentialLock", "Lease"}
"""What a real server need not have, too."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.own_server] * (n in OWN)) for n in WORKERS]
)
def test_stopped_holder_knows_when_it_wakes(
    stage: Stage, name: str, fresh_path: str, tmp_path: Path
) -> None:
    """Stopped for longer than its session lives; what it must look at waits for it already."""
    register, (work, holder) = tmp_path / "register", WORKERS[name]
    register.write_text("0\n")
    rival = kind_named(STOPPED[holder])(stage.observer, fresh_path)
    with Workers() as workers:
        worker = workers.start(work, stage.hosts, holder, fresh_path, SHORT, register)
        said, fence = (worker.hear() or "").split()
        assert said == "fence"
        worker.say("write")
        worker.expect("held True written True told False")
        os.kill(worker.pid, signal.SIGSTOP)
        acquire_soon(rival, PATIENCE)
        assert rival.fence > int(fence)
        assert fenced_write(register, "by the rival", rival.fence)
        worker.say("write")
        os.kill(worker.pid, signal.SIGCONT)
        worker.expect("held False written False told True")
        assert rival.held
        assert register.read_text() == f"{rival.fence}\nby the rival\n"
        rival.release()


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@all_kinds
def test_forked_child_holds_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock, other = kind(client, fresh_path), kind(client, f"{fresh_path}-other")
    calls: list[Callable[[], object]] = [
        lock.release, lock.acquire, lock.check, other.try_acquire, other.acquire,
    ]  # fmt: skip
    if isinstance(lock, SequentialLock):
        calls.append(lambda: lock.guard([]))

    def child() -> None:
        for call in calls:
            with pytest.raises(ForkedError):
                call()
        assert not lock.held
        assert lock.lease_remaining() == 0.0

    assert lock.acquire(GRACE)
    session_id = client.session_id
    in_child(child)
    assert lock.held
    assert not lock.lost.is_set()
    assert not stage.rival(kind, fresh_path).try_acquire()
    lock.release()
    assert client.session_id == session_id
    assert stage.nodes(fresh_path) == []


@forks
@pytest.mark.own_server
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@all_kinds
async def test_forked_child_of_a_task_holds_nothing(
    zookeeper: ZooKeeperServer, kind: Kind, fresh_path: str
) -> None:
    make = getattr(zkwire, f"Async{kind.__name__}")
    async with AsyncClient(zookeeper.hosts) as client:
        lock, other = make(client, fresh_path), make(client, f"{fresh_path}-other")
        assert await lock.acquire()

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
        await lock.release()
        stat = await client.exists(fresh_path)
        assert stat is None or (stat.num_children, stat.ephemeral_owner) == (0, 0)


@all_kinds
def test_release_of_an_expired_session_leaves_the_next_holder_alone(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """The delete arrives when its session is gone and another holds, on the very same path."""
    client, gate = stage.client(), Gate()
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.on("delete", action=hold(gate))
    releasing = Running(lock.release)
    gate.wait_reached()
    assert not lock.held
    stage.expire(client)
    acquire_soon(rival)
    assert_exclusive(rival, lock)
    gate.release()
    stage.client().sync()
    # The server says nothing to requests of a session that is gone, until they reconnect.
    stage.proxy.cut_all()
    releasing.result()
    with pytest.raises(SessionExpiredError):
        client.sync()
    assert rival.held
    assert len(stage.nodes(fresh_path)) == 1
    rival.release()


# --- guarded writes: the server refuses a holder that has lost the lock without knowing it --------

Make = Callable[[Client, str], QueueLock]
GUARDED: dict[str, Make] = {
    "SequentialLock": SequentialLock,
    "read": lambda client, path: ReadWriteLock(client, path).read,
    "write": lambda client, path: ReadWriteLock(client, path).write,
    "lease": lease_of,
}
guarded = pytest.mark.parametrize("make", GUARDED.values(), ids=GUARDED.keys())


@pytest.fixture
def target(stage: Stage, fresh_path: str) -> str:
    """A node that a lock guards."""
    return stage.observer.create(f"{fresh_path}-target", b"old")


def node_of(stage: Stage, path: str) -> str:
    """The one holder's node."""
    (node,) = stage.nodes(f"{path}/leases") or stage.nodes(path)
    return node


@all_kinds
def test_content_written_over_changes_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    for _ in range(2):  # the second time with a lost connection
        assert lock.acquire(GRACE)
        stage.observer.set_data(node_of(stage, fresh_path), b"something else")
        assert lock.held
        lock.release()
        stage.wait_no_nodes(fresh_path)
        stage.proxy.on("delete", action=cut_before)


@guarded
def test_holder_writes(stage: Stage, fresh_path: str, target: str, make: Make) -> None:
    """Also if the content of its node is written over."""
    lock = make(stage.client(), fresh_path)
    for version in (1, 2):
        with holding(lock):
            if version == 2:
                stage.observer.set_data(node_of(stage, fresh_path), b"something else")
            stat, path, checked, gone = lock.guard(
                [
                    SetData(target, b"new"),
                    Create(f"{target}/child"),
                    Check(target, version),
                    Delete(f"{target}/child"),
                ]
            )
            assert stat.version == version
            assert path == f"{target}/child"
            assert checked is gone is None
        assert stage.observer.get_data(target) == (b"new", stage.observer.exists(target))
    wrong: list[tuple[Any, type[Exception], str]] = [
        ("nonsense", TypeError, "not an operation"),
        (GetData("/"), ValueError, "cannot be part"),
    ]
    with holding(lock):
        stage.proxy.reset()
        for operation, error, says in wrong:
            with pytest.raises(error, match=says):
                lock.guard([operation])
        assert not [f for f in stage.proxy.frames() if f.op == "multi"]


@guarded
def test_server_refuses_whose_node_is_gone(
    stage: Stage, fresh_path: str, target: str, make: Make
) -> None:
    """Another has the lock by now; the news of it is on its way behind the multi."""
    lock, gate = make(stage.client(), fresh_path), Gate()
    rival = make(stage.client(direct=True), fresh_path)
    assert lock.acquire(GRACE)
    soon("a lease's queue is left", lambda: stage.nodes(f"{fresh_path}/locks") == [])
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(target, b"stale")]))
    gate.wait_reached()
    stage.observer.delete(node_of(stage, fresh_path))
    assert rival.acquire(GRACE)
    gate.release()
    with pytest.raises(LockLostError, match="the server does not find its node"):
        writing.result()
    assert lock.lost.wait(PATIENCE)
    (stat,) = rival.guard([SetData(target, b"fresh")])
    rival.release()
    assert (stat.version, stage.observer.get_data(target).data) == (1, b"fresh")


def test_write_of_a_holder_cut_off_never_arrives(
    stage: Stage, fresh_path: str, target: str
) -> None:
    """Asked for while it held; by the time that it could arrive another holds."""
    client = stage.client(timeout=SHORT)
    lock, gate = SequentialLock(client, fresh_path), Gate()
    rival = SequentialLock(stage.client(direct=True), fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(target, b"stale")]))
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
        lock.guard([SetData(target, b"stale")])
    assert rival.held
    assert stage.observer.get_data(target).stat.version == 0
    rival.release()


def test_stopped_holder_writes_nothing(stage: Stage, fresh_path: str, target: str) -> None:
    """The process slept while its session expired, and does not look before it writes."""
    rival = SequentialLock(stage.client(direct=True), fresh_path)
    with Workers() as workers:
        worker = workers.start("guarding", stage.hosts, fresh_path, target, SHORT)
        worker.expect("held")
        worker.say("first")
        worker.expect("written")
        os.kill(worker.pid, signal.SIGSTOP)
        assert rival.acquire(PATIENCE)
        assert rival.guard([SetData(target, b"rival")])
        worker.say("stale")
        os.kill(worker.pid, signal.SIGCONT)
        worker.expect("LockLostError")
    assert stage.observer.get_data(target).data == b"rival"
    rival.release()
