"""Cancellation at every await point, found by enumeration.

Everything that suspends is run once for each of its suspensions, and cancelled there: as soon as it
waits, or when what it waited for has come and it has not run yet, or again and again; with the
connection as it is, or cut at that moment. Whatever happens: the task is cancelled, nothing is
held, no node stays behind, the connection is in step, and others get the lock.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.support.aio_helpers import (
    Cancelling,
    awaited,
    blocking,
    cancelled_at,
    complaints,
    every_point,
)
from tests.support.lock_helpers import LONG, PATIENCE
from tests.support.operation_samples import SAMPLES
from zkwire import (
    AsyncClient,
    NodeExistsError,
    NoNodeError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.testing import Server
from zkwire.wire import ops

HOWS = ("waiting", "answered", "twice")
CUTS = ("whole", "cut")
every_way = [(how, cut) for how in HOWS for cut in CUTS]


class Bed:
    """A server, the client that things happen to, and one that looks on."""

    def __init__(self, server: Server, client: AsyncClient, observer: AsyncClient) -> None:
        self.server, self.client, self.observer = server, client, observer
        self._numbers = itertools.count()

    def points(self, how: str, cut: str) -> Iterator[Cancelling]:
        """A cancellation at each point; ``cut``: the connection breaks at the same moment."""
        return every_point(how, self.server.cut_all if cut == "cut" else None)

    async def disconnect(self) -> None:
        """The server is away, and the client knows."""
        await blocking(self.server.stop)
        await self.client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)

    async def assert_in_step(self) -> None:
        """The next operations are answered right, on the same session."""
        path = f"/n{next(self._numbers)}"
        while True:
            with suppress(ZooKeeperError):
                await self.client.sync()
                break
        with suppress(NodeExistsError):
            assert await self.client.create(path, path.encode()) == path
        one, none, other = await asyncio.gather(
            self.client.get_data(path), self.client.exists("/none"), self.client.get_data(path)
        )
        assert (one.data, none, other.data) == (path.encode(), None, path.encode())
        assert self.client._session.queued == 0
        assert not self.client._session.unanswered
        assert self.client.state is State.CONNECTED


@asynccontextmanager
async def bed() -> AsyncIterator[Bed]:
    with Server() as server:
        async with (
            AsyncClient(server.hosts, session_timeout=LONG) as client,
            AsyncClient(server.hosts, session_timeout=LONG) as observer,
        ):
            yield Bed(server, client, observer)


# --- verbs ----------------------------------------------------------------------------------------


async def _called(call: Callable[[AsyncClient], Awaitable[Any]], client: AsyncClient) -> Any:
    return await call(client)


async def walked(client: AsyncClient) -> list[str]:
    return [path async for path in client.walk("/a")]


async def committed(client: AsyncClient) -> list[Any]:
    async with client.transaction() as t:
        t.check("/a")
        t.set_data("/a", b"t")
    return t.results


async def two_in_a_row(client: AsyncClient) -> Any:
    first, second = client.get_data("/a"), client.get_data("/a/b")
    return await first, await second


VERBS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    **{
        f"{sample.method}, {sample.op.name}": partial(lambda call, c: call(c, "/a"), sample.call)
        for sample in SAMPLES
        if sample.op is not ops.REMOVE_WATCHES
    },
    "remove_watches": lambda c: c.remove_watches("/watched"),
    "ensure_path": lambda c: c.ensure_path("/x/y/z"),
    "delete_tree": lambda c: c.delete_tree("/a"),
    "walk": walked,
    "transaction": committed,
    "two in a row": two_in_a_row,
    "wait_for_state": lambda c: c.wait_for_state(State.DISCONNECTED, timeout=0.02),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_operation_cancelled_anywhere_leaves_the_connection_in_step(verb: str) -> None:
    tried = 0
    async with bed() as b:
        session_id = b.client.session_id
        for how, cut in every_way:
            for cancelling in b.points(how, cut):
                for path in ("/a/b", "/a/gone"):
                    await b.observer.ensure_path(path)
                for made in ("/a/new", "/a/m"):
                    with suppress(NoNodeError):
                        await b.observer.delete(made)
                await b.observer.delete_tree("/x")
                if verb == "remove_watches":
                    await b.client.exists("/watched", watch=Watch())
                with suppress(ZooKeeperError):
                    await cancelled_at(_called(VERBS[verb], b.client), cancelling)
                tried += cancelling.happened
                await b.assert_in_step()
        assert b.client.session_id == session_id
    if verb == "two in a row":  # when the first fails, the second is not awaited
        gc.collect()
        await asyncio.sleep(0)
        assert all("OutcomeUnknownError" in each for each in complaints().take())
    assert tried >= len(every_way)


async def test_what_was_not_sent_is_taken_back_and_what_was_sent_is_executed() -> None:
    async with bed() as b:
        await cancelled_at(_called(lambda c: c.create("/sent"), b.client), Cancelling(1))
        assert await b.client.exists("/sent") is not None
        await b.disconnect()
        await cancelled_at(_called(lambda c: c.create("/unsent"), b.client), Cancelling(1))
        assert b.client._session.queued == 0
        await blocking(b.server.start)
        await b.assert_in_step()
        assert await b.client.exists("/unsent") is None
        # One of two awaits is cancelled: the other one gets its answer.
        await b.disconnect()
        reply = b.client.create("/shared")
        one, two = (asyncio.ensure_future(awaited(reply)) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        await blocking(b.server.start)
        assert await two == "/shared"
        # All of a thousand in a queue, from the first and from the last.
        for order in (1, -1):
            await b.disconnect()
            tasks = [asyncio.ensure_future(awaited(b.client.create(f"/q{n}"))) for n in range(100)]
            await asyncio.sleep(0)  # they wait, and nothing has been sent
            for task in tasks[::order]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await blocking(b.server.start)
            await b.assert_in_step()
            names = await b.client.get_children("/")
            assert not [name for name in names if name.startswith("q")]
