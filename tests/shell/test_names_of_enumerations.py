"""Paths and names that a program keeps in an enumeration: whatever takes a str takes its members.

Python formats such a member as its name in the program, ``Name.LOCK``, and not as its value.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from tests.support.both_clients import Side, both, done
from zkwire import NoNodeError
from zkwire.testing import Server

SECONDS = 10.0


class Path(str, Enum):  # noqa: UP042 - a StrEnum is formatted as its value
    A = "/a"
    B = "/b"


class Name(str, Enum):  # noqa: UP042
    ONE = "one"
    TWO = "two"


class Recipes:
    """The recipes for a client, by the names of those for threads."""

    def __init__(self, side: Side, client: Any) -> None:
        self.side, self.client = side, client

    def made(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.side, name)(self.client, *arguments, **options)


async def locks(recipes: Recipes) -> None:
    both = recipes.made("ReadWriteLock", Path.A)
    kinds = ("NonBlockingLock", "BlockingLock", "SequentialLock", "ReentrantLock")
    for lock in (
        *(recipes.made(kind, Path.B if "Block" in kind else Path.A) for kind in kinds),
        *(both.read, both.write, recipes.made("Election", Path.A).lead()),
        recipes.made("Semaphore", Path.A, 2).lease(),
    ):
        assert await done(lock.acquire(SECONDS))
        assert f"{lock.path}".startswith("/")
        await done(lock.release())


async def queues(recipes: Recipes) -> None:
    for flat in (False, True):
        queue = recipes.made("Queue", Path.A, flat=flat)
        await done(queue.put(b"x"))
        assert (await done(queue.get(SECONDS))).data == b"x"


async def the_rest(recipes: Recipes) -> None:
    assert await done(recipes.made("Counter", Path.A).add()) == 1
    assert await done(recipes.made("DoubleBarrier", Path.B, 1).enter(SECONDS))
    assert await done(recipes.made("OncePer", "/once", 60).claim())


async def services(recipes: Recipes) -> None:
    group = recipes.made("Group", Path.A)
    assert (await done(group.join(b"", Name.ONE))).path == "/a/one"
    partitioner = recipes.made("Partitioner", Path.B, list(Name))
    assert list(await done(partitioner.next(SECONDS))) == ["one", "two"]
    cache = recipes.made("Cache", Path.A)
    assert await done(cache.wait_ready(SECONDS))
    assert list(cache) == ["/a", "/a/one"]
    assert cache.children(Path.A) == ["one"]


async def trees(recipes: Recipes) -> None:
    await done(recipes.client.ensure_path(Path.A))
    walked = recipes.client.walk(Path.A)
    paths = list(walked) if hasattr(walked, "__iter__") else [path async for path in walked]
    assert f"{paths[0]}" == "/a"
    with pytest.raises(NoNodeError, match="get_data /b: "):
        await done(recipes.client.get_data(Path.B))


@both
@pytest.mark.parametrize("scenario", [locks, queues, the_rest, services, trees])
async def test_a_member_of_an_enumeration_is_a_str(
    side: Side, server: Server, scenario: Any
) -> None:
    async with side.opened(server.hosts) as client:
        await scenario(Recipes(side, client))
