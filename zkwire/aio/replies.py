"""The answer to come of one operation, under asyncio."""

from __future__ import annotations

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
        return self.within(self.pump.operation_timeout).__await__()

    async def within(self, timeout: float | None) -> Any:
        """The result, at most ``timeout`` seconds from now; else OperationTimeoutError."""
        if self.outcome is None:
            in_time = False
            self.pump.start()  # an await in another loop is refused and takes nothing back
            try:
                in_time = await self.pump.until(self, timeout)
            finally:
                taken_back = not (self.ready or self.wakers) and self.pump.abandon(self)
            if not in_time and (taken_back or not self.ready):
                raise timed_out(self, timeout, taken_back)
        return self.value()

    def result(self, timeout: float | None = None) -> Any:
        """The result if the operation has ended; RuntimeError before that: await it."""
        return self.value()
