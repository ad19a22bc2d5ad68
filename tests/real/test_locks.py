"""The three locks on a server: what each promises, and what it makes of loss and misuse.

Lost connections are in `test_lock_sweep`; how a holder loses its lock, in `test_lock_losses`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.support.aio_helpers import AsyncKind, async_kinds, eventually, watch_count
from tests.support.family_helpers import soon
from tests.support.lock_frames import meaning
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    SHORT,
    Kind,
    Lock,
    Running,
    Stage,
    Worker,
    Workers,
    acquire_as_third_party,
    all_kinds,
    assert_exclusive,
    assert_in_time,
    assert_no_blind_repeat,
    assert_strictly_rising,
    holding,
    make_path,
    requests,
    single_kinds,
    timed,
    wait_until_waiting,
    waiters,
    waiting_kinds,
    watch_table_size,
)
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    OPEN_ACL_UNSAFE,
    AsyncClient,
    LockLostError,
    LockTakenError,
    Lost,
    NonBlockingLock,
    NoNodeError,
    SequentialLock,
)
from zkwire.jute.frames import frame
from zkwire.jute.records import (
    CreateRequest,
    GetChildrenResponse,
    ReplyHeader,
    RequestHeader,
)
from zkwire.testing.proxy import Frame, Gate, cut_after, cut_before, drop, hold, rewrite
from zkwire.testing.proxy.faults import Send
from zkwire.wire import ops

CUTS = {"before": cut_before, "after": cut_after}


@all_kinds
def test_a_life_of_a_lock(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """Free, held, lost inside of a with, used again; one object, and its misuse."""
    lock = stage.lock(kind, fresh_path)

    def assert_free() -> None:
        assert not lock.held
        assert lock.lease_remaining() == 0.0
        assert stage.nodes(fresh_path) == []
        with pytest.raises(RuntimeError, match="does not hold"):
            lock.release()

    def lose(error: Exception | None) -> None:
        with lock:
            stage.observer.delete(stage.nodes(fresh_path)[0])
            assert lock.lost.wait(PATIENCE)
            if error:
                raise error

    assert_free()
    with pytest.raises(RuntimeError):
        _ = lock.fence
    assert lock.acquire(GRACE)
    for again in (lock.acquire, lock.try_acquire, lock.__enter__):
        with pytest.raises(RuntimeError, match="not re-entrant"):
            again()
    assert lock.held
    lock.release()
    assert_free()
    with lock as entered:
        assert entered is lock
        assert lock.held
        assert len(stage.nodes(fresh_path)) == 1
    assert_free()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert_free()
    with pytest.raises(LockLostError):
        lose(None)
    with pytest.raises(KeyError):  # there is worse than the loss
        lose(KeyError())
    assert lock.acquire(GRACE)
    lock.release()


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
def test_fence_rises_and_is_the_nodes_czxid(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """And a try on the lock that is taken leaves nothing."""
    locks = [stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)]
    fences = []
    for lock, other in (locks, locks[::-1]) * 3:
        with holding(lock):
            assert not other.try_acquire()
            assert_exclusive(lock, other)
            (node,) = stage.nodes(fresh_path)
            assert lock.fence == stage.observer.get_data(node).stat.czxid
            fences.append(lock.fence)
    assert_strictly_rising(fences)


def test_non_blocking_lock_does_not_wait(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(NonBlockingLock, fresh_path)
    with holding(stage.rival(NonBlockingLock, fresh_path)):
        for timeout in (None, 0, 30):
            acquired, seconds = timed(partial(lock.acquire, timeout))
            assert not acquired
            assert_in_time(0, seconds)
        with pytest.raises(LockTakenError):
            lock.__enter__()
        assert not lock.held


@all_kinds
def test_lease_is_renewed_by_contact(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock = stage.lock(kind, fresh_path, timeout=SHORT)
    with holding(lock):
        assert 0 < lock.lease_remaining() <= SHORT
        # Two pings' replies: the second renews what the first one's time has used up.
        stage.proxy.wait_for(
            lambda frames: len([f for f in frames if f.kind == "ping" and f.xid == -2]) >= 4
        )
        # A lease that nothing renews gets shorter and shorter.
        soon("it is renewed", lambda: SHORT / 2 < lock.lease_remaining() <= SHORT)
        assert lock.held
    assert lock.lease_remaining() == 0.0


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


@pytest.mark.own_server
@async_kinds
async def test_tasks_of_one_client_exclude_each_other(
    zookeeper: ZooKeeperServer, kind: AsyncKind, fresh_path: str
) -> None:
    turns: list[int] = []

    async def work(_: int) -> None:
        lock = kind(client, fresh_path)
        for _ in range(5):
            while not await lock.acquire():
                await asyncio.sleep(0)
            turns.append(lock.fence)
            await asyncio.sleep(0)
            assert lock.held
            assert turns[-1] == lock.fence, "nobody else has come in"
            await lock.release()

    async with AsyncClient(zookeeper.hosts) as client:
        await asyncio.gather(*map(work, range(8)))
        assert len(turns) == 40
        assert_strictly_rising(turns)
        stat = await client.exists(fresh_path)
        assert stat is None or (stat.num_children, stat.ephemeral_owner) == (0, 0)
        await eventually("no watch is left", lambda: watch_count(client) == 0)


@all_kinds
def test_processes_count_without_losing_one(
    stage: Stage, kind: Kind, fresh_path: str, tmp_path: Path
) -> None:
    """The counter is a plain file: two at a time would read the same number."""
    counter, processes, times = tmp_path / "counter", 4, 50
    counter.write_text("0")
    arguments = (stage.hosts, kind.__name__, fresh_path, times, counter)
    with Workers() as workers:
        crew = [workers.start("counting", *arguments) for _ in range(processes)]
        for worker in crew:
            worker.expect("ready")
        for worker in crew:
            worker.say("go")
        lines = [line for worker in crew for line in worker.end(4 * PATIENCE)]
    turns = sorted(tuple(map(int, line.split())) for line in lines)
    assert [number for number, _ in turns] == list(range(processes * times))
    assert counter.read_text() == str(processes * times)
    assert_strictly_rising(fence for _, fence in turns)
    assert stage.nodes(fresh_path) == []


# --- nodes that go, or are not what they seem -----------------------------------------------------


@pytest.mark.since("3.5")
@all_kinds
def test_parent_deleted_right_after_it_was_made(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, gate = kind(stage.client(), f"{fresh_path}/lock"), Gate()
    stage.proxy.on("create2", nth=2, action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    stage.observer.delete_tree(fresh_path)
    gate.release()
    assert acquiring.result()
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
    soon("three queue", lambda: len(stage.nodes(fresh_path)) == 3)
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


# --- the recovery of a create whose answer was lost, step by step ---------------------------------

ENTER, LOOK_UP, GUARD = ["create2", "get_children"], ["sync", "get_children"], "get_children2"


def sent(frames: list[Frame], cut: list[Frame]) -> list[str]:
    """The requests in order, without those that were under way behind one that was cut."""
    lost = {frame.connection: frame.number or 0 for frame in cut}
    asked = [f for f in requests(frames) if (f.number or 0) <= lost.get(f.connection, 1 << 30)]
    return [meaning(frame) for frame in asked]


def assert_held_once(stage: Stage, lock: Lock) -> None:
    """The lock is held by one node, whose czxid is the fence."""
    assert lock.held
    (node,) = stage.nodes(lock.path)
    assert lock.fence == stage.observer.get_data(node).stat.czxid
    assert not stage.rival(type(lock), lock.path).try_acquire()
    lock.release()
    assert stage.nodes(lock.path) == []
    assert_no_blind_repeat(stage.proxy.frames())


@pytest.mark.since("3.5")
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("op", ["sync", "get_children"])
@pytest.mark.parametrize("first", CUTS)
def test_lost_look_up_is_repeated_with_its_sync(
    stage: Stage, fresh_path: str, first: str, op: str, how: str
) -> None:
    make_path(stage.observer, fresh_path)
    lock, cut = stage.lock(SequentialLock, fresh_path), list[Frame]()

    def cutting(how: str, frame: Frame) -> object:
        cut.append(frame)
        return CUTS[how](frame)

    stage.proxy.on("create2", action=partial(cutting, first))  # type: ignore[arg-type]
    nth = 1 if op == "sync" else 2
    stage.proxy.on(op, nth=nth, action=partial(cutting, how))  # type: ignore[arg-type]
    assert lock.try_acquire()
    lost = ["sync"] if op == "sync" else LOOK_UP
    rest = [*LOOK_UP, *ENTER] if first == "before" else [*LOOK_UP, "exists"]
    wanted = ["create2", *lost, *rest, GUARD]
    stage.proxy.wait_for(lambda frames: sent(frames, cut)[-1] == GUARD, GRACE)
    assert sent(stage.proxy.frames(), cut) == wanted
    assert_held_once(stage, lock)


@pytest.mark.since("3.5")
def test_second_node_of_an_attempt_is_removed(stage: Stage, fresh_path: str) -> None:
    """A server that is behind in spite of the sync: the look-up shows nothing, there are two."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    empty = frame(ReplyHeader(0, 0, 0).encode() + GetChildrenResponse(()).encode())
    nothing = rewrite(lambda raw: empty[:4] + raw[4:20] + empty[20:])
    stage.proxy.on("get_children", nth=2, action=nothing, reply=True)
    assert lock.try_acquire()
    stage.proxy.wait_for(lambda frames: requests(frames)[-1].op == GUARD, GRACE)
    first, *_ = requests(frames := stage.proxy.frames())
    assert sent(frames, [first]) == ["create2", *LOOK_UP, *ENTER, "delete", GUARD]
    assert_held_once(stage, lock)


# --- what attempts leave behind -------------------------------------------------------------------


@pytest.mark.since("3.5")
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
            soon("it is gone", lambda: stage.nodes(fresh_path) == [held])
    assert acquire_as_third_party(stage, kind, fresh_path) > rival.fence
