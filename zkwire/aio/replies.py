"""The answer to come of one operation, under asyncio."""

from __future__ import annotations

from functools import partial
from types import coroutine

from zkwire.calls import Call
from zkwire.replies import timed_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from zkwire.aio.pump import AsyncPump


class AsyncReply(Call):
    """Await it, now or later, once or often, in any number of tasks.

    The request is on its way already.  When the last await is cancelled, a request that had not
    been sent is taken back; one that had been is still executed, in its place in the order.
    """

    __slots__ = ("pump",)
    pump: AsyncPump

    def __await__(self) -> Generator[Any, None, Any]:
        if self.outcome is None:
            yield from self._answered(self.pump.operation_timeout)  # pyright: ignore
        return self.value()

    async def within(self, timeout: float | None) -> Any:
        """The result, at most ``timeout`` seconds from now; else OperationTimeoutError."""
        if self.outcome is None:
            await self._answered(timeout)
        return self.value()

    # A generator, beside AsyncPump.until: as a coroutine in a coroutine it costs a seventh more CPU
    # time with ten tasks at a time.
    @coroutine
    def _answered(self, timeout: float | None) -> Generator[Any, None, None]:
        """Return when there is an answer; give up as told, or when cancelled."""
        pump = self.pump
        loop = pump.start()  # an await in another loop is refused and takes nothing back
        future = loop.create_future()
        wake = partial(pump.wake, future)
        timer = None if timeout is None else loop.call_later(timeout, wake)
        self.wakers += (wake,)
        taken_back = False
        try:
            yield from future
        finally:
            if timer is not None:
                timer.cancel()
            if self.outcome is None:
                self.drop_waker(wake)
                taken_back = not self.wakers and pump.abandon(self)
        if taken_back or self.outcome is None:
            raise timed_out(self, timeout, taken_back)

    def result(self, timeout: float | None = None) -> Any:
        """The result if the operation has ended; RuntimeError before that: await it."""
        return self.value()
