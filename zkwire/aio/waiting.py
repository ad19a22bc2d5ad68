"""How a task waits for something, and how a scope cancels the task that works in it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Protocol

    from zkwire.session.waitable import Waitable

    class Told(Protocol):
        """A driver, as far as waits tell it of themselves."""

        def awaiting(self, waker: Callable[[], None], begins: bool) -> None: ...


# Keeps the tasks alive that await something of a client, and those keep the client: the loop itself
# holds neither.
_awaited: set[asyncio.Future[None]] = set()


def _wake(future: asyncio.Future[None]) -> None:
    """Let the task continue that awaits the future, if it still does and can."""
    if not (future.done() or future.get_loop().is_closed()):
        future.set_result(None)


async def within(
    loop: asyncio.AbstractEventLoop,
    waitable: Waitable,
    timeout: float | None,
    told: Told | None = None,
) -> bool:
    """Wait until ``waitable`` is ready, at most ``timeout`` seconds; whether it is.

    ``told``: what can end the wait, and wake it for that.
    """
    latest = None if timeout is None else loop.time() + timeout
    # Again if it was ready and is not any more, as a connection that has lasted a moment.
    while not (waitable.ready or (latest is not None and loop.time() >= latest)):
        future = loop.create_future()
        waker = partial(_wake, future)
        timer = None if latest is None else loop.call_at(latest, waker)
        waitable._add_waker(waker)
        _awaited.add(future)
        try:
            if told is not None:
                told.awaiting(waker, True)
            await future
        finally:
            _awaited.discard(future)
            if told is not None:
                told.awaiting(waker, False)
            if timer is not None:
                timer.cancel()
            waitable._drop_waker(waker)
    return waitable.ready


@asynccontextmanager
async def cancelled_by(
    add: Callable[[Callable[[object], None]], Callable[[], object]],
    error: Callable[[], Exception],
) -> AsyncGenerator[None, None]:
    """Cancel the body when something happens, then raise ``error()``.

    ``add`` has a function called when it happens, and returns one that undoes this.  As with
    ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
    """
    task, over = asyncio.current_task(), False
    if task is None:
        raise RuntimeError("only a task can be cancelled, and this is none")
    outside, cancelled = task.cancelling(), False

    def cancel(_: object = None) -> None:
        nonlocal cancelled
        if not over:
            cancelled = task.cancel()

    remove = add(cancel)
    try:
        yield
    except BaseException as raised:
        over = True
        if (
            not cancelled
            or task.uncancel() > outside
            or not isinstance(raised, asyncio.CancelledError)
        ):
            raise
        raise error() from None
    finally:
        remove()
    over = True
    if cancelled:  # and the body has ended before it noticed
        task.uncancel()
        raise error()
