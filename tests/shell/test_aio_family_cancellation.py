"""Cancellation at every await point for the rest of the family; see test_aio_cancellation.py.

A whole life is run once for each of its suspensions, from the acquisition to the release, and
cancelled there. Whatever happens: nothing is held, no node and no watch stays behind, the
connection is in step, others get the lock, and so does the same object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.shell.test_aio_cancellation import Bed, bed, every_way
from tests.support.aio_helpers import cancelled_at, eventually, every_point, watch_count
from tests.support.lock_helpers import PATIENCE, guards_at_once
from zkwire import (
    AsyncClient,
    AsyncElection,
    AsyncMultiLock,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    AsyncSequentialLock,
    NoNodeError,
    ZooKeeperError,
)
from zkwire.aio.locks import AsyncLease

ways = pytest.mark.parametrize(("how", "cut"), every_way)


# --- the lives ------------------------------------------------------------------------------------


async def entered(lock: Any) -> None:
    """Also what is in the body is cancelled."""
    async with lock:
        assert lock.held
        await asyncio.sleep(0)
        assert lock.held


async def reading(lock: AsyncReadWriteLock) -> None:
    await entered(lock.read)


async def writing(lock: AsyncReadWriteLock) -> None:
    await entered(lock.write)


async def downgraded(lock: AsyncReadWriteLock) -> None:
    assert await lock.write.acquire()
    await read_instead(lock)


async def read_instead(lock: AsyncReadWriteLock) -> None:
    """From the write lock to the read lock, and to the end of that."""
    try:
        try:
            assert await lock.read.acquire()
            assert lock.write.held
        finally:
            await lock.write.release()
        assert lock.read.held
        await asyncio.sleep(0)
    finally:
        if lock.read.held:
            await lock.read.release()


async def leased(semaphore: AsyncSemaphore) -> None:
    async with semaphore.lease() as lease:
        assert lease.held
        await asyncio.sleep(0)


async def twice(lock: AsyncReentrantLock) -> None:
    async with lock:
        async with lock:
            await asyncio.sleep(0)
        assert lock.held


async def led(election: AsyncElection) -> None:
    await entered(election.lead())


def multi_lock(client: AsyncClient, path: str) -> AsyncMultiLock:
    """Of two paths, named in the wrong order."""
    return AsyncMultiLock(*(AsyncSequentialLock(client, f"{path}/{name}") for name in "ba"))


def lease(client: AsyncClient, path: str) -> AsyncLease:
    """A lease that is not taken yet."""
    return AsyncSemaphore(client, path, 1).lease()


def none_held(lock: Any) -> bool:
    """Whatever of it can be asked from another task says that it is not held."""
    parts = [lock.read, lock.write] if isinstance(lock, AsyncReadWriteLock) else [lock]
    return not any(getattr(part, "held", False) for part in parts)


class Subject(NamedTuple):
    """What is cancelled: how it is made, its life, where its nodes are, and who is in its way.

    ``least`` is the number of suspensions that there are at least if it is free, ``guards`` the
    number of its own nodes that it watches when it looks at who is in its way: the one that is
    next, of a multi-lock the first part that it holds as well.
    """

    name: str
    make: Callable[[AsyncClient, str], Any]
    live: Callable[[Any], Awaitable[None]]
    rival: Callable[[AsyncClient, str], Any]
    below: tuple[str, ...] = ("",)
    least: int = 3
    guards: int = 1


SUBJECTS = (
    Subject("read", AsyncReadWriteLock, reading, lambda c, p: AsyncReadWriteLock(c, p).write),
    Subject("write", AsyncReadWriteLock, writing, lambda c, p: AsyncReadWriteLock(c, p).read,
            guards=0),
    Subject("downgrade", AsyncReadWriteLock, downgraded,
            lambda c, p: AsyncReadWriteLock(c, p).write, least=5, guards=0),
    Subject("semaphore", lambda c, p: AsyncSemaphore(c, p, 1), leased, lease,
            ("/leases", "/locks"), 6, 0),
    Subject("multi", multi_lock, entered, lambda c, p: AsyncSequentialLock(c, f"{p}/b"),
            ("/a", "/b"), 5, 2),
    Subject("re-entrant", AsyncReentrantLock, twice, AsyncSequentialLock),
    Subject("election", AsyncElection, led, AsyncSequentialLock),
)  # fmt: skip
SUBJECT = {subject.name: subject for subject in SUBJECTS}
subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


async def prepared(b: Bed, subject: Subject, path: str) -> None:
    for below in subject.below:
        await b.observer.ensure_path(path + below)


async def nodes(b: Bed, subject: Subject, path: str) -> list[str]:
    """The nodes of all contenders."""
    found = []
    for below in subject.below:
        with suppress(NoNodeError):
            found += await b.observer.get_children(path + below)
    return found


async def assert_nothing_left(b: Bed, subject: Subject, made: Any, path: str) -> None:
    assert none_held(made)

    async def no_nodes() -> bool:
        with suppress(ZooKeeperError):
            return not await nodes(b, subject, path)
        return False

    await eventually(f"no node is left on {path}", no_nodes)
    await eventually("no watch is left", lambda: watch_count(b.client) == 0)
    await b.assert_in_step()
    async with asyncio.timeout(PATIENCE):
        await subject.live(subject.make(b.observer, path))
        await subject.live(made)
    assert none_held(made)
    await eventually(f"no node is left on {path}", no_nodes)


# --- cancelled ------------------------------------------------------------------------------------


async def _all_of_a_free_one(subject: Subject, how: str, cut: str, *, there: bool) -> None:
    async with bed() as b:
        points = 0
        for cancelling in every_point(how, b.cutting(cut)):
            path = "/locks/l" if there else f"/l{cancelling.nth}/l"
            if there:
                await prepared(b, subject, path)
            made = subject.make(b.client, path)
            await cancelled_at(subject.live(made), cancelling)
            points += cancelling.happened
            await assert_nothing_left(b, subject, made, path)
        print(f"{points} points")
        assert points >= subject.least


@ways
@subjects
async def test_a_free_one_cancelled_anywhere(subject: Subject, how: str, cut: str) -> None:
    await _all_of_a_free_one(subject, how, cut, there=True)


@ways
@pytest.mark.parametrize("name", ["downgrade", "semaphore", "multi"])
async def test_one_whose_parent_is_missing_cancelled_anywhere(
    name: str, how: str, cut: str
) -> None:
    await _all_of_a_free_one(SUBJECT[name], how, cut, there=False)


async def only_left(b: Bed, subject: Subject, path: str, own: list[str]) -> None:
    """Wait until only the holder's nodes are left."""

    async def only_the_holder() -> bool:
        with suppress(ZooKeeperError):
            return await nodes(b, subject, path) == own
        return False

    await eventually("only the holder's node is left", only_the_holder)


