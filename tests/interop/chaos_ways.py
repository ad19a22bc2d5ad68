"""What contenders of a chaos run stand on: a clock, a log, clients, threads or asyncio."""

from __future__ import annotations

import asyncio
import inspect
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


class Worker:
    """What all contenders of one process share: clients, a log, how they call and wait.

    With asyncio for ``tasks``, or else with threads.
    """

    def __init__(self, name: str, hosts: str, timeout: float, log: str, *, tasks: bool) -> None:
        self.name, self.hosts, self.session_timeout, self.tasks = name, hosts, timeout, tasks
        self.prefix = "Async" if tasks else ""
        self.stopped = threading.Event()
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._guard = threading.Lock()
        self.clients = [self.make("Client", operation_timeout=10.0) for _ in range(CLIENTS)]
        self.supervisor = self.make("Supervisor")

    def tell(self, what: str, **fields: Any) -> None:
        """A line of JSON in the log."""
        os.write(self._log, (json.dumps({"what": what, **fields}) + "\n").encode())

    def make(self, name: str, **options: Any) -> Any:
        """A client or a supervisor."""
        kind = getattr(zkwire, self.prefix + name)
        return kind(self.hosts, session_timeout=self.session_timeout, **options)

    async def replace(self, client: Any) -> None:
        """Have another client in place of this one, unless somebody has seen to that already."""
        with self._guard:
            if client not in self.clients:
                return
            new = self.make("Client", operation_timeout=10.0)
            self.clients[self.clients.index(client)] = new
        await self.call(client.close)

    async def close(self) -> None:
        for one in (self.supervisor, *self.clients):
            await self.call(one.close)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    async def sleep(self, seconds: float) -> None:
        await self.call(asyncio.sleep if self.tasks else time.sleep, seconds)

    async def under(self, context: Any, body: Callable[[Any], Awaitable[object]]) -> None:
        if self.tasks:
            async with context as it:
                await body(it)
        else:
            with context as it:
                await body(it)

    def callback(self, function: Callable[..., Coroutine[Any, Any, object]]) -> Any:
        """What a recipe can call."""
        return function if self.tasks else lambda *arguments: run(function(*arguments))


class Contender:
    """Does the same again and again, and tells it."""

    def __init__(self, worker: Worker, kind: str, rng: random.Random) -> None:
        self.kind = kind
        self.who = f"{worker.name}-{kind}"
        self.worker = worker
        self.rng = rng
        self._number = rng.randrange(CLIENTS)

    def tell(self, what: str, **fields: Any) -> None:
        self.worker.tell(what, **{"at": clock(), "who": self.who, **fields})

    def make(self, client: Any, recipe: str, *arguments: Any, **options: Any) -> Any:
        """A recipe."""
        return getattr(zkwire, self.worker.prefix + recipe)(client, *arguments, **options)

    async def contend(self) -> None:
        """Until the worker stops; an error that cannot be explained ends it."""
        while not self.worker.stopped.is_set():
            client = self.worker.clients[self._number]
            try:
                await self.turn(client)
            except (zkwire.SessionExpiredError, zkwire.ClientClosedError):
                await self.worker.replace(client)
            except EXPECTED:
                pass
            except Exception:
                self.tell("bug", note=traceback.format_exc())
                return
            await self.worker.sleep(self.rng.uniform(0, LONGEST_REST))

    async def turn(self, client: Any) -> None:
        raise NotImplementedError

    async def change(self, what: str, value: str, function: Callable[..., Any], *args: Any) -> None:
        """A call, with a line before it and one that says how it ended: None is in doubt."""
        self.tell("intent", of=what, value=value)
        ok: bool | None = None
        try:
            await self.worker.call(function, *args)
            ok = True
        except zkwire.ZooKeeperError as error:
            ok = None if error.maybe_applied else False
            raise
        finally:
            self.tell(what, value=value, ok=ok)
