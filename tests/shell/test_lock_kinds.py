"""All kinds of locks: cancelled, refused, at any depth of the stack, within a time limit.

With the hazards that need bytes, threads or a server's fault; other rows of the table have a
``test_known_<row>_...`` or a ``test_hazard_<row>_...`` elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any

import pytest

from tests.shell.test_client_threads import in_child
from tests.support.aio_helpers import blocking, complaints, eventually
from tests.support.both_clients import LOCKS, Side, both, done, entered, result, using
from tests.support.fake_server import FakeServer, silent
from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Running,
    Stage,
    answers,
    holding,
    make_path,
    meaning,
    requests,
    single_kinds,
    wait_until_waiting,
    waiting_kinds,
)
from tests.support.real_servers import EmbeddedServer
from tests.support.server_control import Backend, Settings, poll
from zkwire import (
    ACL,
    AsyncClient,
    AsyncReentrantLock,
    AsyncSequentialLock,
    Check,
    Client,
    Election,
    Id,
    LockCancelledError,
    LockLostError,
    LockTakenError,
    NoAuthError,
    NodeExistsError,
    OperationTimeoutError,
    Perms,
    ReentrantLock,
    SequentialLock,
    SetData,
    testing,
)
from zkwire.recipes.locks import GRANTS
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, cut_after, hold
from zkwire.wire.ops import NOTIFICATION_XID

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


@both
async def test_a_contender_is_told_how_many_are_ahead(side: Side, server: Server) -> None:
    async with using(side.Client(server.hosts)) as client:
        first, second, last = (side.lock("sequential", client, "/lock") for _ in range(3))
        await done(first.acquire())
        told: list[int] = []
        leaves = side.start(second.acquire)
        await eventually("it stands in the queue", lambda: len(paths(server)) == 2)
        waiting = side.start(partial(last.acquire, on_position=told.append))
        await eventually("it is told", lambda: told == [2])
        assert second.cancel()
        with pytest.raises(LockCancelledError):
            await result(leaves)
        await eventually("it is told again", lambda: told == [2, 1])
        await done(first.release())
        assert await result(waiting)
        await eventually("it is told the last time", lambda: told == [2, 1, 0])
        await done(last.release())


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


def test_a_thread_that_reads_for_its_own_acquisition_is_cancelled(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, Client(proxy.hosts, session_timeout=99.0) as client:
        lock, gate = SequentialLock(client, "/a"), Gate()
        proxy.on("create2", action=hold(gate), reply=True)
        acquiring = Running(lock.acquire)
        gate.wait_reached()
        assert lock.cancel()
        with pytest.raises(LockCancelledError):
            acquiring.result(PATIENCE)
        gate.release()


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
    ("multi", "/a/a-lock-0000000000"),
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


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_hazard_B36_D13_300_locks_on_300_paths_leave_no_node(backend: Backend) -> None:
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
    lock, acquired, end = ReentrantLock(client, OWNED), threading.Event(), threading.Event()

    def hold() -> bool:
        with lock:
            acquired.set()
            assert end.wait(PATIENCE)
            return lock.held

    holder = Running(hold)
    assert acquired.wait(PATIENCE)
    in_child(lambda: os._exit(bool(client._driver.background_tasks)))
    client.sync()
    end.set()
    assert holder.result() is True


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
        latest = monotonic() + LONGEST
        while left(server):
            assert monotonic() < latest
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


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a server that says nothing."""
    with FakeServer(silent) as server:
        yield server.hosts


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
    side: Side, server: Server, kind: str
) -> None:
    """Its server's disk stands still."""
    gate = Gate()
    with FaultProxy(server.hosts) as proxy:
        async with client_of(side, proxy.hosts) as client:
            lock = lock_of(side, kind, client)
            assert await done(lock.acquire(LONGEST))
            proxy.rule(lambda frame: None if frame.number is None else hold(gate))
            assert (await out_of_time(lock.release, SHORT)).maybe_applied
            assert not lock.held
            assert not lock.lost.is_set()
            with pytest.raises(RuntimeError):
                await done(lock.release())
            gate.release()
            await eventually("none is left", lambda: not left(server))
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


class EmbeddedStage(Stage):
    """A stage whose server is the embedded one, so that a test can also be the server's fault."""

    def __init__(self, embedded: testing.Server) -> None:
        self.embedded = embedded
        super().__init__(EmbeddedServer(embedded, lambda: None))


@pytest.fixture(scope="module")
def embedded() -> Iterator[testing.Server]:
    """A server in this process, whatever the other tests run on."""
    with testing.Server(tick=0.2, timeouts=(0.1, 60.0)) as server:
        yield server


@pytest.fixture
def stage(embedded: testing.Server) -> Iterator[EmbeddedStage]:
    """That server behind a proxy, and nothing left on it but what a test has left by intent."""
    with EmbeddedStage(embedded) as stage:
        yield stage
    embedded.clear()


# --- the session ----------------------------------------------------------------------------------


