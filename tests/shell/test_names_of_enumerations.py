"""Paths and names that a program keeps in an enumeration: whatever takes a str takes its members.

Python formats such a member as its name in the program, ``Name.LOCK``, and not as its value.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from tests.shell.test_time_limits import Side
from zkwire import NoNodeError
from zkwire.testing import Server

SECONDS = 10.0


class Path(str, Enum):  # noqa: UP042 - a StrEnum is formatted as its value
    A = "/a"
    B = "/b"


class Name(str, Enum):  # noqa: UP042
    ONE = "one"
    TWO = "two"


async def locks(side: Side, client: Any) -> None:
    both = side.made("ReadWriteLock", client, Path.A)
    kinds = ("NonBlockingLock", "BlockingLock", "SequentialLock", "ReentrantLock")
    for lock in (
        *(side.made(kind, client, Path.B if "Block" in kind else Path.A) for kind in kinds),
        *(both.read, both.write, side.made("Election", client, Path.A).lead()),
        side.made("Semaphore", client, Path.A, 2).lease(),
    ):
        assert await side.call(lock.acquire, SECONDS)
        assert f"{lock.path}".startswith("/")
        await side.call(lock.release)


async def queues(side: Side, client: Any) -> None:
    for flat in (False, True):
        queue = side.made("Queue", client, Path.A, flat=flat)
        await side.call(queue.put, b"x")
        assert (await side.call(queue.get, SECONDS)).data == b"x"


async def the_rest(side: Side, client: Any) -> None:
    assert await side.call(side.made("Counter", client, Path.A).add) == 1
    assert await side.call(side.made("DoubleBarrier", client, Path.B, 1).enter, SECONDS)
    assert await side.call(side.made("OncePer", client, "/once", 60).claim)


async def services(side: Side, client: Any) -> None:
    group = side.made("Group", client, Path.A)
    assert (await side.call(group.join, b"", Name.ONE)).path == "/a/one"
    partitioner = side.made("Partitioner", client, Path.B, list(Name))
    assert list(await side.call(partitioner.next, SECONDS)) == ["one", "two"]
    cache = side.made("Cache", client, Path.A)
    assert await side.call(cache.wait_ready, SECONDS)
    assert list(cache) == ["/a", "/a/one"]
    assert cache.children(Path.A) == ["one"]


async def trees(side: Side, client: Any) -> None:
    await side.call(client.ensure_path, Path.A)
    walked = client.walk(Path.A)
    paths = list(walked) if hasattr(walked, "__iter__") else [path async for path in walked]
    assert f"{paths[0]}" == "/a"
    with pytest.raises(NoNodeError, match="get_data /b: "):
        await side.call(client.get_data, Path.B)


@pytest.mark.parametrize("scenario", [locks, queues, the_rest, services, trees])
@pytest.mark.parametrize("name", ["threads", "asyncio"])
def test_a_member_of_an_enumeration_is_a_str(server: Server, name: str, scenario: Any) -> None:
    side = Side(name)

    async def with_client() -> None:
        async with side.entered(side.made("Client", server.hosts)) as client:
            await scenario(side, client)

    side.run(with_client())
