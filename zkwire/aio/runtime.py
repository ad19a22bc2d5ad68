"""What the recipes ask of the asyncio client; the interface is in :mod:`zkwire.recipes.runtime`."""

from __future__ import annotations

from zkwire.aio.owners import tell_at_the_end_of_this_task, value_of_each_task
from zkwire.aio.replies import StepReply
from zkwire.errors import OperationTimeoutError
from zkwire.net.driver import ClientWorld
from zkwire.net.pipeline import BackgroundReply, Pipeline
from zkwire.session.states import StateWait
from zkwire.session.waitable import Waitable
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import TypeVar

    from zkwire.aio.driver import LoopDriver
    from zkwire.jute.records import ACL
    from zkwire.operations import Reply
    from zkwire.recipes.runtime import Owned
    from zkwire.session.waitable import Waker
    from zkwire.session.watch import Watch
    from zkwire.wire.model import Event

    T = TypeVar("T")


class Either(Waitable):
    """Ready once one of two is."""

    __slots__ = ("_two",)

    def __init__(self, first: Waitable, second: Waitable) -> None:
        self._two = first, second

    @property
    def ready(self) -> bool:
        """Whether one is."""
        return any(one.ready for one in self._two)

    def add_waker(self, waker: Waker) -> None:
        """Have ``waker`` called when one turns ready."""
        for one in self._two:
            one.add_waker(waker)

    def drop_waker(self, waker: Waker) -> None:
        """The opposite.  Idempotent."""
        for one in self._two:
            one.drop_waker(waker)


class AsyncWorld(ClientWorld):
    """A client as its recipes see it: every await suspends the task."""

    def __init__(
        self, pump: LoopDriver, chroot: str, rng: Random, acl: Sequence[ACL] = OPEN_ACL_UNSAFE
    ) -> None:
        operations = Pipeline(pump, chroot, StepReply, acl=acl, eager=False)
        super().__init__(pump, operations, Pipeline(pump, chroot, BackgroundReply), rng)

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the task that calls it."""
        return value_of_each_task(make)

    def when_caller_ends(self, lock: Owned) -> None:
        """Tell the lock, if it is owned then, when the running task has ended."""
        tell_at_the_end_of_this_task(lock)

    def check(self) -> None:
        """Raise RuntimeError in another event loop, ForkedError in a forked child."""
        self._pump.start()

    async def connected(self, deadline: float | None) -> None:
        """Wait for a usable connection; raises what ended the session, or OperationTimeoutError."""
        session = self._pump.session
        if not await self._pump.until(session.change, self._left(deadline)):
            raise OperationTimeoutError("no server could be reached in time")
        if session.ended:
            raise session.ending()

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result; OperationTimeoutError when the deadline passes first."""
        assert isinstance(reply, StepReply)
        self._pump.flush()  # what was asked for together leaves in one write
        result: T = await reply.within(self._left(deadline))
        return result

    async def event(self, watch: Watch, deadline: float | None) -> Event | None:
        """The watch's next event; None when the deadline passes first."""
        while (event := watch.take()) is None:
            if not await self._pump.until(watch, self._left(deadline)):
                return None
        return event

    async def ready(self, waitable: Waitable) -> None:
        """Wait until ``waitable`` is ready; raises what ended the session if that comes first."""
        session = self._pump.session
        over = StateWait((), session.state)
        self._pump.attach(over)
        try:
            await self._pump.until(Either(waitable, over))
        finally:
            self._pump.detach(over)
        if not waitable.ready:
            raise session.ending()
