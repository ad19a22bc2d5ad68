"""The three locks on a server: what each promises, what it makes of loss and misuse, what it costs.

Lost connections are in `test_lock_sweep`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from subprocess import PIPE, Popen
from typing import Any

import pytest

import zkwire.blocking.leader
from tests.support.both_clients import done
from tests.support.family_helpers import lease_nodes, lease_of, soon
from tests.support.lock_helpers import (
    ALL_KINDS,
    GRACE,
    PATIENCE,
    PAUSE,
    ROOT,
    SHORT,
    SLACK,
    Kind,
    Lock,
    Running,
    Stage,
    acquire_soon,
    all_kinds,
    assert_exclusive,
    assert_strictly_rising,
    holding,
    make_path,
    meaning,
    requests,
    wait_until_waiting,
)
from tests.support.recipe_samples import lock as lock_of
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    AsyncClient,
    Client,
    LockLostError,
    Lost,
    OperationTimeoutError,
    ReadWriteLock,
    SequentialLock,
    SetData,
)
from zkwire.blocking.locks import QueueLock
from zkwire.testing.proxy import Gate, cut_before, hold


@all_kinds
def test_hazard_B18_B19_C9_D8_a_life_of_a_lock(stage: Stage, kind: Kind, fresh_path: str) -> None:
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


# --- nodes that go, or are not what they seem -----------------------------------------------------


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
    "ReadWriteLock.read": "ReadWriteLock.write",
    "ReadWriteLock.write": "ReadWriteLock.read",
    "Semaphore": "Semaphore",
    **{f"Async{kind.__name__}": kind.__name__ for kind in ALL_KINDS},
}
OWN = STOPPED.keys() - {"SequentialLock", "Semaphore"}
"""What a real server need not have, too."""
HOLDER = """
import asyncio, sys, threading
from tests.support.both_clients import done
from tests.support.recipe_samples import lock as lock_of
from zkwire import AsyncClient, Client

async def main(hosts, name, path, session_timeout):
    kind = AsyncClient if name.startswith("Async") else Client
    client, told = kind(hosts, session_timeout=float(session_timeout)), threading.Event()
    lock = lock_of(name.removeprefix("Async"), client, path)
    lock.lost.add_callback(lambda _: told.set())
    assert await done(lock.acquire(10))
    print(lock.fence, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lock.held, flush=True)
        async with asyncio.timeout(10):
            while not lock.held and not (told.is_set() and lock.lost.is_set()):
                await asyncio.sleep(0.01)
        print(told.is_set(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.own_server] * (n in OWN)) for n in STOPPED]
)
def test_stopped_holder_knows_when_it_wakes(stage: Stage, name: str, fresh_path: str) -> None:
    """Stopped for longer than its session lives; what it must look at waits for it already."""
    rival = lock_of(STOPPED[name], stage.observer, fresh_path)
    command = [sys.executable, "-c", HOLDER, stage.hosts, name, fresh_path, str(SHORT)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1, cwd=ROOT) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            fence = int(holder.stdout.readline())
            holder.stdin.write("look\n")
            assert [holder.stdout.readline() for _ in range(2)] == ["True\n", "False\n"]
            holder.send_signal(signal.SIGSTOP)
            acquire_soon(rival, PATIENCE)
            assert rival.fence > fence
            holder.stdin.write("look\n")
            holder.send_signal(signal.SIGCONT)
            assert [holder.stdout.readline() for _ in range(2)] == ["False\n", "True\n"]
            assert rival.held
            rival.release()
        finally:
            holder.kill()


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


MOST = 6
"""Requests of one try on a lock that is held."""
LONG_ENOUGH = 0.2  # seconds, in which every request of a try is sent


def sent(stage: Stage) -> list[str]:
    """The operations asked for through the proxy."""
    return [meaning(frame) for frame in requests(stage.proxy.frames())]


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.since("3.5")
@all_kinds
def test_a_free_lock_takes_one_round_trip_and_its_release_another(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """Create and listing leave in one write, before any answer; nothing else is waited for.

    The guard of a lock that is kept leaves by itself.
    """
    if kind is SequentialLock:
        make_path(stage.observer, fresh_path)
    lock, answer, guard = stage.lock(kind, fresh_path), Gate(), Gate()
    enter = ["create2", "get_children"] if kind is SequentialLock else ["create2"]
    stage.proxy.on("create2", action=hold(answer), reply=True)
    stage.proxy.on("get_children2", action=hold(guard))
    acquiring = Running(lambda: lock.acquire(GRACE))
    answer.wait_reached()
    assert sent(stage) == enter
    assert len({frame.time for frame in requests(stage.proxy.frames())}) == 1, "in one piece"
    assert not acquiring.ended
    answer.release()
    assert acquiring.result(GRACE)
    assert lock.held
    guard.wait_reached()
    assert sent(stage) == [*enter, "get_children2"]
    guard.release()
    stage.proxy.reset()
    released = Gate()
    stage.proxy.on("delete", action=hold(released), reply=True)
    releasing = Running(lock.release)
    released.wait_reached()
    assert not releasing.ended
    released.release()
    releasing.result(GRACE)
    assert sent(stage) == ["delete"]


@pytest.mark.since("3.5")
def test_a_lock_held_for_a_moment_is_two_round_trips(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard has not left when it is released, and then need not leave at all.

    It leaves with the next request, so the answer to a `sync` says whether the lock is still held.
    """
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    stage.observer.create(fresh_path)
    client = stage.client()
    lock = SequentialLock(client, fresh_path)
    for _ in range(3):
        assert lock.acquire(PATIENCE)
        assert lock.held
        lock.release()
    assert sent(stage) == ["create2", "get_children", "delete"] * 3
    assert lock.lost.reason is None
    stage.proxy.reset()
    assert lock.acquire(PATIENCE)
    client.sync("/")
    assert sent(stage) == ["create2", "get_children", "get_children2", "sync"]
    lock.release()


@pytest.mark.since("3.5")
@pytest.mark.parametrize("kind", ["SequentialLock", "Semaphore"])
@pytest.mark.parametrize("prefix", ["", "Async"], ids=["threads", "asyncio"])
def test_a_poll_costs_six_requests(stage: Stage, fresh_path: str, prefix: str, kind: str) -> None:
    def maker(client: Any, prefix: str) -> Any:
        make = getattr(zkwire, prefix + kind)
        return (
            make(client, fresh_path, 1).lease
            if kind == "Semaphore"
            else partial(make, client, fresh_path)
        )

    async def poll() -> list[str]:
        client: Any = AsyncClient(stage.proxy.hosts) if prefix else stage.client()
        await done(client.connect())
        make = maker(client, prefix)
        for _ in range(2):
            stage.proxy.reset()
            with suppress(OperationTimeoutError):
                assert await done(make().acquire(LONG_ENOUGH)) is False
            await done(client.exists("/"))  # behind all that the try has asked for
        asked = sent(stage)[:-1]
        await done(client.close())
        return asked

    holder = maker(stage.client(direct=True), "")()
    assert holder.acquire(GRACE)
    assert len(asked := asyncio.run(poll())) <= MOST, asked
    nodes = lease_nodes(stage, fresh_path) if kind == "Semaphore" else stage.nodes(fresh_path)
    assert len(nodes) == 1
    holder.release()
