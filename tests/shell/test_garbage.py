"""What a call has used is freed when it ends: no circle of references leaves that to the collector.

An error in such a circle keeps its traceback alive, and by that all that its callers had in hand.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from zkwire import (
    AsyncClient,
    BlockingLock,
    Check,
    Client,
    Counter,
    Create,
    Delete,
    MultiError,
    NonBlockingLock,
    NoNodeError,
    Queue,
    SequentialLock,
)
from zkwire.testing import Server


@pytest.fixture
def garbage() -> Iterator[Callable[[], list[str]]]:
    """Which objects of zkwire's the collector finds, instead of freeing them."""

    def found() -> list[str]:
        gc.collect()
        kinds = [type(thing) for thing in gc.garbage]
        names = [kind.__name__ for kind in kinds if kind.__module__.startswith("zkwire.")]
        gc.garbage.clear()
        return names

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def refused(client: Client) -> None:
    with suppress(NoNodeError):
        client.get_data("/missing")


def together(client: Client) -> None:
    with suppress(MultiError):
        client.multi([Create("/a"), Check("/a", 7)])
    client.multi([Create("/a"), Delete("/a")])
    with client.transaction() as t:
        t.create("/a")
        t.delete("/a")


def locked(client: Client) -> None:
    for kind in (SequentialLock, BlockingLock):
        with kind(client, f"/{kind.__name__}"):
            client.sync()  # by now its node is watched
    if client.exists("/taken") is None:
        client.create("/taken", ephemeral=True)
    assert not NonBlockingLock(client, "/taken").acquire(0)


def counted_and_queued(client: Client) -> None:
    Counter(client, "/count").add()
    queue = Queue(client, "/queue")
    queue.put(b"1")
    with queue.take():
        pass


@pytest.mark.parametrize("call", [refused, together, locked, counted_and_queued])
def test_a_call_leaves_nothing_to_the_collector(
    server: Server, garbage: Callable[[], list[str]], call: Callable[[Client], None]
) -> None:
    with Client(server.hosts) as client:
        call(client)
        garbage()  # of the connecting
        for _ in range(3):
            call(client)
        assert garbage() == []


def test_a_refused_await_leaves_nothing_to_the_collector(
    server: Server, garbage: Callable[[], list[str]]
) -> None:
    async def main() -> list[str]:
        async with AsyncClient(server.hosts) as client:
            for _ in range(3):
                with suppress(NoNodeError):
                    await client.get_data("/missing")
            return garbage()

    assert not [name for name in asyncio.run(main()) if name.endswith("Error")]
