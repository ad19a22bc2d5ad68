"""Threads or asyncio: how a scenario runs, and what it calls.

A scenario is one coroutine function for both: with a `Client` it never suspends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import zkwire
from tests.support import aio_helpers
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import poll
from zkwire.blocking.sync import run

LOCKS = {
    "non-blocking": "NonBlockingLock",
    "blocking": "BlockingLock",
    "sequential": "SequentialLock",
    "re-entrant": "ReentrantLock",
    "read": "ReadWriteLock",
    "write": "ReadWriteLock",
    "lease": "Semaphore",
    "leadership": "Election",
    "multi": "MultiLock",
}
"""The kinds of locks, and their classes."""


class Side:
    """Threads, or with the prefix "Async" asyncio."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.prefix:
            aio_helpers.run(scenario)
        else:
            run(scenario())

    def made(self, name: str, /, *arguments: Any, **options: Any) -> Any:
        """A client, a supervisor or a recipe of this side."""
        return getattr(zkwire, self.prefix + name)(*arguments, **options)

    def lock(self, kind: str, client: Any, path: str) -> Any:
        """A lock of one of LOCKS; the one of several has another path beside."""
        make = functools.partial(self.made, LOCKS[kind])
        match kind:
            case "read" | "write":
                return getattr(make(client, path), kind)
            case "lease":
                return make(client, path, 1).lease()
            case "leadership":
                return make(client, path).lead()
            case "multi":
                return make(*(self.lock("sequential", client, path + n) for n in ("", "-other")))
            case _:
                return make(client, path)

    def function(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
        """What a user gives to this side in order to be called back."""
        return work if self.prefix else lambda argument: run(work(argument))

    async def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        return await result if self.prefix and inspect.isawaitable(result) else result

    async def aside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What blocks."""
        return (
            await asyncio.to_thread(function, *arguments) if self.prefix else function(*arguments)
        )

    async def until(self, what: str, look: Callable[[], Any]) -> Any:
        """Wait until ``look()``, or what it returns, awaited, is true; its value."""
        if self.prefix:
            return await aio_helpers.eventually(what, look)

        def seen() -> Any:
            value = look()
            return (run(value) if inspect.iscoroutine(value) else value) or None

        return poll(what, seen, PATIENCE)

    def start(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it in a task or in a thread, for :meth:`result`."""
        if self.prefix:
            return asyncio.ensure_future(function(*arguments))
        return Running(lambda: function(*arguments))

    async def result(self, started: Any) -> Any:
        if isinstance(started, Running):
            return started.result()
        return await asyncio.wait_for(started, PATIENCE)

    @asynccontextmanager
    async def entered(self, manager: Any) -> AsyncIterator[Any]:
        """The body of a `with`, or of an `async with`."""
        if hasattr(manager, "__aenter__"):
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value

    @asynccontextmanager
    async def using(self, name: str, /, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        """What :meth:`made` makes, closed at the end."""
        thing = self.made(name, *arguments, **options)
        try:
            yield thing
        finally:
            await self.call(thing.close)

    async def each(self, things: Any) -> AsyncIterator[Any]:
        """The elements, as they come."""
        if self.prefix:
            async for thing in things:
                yield thing
        else:
            for thing in things:
                yield thing


SIDES = [pytest.param(Side(""), id="threads"), pytest.param(Side("Async"), id="asyncio")]


def scenario(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, which each side runs."""

    @functools.wraps(test)
    def synchronous(side: Side, **named: Any) -> None:
        side.run(lambda: test(side, **named))

    return pytest.mark.parametrize("side", SIDES)(synchronous)
