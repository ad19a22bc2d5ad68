"""The event loop that a client belongs to, and how what comes from elsewhere gets there.

The client is the loop's from its first use on.  Only the loop's thread may touch the session, and
not while it is in the middle of that; a finalizer runs in any thread and at any moment.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from functools import partial

from zkwire.aio.calling import Calling
from zkwire.errors import ForkedError
from zkwire.net.forking import remember
from zkwire.net.serving import ServingDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from types import CodeType, FrameType
    from typing import Any, TypeVar

    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable

    Function = TypeVar("Function", bound=Callable[..., object])

LOOP_CLOSED = "the client's event loop has been closed"

_work: set[CodeType] = set()  # of what is uninterruptible


def uninterruptible(function: Function) -> Function:
    """A function in the middle of which the session must not be touched."""
    _work.add(function.__code__)
    return function


def in_the_middle() -> bool:
    """Whether the caller's caller interrupts the work of this thread for a client.

    A finalizer does, when the collector runs it there.  The stack tells: a note of it would cost
    each operation something.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in _work:
        frame = frame.f_back
    return frame is not None


class LoopBound(Calling, ServingDriver):
    """A driver that belongs to an event loop; see the module's docstring."""

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        Calling.__init__(self)
        ServingDriver.__init__(self, session, rng, **options)
        self.mutex: Any = nullcontext()
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        """Begin to connect unless that has been done; returns the running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not None and loop is self.loop and not self.forked:
            return loop
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make an AsyncClient in this process"
            )
        if loop is None:
            raise RuntimeError("no running event loop: call this in a coroutine")
        if self.loop is not None:
            raise RuntimeError("this AsyncClient belongs to another event loop")
        if type(loop).add_reader is asyncio.AbstractEventLoop.add_reader:
            raise RuntimeError(
                f"{type(loop).__name__} cannot wait for a socket; on Windows use "
                "asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)"
            )
        self.loop = loop
        remember(self)
        self._begin(loop)
        return loop

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to connect."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise RuntimeError in another event loop, ForkedError in a forked child."""
        self.start()

    @property
    def loop_closed(self) -> bool:
        """Whether the client's loop has been closed: nothing can happen any more."""
        return self.loop is not None and self.loop.is_closed()

    @property
    def outside(self) -> bool:
        """Whether the client's loop, which may be running, does not run this."""
        if self.loop is None or self.loop.is_closed():
            return False
        try:
            return asyncio.get_running_loop() is not self.loop
        except RuntimeError:
            return True

    def call_soon(self, function: Callable[[], object]) -> bool:
        """Have the loop call ``function``, from any thread; False if it never will."""
        if self.loop is None:
            return False
        call = self.loop.call_soon_threadsafe if self.outside else self.loop.call_soon
        try:
            call(function, context=self.context.copy())
        except RuntimeError:  # it is closed
            return False
        return True

    def when_ready(self, waitable: Waitable, function: Callable[[], object]) -> None:
        """Call ``function`` as soon as ``waitable`` is ready; it must be quick and never wait."""
        if self.outside:
            self.call_soon(partial(self.when_ready, waitable, function))
        else:
            super().when_ready(waitable, function)

    def replace_hosts(self, hosts: list[tuple[str, int]]) -> None:
        """The ensemble has these servers now; an empty list says nothing."""
        if self.outside and self.call_soon(partial(self.replace_hosts, hosts)):
            return
        super().replace_hosts(hosts)

    def dispatch(self, function: Callable[[], object]) -> None:
        """Call a user's function soon; a coroutine that it returns runs as a task."""
        self.call_soon(partial(self._call, function))

    def never_retrieved(self, error: BaseException) -> None:
        """Report an operation whose error went unnoticed, as a future's."""
        if self.loop is not None and not self.forked:
            what = "the error of an operation was never retrieved"
            tell = partial(self.loop.call_exception_handler, {"message": what, "exception": error})
            if not self.call_soon(tell):
                tell()
