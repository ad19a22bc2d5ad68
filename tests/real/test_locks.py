"""The three locks on a real server: what each promises, and what it makes of loss and misuse.

Lost connections are elsewhere: `test_lock_recovery` forces each branch of the recovery,
`test_lock_sweep` every single fault.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue

import pytest

from tests.support.family_helpers import soon
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
    Worker,
    acquire_as_third_party,
    acquire_soon,
    all_kinds,
    answers,
    assert_exclusive,
    assert_in_time,
    assert_strictly_rising,
    holding,
    make_path,
    requests,
    single_kinds,
    timed,
    wait_until_waiting,
    waiters,
    waiting_kinds,
    watch_count,
    watch_table_size,
)
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import (
    OPEN_ACL_UNSAFE,
    BlockingLock,
    ClientClosedError,
    LockLostError,
    LockTakenError,
    Lost,
    NonBlockingLock,
    NoNodeError,
    SequentialLock,
    SessionExpiredError,
)
from zkwire.jute.frames import frame
from zkwire.jute.records import CreateRequest, RequestHeader
from zkwire.recipes.attempt import LockInUseError
from zkwire.testing.proxy.faults import Send
from zkwire.testing.proxy.proxy import Frame, Gate, cut_before, drop, hold
from zkwire.wire import ops

pytestmark = pytest.mark.real


@pytest.fixture
def stage(zookeeper: ZooKeeperServer) -> Iterator[Stage]:
    with Stage(zookeeper) as stage:
        yield stage


# --- free, taken, timed out -----------------------------------------------------------------------


@all_kinds
def test_free_lock_is_acquired_and_released(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    assert lock.acquire(GRACE)
    assert lock.held
    assert len(stage.nodes(fresh_path)) == 1
    lock.release()
    assert not lock.held
    assert lock.lease_remaining() == 0.0
    assert stage.nodes(fresh_path) == []


@all_kinds
def test_missing_parents_are_made(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, f"{fresh_path}/a/b")
    assert lock.try_acquire()
    lock.release()
    assert stage.nodes(lock.path) == []


@all_kinds
def test_missing_chroot_is_made_or_refused(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """A client can make the last name of its chroot, and nothing above it."""
    lock = kind(stage.client(direct=True, chroot=fresh_path), "/lock")
    assert lock.try_acquire()
    lock.release()
    deep = kind(stage.client(direct=True, chroot=f"{fresh_path}/x/y"), "/lock")
    with pytest.raises(NoNodeError):
        deep.try_acquire()


@all_kinds
def test_try_on_a_taken_lock_is_false(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        assert not lock.try_acquire()
        assert not lock.held
        assert_exclusive(rival, lock)
        assert len(stage.nodes(fresh_path)) == 1
    assert lock.try_acquire()
    lock.release()


@waiting_kinds
def test_timed_acquire_ends_in_time(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        times = []
        for _ in range(3):
            acquired, seconds = timed(lambda: lock.acquire(0.3))
            assert not acquired
            times.append(seconds)
        assert min(times) >= 0.3
        assert_in_time(0.3, *times)
        assert_exclusive(rival, lock)
        soon("only the holder's node is left", lambda: len(stage.nodes(fresh_path)) == 1)
    assert lock.acquire(GRACE)
    lock.release()


def test_non_blocking_lock_does_not_wait(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(NonBlockingLock, fresh_path)
    with holding(stage.rival(NonBlockingLock, fresh_path)):
        for timeout in (None, 0, 30):
            acquired, seconds = timed(partial(lock.acquire, timeout))
            assert not acquired
            assert_in_time(0, seconds)


@waiting_kinds
def test_waiter_gets_the_lock_at_the_release(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        assert not waiter.ended
        assert_exclusive(rival, lock)
    assert waiter.result(GRACE)
    assert_exclusive(lock, rival)
    assert lock.fence > rival.fence
    lock.release()


@waiting_kinds
def test_two_clients_hand_over_to_each_other(stage: Stage, kind: Kind, fresh_path: str) -> None:
    locks = [stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)]
    fences: list[int] = []

    def work(lock: Lock, other: Lock) -> None:
        for _ in range(50):
            assert lock.acquire(PATIENCE)
            assert_exclusive(lock, other)
            fences.append(lock.fence)
            lock.release()

    both = [Running(lambda: work(*locks)), Running(lambda: work(*reversed(locks)))]
    for running in both:
        running.result(2 * PATIENCE)
    assert len(fences) == 100
    assert_strictly_rising(fences)
    assert stage.nodes(fresh_path) == []


# --- with, fence, lease ---------------------------------------------------------------------------


@all_kinds
def test_with_holds_and_releases(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    with lock as entered:
        assert entered is lock
        assert lock.held
    assert not lock.held
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.held
    assert stage.nodes(fresh_path) == []


def test_with_on_a_taken_non_blocking_lock_raises(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(NonBlockingLock, fresh_path)
    with holding(stage.rival(NonBlockingLock, fresh_path)), pytest.raises(LockTakenError):
        lock.__enter__()
    assert not lock.held


@all_kinds
def test_with_tells_of_a_loss_unless_there_is_worse(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock = stage.lock(kind, fresh_path)

    def lose() -> None:
        (node,) = stage.nodes(fresh_path)
        stage.observer.delete(node)
        assert lock.lost.wait(PATIENCE)

    def lose_and_fail() -> None:
        lose()
        raise KeyError

    with pytest.raises(LockLostError), lock:
        lose()
    with pytest.raises(KeyError), lock:
        lose_and_fail()


@all_kinds
def test_fence_rises_and_is_the_nodes_czxid(stage: Stage, kind: Kind, fresh_path: str) -> None:
    locks = [stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)]
    with pytest.raises(RuntimeError):
        _ = locks[0].fence
    fences = []
    for lock in locks * 5:
        with holding(lock):
            (node,) = stage.nodes(fresh_path)
            stat = stage.observer.exists(node)
            assert stat is not None
            assert lock.fence == stat.czxid
            fences.append(lock.fence)
    assert_strictly_rising(fences)


@all_kinds
def test_lease_is_renewed_by_contact(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path, timeout=SHORT)
    with holding(lock):
        before = lock.lease_remaining()
        assert 0 < before <= SHORT
        # Two pings' replies: the second renews what the first one's time has used up.
        stage.proxy.wait_for(
            lambda frames: len([f for f in frames if f.kind == "ping" and f.xid == -2]) >= 4
        )
        # A lease that nothing renews gets shorter and shorter.
        soon("it is renewed", lambda: SHORT / 2 < lock.lease_remaining() <= SHORT)
        assert lock.held
    assert lock.lease_remaining() == 0.0


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
def test_lost_when_somebody_deletes_the_node(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    assert lock.acquire(GRACE)
    witness, fence = Witness(lock), lock.fence
    (node,) = stage.nodes(fresh_path)
    stage.observer.delete(node)
    witness.assert_lost()
    assert lock.acquire(GRACE), "the object is as new"
    assert lock.fence > fence
    assert not lock.lost.is_set()
    lock.release()


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


def in_forked_child(function: Callable[[], str]) -> str:
    """What ``function`` returns in a forked child, which then ends without another step."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # That this process has threads is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(int(PATIENCE))  # a child that hangs dies silently
        try:
            os.write(writing, function().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@all_kinds
def test_forked_child_holds_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock, other = kind(client, fresh_path), kind(client, f"{fresh_path}-other")

    def look() -> str:
        errors = set()
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
            try:
                call()
                errors.add("nothing")
            except Exception as error:
                errors.add(type(error).__name__)
        return f"{lock.held} {lock.lease_remaining()} {' '.join(errors)}"

    assert lock.acquire(GRACE)
    session_id = client.session_id
    assert in_forked_child(look) == "False 0.0 ForkedError"
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


def is_guard(frame: Frame, path: str) -> bool:
    """Whether this request makes a holder learn when its node at ``path`` goes."""
    return (
        frame.direction == "c2s"
        and frame.op in {"get_children", "get_children2"}
        and frame.path is not None
        and frame.path.startswith(path)
        and frame.raw[-1] == 1
    )


def wait_for_guard(stage: Stage) -> None:
    """Wait until the holder behind the proxy watches its own node."""
    stage.proxy.wait_for(
        lambda frames: any(
            f.request is not None and is_guard(f.request, "/") and f.error == 0 for f in frames
        )
    )


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
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """The session lives, but the node went while nobody could tell its holder."""
    client = stage.client()
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


@all_kinds
def test_claim_ends_before_the_delete_is_answered(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")))
    # The guard's news would end the claim as well; it comes right before the answer.
    stage.proxy.on("notification", action=hold(gate))
    releasing = Running(lock.release)
    gate.wait_reached()
    assert not releasing.ended
    assert rival.acquire(GRACE)
    assert_exclusive(rival, lock)
    gate.release()
    releasing.result()
    rival.release()


# --- misuse, and one object for many uses ---------------------------------------------------------


@all_kinds
def test_lock_is_not_reentrant(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    assert lock.acquire(GRACE)
    for again in (lock.acquire, lock.try_acquire, lock.__enter__):
        with pytest.raises(RuntimeError, match="not re-entrant"):
            again()
    assert lock.held
    lock.release()
    assert stage.nodes(fresh_path) == []
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


@waiting_kinds
def test_one_object_is_for_one_thread(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path)
    with holding(stage.rival(kind, fresh_path)):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        with pytest.raises(RuntimeError, match="another thread"):
            lock.try_acquire()
    assert waiter.result(GRACE)
    lock.release()


@all_kinds
def test_two_locks_of_one_client_exclude_each_other(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """The session's id alone says nothing about whose a node is."""
    client = stage.client()
    first, second = kind(client, fresh_path), kind(client, fresh_path)
    with holding(first):
        assert not second.try_acquire()
        assert_exclusive(first, second)
        stage.proxy.on("create2", action=cut_before)
        assert not second.try_acquire(), "nor after a lost reply"
        assert_exclusive(first, second)
    acquire_soon(second)
    assert_exclusive(second, first)
    second.release()
    assert stage.nodes(fresh_path) == []


@single_kinds
def test_content_alone_proves_nothing(
    stage: Stage, kind: Kind, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost create there is a node with the attempt's own content: of another session."""
    client, gate = stage.client(), Gate()
    monkeypatch.setattr(client._driver, "unique", lambda: "unique")
    content = f"{client.session_id & 2**64 - 1:016x}-unique".encode()
    stage.proxy.on("create2", action=cut_before)
    stage.proxy.on("create2", nth=2, action=hold(gate))
    lock = kind(client, fresh_path)
    trying = Running(lock.try_acquire)
    assert content in gate.wait_reached().raw
    stage.observer.create(fresh_path, content, ephemeral=True)
    gate.release()
    assert not trying.result()
    assert not lock.held
    assert stage.nodes(fresh_path) == [fresh_path]


@single_kinds
def test_session_alone_proves_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """After a lost create there is a node of the same session: of another attempt."""
    lock = stage.lock(kind, fresh_path)
    header = RequestHeader(1_000_000, ops.CREATE.opcode).encode()
    body = CreateRequest(fresh_path, b"another attempt", OPEN_ACL_UNSAFE, 1).encode()
    other = frame(header + body)
    stage.proxy.on("create2", action=cut_before)
    stage.proxy.on(
        "create2", nth=2, action=lambda create: (Send(other, reply=drop), Send(create.raw))
    )
    assert not lock.try_acquire()
    assert not lock.held
    assert stage.nodes(fresh_path) == [fresh_path]


@all_kinds
def test_one_object_serves_two_hundred_times(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """With a loss now and then, and an expiry after which a new client goes on."""
    fences = []
    for _ in range(4):
        client = stage.client()
        lock = kind(client, fresh_path)
        for cycle in range(50):
            assert lock.acquire(GRACE)
            fences.append(lock.fence)
            if cycle % 20 == 10:
                (node,) = stage.nodes(fresh_path)
                stage.observer.delete(node)
                assert lock.lost.wait(PATIENCE)
            else:
                lock.release()
        stage.proxy.reset()
        assert lock.acquire(GRACE)
        fences.append(lock.fence)
        wait_for_guard(stage)
        stage.expire(client)
        assert lock.lost.wait(PATIENCE)
        stage.proxy.cut_all()
        with pytest.raises(SessionExpiredError):
            lock.acquire(GRACE)
    assert len(fences) == 204
    assert_strictly_rising(fences)
    assert stage.nodes(fresh_path) == []


# --- others on the path ---------------------------------------------------------------------------

FOREIGN = {
    "curator": "_c_3f2504e0-4f89-41d3-9a0c-0305e82c3301-lock-",
    "go": "_c_9a0c0305e82c33013f2504e04f8941d3-lock-",
    "kazoo": "3f2504e04f8941d39a0c0305e82c3301__lock__",
    "WriteLock": "x-72057594037927936-",
    "plain": "n",
}


@pytest.mark.parametrize("prefix", FOREIGN.values(), ids=FOREIGN.keys())
def test_contenders_of_other_libraries_are_waited_for(
    stage: Stage, fresh_path: str, prefix: str
) -> None:
    """Their names sort anywhere; only the number counts."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    ahead = [
        stage.observer.create(f"{fresh_path}/{prefix}", ephemeral=True, sequential=True)
        for _ in range(2)
    ]
    assert not lock.try_acquire()
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    stage.observer.create(f"{fresh_path}/{prefix}", ephemeral=True, sequential=True)
    stage.observer.delete(ahead[0])
    assert not lock.held
    stage.observer.delete(ahead[1])
    assert waiter.result(GRACE)
    lock.release()


JUNK = ("hello", "x-12", "__lock__", "lock-", "a-lock-000000000", "\u0660" * 10, "0000000000x")


def test_junk_children_are_not_contenders(stage: Stage, fresh_path: str) -> None:
    make_path(stage.observer, fresh_path)
    for name in JUNK:
        stage.observer.create(f"{fresh_path}/{name}")
    lock = stage.lock(SequentialLock, fresh_path)
    assert lock.try_acquire()
    lock.release()
    assert len(stage.nodes(fresh_path)) == len(JUNK)


def test_order_is_by_number_whatever_the_session(stage: Stage, fresh_path: str) -> None:
    """The session of the lower id arrives later."""
    older, younger = stage.client(), stage.client()
    first, second = SequentialLock(younger, fresh_path), SequentialLock(older, fresh_path)
    assert older.session_id < younger.session_id
    with holding(first):
        assert not second.try_acquire()
        assert_exclusive(first, second)


@pytest.mark.parametrize("holder", ["kazoo", "zkwire"])
def test_kazoo_and_zkwire_exclude_each_other(stage: Stage, fresh_path: str, holder: str) -> None:
    kazoo = pytest.importorskip("kazoo.client").KazooClient(stage.hosts)
    kazoo.start(PATIENCE)
    try:
        theirs = kazoo.Lock(fresh_path, extra_lock_patterns=["-lock-"])
        ours = stage.lock(SequentialLock, fresh_path)
        if holder == "kazoo":
            assert theirs.acquire(timeout=GRACE)
            assert not ours.try_acquire()
            waiter = Running(lambda: ours.acquire(PATIENCE))
            wait_until_waiting(stage)
            assert not waiter.ended
            theirs.release()
        else:
            assert ours.acquire(GRACE)
            assert not theirs.acquire(blocking=False)
            waiter = Running(lambda: bool(theirs.acquire(timeout=PATIENCE)))
            poll("kazoo queues", lambda: len(stage.nodes(fresh_path)) == 2 or None, PATIENCE)
            assert not waiter.ended
            ours.release()
        assert waiter.result(GRACE)
        (theirs if holder == "zkwire" else ours).release()
        stage.wait_no_nodes(fresh_path)
    finally:
        kazoo.stop()
        kazoo.close()


# --- nodes that go --------------------------------------------------------------------------------


@all_kinds
def test_fence_rises_although_the_parent_is_deleted(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """A sequence number would begin at 0 again."""
    path = f"{fresh_path}/parent/lock"
    lock, fences = stage.lock(kind, path), []
    for _ in range(5):
        with holding(lock):
            (node,) = stage.nodes(path)
            assert node == path or node.endswith("-lock-0000000000")
            fences.append(lock.fence)
        stage.observer.delete_tree(f"{fresh_path}/parent")
    assert_strictly_rising(fences)


@all_kinds
def test_parent_deleted_right_after_it_was_made(stage: Stage, kind: Kind, fresh_path: str) -> None:
    path = f"{fresh_path}/lock"
    lock, gate = kind(stage.client(), path), Gate()
    stage.proxy.on("create2", nth=2, action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    stage.observer.delete_tree(fresh_path)
    gate.release()
    assert acquiring.result()
    lock.release()


@waiting_kinds
def test_waiter_whose_node_or_rival_goes_gets_the_lock(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """Somebody deletes the nodes of the waiter and the holder; the waiter queues anew."""
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    for node in reversed(stage.nodes(fresh_path)):
        stage.observer.delete(node)
    assert waiter.result(GRACE)
    assert rival.lost.wait(PATIENCE)
    assert_exclusive(lock, rival)
    assert len(stage.nodes(fresh_path)) == 1
    assert lock.fence > rival.fence
    lock.release()


def test_who_writes_into_the_node_ahead_does_not_let_anybody_in(
    stage: Stage, fresh_path: str
) -> None:
    lock, rival = stage.lock(SequentialLock, fresh_path), stage.rival(SequentialLock, fresh_path)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    stage.observer.set_data(stage.nodes(fresh_path)[0], b"not a release")
    wait_until_waiting(stage, nth=2)
    assert_exclusive(rival, lock)
    rival.release()
    assert waiter.result(GRACE)
    lock.release()


def test_waiter_whose_node_was_deleted_goes_to_the_end(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(SequentialLock, fresh_path)
    rivals = [stage.rival(SequentialLock, fresh_path) for _ in range(2)]
    lost, told = lock.lost, SimpleQueue[Lost]()
    lost.add_callback(told.put)
    assert rivals[0].acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    own = stage.nodes(fresh_path)[1]
    second = Running(lambda: rivals[1].acquire(PATIENCE))
    poll("three queue", lambda: len(stage.nodes(fresh_path)) == 3 or None, PATIENCE)
    stage.observer.delete(own)
    rivals[0].release()
    assert second.result()
    wait_until_waiting(stage, nth=2)
    assert_exclusive(rivals[1], lock)
    rivals[1].release()
    assert waiter.result(GRACE)
    assert lock.fence > rivals[1].fence
    assert lock.lost is lost, "only a holder loses"
    assert told.empty()
    stage.observer.delete(stage.nodes(fresh_path)[0])
    assert told.get(timeout=PATIENCE) is lost


@waiting_kinds
def test_predecessor_gone_before_the_watch_is_set(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """Nobody would ever wake a waiter that waits now; and nothing is left of its look."""
    client, gate = stage.client(), Gate()
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    stage.proxy.on("get_data", action=hold(gate))
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    gate.wait_reached()
    rival.release()
    gate.release()
    assert waiter.result(GRACE)
    lock.release()
    client.sync()
    soon("the client forgets", lambda: watch_table_size(client) == 0)
    soon("the server forgets", lambda: waiters(stage.server, fresh_path) == 0)


# --- what attempts leave behind -------------------------------------------------------------------


@waiting_kinds
def test_fifty_timed_out_attempts_leave_nothing(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client, holder = stage.client(), stage.client(direct=True)
    lock, rival = kind(client, fresh_path), kind(holder, fresh_path)
    with holding(rival):
        soon("the holder asks to be told of its node's end", lambda: watch_table_size(holder) == 1)
        holder.sync()  # the server has read that
        watches = watch_count(stage.server)
        for _ in range(50):
            assert not lock.acquire(0.01)
        soon("only the holder's node is left", lambda: len(stage.nodes(fresh_path)) == 1)
        soon("the client forgets", lambda: watch_table_size(client) == 0)
        soon("the server forgets", lambda: waiters(stage.server, fresh_path) == 0)
        # Those of others on the same server may end meanwhile.
        soon("no watch is left", lambda: watch_count(stage.server) <= watches)


@waiting_kinds
def test_look_that_is_answered_after_the_timeout_leaves_no_watch(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    client, gate = stage.client(), Gate()
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        stage.proxy.on("get_data", action=hold(gate), reply=True)
        assert not lock.acquire(0.1)
        gate.release()
        client.sync()
        soon("the client forgets", lambda: watch_table_size(client) == 0)
        soon("the server forgets", lambda: not waiters(stage.server, fresh_path))


def black_hole(stage: Stage) -> None:
    """The connection stays, and nothing passes."""
    stage.proxy.black_hole()


def refused(stage: Stage) -> None:
    """No connection, and none to be had."""
    stage.proxy.refuse()
    stage.proxy.cut_all()


def silent(stage: Stage) -> None:
    """New connections are accepted, and nothing passes."""
    stage.proxy.cut_all()
    stage.proxy.black_hole()


@all_kinds
@pytest.mark.parametrize("outage", [black_hole, refused, silent])
def test_timeout_is_a_timeout_whatever_the_network_does(
    stage: Stage, kind: Kind, fresh_path: str, outage: Callable[[Stage], None]
) -> None:
    client = stage.client()
    lock, session_id = kind(client, fresh_path), client.session_id
    outage(stage)

    times = []
    for _ in range(3):
        acquired, seconds = timed(lambda: lock.acquire(0.3))
        assert not acquired
        times.append(seconds)
    assert_in_time(0.3, *times)
    stage.heal()
    client.sync()
    stage.wait_no_nodes(fresh_path)
    assert client.session_id == session_id
    assert lock.acquire(GRACE)
    lock.release()


@waiting_kinds
def test_waiter_survives_twenty_disconnections(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        nodes = stage.nodes(fresh_path)
        for count in range(1, 21):
            stage.proxy.cut_all()
            wait_until_waiting(stage, nth=count, op="set_watches")
        assert stage.nodes(fresh_path) == nodes, "no new node, no longer name"
        assert_exclusive(rival, lock)
    assert waiter.result(GRACE)
    assert_exclusive(lock, rival)
    lock.release()
    lookups = [f.op for f in requests(stage.proxy.frames()) if f.op == "get_data"]
    assert len(lookups) == 1, "the restored watch was enough"


@waiting_kinds
def test_expired_waiter_is_told(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    with holding(stage.rival(kind, fresh_path)):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        stage.expire(client)
        stage.proxy.cut_all()
        with pytest.raises(SessionExpiredError):
            waiter.result(GRACE)
        assert not lock.held
        assert len(stage.nodes(fresh_path)) == 1


@waiting_kinds
def test_waiter_of_a_closed_client_is_told(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    with holding(stage.rival(kind, fresh_path)):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        client.close()
        with pytest.raises(ClientClosedError):
            waiter.result(GRACE)
        assert not lock.held
        soon("only the holder is left", lambda: len(stage.nodes(fresh_path)) == 1)


@waiting_kinds
def test_interrupted_waiter_leaves_no_node(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """The first interrupt ends the wait; the second comes while there is cleaning up behind it."""
    rival = stage.rival(kind, fresh_path)
    microseconds = [*range(1, 400, 25), *range(400, 3000, 200)]
    arguments = (stage.proxy.hosts, kind.__name__, fresh_path)
    with holding(rival), Worker("interrupted", *arguments) as worker:
        (held,) = stage.nodes(fresh_path)
        worker.expect("interrupts 0")
        for count, delay in enumerate(microseconds, 1):
            worker.say(str(delay))
            wait_until_waiting(stage, nth=count)
            os.kill(worker.pid, signal.SIGINT)
            # It may be back before the second interrupt.
            while (line := worker.hear()) != f"interrupts {2 * count}":
                assert line is not None
            poll("it is gone", lambda: stage.nodes(fresh_path) == [held] or None, GRACE)
    assert acquire_as_third_party(stage, kind, fresh_path) > rival.fence


@all_kinds
def test_a_with_that_is_refused_releases_nothing(
    stage: Stage, kind: Kind, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread gets the lock between the refusal and what a ``with`` does about it."""
    shared, main = kind(stage.client(), fresh_path), threading.get_ident()

    def refuse() -> None:
        if threading.get_ident() == main:
            assert Running(lambda: shared.acquire(GRACE)).result()
            raise LockInUseError("somebody else is at it")

    monkeypatch.setattr(shared._lock, "_refuse_two", refuse)
    with pytest.raises(RuntimeError, match="somebody else is at it"), shared:
        pass
    assert shared.held
    shared.release()


def test_the_loss_of_a_lock_for_threads_is_not_to_be_awaited(stage: Stage, fresh_path: str) -> None:
    """It would block the whole event loop."""
    lock = SequentialLock(stage.client(), fresh_path)

    async def wait() -> bool:
        return await lock.lost

    with pytest.raises(RuntimeError, match="await belongs to AsyncClient"):
        Running(lambda: asyncio.run(wait())).result()
