"""The two clients, in one shape: whatever an experiment asks, it asks both in the same words.

An `AsyncClient` lives in the loop of a thread, and its operations are waited for from outside.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tests.support.aio_helpers import Complaints
from tests.support.both_clients import Side
from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient, Client
from zkwire.session.waitable import Waitable

T = TypeVar("T")
Run: TypeAlias = Callable[[Callable[[], Any]], Any]


class ClientKind(NamedTuple):
    """One of the clients."""

    title: str
    open: Callable[[str, float], Any]
    """A client of these servers, with this session timeout."""
    recipes: Side
    owner: Callable[[], AbstractContextManager[Run]]
    """One thread, or one task, that makes all the calls it is given."""


# --- blocking -------------------------------------------------------------------------------------


@contextmanager
def own_thread() -> Iterator[Run]:
    """Calls are made by one thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="owner") as pool:
        yield lambda function: pool.submit(function).result()


BLOCKING = ClientKind(
    "Client", lambda hosts, timeout: Client(hosts, session_timeout=timeout), Side(""), own_thread
)


# --- asyncio --------------------------------------------------------------------------------------


class LoopThread:
    """An event loop in a thread of its own, which must have nothing left at the end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.heard = Complaints()
        self.loop.set_exception_handler(self.heard)
        self.thread = threading.Thread(target=self.loop.run_forever, name="test-loop")
        self.thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = 4 * PATIENCE) -> T:
        """Run a coroutine there; its result.

        What an election swallows ends with its connection, after up to two thirds of a session
        timeout, which is longer than PATIENCE where a client must outlive elections.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function there; its result, which is not awaited."""

        async def calling() -> Any:
            return function()

        return self.run(calling())

    def close(self) -> None:
        tasks = self.run(self._left())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()
        assert not tasks, f"tasks are left: {tasks}"
        assert not self.heard, f"the loop's exception handler was called: {self.heard}"

    async def _left(self) -> set[asyncio.Task[Any]]:
        for _ in range(3):
            await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def awaited(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call it; what comes of it if that is to be awaited."""
    result = function(*arguments, **named)
    return await result if inspect.isawaitable(result) else result


class ThreadedClient:
    """An `AsyncClient`, to be used from any thread but its loop's.

    As the blocking one it has a pipeline, and watches to wait for.
    """

    def __init__(self, thread: LoopThread, hosts: str, session_timeout: float) -> None:
        self.thread = thread
        self.real = AsyncClient(hosts, session_timeout=session_timeout)
        self.pipeline = Pipelined(self)
        driver: Any = self.real._driver
        self._call_when_ready = driver.when_ready
        driver.wait = self._wait
        driver.when_ready = self._when_ready

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, name)
        if name.startswith("_") or not callable(value):
            return value
        return lambda *args, **kwargs: self.thread.run(awaited(value, *args, **kwargs))

    def _when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        if threading.current_thread() is self.thread.thread:
            self._call_when_ready(waitable, function)
        else:
            self.thread.call(lambda: self._call_when_ready(waitable, function))

    def _wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        ready = threading.Event()
        self._when_ready(waitable, ready.set)
        ready.wait(timeout)
        return waitable.ready


class Pipelined(NamedTuple):
    """Operations that are sent when they are called, and answered later."""

    client: ThreadedClient

    def __getattr__(self, name: str) -> Callable[..., Later]:
        verb, thread = getattr(self.client.real, name), self.client.thread
        return lambda *args, **kwargs: Later(thread, thread.call(partial(verb, *args, **kwargs)))


class Later(NamedTuple):
    """The reply to such an operation."""

    thread: LoopThread
    reply: Any

    def result(self, timeout: float) -> Any:
        return self.thread.run(self.reply._request.within(timeout), None)


@contextmanager
def own_task(thread: LoopThread) -> Iterator[Run]:
    """Calls are made by one task."""
    jobs: asyncio.Queue[tuple[Callable[[], Any], Future[Any]] | None] = asyncio.Queue()

    async def work() -> None:
        while (job := await jobs.get()) is not None:
            function, future = job
            try:
                future.set_result(await awaited(function))
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
            "AsyncClient", partial(ThreadedClient, thread), Side("Async"), partial(own_task, thread)
        )
        yield BLOCKING, asynchronous
    finally:
        thread.close()


TITLES = (BLOCKING.title, "AsyncClient")