def test_hazard_A26_D11_a_contended_acquire_inside_a_callback(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    make_path(stage.observer, f"{fresh_path}-watched")
    client, results = stage.client(), list[bool]()
    rival, lock = (Election(each, fresh_path).lead() for each in (stage.observer, client))
    client.get_data(f"{fresh_path}-watched", watch=lambda _: results.append(lock.acquire(PATIENCE)))
    with holding(rival):
        stage.observer.set_data(f"{fresh_path}-watched", b"go")
        wait_until_waiting(stage)
        assert results == []
    soon("the callback has got it", lambda: results == [True], PATIENCE)
    lock.release()


def test_hazard_A35_a_sync_counts_only_on_the_connection_of_its_listing(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The session moves between the two, so the sync is asked for again before the listing."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    stage.proxy.on("get_children", nth=2, action=cut_after)
    assert lock.acquire(PATIENCE)
    looked = [f for f in requests(stage.proxy.frames()) if f.op in ("sync", "get_children")]
    last = looked[-1]
    assert [f.op for f in looked if f.connection == last.connection] == ["sync", "get_children"]
    lock.release()


@waiting_kinds
def test_hazard_B13_the_event_comes_in_one_piece_with_the_reply(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    gate, lock, rival = Gate(), stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    stage.proxy.on("get_data", action=hold(gate), reply=True)
    with holding(rival):
        waiter = Running(lock.acquire)
        gate.wait_reached()
    # Behind the delete's answer the event stands in line behind the reply that is held.
    stage.proxy.wait_for(lambda frames: any(f.xid == NOTIFICATION_XID for f in frames))
    gate.release()
    assert waiter.result(GRACE)
    lock.release()


JUNK = ["hello", "x-12", "__lock__", "\u0660" * 10, "lock--000000001"]


@pytest.mark.parametrize("name", ["_c_3f25-lock-", "3f25__lock__", "x-72057594037927936-", "n"])
def test_hazard_A45_B17_B29_whose_node_stands_ahead_is_waited_for(
    stage: EmbeddedStage, fresh_path: str, name: str
) -> None:
    """Contenders of other libraries count, and a node that outlives its session, whatever of it.

    Children that are no contenders do not, nor does the lock touch them.
    """
    make_path(stage.observer, fresh_path)
    for junk in JUNK:
        stage.observer.create(f"{fresh_path}/{junk}")
    node = stage.observer.create(f"{fresh_path}/{name}", ephemeral=True, sequential=True)
    if name == "n":  # of a session that there is not any more
        tree = stage.embedded.tree
        tree._of_session[0x123456789] = {node: tree._of_session[tree.nodes[node].owner].pop(node)}
        tree.nodes[node].owner = 0x123456789
    lock = stage.lock(SequentialLock, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    assert not lock.held
    stage.observer.delete(node)
    assert waiter.result(GRACE)
    lock.release()
    assert {*stage.observer.get_children(fresh_path)} == {*JUNK}


# --- one node -------------------------------------------------------------------------------------


@single_kinds
@pytest.mark.parametrize("successor", ["a lock", "by hand"])
def test_hazard_C10_a_release_whose_node_somebody_has_deleted(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, successor: str
) -> None:
    """The event is on its way still: only the server knows whose node it is."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")), PATIENCE)
    stage.proxy.on("notification", action=hold(gate))
    stage.observer.delete(fresh_path)
    if successor == "a lock":
        assert rival.acquire(GRACE)
    else:
        stage.observer.create(fresh_path, ephemeral=True)
    node = stage.observer.exists(fresh_path)
    gate.wait_reached()
    releasing = Running(lock.release)
    stage.proxy.wait_for(lambda seen: any(meaning(f) == "delete" for f in requests(seen)), PATIENCE)
    gate.release()
    with pytest.raises(LockLostError):
        releasing.result()
    assert stage.observer.exists(fresh_path) == node
    soon("no token stays", lambda: len(stage.nodes(fresh_path + GRANTS)) == rival.held, PATIENCE)
    with pytest.raises(RuntimeError):
        lock.guard([])


@single_kinds
def test_hazard_C10_a_grant_beside_the_token_of_an_earlier_one(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Not before that token is gone, by which a late release would hit the node."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert rival.acquire(GRACE)
    stage.observer.delete(fresh_path)
    stage.proxy.on("get_children", action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    with suppress(LockLostError):
        rival.release()
    gate.release()
    assert acquiring.result()
    assert lock.held
    assert lock.guard([Check(fresh_path)]) == [None]
    lock.release()


@pytest.mark.parametrize("kind", ["sequential", "lease"])
def test_hazard_B8_D7_E5_the_node_of_a_dead_session_is_not_ones_own(
    stage: EmbeddedStage, fresh_path: str, kind: str
) -> None:
    """A client is cut off while it holds, and the program begins anew."""
    first, lock_of = stage.client(), Side("").lock
    assert lock_of(kind, first, fresh_path).acquire(GRACE)
    abandoned = first.session_id
    stage.proxy.black_hole()
    first.close()
    again = lock_of(kind, stage.client(direct=True), fresh_path)
    assert not again.acquire(0.1)
    waiter = Running(lambda: again.acquire(PATIENCE))
    queue, length = (f"{fresh_path}/locks", 1) if kind == "lease" else (fresh_path, 2)
    soon("it queues", lambda: len(stage.nodes(queue)) == length, PATIENCE)
    assert not again.held
    assert stage.embedded.expire(abandoned)
    assert waiter.result()
    stat = stage.observer.exists(again.node)
    assert stat is not None
    assert stat.czxid == again.fence
    again.release()
