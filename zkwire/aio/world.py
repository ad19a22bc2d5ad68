"""What the recipes ask of the asyncio client; the interface is in :mod:`zkwire.recipes.world`."""

from __future__ import annotations

from zkwire.aio.replies import AsyncReply
from zkwire.client_world import ClientWorld
from zkwire.errors import OperationTimeoutError
from zkwire.replies import BackgroundReply, Pipeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import TypeVar

    from zkwire.aio.pump import AsyncPump
    from zkwire.calls import Waitable
    from zkwire.model import Event
    from zkwire.verbs import Reply
    from zkwire.watches import Watch

    T = TypeVar("T")


class AsyncWorld(ClientWorld):
    """A client as its recipes see it: every await suspends the task."""

    def __init__(self, pump: AsyncPump, chroot: str, rng: Random) -> None:
        verbs = Pipeline(pump, chroot, AsyncReply, eager=False)
        super().__init__(pump, verbs, Pipeline(pump, chroot, BackgroundReply), rng)

    def check(self) -> None:
        """Raise RuntimeError in another event loop, ForkedError in a forked child."""
        self._pump.start()

    async def connected(self, deadline: float | None) -> None:
        """Wait for a usable connection; raises what ended the session, or OperationTimeoutError."""
        session = self._pump.session
        if not await self._pump.until(session.change, self._left(deadline)):
            raise OperationTimeoutError("no server could be reached in time")
        if session.over:
            raise session.ending()

    async def until(self, reply: Reply[T], deadline: float | None) -> T:
        """The reply's result; OperationTimeoutError when the deadline passes first."""
        assert isinstance(reply, AsyncReply)
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
        """Wait until ``waitable`` is ready."""
        await self._pump.until(waitable)
