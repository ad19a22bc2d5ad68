"""All kinds of locks: cancelled, refused, at any depth of the stack, within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.aio_helpers import blocking, complaints, eventually
from tests.support.both_clients import LOCKS, Side, both, done, entered, result, using
from tests.support.fake_server import Connection, FakeServer, GoneError, Node, Request, silent
from tests.support.lock_helpers import GRACE, PATIENCE, Running
from tests.support.server_control import Backend, Settings, poll
from zkwire import (
    ACL,
    AsyncClient,
    AsyncReentrantLock,
    AsyncSequentialLock,
    Client,
    Id,
    LockCancelledError,
    LockTakenError,
    NoAuthError,
    NodeExistsError,
    OperationTimeoutError,
    Perms,
    ReentrantLock,
    SequentialLock,
    SetData,
)
from zkwire.testing import Server

# --- cancel() and node ----------------------------------------------------------------------------


WAITING_KINDS = sorted({*LOCKS} - {"non-blocking", "read"})  # which do not wait for the same kind


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


@pytest.mark.parametrize("kind", WAITING_KINDS)
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


# --- refused for the moment -----------------------------------------------------------------------

ANYONE = Id("world", "anyone")


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.hosts)) for _ in range(3)]
        for client in clients:
            client.connect()
        yield clients


def test_a_guarded_operation_says_who_refused_it(clients: list[Client]) -> None:
    """Nobody may read the lock's node, but it is there: the lock is not lost."""
    lock = SequentialLock(clients[0], "/lock")
    assert lock.acquire(GRACE)
    clients[0].sync()  # the guard has been answered
    (name,) = clients[1].get_children("/lock")
    clients[1].set_acl(f"/lock/{name}", [ACL(Perms.WRITE, ANYONE)])
    with pytest.raises(NoAuthError):
        lock.guard([SetData("/lock", b"")])
    assert lock.held
    lock.release()


WAITING = [
    ("blocking", ""),
    ("non-blocking", ""),
    ("sequential", "/a-lock-0000000000"),
    ("multi", "/a-lock-0000000000"),
    ("leadership", "/a-0000000000"),
    ("read", "/a__WRIT__0000000000"),
    ("write", "/a__READ__0000000000"),
    ("lease", "/leases/a-0000000000"),
    ("lease", "/locks/a-0000000000"),
]


@pytest.mark.parametrize(("kind", "name"), WAITING)
def test_hazard_B33_nobody_waits_for_a_node_that_is_not_ephemeral(
    clients: list[Client], kind: str, name: str
) -> None:
    lock, node = Side("").lock(kind, clients[1], "/lock"), f"/lock{name}"
    clients[0].ensure_path(node)
    for ask in (lambda: lock.acquire(GRACE), lambda: lock.acquire(0), lock.try_acquire):
        with pytest.raises(NodeExistsError, match=f"{node} is no lock: the node there is n") as e:
            ask()
        assert e.value.path == node
    with pytest.raises(NodeExistsError), lock:
        pass
    clients[0].delete(node)
    assert lock.acquire(GRACE), "something was left behind"


PATH = "/locks/report"


def made(kind: str, client: Any, side: Side = Side("")) -> Any:  # noqa: B008 - it has no state
    """A lock of this kind on or below PATH."""
    return side.lock(kind, client, PATH + "/l" * ("blocking" in kind))


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_hazard_B36_300_locks_on_300_paths_leave_no_node(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        for n in range(300):
            with SequentialLock(client, f"/many/{n}"):
                pass
        poll("no node is left", lambda: client.exists("/many") is None or None, PATIENCE)


# --- owners that have ended -----------------------------------------------------------------------

OWNED = "/lock"
WARNED = "has ended and still held"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.hosts) as client:
        yield client


def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, name="worker")
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def warned(caplog: pytest.LogCaptureFixture, owner: str) -> None:
    """It is logged that this owner has ended."""
    text = f"{OWNED}: {owner} {WARNED}"
    poll("somebody is warned", lambda: text in caplog.text or None, PATIENCE)


class Holder:
    """A thread that holds until it is to end, with or without a release."""

    def __init__(self, client: Client) -> None:
        self.lock, self.end = ReentrantLock(client, OWNED), threading.Event()
        self.release = False
        self._held = threading.Event()
        self.running = Running(self._hold)
        assert self._held.wait(PATIENCE)

    def _hold(self) -> bool:
        assert self.lock.acquire()
        self._held.set()
        assert self.end.wait(PATIENCE)
        held = self.lock.held
        if self.release:
            self.lock.release()
        return held