@ways
@subjects
async def test_a_taken_one_cancelled_anywhere(subject: Subject, how: str, cut: str) -> None:
    """The holder gives it up once the waiter has seen it, so that every step is come by."""
    async with bed() as b:
        guards_at_once(b.client)  # their watches are counted
        points = 0
        path = "/locks/l"
        await prepared(b, subject, path)
        for cancelling in every_point(how, b.cutting(cut)):
            rival, made = subject.rival(b.observer, path), subject.make(b.client, path)
            assert await rival.acquire()
            own = await nodes(b, subject, path)
            releasing: list[asyncio.Future[None]] = []
            held_on: list[bool] = []  # whether the rival still had it

            def release(rival: Any = rival, to: Any = releasing, waits: Any = held_on) -> None:
                if watch_count(b.client) > subject.guards and not to:
                    waits.append(rival.held)
                    to.append(asyncio.ensure_future(rival.release()))

            cancelling.also = release
            await cancelled_at(subject.live(made), cancelling)
            assert none_held(made)
            if not releasing:
                await only_left(b, subject, path, own)
                await rival.release()
            await asyncio.gather(*releasing)
            assert all(held_on)
            points += cancelling.happened
            await assert_nothing_left(b, subject, made, path)
            if not cancelling.happened:
                assert releasing
        print(f"{points} points")
        assert points >= subject.least + 2


@ways
async def test_a_downgrade_before_a_writer_cancelled_anywhere(how: str, cut: str) -> None:
    """The writer gets it, and not before the reader has ended."""
    subject = SUBJECT["downgrade"]
    async with bed() as b:
        shared: Any = b.client._driver
        shared.caller = bool  # the same for all: what is cancelled is a task of its own
        path, points = "/l", 0
        for cancelling in every_point(how, b.cutting(cut)):
            pair = AsyncReadWriteLock(b.client, path)
            assert await pair.write.acquire()
            writer = AsyncReadWriteLock(b.observer, path).write
            writing = asyncio.ensure_future(writer.acquire())

            async def queued() -> bool:
                return len(await nodes(b, subject, path)) == 2 and watch_count(b.observer) == 1

            await eventually("the writer queues", queued)

            def together(pair: AsyncReadWriteLock = pair, writer: Any = writer) -> None:
                assert none_held(pair) or not writer.held

            cancelling.also = together
            await cancelled_at(read_instead(pair), cancelling)
            assert none_held(pair)
            async with asyncio.timeout(PATIENCE):
                assert await writing
                await writer.release()
            points += cancelling.happened
            await assert_nothing_left(b, subject, pair, path)
        print(f"{points} points")
        assert points >= 3


async def tried_lease(semaphore: AsyncSemaphore) -> None:
    assert not await semaphore.lease().acquire(0)


async def tried(lock: Any) -> None:
    assert not await lock.try_acquire()


async def tried_read(lock: AsyncReadWriteLock) -> None:
    await tried(lock.read)


TRIES: dict[str, Callable[[Any], Awaitable[None]]] = {
    "read": tried_read,
    "semaphore": tried_lease,
    "multi": tried,
}


@ways
@pytest.mark.parametrize("name", TRIES)
async def test_a_try_on_a_taken_one_cancelled_anywhere(name: str, how: str, cut: str) -> None:
    subject = SUBJECT[name]
    async with bed() as b:
        path = "/locks/l"
        await prepared(b, subject, path)
        points = 0
        for cancelling in every_point(how, b.cutting(cut)):
            rival, made = subject.rival(b.observer, path), subject.make(b.client, path)
            assert await rival.acquire()
            own = await nodes(b, subject, path)
            await cancelled_at(TRIES[name](made), cancelling)
            assert none_held(made)
            await only_left(b, subject, path, own)
            assert rival.held
            await rival.release()
            points += cancelling.happened
            await assert_nothing_left(b, subject, made, path)
        print(f"{points} points")
        assert points >= 1
