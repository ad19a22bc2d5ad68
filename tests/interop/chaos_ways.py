"""What contenders of a chaos run stand on: a clock, a log, clients, threads or asyncio."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import zkwire
from zkwire.blocking.sync import run

ROOT = "/chaos"
SESSION_TIMEOUT = 4.0
CLIENTS = 2
LONGEST_REST = 0.1
EXPECTED = (
    zkwire.ConnectionLossError, zkwire.OperationTimeoutError, zkwire.SessionExpiredError,
    zkwire.ClientClosedError, zkwire.LockLostError, zkwire.LockTakenError,
)  # fmt: skip
"""What may happen to whom the world is bad to; any other error is a finding."""


def clock() -> float:
    """Seconds of a clock that all processes of the machine share, and that goes on in its sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Log:
    """Lines of JSON in a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"what": what, **fields}) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


class Way:
    """How a contender calls and waits: for threads."""

    prefix = ""

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def under(self, context: Any, body: Callable[[Any], Awaitable[object]]) -> None:
        with context as it:
            await body(it)

    def callback(self, function: Callable[..., Coroutine[Any, Any, object]]) -> Any:
        """What a recipe can call."""
        return lambda *arguments: run(function(*arguments))


class TaskWay(Way):
    """The same for asyncio."""

    prefix = "Async"

    async def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return await function(*arguments)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def under(self, context: Any, body: Callable[[Any], Awaitable[object]]) -> None:
        async with context as it:
            await body(it)

    def callback(self, function: Callable[..., Coroutine[Any, Any, object]]) -> Any:
        return function


class Box:
    """A client that several contenders share, replaced when its session is over."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._guard = threading.Lock()
        self.client = worker.make("Client", operation_timeout=10.0)

    async def replace(self, client: Any) -> None:
        """Have another client, unless somebody has seen to that already."""
        with self._guard:
            if self.client is not client:
                return
            self.client = self._worker.make("Client", operation_timeout=10.0)
        await self._worker.way.call(client.close)


class Worker:
    """What all contenders of one process share."""

    def __init__(self, name: str, way: Way, hosts: str, timeout: float, log: Log) -> None:
        self.name = name
        self.way = way
        self.hosts = hosts
        self.session_timeout = timeout
        self.log = log
        self.stopped = threading.Event()
        self.boxes = [Box(self) for _ in range(CLIENTS)]
        self.supervisor = self.make("Supervisor")

    def make(self, name: str, **options: Any) -> Any:
        """A client or a supervisor."""
        kind = getattr(zkwire, self.way.prefix + name)
        return kind(self.hosts, session_timeout=self.session_timeout, **options)

    async def close(self) -> None:
        for one in (self.supervisor, *(box.client for box in self.boxes)):
            await self.way.call(one.close)


class Contender:
    """Does the same again and again, and tells it."""

    def __init__(self, worker: Worker, kind: str, rng: random.Random) -> None:
        self.kind = kind
        self.who = f"{worker.name}-{kind}"
        self.worker = worker
        self.way = worker.way
        self.rng = rng
        self.box = rng.choice(worker.boxes)

    def tell(self, what: str, **fields: Any) -> None:
        self.worker.log.write(what, **{"at": clock(), "who": self.who, **fields})

    def make(self, client: Any, recipe: str, *arguments: Any, **options: Any) -> Any:
        """A recipe."""
        return getattr(zkwire, self.way.prefix + recipe)(client, *arguments, **options)

    async def contend(self) -> None:
        """Until the worker stops; an error that cannot be explained ends it."""
        while not self.worker.stopped.is_set():
            client = self.box.client
            try:
                await self.turn(client)
            except (zkwire.SessionExpiredError, zkwire.ClientClosedError):
                await self.box.replace(client)
            except EXPECTED:
                pass
            except Exception:
                self.tell("bug", note=traceback.format_exc())
                return
            await self.way.sleep(self.rng.uniform(0, LONGEST_REST))

    async def turn(self, client: Any) -> None:
        raise NotImplementedError

    async def change(self, what: str, value: str, function: Callable[..., Any], *args: Any) -> None:
        """A call, with a line before it and one that says how it ended: None is in doubt."""
        self.tell("intent", of=what, value=value)
        ok: bool | None = None
        try:
            await self.way.call(function, *args)
            ok = True
        except zkwire.ZooKeeperError as error:
            ok = None if error.maybe_applied else False
            raise
        finally:
            self.tell(what, value=value, ok=ok)