@pytest.mark.parametrize("often", [1, 2])
def test_hazard_B38_a_thread_that_has_ended_holds_no_lock(
    client: Client, caplog: pytest.LogCaptureFixture, often: int
) -> None:
    lock = ReentrantLock(client, OWNED)
    in_a_thread(lambda: [lock.acquire() for _ in range(often)])
    assert lock.acquire(PATIENCE)  # in another thread, by the same object
    warned(caplog, "the thread worker")
    lock.release()
    assert SequentialLock(client, OWNED).acquire(PATIENCE)
    assert len(client.get_children(OWNED)) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_threads_that_a_fork_ends_have_not_ended(client: Client) -> None:
    """They end in the child only, whose copies of the parent's clients must do nothing."""
    holder = Holder(client)
    holder.release = True
    pid = os.fork()
    if pid == 0:
        os._exit(bool(client._driver.background_tasks))
    assert os.waitpid(pid, 0)[1] == 0
    client.sync()
    holder.end.set()
    assert holder.running.result() is True


# --- tasks that have ended ------------------------------------------------------------------------


async def test_hazard_B38_a_task_that_has_ended_holds_no_lock(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """As the one that `asyncio.wait_for` makes up to Python 3.11."""

    async def again() -> bool:
        return await lock.acquire() and await lock.acquire()

    async with AsyncClient(server.hosts) as client:
        lock = AsyncReentrantLock(client, OWNED)
        for acquiring in (lock.acquire(), again()):
            await asyncio.create_task(acquiring, name="worker")
            async with asyncio.timeout(PATIENCE), lock:
                assert len(await client.get_children(OWNED)) == 1
    warned(caplog, "the task worker")


@pytest.mark.parametrize("kind", [AsyncReentrantLock, AsyncSequentialLock])
async def test_a_task_that_is_collected_in_another_thread_holds_no_lock(
    server: Server,
    kind: type[AsyncReentrantLock | AsyncSequentialLock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # the task dies of its clean-up

    async def hold() -> None:
        async with kind(client, OWNED):
            held.set()
            await asyncio.get_running_loop().create_future()  # which nothing else refers to

    held = asyncio.Event()
    async with AsyncClient(server.hosts) as client:
        asyncio.get_running_loop().create_task(hold())
        await held.wait()
        await blocking(gc.collect)
        assert await AsyncSequentialLock(client, OWNED).acquire(PATIENCE)
    assert "was destroyed but it is pending" in str(complaints().take())


# --- close to the recursion limit -----------------------------------------------------------------

FRAMES = 120  # more than any call of a lock needs


def left(server: Server) -> list[str]:
    """The nodes of sessions."""
    return [path for path, node in list(server.tree.nodes.items()) if node.ephemeral_owner]


def above() -> range:
    """How many frames to put on the stack, so that fewer and fewer of FRAMES are left."""
    depth, frame = 0, inspect.currentframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit() - depth
    return range(limit - FRAMES, limit)


@pytest.fixture
def no_finalizers() -> Iterator[None]:
    """What one says on a full stack reaches nobody, and pytest cannot take it in."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_finalizers")
@pytest.mark.parametrize("kind", LOCKS)
@both
async def test_a_lock_used_at_any_depth_leaves_nothing(
    side: Side, server: Server, kind: str
) -> None:
    failed = [0, 0]

    async def deep(frames: int, call: Callable[[], Any]) -> Any:
        """The result of the call, made below so many frames."""
        return await (deep(frames - 1, call) if frames else call())

    def deep_here(frames: int, call: Callable[[], Any]) -> Any:
        return deep_here(frames - 1, call) if frames else call()

    async def all_gone() -> None:
        while left(server):
            await done(owner.exists("/"))  # the client does it now, or with its heartbeat

    async with using(side.Client(server.hosts)) as owner:
        lock = side.lock(kind, owner, "/locks/l")
        async with entered(lock):  # what is imported or made once is there
            pass
        for frames in above():
            try:
                assert await done((deep if side.asyncio else deep_here)(frames, lock.acquire))
            except RecursionError:
                failed[0] += 1
                assert not lock.held
                await all_gone()
                assert await done(lock.acquire(PATIENCE))
            try:
                await done((deep if side.asyncio else deep_here)(frames, lock.release))
            except RecursionError:
                failed[1] += 1
                if lock.held:  # it has not begun
                    await done(lock.release())
            assert not lock.held
            await all_gone()
    assert all(5 < count < FRAMES - 5 for count in failed), failed


SHORT = 0.05  # seconds that pass
LONGEST = 30.0  # seconds that must not
all_kinds = pytest.mark.parametrize("kind", LOCKS)


def client_of(side: Side, hosts: str, limit: float | None = None) -> Any:
    """A client that is not connected before it is used."""
    return using(side.Client(hosts, session_timeout=LONGEST, operation_timeout=limit))


def lock_of(side: Side, kind: str, client: Any) -> Any:
    """A lock on a path where there is what it needs."""
    return side.lock(kind, client, "/single" if "blocking" in kind else "/a")


class Stall:
    """A server whose disk stands still: while it does, pings are answered and nothing else is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[tuple[Connection, Request]] | None = None

    def serve(self, connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            with self._lock:
                if self._held is None:
                    connection.answer(request)
                else:
                    self._held.append((connection, request))

    def begin(self) -> None:
        with self._lock:
            self._held = []

    def end(self) -> None:
        """Answer all that has come meanwhile."""
        with self._lock:
            for connection, request in self._held or ():
                with contextlib.suppress(GoneError):
                    connection.answer(request)
                    connection.flush()
            self._held = None


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a server that says nothing."""
    with FakeServer(silent) as server:
        yield server.hosts


@pytest.fixture
def stall() -> Stall:
    return Stall()


@pytest.fixture
def stalling(stall: Stall) -> Iterator[FakeServer]:
    with FakeServer(stall.serve) as server:
        for path in ("/a", "/a-other", "/a/locks", "/a/leases"):
            server.nodes[path] = Node(b"1", 1)
        try:
            yield server
        finally:
            stall.end()


async def all_gone(server: FakeServer, stall: Stall) -> None:
    """The server goes on, and no node of a lock is left."""
    stall.end()
    await eventually("none is left", lambda: not [n for n in server.nodes.values() if n.owner])


async def refusal(lock: Any, timeout: float | None) -> OperationTimeoutError:
    """What is raised where the lock cannot be entered in time."""
    with pytest.raises(OperationTimeoutError) as caught:
        async with entered(lock if timeout is None else lock.within(timeout)):
            pytest.fail("the body runs")
    return caught.value


async def out_of_time(function: Callable[..., Any], *arguments: Any) -> Any:
    with pytest.raises(OperationTimeoutError) as caught:
        await done(function(*arguments))
    return caught.value


@all_kinds
@both
async def test_hazard_B26_B40_without_a_server_no_acquire_succeeds_in_time(
    side: Side, nobody: str, kind: str
) -> None:
    async with client_of(side, nobody, SHORT) as client:
        lock = lock_of(side, kind, client)
        for timeout in (SHORT, 0):
            assert await done(lock.acquire(timeout)) is False
            assert not isinstance(await refusal(lock, timeout), LockTakenError)
        if kind != "re-entrant":
            await out_of_time(lock.try_acquire)
        if kind == "non-blocking":
            await out_of_time(lock.acquire)
            assert not isinstance(await refusal(lock, None), LockTakenError)


@all_kinds
@both
async def test_hazard_B39_a_release_that_nobody_confirms_goes_on(
    side: Side, stalling: FakeServer, stall: Stall, kind: str
) -> None:
    async with client_of(side, stalling.hosts) as client:
        lock = lock_of(side, kind, client)
        assert await done(lock.acquire(LONGEST))
        stall.begin()
        assert (await out_of_time(lock.release, SHORT)).maybe_applied
        assert not lock.held
        assert not lock.lost.is_set()
        with pytest.raises(RuntimeError):
            await done(lock.release())
        await all_gone(stalling, stall)
        assert await done(lock.acquire(LONGEST))


@both
async def test_who_is_there_is_asked_within_the_operation_timeout(side: Side, nobody: str) -> None:
    async with client_of(side, nobody, SHORT) as client:
        election = side.Election(client, "/a")
        questions = [election.candidates, election.leader]
        questions += [side.Semaphore(client, "/a", 1).holders]
        questions += [side.ReadWriteLock(client, "/a").contenders]
        for question in questions:
            await out_of_time(question)
