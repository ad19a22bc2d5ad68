"""The four ways of docs/design.md: the files run in the order of the document."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import zkwire
from zkwire import AsyncClient, Client, SequentialLock, State, Watch
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_before

PACKAGE = Path(zkwire.__file__).parent
TEXT = (PACKAGE.parent / "docs" / "design.md").read_text()


def named(way: str) -> list[str]:
    """The files that the document names on this way, in its order."""
    (part,) = re.findall(rf"<!-- begin: {way} -->(.*?)<!-- end: {way} -->", TEXT, re.DOTALL)
    return re.findall(r"`(\w+/\w+\.py)`", part)


@contextmanager
def on_way(way: str) -> Iterator[None]:
    """This thread runs the files of a way, each for the first time in the document's order."""
    files: dict[str, None] = {}

    def called(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.setdefault(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert [file for file in files if file in named(way)] == named(way)


def test_a_request(server: Server) -> None:
    with Client(server.hosts) as client:
        client.sync()
        with on_way("request"):
            client.get_data("/")


def test_a_lock(server: Server) -> None:
    with Client(server.hosts) as client:
        lock = SequentialLock(client, "/lock")
        with lock:
            pass
        with on_way("lock"):
            lock.acquire()
        lock.release()


async def test_a_watch_event(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        watch = Watch()
        await client.exists("/new", watch=watch)
        seen = asyncio.ensure_future(watch._next())
        await asyncio.sleep(0)
        with on_way("event"):
            await asyncio.gather(asyncio.to_thread(created, server), seen)


def created(server: Server) -> None:
    with Client(server.hosts) as other:
        other.create("/new")


async def test_a_lost_connection(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            await client.sync()
            proxy.on("get_data", action=cut_before)
            lost = client.get_data("/")
            with on_way("loss"):
                with pytest.raises(zkwire.ConnectionLossError):
                    await lost
                await client.wait_for_state(State.CONNECTED, timeout=20.0)
