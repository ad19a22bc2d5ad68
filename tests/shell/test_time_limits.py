"""One rule of time limits for every kind of lock, for threads and for asyncio.

What runs out of time in `acquire(timeout)` is False, in anything else an OperationTimeoutError, and
a release tells a lock that is free from one that is lost and one of which nobody knows. A scenario
is one coroutine for both: with a `Client` it never suspends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

import zkwire
from tests.support.fake_server import Connection, FakeServer, GoneError, Node, Request, silent
from zkwire import (
    LockLostError,
    LockTakenError,
    LockTimeoutError,
    NotSentError,
    OperationTimeoutError,
    SetData,
    State,
    UnreachableError,
)
from zkwire.blocking.sync import run

SHORT = 0.05  # seconds that pass
LONG = 30.0  # seconds that must not
KINDS = (
    *("non-blocking", "blocking", "sequential", "read", "write", "lease", "multi", "re-entrant"),
    "leadership",
)
QUEUES = ("sequential", "read", "write", "lease", "leadership")
all_kinds = pytest.mark.parametrize("kind", KINDS)


class Side:
    """Threads or asyncio: how a scenario runs and what it calls."""

    def __init__(self, name: str) -> None:
        self._prefix = "Async" if name == "asyncio" else ""

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        if self._prefix:
            asyncio.run(scenario)
        else:
            run(scenario)

    def made(self, name: str, *arguments: Any, **options: Any) -> Any:
        """A lock or a client of this side."""
        return getattr(zkwire, self._prefix + name)(*arguments, **options)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    async def wait_for(self, server: FakeServer, predicate: Callable[[], object]) -> None:
        if self._prefix:
            await asyncio.to_thread(server.wait_for, predicate)
        else:
            server.wait_for(predicate)

    @contextlib.asynccontextmanager
    async def entered(self, manager: Any) -> AsyncIterator[Any]:
        """The body of a `with`, or of an `async with`."""
        if self._prefix:
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value

    @contextlib.asynccontextmanager
    async def client(self, hosts: str, limit: float | None = None) -> AsyncIterator[Any]:
        """A client that is closed at the end, and not connected before it is used."""
        client = self.made("Client", hosts, session_timeout=LONG, operation_timeout=limit)
        try:
            yield client
        finally:
            await self.call(client.close)

    def lock(self, kind: str, client: Any) -> Any:
        match kind:
            case "non-blocking":
                return self.made("NonBlockingLock", client, "/single")
            case "blocking":
                return self.made("BlockingLock", client, "/single")
            case "sequential":
                return self.made("SequentialLock", client, "/queue")
            case "read" | "write":
                return getattr(self.made("ReadWriteLock", client, "/queue"), kind)
            case "lease":
                return self.made("Semaphore", client, "/semaphore", 1).lease()
            case "multi":
                paths = ("/queue", "/second")
                locks = [self.made("SequentialLock", client, path) for path in paths]
                return self.made("MultiLock", *locks)
            case "re-entrant":
                return self.made("ReentrantLock", client, "/queue")
            case _:
                return self.made("Election", client, "/queue").lead()


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


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest) -> Side:
    return Side(request.param)


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a server that says nothing."""
    with FakeServer(silent) as server:
        yield server.hosts


@pytest.fixture
def stall() -> Stall:
    return Stall()


@pytest.fixture
def server(stall: Stall) -> Iterator[FakeServer]:
    with FakeServer(stall.serve) as server:
        for path in ("/queue", "/second", "/semaphore/locks", "/semaphore/leases"):
            server.nodes[path] = Node(b"", 1)
        server.nodes["/semaphore"] = Node(b"1", 1)
        try:
            yield server
        finally:
            stall.end()


