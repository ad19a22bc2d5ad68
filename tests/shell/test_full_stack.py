"""A lock that is used close to the recursion limit leaves nothing behind, at whatever depth."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkwire
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import AsyncClient, Client
from zkwire.testing import Server

FRAMES = 120  # more than any call of a lock needs
PATH = "/locks/l"

KINDS: dict[str, Callable[[Callable[[str], Any]], Any]] = {
    "non-blocking": lambda new: new("NonBlockingLock")(PATH),
    "blocking": lambda new: new("BlockingLock")(PATH),
    "sequential": lambda new: new("SequentialLock")(PATH),
    "re-entrant": lambda new: new("ReentrantLock")(PATH),
    "read": lambda new: new("ReadWriteLock")(PATH).read,
    "write": lambda new: new("ReadWriteLock")(PATH).write,
    "lease": lambda new: new("Semaphore")(PATH, 1).lease(),
    "several": lambda new: new("MultiLock")(),
}


def lock_of(kind: str, client: Client | AsyncClient) -> Any:
    prefix = "Async" if isinstance(client, AsyncClient) else ""

    def new(name: str) -> Any:
        make = getattr(zkwire, prefix + name)
        if name == "MultiLock":
            parts = ("SequentialLock", "BlockingLock")
            return lambda: make(
                *(getattr(zkwire, prefix + part)(client, f"{PATH}-{part}") for part in parts)
            )
        return lambda *rest: make(client, *rest)

    return KINDS[kind](new)


def left(server: Server) -> list[str]:
    """The nodes of sessions."""
    return [path for path, node in list(server.tree.nodes.items()) if node.ephemeral_owner]


def deep(frames: int, call: Callable[[], Any]) -> Any:
    """The result of the call, made below so many frames."""
    return deep(frames - 1, call) if frames else call()


async def adeep(frames: int, call: Callable[[], Any]) -> Any:
    """The same of a coroutine function."""
    return await (adeep(frames - 1, call) if frames else call())


def above() -> range:
    """How many frames to put on the stack, so that fewer and fewer of FRAMES are left."""
    depth, frame = 0, inspect.currentframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit() - depth
    return range(limit - FRAMES, limit)


def all_gone(server: Server) -> None:
    poll("nothing is left", lambda: not left(server) or None, PATIENCE)


@pytest.fixture(autouse=True)
def no_finalizers() -> Iterator[None]:
    """What one says on a full stack reaches nobody, and pytest cannot take it in."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_used_at_any_depth_leaves_nothing(server: Server, kind: str) -> None:
    failed = [0, 0]
    with Client(server.hosts) as client:
        lock = lock_of(kind, client)
        with lock:  # what is imported or made once is there
            pass
        for frames in above():
            try:
                assert deep(frames, lock.acquire)
            except RecursionError:
                failed[0] += 1
                assert not lock.held
                all_gone(server)
                assert lock.acquire(PATIENCE)
            try:
                deep(frames, lock.release)
            except RecursionError:
                failed[1] += 1
                if lock.held:  # it has not begun
                    lock.release()
            assert not lock.held
            all_gone(server)
    assert all(5 < count < FRAMES - 5 for count in failed)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_asyncio_lock_used_at_any_depth_leaves_nothing(server: Server, kind: str) -> None:
    failed = [0, 0]

    async def all_gone() -> None:
        while left(server):
            await client.exists("/")  # the client does it now, or with its next heartbeat

    async with AsyncClient(server.hosts) as client:
        lock = lock_of(kind, client)
        async with lock:
            pass
        for frames in above():
            try:
                assert await adeep(frames, lock.acquire)
            except RecursionError:
                failed[0] += 1
                assert not lock.held
                await all_gone()
                assert await lock.acquire(PATIENCE)
            try:
                await adeep(frames, lock.release)
            except RecursionError:
                failed[1] += 1
                if lock.held:
                    await lock.release()
            assert not lock.held
            await all_gone()
    assert all(5 < count < FRAMES - 5 for count in failed)
