"""An asyncio client in a loop of a thread of its own, to be used from any other thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.support.aio_helpers import Complaints
from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient
from zkwire.session.waitable import Waitable

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, which must have nothing left at the end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.heard = Complaints()
        self.loop.set_exception_handler(self.heard)
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run a coroutine there; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function there; its result."""

        async def calling() -> T:
            return function()

        return self.run(calling(), PATIENCE)

    @property
    def here(self) -> bool:
        return threading.current_thread() is self._thread

    def close(self) -> None:
        tasks = self.run(self._left(), PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()
        assert not tasks, f"tasks are left: {tasks}"
        assert not self.heard, f"the loop's exception handler was called: {self.heard}"

    async def _left(self) -> set[asyncio.Task[Any]]:
        for _ in range(3):
            await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


class ThreadedClient:
    """An `AsyncClient`, to be used from any thread but its loop's."""

    def __init__(self, thread: LoopThread, hosts: str, session_timeout: float) -> None:
        self.thread = thread
        self.real = AsyncClient(hosts, session_timeout=session_timeout)
        driver: Any = self.real._driver
        self._call_when_ready = driver.when_ready
        driver.wait = self._wait
        driver.when_ready = self._when_ready

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, name)
        if name.startswith("_") or not callable(value):
            return value

        async def calling(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return lambda *args, **kwargs: self.thread.run(calling(*args, **kwargs), PATIENCE)

    def _when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        if self.thread.here:
            self._call_when_ready(waitable, function)
        else:
            self.thread.call(lambda: self._call_when_ready(waitable, function))

    def _wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        ready = threading.Event()
        self._when_ready(waitable, ready.set)
        ready.wait(timeout)
        return waitable.ready