def nodes_of_locks(server: FakeServer) -> list[str]:
    return [path for path, node in server.nodes.items() if node.owner]


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, which its side runs."""

    @functools.wraps(test)
    def synchronous(side: Side, **named: Any) -> None:
        side.run(test(side, **named))

    return synchronous


async def refusal(side: Side, lock: Any, timeout: float) -> OperationTimeoutError:
    """What is raised where the lock cannot be entered in time."""
    with pytest.raises(OperationTimeoutError) as caught:
        async with side.entered(lock.within(timeout)):
            pytest.fail("the body runs")
    return caught.value


async def seen_taken(side: Side, lock: Any) -> LockTimeoutError:
    """What is raised where another contender was seen to have the lock."""
    for timeout in (SHORT, 20 * SHORT, LONG):  # on a busy machine no answer may come in the first
        error = await refusal(side, lock, timeout)
        if isinstance(error, LockTimeoutError):
            break
    assert isinstance(error, LockTimeoutError)
    return error


# --- to acquire -----------------------------------------------------------------------------------


@all_kinds
@scenario
async def test_hazard_B40_without_a_server_no_acquire_succeeds_in_time(
    side: Side, nobody: str, kind: str
) -> None:
    async with side.client(nobody, SHORT) as client:
        lock = side.lock(kind, client)
        assert await side.call(lock.acquire, SHORT) is False
        assert await side.call(lock.acquire, 0) is False
        for timeout in (SHORT, 0):
            assert not isinstance(await refusal(side, lock, timeout), LockTakenError)
        if kind != "re-entrant":
            with pytest.raises(OperationTimeoutError):
                await side.call(lock.try_acquire)


@all_kinds
@scenario
async def test_a_lock_that_others_hold_is_not_acquired_in_time(
    side: Side, server: FakeServer, kind: str
) -> None:
    async with side.client(server.hosts) as rival, side.client(server.hosts) as client:
        assert await side.call(side.lock(kind, rival).acquire)
        await side.call(client.connect, LONG)
        lock = side.lock(kind if kind != "read" else "write", client)
        for timeout in (SHORT, 0):
            assert await side.call(lock.acquire, timeout) is False
        await seen_taken(side, lock)
        assert isinstance(await refusal(side, lock, 0), LockTimeoutError)
        if kind != "re-entrant":
            assert await side.call(lock.try_acquire) is False


@all_kinds
@scenario
async def test_a_lock_that_is_free_is_entered_in_time(
    side: Side, server: FakeServer, kind: str
) -> None:
    async with side.client(server.hosts) as client:
        await side.call(client.connect)
        lock = side.lock(kind, client)
        for timeout in (LONG, 0):
            async with side.entered(lock.within(timeout)) as entered:
                assert entered is lock
                assert lock.held
            assert not lock.held
        assert nodes_of_locks(server) == []


@all_kinds
@scenario
async def test_one_try_on_a_server_that_stands_still_ends(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with side.client(server.hosts, SHORT) as client:
        await side.call(client.connect, LONG)
        lock = side.lock(kind, client)
        stall.begin()
        assert await side.call(lock.acquire, 0) is False
        if kind != "re-entrant":
            with pytest.raises(OperationTimeoutError):
                await side.call(lock.try_acquire)
        stall.end()
        await side.wait_for(server, lambda: not nodes_of_locks(server))


@scenario
async def test_one_try_without_a_limit_raises_when_no_server_tells(side: Side, nobody: str) -> None:
    async with side.client(nobody, SHORT) as client:
        lock = side.lock("non-blocking", client)
        with pytest.raises(OperationTimeoutError):
            await side.call(lock.acquire)
        with pytest.raises(OperationTimeoutError) as caught:
            async with side.entered(lock):
                pytest.fail("the body runs")
        assert not isinstance(caught.value, LockTakenError)


@scenario
async def test_a_semaphore_is_full_or_nobody_knows(
    side: Side, nobody: str, server: FakeServer
) -> None:
    async with side.client(nobody) as client:
        semaphore = side.made("Semaphore", client, "/semaphore", 1)
        for timeout in (SHORT, 0):
            assert not isinstance(await refusal(side, semaphore.lease(), timeout), LockTakenError)
    async with side.client(server.hosts) as rival, side.client(server.hosts) as client:
        semaphore = side.made("Semaphore", client, "/semaphore", 1)
        async with side.entered(semaphore.lease().within(LONG)) as lease:
            assert lease.held
        assert await side.call(side.lock("lease", rival).acquire)
        for error in (
            await seen_taken(side, semaphore.lease()),
            await refusal(side, semaphore.lease(), 0),
        ):
            assert isinstance(error, LockTimeoutError)
            assert "none of 1 leases was free in time" in str(error)


@scenario
async def test_to_connect_is_not_sent_and_out_of_time(side: Side, nobody: str) -> None:
    async with side.client(nobody) as client:
        with pytest.raises(UnreachableError) as caught:
            await side.call(client.connect, SHORT)
        assert isinstance(caught.value, NotSentError)
        assert isinstance(caught.value, TimeoutError)
        assert not caught.value.maybe_applied


# --- to release -----------------------------------------------------------------------------------


@all_kinds
@scenario
async def test_hazard_B39_a_release_that_nobody_confirms_goes_on(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with side.client(server.hosts) as client:
        lock = side.lock(kind, client)
        assert await side.call(lock.acquire, LONG)
        stall.begin()
        with pytest.raises(OperationTimeoutError) as caught:
            await side.call(lock.release, SHORT)
        assert caught.value.maybe_applied
        assert not lock.held
        assert not lock.lost.is_set()
        with pytest.raises(RuntimeError):
            await side.call(lock.release)
        stall.end()
        await side.wait_for(server, lambda: not nodes_of_locks(server))
        assert await side.call(lock.acquire, LONG)


async def body(side: Side, lock: Any, stall: Stall, error: type[Exception]) -> None:
    async with side.entered(lock.within(LONG)):
        stall.begin()
        if error is LookupError:
            raise LookupError("of the body")


@all_kinds
@scenario
async def test_the_end_of_a_body_knows_the_operation_timeout(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with side.client(server.hosts, SHORT) as client:
        for error in (OperationTimeoutError, LookupError):
            lock = side.lock(kind, client)
            with pytest.raises(error):
                await body(side, lock, stall, error)
            assert not lock.held
            stall.end()
            await side.wait_for(server, lambda: not nodes_of_locks(server))


@pytest.mark.parametrize("kind", ["blocking", "multi"])  # a close takes a second then
@scenario
async def test_a_release_without_a_connection_is_in_doubt(
    side: Side, server: FakeServer, kind: str
) -> None:
    async with side.client(server.hosts) as client:
        lock = side.lock(kind, client)
        assert await side.call(lock.acquire, LONG)
        server.stop_listening()
        server.reset_all()
        await side.call(client.wait_for_state, State.DISCONNECTED)
        with pytest.raises(OperationTimeoutError) as caught:
            await side.call(lock.release, SHORT)
        assert caught.value.maybe_applied
        assert not lock.held


@scenario
async def test_a_lost_part_of_several_is_told_before_a_doubt(
    side: Side, server: FakeServer, stall: Stall
) -> None:
    async with side.client(server.hosts) as client:
        both = side.lock("multi", client)
        assert await side.call(both.acquire, LONG)
        both.locks[0].lost._lose("somebody has deleted it")
        stall.begin()
        with pytest.raises(LockLostError):
            await side.call(both.release, SHORT)
        stall.end()


# --- to ask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", QUEUES)
@scenario
async def test_what_a_holder_asks_knows_the_operation_timeout(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with side.client(server.hosts, SHORT) as client:
        lock = side.lock(kind, client)
        assert await side.call(lock.acquire, LONG)
        stall.begin()
        with pytest.raises(OperationTimeoutError) as caught:
            await side.call(lock.guard, [SetData("/queue", b"new")])
        assert caught.value.maybe_applied
        with pytest.raises(OperationTimeoutError):
            await side.call(lock.contenders)
        assert lock.held
        stall.end()


@scenario
async def test_who_is_there_is_asked_within_the_operation_timeout(side: Side, nobody: str) -> None:
    async with side.client(nobody, SHORT) as client:
        election = side.made("Election", client, "/queue")
        for question in (
            election.candidates,
            election.leader,
            side.made("Semaphore", client, "/semaphore", 1).holders,
            side.made("ReadWriteLock", client, "/queue").contenders,
        ):
            with pytest.raises(OperationTimeoutError):
                await side.call(question)
