"""The async locks on the stage of the blocking ones: the same scenarios, from the other world.

Each client behind the proxy is an `AsyncClient` in a loop of a thread of its own, and each lock on
it is the async twin of the kind asked for; to the scenario both look like the blocking ones.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Self, TypeVar
from unittest import mock

import pytest

from tests.support.aio_helpers import Complaints
from tests.support.lock_helpers import LONG, PATIENCE, Kind, Lock, Stage, greeting, make_path
from zkwire import (
    AsyncBlockingLock,
    AsyncClient,
    AsyncNonBlockingLock,
    AsyncSequentialLock,
    BlockingLock,
    Client,
    NonBlockingLock,
    SequentialLock,
)
from zkwire.recipes.locks.single_entry import GRANTS
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


class _Threaded:
    """Makes a kind of lock async if its client is, and calls it from the outside."""

    twin: Any
    _twin: Any = None
    _core: Any

    def __init__(self, client: Client | ThreadedClient, path: str) -> None:
        if isinstance(client, ThreadedClient):
            self._run = client.thread.run
            self._twin = self.twin(client.real, path)
            self._algorithm = self._twin._algorithm
        else:
            super().__init__(client, path)  # type: ignore[call-arg]

    def acquire(self, timeout: float | None = None) -> bool:
        if self._twin is None:
            return super().acquire(timeout)  # type: ignore[misc]
        return bool(self._run(self._twin.acquire(timeout)))

    def try_acquire(self) -> bool:
        if self._twin is None:
            return super().try_acquire()  # type: ignore[misc]
        return bool(self._run(self._twin.try_acquire()))

    def release(self, timeout: float | None = None) -> None:
        if self._twin is None:
            super().release(timeout)  # type: ignore[misc]
        else:
            self._run(self._twin.release(timeout))

    def __enter__(self) -> Self:
        if self._twin is None:
            super().__enter__()  # type: ignore[misc]
        else:
            assert self._run(self._twin.__aenter__()) is self._twin
        return self

    def __exit__(self, *error: Any) -> None:
        if self._twin is None:
            super().__exit__(*error)  # type: ignore[misc]
        else:
            self._run(self._twin.__aexit__(*error))


class ThreadedNonBlockingLock(_Threaded, NonBlockingLock):
    twin = AsyncNonBlockingLock


class ThreadedBlockingLock(_Threaded, BlockingLock):
    twin = AsyncBlockingLock


class ThreadedSequentialLock(_Threaded, SequentialLock):  # type: ignore[misc]
    twin = AsyncSequentialLock


TWINS: dict[Any, Any] = {
    NonBlockingLock: ThreadedNonBlockingLock,
    BlockingLock: ThreadedBlockingLock,
    SequentialLock: ThreadedSequentialLock,
}
BY_NAME = {kind.__name__: twin for kind, twin in TWINS.items()}


class AsyncStage(Stage):
    """A stage on which every client behind the proxy is an asyncio one."""

    thread: LoopThread

    def client(self, *, timeout: float = LONG, direct: bool = False, chroot: str = "") -> Any:
        if direct:
            return super().client(timeout=timeout, direct=True, chroot=chroot)
        client = ThreadedClient(self.thread, self.proxy.hosts + chroot, timeout)
        self._exit.callback(client.close)
        client.connect()
        self._greetings[client.session_id] = greeting(self.proxy, client.session_id)
        return client

    def lock(self, kind: Kind, path: str, *, timeout: float = LONG) -> Lock:
        if not kind.__name__.endswith("SequentialLock"):
            make_path(self.observer, path + GRANTS)
        return TWINS.get(kind, kind)(self.client(timeout=timeout), path)

    def rival(self, kind: Kind, path: str) -> Lock:
        return TWINS.get(kind, kind)(self.client(direct=True), path)


@contextmanager
def async_kinds_in(module: ModuleType) -> Iterator[None]:
    """What a module of tests calls a lock is the async one, if its client is."""
    names = {name: twin for name, twin in BY_NAME.items() if hasattr(module, name)}
    with mock.patch.multiple(module, **names):
        yield


def scenarios(
    module: ModuleType,
    without: set[str],
    most: int | None = None,
    *,
    on_every_server: Collection[str] = (),
) -> dict[str, Any]:
    """The tests of a module, for the async locks.

    With ``most``, for that many values of a parameter that is not the kind of lock: an enumeration
    of the algorithm's branches, which both worlds share, needs not be repeated in full.

    Both worlds send the same bytes, so zkwire's own server is enough for all but
    ``on_every_server``.
    """
    return {
        name: _borrowed(module, test, most, name not in on_every_server)
        for name, test in vars(module).items()
        if name.startswith("test_") and name not in without
    }


def _borrowed(module: ModuleType, test: Any, most: int | None, own_server: bool) -> Any:
    @functools.wraps(test)
    def scenario(*args: Any, **kwargs: Any) -> None:
        with async_kinds_in(module):
            test(*args, **kwargs)

    made: Any = scenario
    made.pytestmark = [_twinned(mark, most) for mark in getattr(test, "pytestmark", [])]
    if own_server:
        made.pytestmark.append(pytest.mark.own_server.mark)
    return made


def _twinned(mark: pytest.Mark, most: int | None) -> pytest.Mark:
    if mark.name != "parametrize":
        return mark
    names, values, *rest = mark.args
    kept = [twin(value) for value in values]
    named = dict(mark.kwargs)
    if "kind" not in names:
        kept = kept[:most]
        if isinstance(named.get("ids"), list | tuple):
            named["ids"] = list(named["ids"])[:most]
    made: pytest.Mark = getattr(pytest.mark, mark.name)(names, kept, *rest, **named).mark
    return made


def twin(value: Any) -> Any:
    """The async kind for a kind of lock, anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(twin, value))
    return TWINS.get(value, value) if isinstance(value, type) else value
