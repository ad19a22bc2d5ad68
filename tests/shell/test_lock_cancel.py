"""cancel() ends an acquisition of any lock from outside; node names the lock's own node."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.aio_helpers import blocking, eventually
from tests.support.both_clients import LOCKS, Side, both, done, entered, result, using
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from zkwire import Client, LockCancelledError, SequentialLock
from zkwire.testing import Server

KINDS = sorted({*LOCKS} - {"non-blocking", "read"})  # which do not wait for the same kind


def paths(server: Server) -> list[str]:
    """The nodes of contenders."""
    return sorted(path for path in server.tree.nodes if path.startswith(("/lock/", "/lock-other/")))


def is_contending(lock: Any) -> bool:
    algorithm = getattr(lock, "_algorithm", lock)
    return bool(algorithm._busy or getattr(algorithm, "_contending", False))


async def cancelled(side: Side, server: Server, lock: Any, session: int, aside: bool) -> None:
    """It waits, is cancelled, and leaves nothing."""
    before = paths(server)
    assert not lock.cancel()
    waiting = side.start(lock.acquire)
    # A watch of the acquisition before may still be set.
    await eventually("it begins", lambda: is_contending(lock))
    await eventually("it waits", lambda: server.watches(session))
    assert (await blocking(lock.cancel) if aside else lock.cancel()) is True
    with pytest.raises(LockCancelledError, match="nothing is held"):
        await result(waiting)
    assert not lock.held
    await eventually("its node goes", lambda: paths(server) == before)


@pytest.mark.parametrize("kind", KINDS)
@both
async def test_an_acquisition_that_waits_is_cancelled(
    side: Side, server: Server, kind: str
) -> None:
    async with using(side.Client(server.hosts)) as other, using(side.Client(server.hosts)) as c:
        holder, lock = side.lock(kind, other, "/lock"), side.lock(kind, c, "/lock")
        await done(holder.acquire())
        await done(c.connect())
        for aside in (False, True):
            await cancelled(side, server, lock, c.session_id, aside)
        assert holder.held
        await done(holder.release())
        assert await done(lock.acquire(PATIENCE)), "the lock can be acquired again"
        assert not lock.cancel()
        assert lock.held
        await done(lock.release())


@both
async def test_a_supervised_lock_and_a_within_are_cancelled(side: Side, server: Server) -> None:
    async with (
        using(side.Client(server.hosts)) as other,
        using(side.Supervisor(server.hosts)) as supervisor,
        entered(side.lock("sequential", other, "/lock")),
    ):
        lock = side.lock("sequential", supervisor, "/lock")

        async def enter() -> None:
            async with entered(lock.within(PATIENCE)):
                pytest.fail("it is held by another")

        for way in (
            lock.acquire,
            enter if side.asyncio else lambda: lock.within(PATIENCE).__enter__(),
        ):
            waiting = side.start(way)
            await eventually("it waits", lambda: len(paths(server)) == 2)
            assert lock.cancel()
            with pytest.raises(LockCancelledError):
                await result(waiting)
            await eventually("its node goes", lambda: len(paths(server)) == 1)


def test_a_wait_for_a_server_is_cancelled(server: Server) -> None:
    with Client(server.hosts, session_timeout=60.0) as client:
        lock = SequentialLock(client, "/lock")
        client.connect()
        server.stop()
        poll("disconnected", lambda: client.server is None or None, PATIENCE)
        waiting = Running(lock.acquire)
        poll("it waits", lambda: is_contending(lock) or None, PATIENCE)
        lock.cancel()
        with pytest.raises(LockCancelledError):
            waiting.result(PATIENCE)
        server.start()


def test_other_waits_of_the_client_go_on(server: Server) -> None:
    with Client(server.hosts) as other, Client(server.hosts) as client:
        holder = SequentialLock(other, "/lock")
        holder.acquire()
        locks = [SequentialLock(client, "/lock") for _ in range(3)]
        waits = [Running(lock.acquire) for lock in locks]
        poll("all wait", lambda: len(paths(server)) == 4 or None, PATIENCE)
        assert locks[1].cancel()
        with pytest.raises(LockCancelledError):
            waits[1].result(PATIENCE)
        holder.release()
        for _ in range(2):  # in the order of arrival, which is the kernel's
            poll("one holds", lambda: next((k for k in locks if k.held), None), PATIENCE).release()
        assert [waits[index].result(PATIENCE) for index in (0, 2)] == [True, True]


def test_cancel_between_two_threads_never_hits_a_later_call(server: Server) -> None:
    """Whatever comes first: an acquisition ends in one of two ways, and the next call is whole."""
    with Client(server.hosts) as client:
        lock, ends, stop = SequentialLock(client, "/lock"), list[str](), threading.Event()

        def cancel() -> None:
            while not stop.is_set():
                lock.cancel()

        canceller = Running(cancel)
        try:
            for _ in range(200):
                try:
                    assert lock.acquire(PATIENCE)
                    ends.append("held")
                    lock.release()
                except LockCancelledError:
                    ends.append("cancelled")
                    assert not lock.held
                assert client.exists("/") is not None
        finally:
            stop.set()
        canceller.result()
        assert len(ends) == 200
        poll("nothing is left", lambda: not paths(server) or None, PATIENCE)


@pytest.mark.parametrize("kind", ["sequential", "blocking", "lease"])
@both
async def test_node_is_the_own_node_while_held_or_queued(
    side: Side, server: Server, kind: str
) -> None:
    async with using(side.Client(server.hosts)) as one, using(side.Client(server.hosts)) as two:
        first, second = side.lock(kind, one, "/lock"), side.lock(kind, two, "/lock")
        assert not first.node
        await done(first.acquire())
        assert server.tree.nodes[first.node].owner == one.session_id
        assert first.node.startswith(
            {"lease": "/lock/leases/", "sequential": "/lock/"}.get(kind, "")
        )
        waiting = side.start(second.acquire)
        await eventually("it waits", lambda: two.session_id and server.watches(two.session_id))
        if kind == "blocking":
            assert (first.node, second.node) == ("/lock", None)
        else:
            await eventually("it has a node", lambda: second.node in server.tree.nodes)
            assert second.node != first.node
        await done(first.release())
        assert not first.node
        await result(waiting)
        assert server.tree.nodes[second.node].owner == two.session_id
        await done(two.delete(second.node))
        await eventually("it is lost", second.lost.is_set)
        assert second.node is None
