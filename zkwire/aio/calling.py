"""How functions of a user's are called from the event loop: what they return may be a coroutine.

Each call has a copy of the context (``contextvars``) in which the client was made.  Without that it
would have the context of a task that happened to connect, and the loop would keep that alive.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Calling:
    """Calls functions, and keeps the coroutines that they return running."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()  # callbacks that are coroutines
        self.context: Context = copy_context()

    def _call(self, function: Callable[[], object]) -> None:
        result = function()  # errors go to the loop's exception handler
        if asyncio.iscoroutine(result):
            task = asyncio.ensure_future(result)
            self._running.add(task)
            task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": "a callback has failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)
