"""The two clients, in one shape: whatever an experiment asks, it asks both in the same words.

An `AsyncClient` lives in the loop of a thread, and its operations are waited for from outside.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import zkwire
from tests.support.aio_stage import LoopThread, ThreadedClient
from zkwire import Client

Run: TypeAlias = Callable[[Callable[[], Any]], Any]
Make: TypeAlias = Callable[["Recipes", Any, str], Any]


class Recipes:
    """The locks for one of the clients, by the names of the blocking ones."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(zkwire, self._prefix + name)


class ClientKind(NamedTuple):
    """One of the clients."""

    title: str
    open: Callable[[str, float], Any]
    """A client of these servers, with this session timeout."""
    recipes: Recipes
    owner: Callable[[], AbstractContextManager[Run]]
    """One thread, or one task, that makes all the calls it is given."""

    def lock(self, make: Make, client: Any, path: str, run: Run) -> Owned:
        """A lock of this client."""
        return Owned(make(self.recipes, getattr(client, "real", client), path), run)


class Owned:
    """A lock of either client: its owner makes the calls, and any thread may look at it.

    A re-entrant lock is acquired and released twice.
    """

    def __init__(self, lock: Any, run: Run) -> None:
        self._lock = lock
        self._run = run
        self._seen = run(lambda: getattr(lock, "lock", lock))
        self._times = 1 if self._seen is lock else 2

    def acquire(self, timeout: float | None = None) -> bool:
        acquire = partial(self._lock.acquire, timeout)
        return all(self._run(acquire) for _ in range(self._times))

    def release(self) -> None:
        for _ in range(self._times):
            self._run(self._lock.release)

    @property
    def held(self) -> bool:
        return bool(self._seen.held)

    @property
    def lost(self) -> Any:
        return self._seen.lost

    @property
    def fence(self) -> int:
        return int(self._seen.fence)


# --- blocking -------------------------------------------------------------------------------------


@contextmanager
def own_thread() -> Iterator[Run]:
    """Calls are made by one thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="owner") as pool:
        yield lambda function: pool.submit(function).result()


BLOCKING = ClientKind(
    "Client",
    lambda hosts, timeout: Client(hosts, session_timeout=timeout),
    Recipes(""),
    own_thread,
)


# --- asyncio --------------------------------------------------------------------------------------


class Subject(ThreadedClient):
    """An `AsyncClient` that has a pipeline, as the blocking one has, and watches to wait for."""

    def __init__(self, thread: LoopThread, hosts: str, session_timeout: float) -> None:
        super().__init__(thread, hosts, session_timeout)
        pump: Any = self.real._driver
        pump.wait = self._wait
        self.pipeline = Pipelined(thread, self.real)


class Pipelined:
    """Operations that are sent when they are called, and answered later."""

    def __init__(self, thread: LoopThread, client: zkwire.AsyncClient) -> None:
        self._thread = thread
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Later]:
        verb = getattr(self._client, name)

        def send(*arguments: Any, **named: Any) -> Later:
            return Later(self._thread, self._thread.call(lambda: verb(*arguments, **named)))

        return send


class Later(NamedTuple):
    """The reply to such an operation."""

    thread: LoopThread
    reply: Any

    def result(self, timeout: float) -> Any:
        return self.thread.run(self.reply._request.within(timeout))


@contextmanager
def own_task(thread: LoopThread) -> Iterator[Run]:
    """Calls are made by one task."""
    jobs: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()

    async def work() -> None:
        while (job := await jobs.get()) is not None:
            function, future = job
            try:
                result = function()
                future.set_result(await result if inspect.isawaitable(result) else result)
            except Exception as error:
                future.set_exception(error)

    def run(function: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        thread.call(lambda: jobs.put_nowait((function, future)))
        return future.result()

    worker = asyncio.run_coroutine_threadsafe(work(), thread.loop)
    try:
        yield run
    finally:
        thread.call(lambda: jobs.put_nowait(None))
        worker.result()


@contextmanager
def every_way() -> Iterator[tuple[ClientKind, ...]]:
    """Both clients; the asyncio ones share a loop."""
    thread = LoopThread()
    try:
        asynchronous = ClientKind(
            "AsyncClient", partial(Subject, thread), Recipes("Async"), partial(own_task, thread)
        )
        yield BLOCKING, asynchronous
    finally:
        thread.close()


TITLES = (BLOCKING.title, "AsyncClient")
