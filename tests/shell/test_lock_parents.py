"""What locks leave above their nodes: containers, that the server removes, where it has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.aio_helpers import blocking
from tests.support.lock_frames import LockProxy
from tests.support.lock_helpers import LONG, PATIENCE, Running
from tests.support.server_control import Backend, Settings, poll
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    BlockingLock,
    Client,
    NonBlockingLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    SequentialLock,
)
from zkwire.blocking.locks import PathLock
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy.faults import Gate, cut_before, hold
from zkwire.wire import ops

LOCKS = ["NonBlockingLock", "BlockingLock", "SequentialLock", "ReentrantLock", "read", "write"]
KINDS = [*LOCKS, "lease"]
PATH = "/locks/report"


def made(kind: str, client: Client) -> PathLock | ReentrantLock:
    """A lock of this kind on or below PATH."""
    if kind in ("read", "write"):
        both = ReadWriteLock(client, PATH)
        return both.read if kind == "read" else both.write
    if kind == "lease":
        return Semaphore(client, PATH, 2).lease()
    if kind in ("NonBlockingLock", "BlockingLock"):
        return (NonBlockingLock if kind == "NonBlockingLock" else BlockingLock)(client, PATH + "/l")
    return (ReentrantLock if kind == "ReentrantLock" else SequentialLock)(client, PATH)


def remove_containers(server: Server) -> None:
    """Have the server do now what it does each minute, once for each level."""
    for _ in range(3):
        server._running().call(server._processor._reap)


@pytest.mark.parametrize("kind", LOCKS)
def test_no_node_is_left_above_a_lock(server: Server, kind: str) -> None:
    with Client(server.hosts) as client:
        lock = made(kind, client)
        for _ in range(2):
            assert lock.acquire()
            remove_containers(server)
            assert lock.held
            lock.release()
            remove_containers(server)
            assert client.exists("/locks") is None


def test_a_semaphore_leaves_its_count_and_nothing_else(server: Server) -> None:
    """Whoever has just read the count must not enter beside others with another one."""
    with Client(server.hosts) as client:
        with Semaphore(client, PATH, 2).lease():
            remove_containers(server)
            assert sorted(client.get_children(PATH)) == ["leases"]
        remove_containers(server)
        assert list(client.walk("/locks")) == ["/locks", PATH]
        assert client.get_data(PATH).data == b"2"
        with pytest.raises(ValueError, match="of 2, not of 3"):
            Semaphore(client, PATH, 3).lease().acquire()


def test_a_node_that_stands_there_already_stays_as_it_is(server: Server) -> None:
    with Client(server.hosts) as client:
        client.create("/locks")
        with SequentialLock(client, PATH):
            pass
        remove_containers(server)
        assert list(client.walk("/locks")) == ["/locks"]


def test_the_chroot_stays(server: Server) -> None:
    with Client(server.hosts + "/application") as client:
        with SequentialLock(client, "/lock"):
            pass
        remove_containers(server)
        assert list(client.walk("/")) == ["/"]


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


@pytest.fixture
def without() -> Iterator[Server]:
    with Server(unknown_opcodes=[ops.CREATE_CONTAINER.opcode]) as server:
        yield server


def asked(proxy: FaultProxy) -> int:
    """How often a container was asked for."""
    return sum(frame.op == "create_container" and frame.direction == "c2s" for frame in proxy.log)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parent_is_persistent_where_there_are_no_containers(without: Server, kind: str) -> None:
    with FaultProxy(without.hosts) as proxy, Client(proxy.hosts) as client:
        with made(kind, client):
            pass
        with SequentialLock(client, "/another/lock"):
            pass
        remove_containers(without)
        assert client.exists(PATH) is not None
        assert client.exists("/another/lock") is not None
        assert asked(proxy) == 1  # what it does not know is remembered


async def test_a_parent_is_persistent_where_there_are_no_containers_asyncio() -> None:
    with Server(unknown_opcodes=[ops.CREATE_CONTAINER.opcode]) as server:
        async with AsyncClient(server.hosts) as client:
            async with AsyncSequentialLock(client, PATH):
                pass
            await blocking(remove_containers, server)
            assert await client.exists(PATH) is not None


def test_a_server_that_hangs_up_on_what_it_does_not_know(server: Server) -> None:
    """As some do that are not Apache's: to ask again and again would never end."""
    with LockProxy(server.hosts) as proxy, Client(proxy.hosts) as client:
        for nth in range(1, 5):
            proxy.on("create_container", nth=nth, action=cut_before)
        assert SequentialLock(client, "/lock").acquire(PATIENCE)
        assert asked(proxy) == 1


# --- Apache's own ---------------------------------------------------------------------------------

MANY = 300


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_hazard_B36_300_locks_on_300_paths_leave_no_node(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        for n in range(MANY):
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
