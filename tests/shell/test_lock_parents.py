"""What locks leave above their nodes: containers, that the server removes, where it has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.aio_helpers import blocking
from tests.support.both_clients import LOCKS, Side, both, done, entered, using
from tests.support.lock_frames import LockProxy
from tests.support.lock_helpers import LONG, PATIENCE, Running
from tests.support.server_control import Backend, Settings, poll
from zkwire import Client, Semaphore, SequentialLock
from zkwire.testing import Server
from zkwire.testing.proxy.faults import Gate, cut_before, hold
from zkwire.wire import ops

KINDS = sorted({*LOCKS} - {"leadership", "multi"})
PATH = "/locks/report"


def made(kind: str, client: Any, side: Side = Side("")) -> Any:  # noqa: B008 - it has no state
    """A lock of this kind on or below PATH."""
    return side.lock(kind, client, PATH + "/l" * ("blocking" in kind))


def remove_containers(server: Server) -> None:
    """Have the server do now what it does each minute, once for each level."""
    for _ in range(3):
        server._running().call(server._processor._reap)


@pytest.mark.parametrize("kind", [*KINDS])
def test_no_node_is_left_above_a_lock(server: Server, kind: str) -> None:
    """But the count of a semaphore: who has just read it must not enter beside another count."""
    with Client(server.hosts) as client:
        lock = made(kind, client)
        for _ in range(2):
            assert lock.acquire()
            remove_containers(server)
            assert lock.held
            lock.release()
            remove_containers(server)
            assert client.exists("/locks") is None or kind == "lease"
        if kind == "lease":
            assert list(client.walk("/locks")) == ["/locks", PATH]
            with pytest.raises(ValueError, match="of 1, not of 3"):
                Semaphore(client, PATH, 3).lease().acquire()


def test_a_node_that_stands_there_already_and_the_chroot_stay(server: Server) -> None:
    with Client(server.hosts) as client, Client(server.hosts + "/application") as below:
        client.create("/locks")
        for lock in (SequentialLock(client, PATH), SequentialLock(below, "/lock")):
            with lock:
                pass
        remove_containers(server)
        assert list(client.walk("/locks")) == ["/locks"]
        assert list(below.walk("/")) == ["/"]


@pytest.mark.parametrize(("kind", "nth"), [*((kind, 2) for kind in KINDS), ("lease", 4)], ids=str)
def test_hazard_B35_a_parent_that_goes_between_the_look_and_the_create(
    server: Server, kind: str, nth: int
) -> None:
    """Somebody else's release makes it empty, and the server removes it, once it has been seen."""
    gate = Gate()
    with (
        LockProxy(server.hosts) as proxy,
        Client(proxy.hosts, session_timeout=LONG) as client,
        Client(server.hosts) as other,
    ):
        proxy.on("create2", nth=nth, action=hold(gate))
        lock, rival = made(kind, client), made(kind, other)

        def cycle() -> None:
            assert lock.acquire()
            lock.release()

        running = Running(cycle)
        gate.wait_reached()
        if nth == 2:  # or else the lock has its place in front already
            with rival:
                pass
        else:
            other.delete(PATH + "/leases")
        remove_containers(server)
        queue = "/leases" if nth == 4 else "/locks"
        assert other.exists(PATH + queue if kind == "lease" else PATH) is None
        gate.release()
        running.result(PATIENCE)


# --- servers without containers -------------------------------------------------------------------


def asked(proxy: LockProxy) -> int:
    """How often a container was asked for."""
    return sum(frame.op == "create_container" and frame.direction == "c2s" for frame in proxy.log)


@pytest.mark.parametrize("kind", KINDS)
@both
async def test_a_parent_is_persistent_where_there_are_no_containers(side: Side, kind: str) -> None:
    with (
        Server(unknown_opcodes=[ops.CREATE_CONTAINER.opcode]) as without,
        LockProxy(without.hosts) as proxy,
    ):
        async with using(side.Client(proxy.hosts)) as client:
            for lock in (made(kind, client, side), side.lock("sequential", client, "/another/l")):
                async with entered(lock):
                    pass
            await blocking(remove_containers, without)
            for path in (PATH, "/another/l"):
                assert await done(client.exists(path)) is not None
        assert asked(proxy) == 1  # what it does not know is remembered


def test_a_server_that_hangs_up_on_what_it_does_not_know(server: Server) -> None:
    """As some do that are not Apache's: to ask again and again would never end."""
    with LockProxy(server.hosts) as proxy, Client(proxy.hosts) as client:
        for nth in range(1, 5):
            proxy.on("create_container", nth=nth, action=cut_before)
        assert SequentialLock(client, "/lock").acquire(PATIENCE)
        assert asked(proxy) == 1


# --- Apache's own ---------------------------------------------------------------------------------


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_hazard_B36_300_locks_on_300_paths_leave_no_node(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        for n in range(300):
            with SequentialLock(client, f"/many/{n}"):
                pass
        poll("no node is left", lambda: client.exists("/many") is None or None, PATIENCE)


@pytest.mark.apache
def test_locks_under_a_server_that_removes_containers_all_the_time(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=1",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        for _ in range(50):
            for kind in KINDS:
                with made(kind, client):
                    pass
