"""The three locks on a real server: what each promises, and what it makes of loss and misuse.

Lost connections are elsewhere: `test_lock_recovery` forces what is rare in the recovery,
`test_lock_sweep` every single fault.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    SHORT,
    Kind,
    Lock,
    Running,
    Stage,
    all_kinds,
    assert_exclusive,
    assert_in_time,
    assert_strictly_rising,
    holding,
    single_kinds,
    timed,
    wait_until_waiting,
    waiting_kinds,
)
from zkwire import (
    OPEN_ACL_UNSAFE,
    LockLostError,
    LockTakenError,
    NonBlockingLock,
    NoNodeError,
)
from zkwire.jute.frames import frame
from zkwire.jute.records import CreateRequest, RequestHeader
from zkwire.testing.proxy import Frame, cut_before, drop
from zkwire.testing.proxy.faults import Send
from zkwire.wire import ops

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


def test_non_blocking_lock_does_not_wait(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(NonBlockingLock, fresh_path)
    with holding(stage.rival(NonBlockingLock, fresh_path)):
        for timeout in (None, 0, 30):
            acquired, seconds = timed(partial(lock.acquire, timeout))
            assert not acquired
            assert_in_time(0, seconds)


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
