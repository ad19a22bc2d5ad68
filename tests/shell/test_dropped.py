"""A client that nobody has closed: what keeps it alive, and what happens when nothing does."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import poll
from zkwire import AsyncClient, AsyncSequentialLock, Client, SequentialLock, State, Watch
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


def with_a_pipeline(client: Client, server: Server) -> None:
    client.pipeline.get_children("/")


def without_a_server(client: Client, server: Server) -> None:
    server.stop()
    client.wait_for_state(State.DISCONNECTED, timeout=10)


WAYS = [with_a_lock, with_callbacks, with_a_pipeline, without_a_server]


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


def test_the_warning_knows_where_the_client_was_made(server: Server) -> None:
    script = f"""
import gc, weakref
from zkwire import Client
def use():
    client = Client({server.hosts!r})  # here
    client.connect()
    return weakref.ref(client)
gone = use()
while gone() is not None:  # its own thread may be busy with it
    gc.collect()
"""
    way = [sys.executable, "-X", "tracemalloc=9", "-W", "always::ResourceWarning", "-c", script]
    said = subprocess.run(way, capture_output=True, text=True, timeout=60, check=True).stderr
    for text in (UNCLOSED, "Object allocated at (most recent call", 'File "<string>", lineno 5'):
        assert text in said
    nobody_left(server)


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


# --- not dropped ----------------------------------------------------------------------------------


def a_loss(client: Client) -> Any:
    lock = SequentialLock(client, "/lock")
    lock.acquire()
    return lock.lost


def an_iterator(client: Client) -> Any:
    watch = Watch()
    client.add_watch("/", watch)
    return iter(watch)


HELD: dict[str, Callable[[Client], Any]] = {
    "a lock": lambda client: SequentialLock(client, "/lock"),
    "a loss": a_loss,
    "an iterator": an_iterator,
    "a reply": lambda client: client.pipeline.get_children("/"),
    "a walk": lambda client: client.walk("/"),
    "a bound method": lambda client: client.exists,
}


@pytest.mark.parametrize("kind", HELD)
def test_what_is_still_held_keeps_the_client(server: Server, kind: str) -> None:
    """A watch still gets its events."""
    with Client(server.hosts) as other, warned() as said:
        client = used(server)
        thread = client._driver.thread
        assert thread is not None
        held = HELD[kind](client)
        gone = weakref.ref(client)
        del client
        gc.collect()
        assert said == []
        assert thread.is_alive()
        other.set_data("/", b"")
        assert len(server.sessions) == 2
        if kind == "an iterator":
            assert next(held).path == "/"
        del held
        collect(gone)
    thread.join(10)
    assert [line[: len(UNCLOSED)] for line in said] == [UNCLOSED]
    nobody_left(server)


async def test_a_task_that_awaits_an_event_keeps_client_and_task(server: Server) -> None:
    """Nobody holds the task either; asyncio itself holds tasks weakly."""
    ready, heard = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        async with AsyncClient(server.hosts) as client:
            watch = Watch()
            await client.get_data("/", watch=watch)
            ready.set()
            await watch
            heard.set()

    asyncio.create_task(wait())  # noqa: RUF006 - that is it
    await ready.wait()
    gc.collect()
    async with AsyncClient(server.hosts) as other:
        await other.set_data("/", b"")
    await heard.wait()
    await only_this_task()


def closed(server: Server) -> None:
    used(server).close()


def expired(server: Server) -> None:
    client = used(server)
    server.expire(client.session_id)
    client.wait_for_state(State.EXPIRED, timeout=10)


def refused(server: Server) -> None:
    with pytest.raises(ValueError, match="session_timeout"):
        Client(server.hosts, session_timeout=-1)


@pytest.mark.parametrize("way", [lambda server: Client(server.hosts), closed, expired, refused])
def test_a_client_without_a_session_goes_in_silence(
    server: Server, way: Callable[[Server], object]
) -> None:
    with warned() as said:
        way(server)
    assert said == []
