"""How a holder loses its lock, and what it leaves to the next one."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import pytest

from tests.real.test_locks import is_guard, wait_for_guard
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
    holding,
    single_kinds,
    waiting_kinds,
)
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    BlockingLock,
    Client,
    ClientClosedError,
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


@all_kinds
def test_lost_when_the_client_is_closed(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    assert lock.acquire(GRACE)
    witness = Witness(lock)
    client.close()
    witness.assert_lost()
    with pytest.raises(ClientClosedError):
        lock.try_acquire()
    stage.wait_no_nodes(fresh_path)  # a close waits for its answer, but not for long


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


@all_kinds
def test_released_lock_is_never_lost(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    told: SimpleQueue[Lost] = SimpleQueue()
    with holding(lock):
        lost = lock.lost
        lost.add_callback(told.put)
        waiting = Running(lambda: lost.wait(PATIENCE))
    assert not waiting.result()
    assert not lost.is_set()
    # What comes later through the same callback thread comes behind anything that was told.
    with holding(lock):
        lock.lost.add_callback(told.put)
        (node,) = stage.nodes(fresh_path)
        stage.observer.delete(node)
        assert told.get(timeout=PATIENCE) is lock.lost
        with pytest.raises(LockLostError):
            lock.release()
        assert lock.acquire(GRACE)


@waiting_kinds
def test_callback_set_before_a_failed_attempt_serves_the_next_one(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock = stage.lock(kind, fresh_path)
    told: SimpleQueue[Lost] = SimpleQueue()
    lock.lost.add_callback(told.put)
    with holding(stage.rival(kind, fresh_path)):
        assert not lock.acquire(0.05)
        assert not lock.try_acquire()
    assert lock.acquire(GRACE)
    (node,) = stage.nodes(fresh_path)
    stage.observer.delete(node)
    assert told.get(timeout=PATIENCE) is lock.lost


@single_kinds
def test_lost_when_another_holds_the_path_after_a_disconnection(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """The node is deleted while the holder is away, and made anew by the next one.

    When the holder is back there is a node on its path again, just not its own.
    """
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    assert lock.acquire(GRACE)
    witness = Witness(lock)
    wait_for_guard(stage)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    stage.observer.delete(fresh_path)
    assert rival.acquire(GRACE)
    stage.proxy.refuse(False)
    witness.assert_lost()
    assert_exclusive(rival, lock)
    rival.release()


@single_kinds
def test_lost_when_another_holds_the_path_before_the_guard_stands(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    gate = Gate()
    stage.proxy.rule(lambda frame: hold(gate) if is_guard(frame, fresh_path) else None)
    assert lock.acquire(GRACE)
    witness = Witness(lock)
    gate.wait_reached()
    stage.observer.delete(fresh_path)
    assert rival.acquire(GRACE)
    gate.release()
    witness.assert_lost()
    assert_exclusive(rival, lock)
    rival.release()


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


@all_kinds
def test_release_after_a_disconnection_leaves_the_next_holder_alone(
    stage: Stage, kind: Kind, fresh_path: str, client: Client
) -> None:
    """The session lives, but the node went while nobody could tell its holder."""
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    assert lock.acquire(GRACE)
    wait_for_guard(stage)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    poll("it is disconnected", lambda: not client.state.usable or None, PATIENCE)
    (node,) = stage.nodes(fresh_path)
    stage.observer.delete(node)
    assert rival.acquire(GRACE)
    releasing = Running(lock.release)
    stage.proxy.refuse(False)
    with pytest.raises(LockLostError):
        releasing.result()
    stage.proxy.wait_for(lambda frames: frames[-1].connection > 0)
    assert lock.try_acquire() is False
    assert rival.held
    assert len(stage.nodes(fresh_path)) == 1
    rival.release()


@all_kinds
def test_release_that_finds_the_node_gone_says_so(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock, gate = stage.lock(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.on("delete", action=hold(gate))
    releasing = Running(lock.release)
    gate.wait_reached()
    (node,) = stage.nodes(fresh_path)
    stage.observer.delete(node)
    gate.release()
    with pytest.raises(LockLostError):
        releasing.result()
    assert not lock.held
