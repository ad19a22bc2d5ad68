"""What the tests of the asyncio client share: a loop that notices what is left, and the looks.

A test that is a coroutine function runs in a loop of its own, in debug mode, for a bounded time.
When it has ended there must be no task, no socket in the loop's selector, no thread of the library,
and nobody may have called the loop's exception handler.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, Generic, TypeVar

from tests.support.lock_helpers import PATIENCE
from zkwire import AsyncClient

T = TypeVar("T")

# A test that takes longer hangs.
LONGEST_TEST = 110.0

blocking = asyncio.to_thread
"""Awaits a function that blocks, such as those of the servers and proxies."""


class Complaints(list[str]):
    """What the loop's exception handler was told."""

    def __call__(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.append(f"{context.get('message')}: {context.get('exception')!r}")

    def take(self) -> list[str]:
        """What was said; now it is expected."""
        taken = self[:]
        self.clear()
        return taken


def complaints() -> Complaints:
    """Those of the running loop."""
    handler = asyncio.get_running_loop().get_exception_handler()
    assert isinstance(handler, Complaints)
    return handler


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seconds: float = LONGEST_TEST,
    debug: bool = True,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """What the coroutine returns, in a loop of its own that must have nothing left at the end."""
    heard = Complaints()

    async def supervised() -> T:
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 5.0  # pytest and noisy machines are not the library
        loop.set_exception_handler(heard)
        async with asyncio.timeout(seconds):
            result = await main()
        await _nothing_left(loop)
        return result

    gc.freeze()  # a collection is then about this test alone, and quick
    try:
        with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
            result = runner.run(supervised())
        gc.collect()
    finally:
        gc.unfreeze()
    assert not heard, f"the loop's exception handler was called: {heard}"
    return result


async def _nothing_left(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(3):  # wakers, then what those have put off
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"tasks are left: {tasks}"
    selector = getattr(loop, "_selector", None)
    if selector is not None:
        left = [key.fd for key in selector.get_map().values()]
        assert len(left) == 1, f"the loop still listens to more than its own pipe: {left}"
    threads = [t.name for t in threading.enumerate() if t.name.endswith(("-io", "-callbacks"))]
    assert not [name for name in threads if name.startswith("zkwire-")], threads


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """For what takes coroutines only."""
    return await awaitable


async def eventually(what: str, look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until ``look`` (or what it returns, awaited) is true; its value."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.005)


def watch_count(client: AsyncClient) -> int:
    """How many watches the client believes to be set."""
    return client._session.watch_count


# --- stepping -------------------------------------------------------------------------------------


class Stepped(Generic[T]):
    """Awaits something, and calls ``at(n, future)`` at its n-th suspension, counted from 1.

    The future is what is waited for; None for a bare turn of the loop.
    """

    def __init__(
        self, awaitable: Awaitable[T], at: Callable[[int, asyncio.Future[Any] | None], object]
    ) -> None:
        self._awaitable = awaitable
        self._at = at

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaitable.__await__()
        send: Callable[[], Any] = functools.partial(next, steps)
        for number in itertools.count(1):
            try:
                future = send()
            except StopIteration as stop:
                value: T = stop.value
                break
            self._at(number, future)
            try:
                yield future
                send = functools.partial(next, steps)
            except BaseException as error:
                send = functools.partial(steps.throw, error)
        return value


class Cancelling:
    """Cancels the task that runs it at suspension ``nth``; ``how`` says when, and what else.

    "waiting": as soon as it waits; "answered": what it waited for has come, and it has not run yet;
    "twice": as "waiting", and again each time it waits afterwards. ``cut`` is called before that.
    """

    def __init__(
        self, nth: int, how: str = "waiting", cut: Callable[[], object] | None = None
    ) -> None:
        self.happened = False
        self.nth = nth
        self._how, self._cut = how, cut

    def __call__(self, number: int, future: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if number == self.nth:
            self.happened = True
            if self._cut is not None:
                self._cut()
            if self._how == "answered" and future is not None:
                future.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()
        elif self.happened and self._how == "twice":
            task.cancel()


def every_point(
    how: str = "waiting", cut: Callable[[], object] | None = None
) -> Iterator[Cancelling]:
    """A cancellation at the first suspension, at the second, ..., until there is no such one."""
    for nth in itertools.count(1):
        yield (cancelling := Cancelling(nth, how, cut))
        if not cancelling.happened:
            return


async def cancelled_at(awaitable: Awaitable[T], cancelling: Cancelling) -> T | None:
    """Run in a task of its own; None if it was cancelled, and it must be if that was asked for."""

    async def body() -> T:
        return await Stepped(awaitable, cancelling)

    task = asyncio.ensure_future(body())
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done(), "it hangs"
    assert task.cancelled() == cancelling.happened, "a cancellation was swallowed"
    return None if task.cancelled() else task.result()
