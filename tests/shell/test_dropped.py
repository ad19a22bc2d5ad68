"""What a client leaves: one that nobody has closed, its calls, and how many descriptors it has."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import selectors
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.support.both_clients import Side, answer, asking, both, done, event_of
from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
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
    State,
    Watch,
)
from zkwire.testing import Server

UNCLOSED = "unclosed client <"


@contextmanager
def warned() -> Iterator[list[str]]:
    """The ResourceWarnings that come in this block; at its end the collector has run."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield said
        gc.collect()
        said += [str(each.message) for each in caught if each.category is ResourceWarning]


def collect(gone: weakref.ref[Client]) -> None:
    """Collect until the client is gone: its thread holds it while it has something to do."""

    def look() -> bool | None:
        gc.collect()
        return gone() is None or None

    poll("the client was collected", look, PATIENCE)


def nobody_left(server: Server) -> None:
    poll("the session ended", lambda: len(server.sessions) == 0 or None, PATIENCE)


def ended_clients() -> list[Client]:
    return [each for each in gc.get_objects() if type(each) is Client and each._driver.ended]


def nothing_but(others: weakref.WeakSet[Client]) -> bool | None:
    """Whether no ended client is left, but for those that other tests keep."""
    gc.collect()
    return not any(each not in others for each in ended_clients()) or None


def used(server: Server) -> Client:
    client = Client(server.hosts)
    client.connect()
    return client


async def only_this_task() -> None:
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.001)


# --- dropped --------------------------------------------------------------------------------------


def with_a_lock(client: Client, server: Server) -> None:
    SequentialLock(client, "/lock").acquire()


def with_callbacks(client: Client, server: Server) -> None:
    """Each leads back to the client, as the methods of an object that has one."""
    called = threading.Event()

    def call(_: object) -> None:
        assert client is not None
        called.set()

    client.add_state_listener(lambda _: client)
    client.get_data("/", watch=lambda _: client)
    client.add_watch("/seen", call)
    client.create("/seen")
    assert called.wait(10)


def without_a_server(client: Client, server: Server) -> None:
    server.stop()
    client.wait_for_state(State.DISCONNECTED, timeout=10)


WAYS = [with_a_lock, with_callbacks, without_a_server]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_hazard_E12_a_dropped_client_is_closed_and_says_so(
    server: Server, way: Callable[[Client, Server], None]
) -> None:
    others, states = weakref.WeakSet(ended_clients()), list[State]()
    with warned() as said:
        client = used(server)
        way(client, server)
        client.add_state_listener(states.append)
        thread = client._driver.thread
        assert thread is not None
        gone = weakref.ref(client)
        del client
        collect(gone)
    assert [line[: len(UNCLOSED)] for line in said] == [UNCLOSED]
    thread.join(10)
    assert not thread.is_alive()
    poll("listeners are told", lambda: State.CLOSED in states or None, PATIENCE)
    if way is not without_a_server:
        nobody_left(server)
    poll("nothing of it is left", lambda: nothing_but(others), PATIENCE)


class Mine(AsyncClient):
    def seen(self, _: object) -> None:
        """A listener that leads back to the client."""


async def test_a_dropped_asyncio_client_is_closed_and_says_so(server: Server) -> None:
    tracemalloc.start(9)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            client = Mine(server.hosts)
            await client.connect()
            await AsyncSequentialLock(client, "/lock").acquire()
            client.add_state_listener(client.seen)
            gone = weakref.ref(client)
            del client
            while gone() is not None:  # for a moment the loop has something to do for it
                gc.collect()
                await asyncio.sleep(0.001)
        (warning,) = caught
        assert str(warning.message).startswith("unclosed client <Mine")
        where = tracemalloc.get_object_traceback(warning.source)
        assert where is not None
        assert __file__ in [frame.filename for frame in where]
    finally:
        tracemalloc.stop()
    del warning, caught
    await asyncio.to_thread(nobody_left, server)
    await only_this_task()


def test_an_asyncio_client_whose_loop_has_ended(server: Server) -> None:
    async def use() -> AsyncClient:
        client = AsyncClient(server.hosts)
        await client.connect()
        return client

    with warned() as said:
        asyncio.run(use())
    assert [line[: len(UNCLOSED)] for line in said] == [UNCLOSED]


# --- what a call has used -------------------------------------------------------------------------


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


def refused_call(client: Client) -> None:
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


@pytest.mark.parametrize("call", [refused_call, together, locked, counted_and_queued])
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


# --- descriptors ----------------------------------------------------------------------------------

CLIENTS = 10


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def use(client: Any) -> None:
    """In every way: a read, a watch, an operation whose answer nobody waits for."""
    path, watch = f"/{client.session_id}", Watch()
    await done(client.exists(path, watch=watch))
    await answer(asking(client).create(path))
    assert await event_of(watch, client)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
@both
@pytest.mark.parametrize("epoll", [True, False])
async def test_a_client_has_few_descriptors_and_none_when_it_is_closed(
    side: Side, epoll: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not epoll:
        monkeypatch.delattr(select, "epoll")
        monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    async with side.opened(server.hosts):
        pass  # what the process itself gets once
    own, theirs = 5 if not side.asyncio else 1, 1  # the server, here too, has the other end
    before = descriptors()
    async with AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            await use(await stack.enter_async_context(side.opened(server.hosts)))
        assert CLIENTS < descriptors() - before <= (own + theirs) * CLIENTS
    assert descriptors() <= before + theirs * CLIENTS
