"""A lock that is used close to the recursion limit leaves nothing behind, at whatever depth."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.both_clients import LOCKS, Side, both, done, entered, using
from tests.support.lock_helpers import PATIENCE
from zkwire.testing import Server

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


@pytest.fixture(autouse=True)
def no_finalizers() -> Iterator[None]:
    """What one says on a full stack reaches nobody, and pytest cannot take it in."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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
            await done(client.exists("/"))  # the client does it now, or with its heartbeat

    async with using(side.Client(server.hosts)) as client:
        lock = side.lock(kind, client, "/locks/l")
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
