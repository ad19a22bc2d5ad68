"""How a holder loses its lock, and what it leaves to the next one."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import pytest

from tests.real.test_locks import wait_for_guard
from tests.shell.test_client_threads import forks, in_child
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    PAUSE,
    SHORT,
    SLACK,
    Kind,
    Lock,
    Running,
    Stage,
    acquire_as_third_party,
    acquire_soon,
    all_kinds,
    assert_exclusive,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    BlockingLock,
    ForkedError,
    LockLostError,
    Lost,
    NonBlockingLock,
    SequentialLock,
    SessionExpiredError,
)
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
    wait_for_guard(stage)
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
    locks: list[Lock] = [
        kind(client, f"{fresh_path}-{kind.__name__}")
        for kind in (NonBlockingLock, BlockingLock, SequentialLock)
    ]
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


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@all_kinds
def test_forked_child_holds_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock, other = kind(client, fresh_path), kind(client, f"{fresh_path}-other")

    def child() -> None:
        calls: list[Callable[[], object]] = [
            lock.release,
            lock.acquire,
            lock.check,
            other.try_acquire,
            other.acquire,
        ]
        if isinstance(lock, SequentialLock):
            calls.append(lambda: lock.guard([]))
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


@all_kinds
def test_content_written_over_changes_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    for _ in range(2):  # the second time with a lost connection
        assert lock.acquire(GRACE)
        (node,) = stage.nodes(fresh_path)
        stage.observer.set_data(node, b"something else")
        assert lock.held
        lock.release()
        stage.wait_no_nodes(fresh_path)
        stage.proxy.on("delete", action=cut_before)


# --- the next holder's node -----------------------------------------------------------------------


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
