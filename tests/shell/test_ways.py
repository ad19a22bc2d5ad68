"""The four ways of docs/design.md: the files run in the order of the document."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
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
def traced() -> Iterator[list[str]]:
    """The files of the package that this thread runs code of, each at its first call."""
    files: dict[str, None] = {}

    def called(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.setdefault(path.relative_to(PACKAGE).as_posix())

    run: list[str] = []
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield run
    finally:
        sys.setprofile(before)
        run += files


def in_order(named: list[str], run: list[str]) -> list[str]:
    """Of the files that were run, those that are named."""
    assert set(named) <= set(run), sorted(set(named) - set(run))
    return [file for file in run if file in named]


def way_of(work: Callable[[], object], way: str) -> None:
    with traced() as run:
        work()
    assert in_order(named(way), run) == named(way)


def test_a_request(server: Server) -> None:
    with Client(server.hosts) as client:
        client.sync()
        way_of(lambda: client.get_data("/"), "request")


def test_a_lock(server: Server) -> None:
    with Client(server.hosts) as client:
        lock = SequentialLock(client, "/lock")
        with lock:
            pass
        way_of(lock.acquire, "lock")
        lock.release()


async def test_a_watch_event(server: Server) -> None:
    async with AsyncClient(server.hosts) as client:
        watch = Watch()
        await client.exists("/new", watch=watch)
        seen = asyncio.ensure_future(watch._next())
        await asyncio.sleep(0)
        with traced() as run:
            await asyncio.gather(asyncio.to_thread(created, server), seen)
    assert in_order(named("event"), run) == named("event")


def created(server: Server) -> None:
    with Client(server.hosts) as other:
        other.create("/new")


async def test_a_lost_connection(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy:
        async with AsyncClient(proxy.hosts) as client:
            await client.sync()
            proxy.on("get_data", action=cut_before)
            lost = client.get_data("/")
            with traced() as run:
                with pytest.raises(zkwire.ConnectionLossError):
                    await lost
                await client.wait_for_state(State.CONNECTED, timeout=20.0)
    assert in_order(named("loss"), run) == named("loss")
