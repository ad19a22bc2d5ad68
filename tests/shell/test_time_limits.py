"""One rule of time limits for every kind of lock, for threads and for asyncio.

What runs out of time in `acquire(timeout)` is False, in anything else an OperationTimeoutError, and
a release tells a lock that is free from one that is lost and one of which nobody knows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.aio_helpers import eventually
from tests.support.both_clients import LOCKS, Side, both, done, entered, using
from tests.support.fake_server import Connection, FakeServer, GoneError, Node, Request, silent
from zkwire import (
    LockTakenError,
    LockTimeoutError,
    OperationTimeoutError,
)

SHORT = 0.05  # seconds that pass
LONG = 30.0  # seconds that must not
all_kinds = pytest.mark.parametrize("kind", LOCKS)


def client_of(side: Side, hosts: str, limit: float | None = None) -> Any:
    """A client that is not connected before it is used."""
    return using(side.Client(hosts, session_timeout=LONG, operation_timeout=limit))


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
def server(stall: Stall) -> Iterator[FakeServer]:
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


async def seen_taken(lock: Any) -> LockTimeoutError:
    """What is raised where another contender was seen to have the lock."""
    for timeout in (SHORT, 20 * SHORT, LONG):  # on a busy machine no answer may come in the first
        error = await refusal(lock, timeout)
        if isinstance(error, LockTimeoutError):
            break
    assert isinstance(error, LockTimeoutError)
    return error


async def out_of_time(function: Callable[..., Any], *arguments: Any) -> Any:
    with pytest.raises(OperationTimeoutError) as caught:
        await done(function(*arguments))
    return caught.value


# --- to acquire -----------------------------------------------------------------------------------


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
async def test_a_lock_is_entered_in_time_if_it_is_free_and_only_then(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with client_of(side, server.hosts) as rival, client_of(side, server.hosts) as client:
        await done(client.connect(LONG))
        lock = lock_of(side, kind, client)
        for limit in (LONG, 0):
            async with entered(lock.within(limit)) as inside:
                assert inside is lock
                assert lock.held
            assert not lock.held
        await all_gone(server, stall)
        assert await done(lock_of(side, kind, rival).acquire())
        lock = lock_of(side, kind if kind != "read" else "write", client)
        for limit in (SHORT, 0):
            assert await done(lock.acquire(limit)) is False
        for error in (await seen_taken(lock), await refusal(lock, 0)):
            assert isinstance(error, LockTimeoutError)
            assert kind != "lease" or "none of 1 leases was free in time" in str(error)
        if kind != "re-entrant":
            assert await done(lock.try_acquire()) is False


# --- to release -----------------------------------------------------------------------------------


@all_kinds
@both
async def test_hazard_B39_a_release_that_nobody_confirms_goes_on(
    side: Side, server: FakeServer, stall: Stall, kind: str
) -> None:
    async with client_of(side, server.hosts) as client:
        lock = lock_of(side, kind, client)
        assert await done(lock.acquire(LONG))
        stall.begin()
        assert (await out_of_time(lock.release, SHORT)).maybe_applied
        assert not lock.held
        assert not lock.lost.is_set()
        with pytest.raises(RuntimeError):
            await done(lock.release())
        await all_gone(server, stall)
        assert await done(lock.acquire(LONG))


# --- to ask ---------------------------------------------------------------------------------------


@both
async def test_who_is_there_is_asked_within_the_operation_timeout(side: Side, nobody: str) -> None:
    async with client_of(side, nobody, SHORT) as client:
        election = side.Election(client, "/a")
        questions = [election.candidates, election.leader]
        questions += [side.Semaphore(client, "/a", 1).holders]
        questions += [side.ReadWriteLock(client, "/a").contenders]
        for question in questions:
            await out_of_time(question)
