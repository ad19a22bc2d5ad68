"""A service that several callers wait for at a time, each for something of its own."""

from __future__ import annotations

from contextlib import contextmanager

from zkwire.errors import OperationTimeoutError
from zkwire.recipes.services.service import Condition, Service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from zkwire.recipes.services.service import Sessions


class AwaitedService(Service):
    """Its background steps call :meth:`_changed` behind each change of what callers wait for."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__(sessions)
        self._waiting: dict[Condition, None] = {}
        self._leaving = False  # it ends by itself, behind what it has to do for that

    def _leave(self) -> None:
        """Begin to close, in the background: where nothing may await.  Idempotent."""
        raise NotImplementedError

    def _changed(self) -> None:
        for condition in list(self._waiting):
            condition.notify()

    async def _until(self, holds: Callable[[], bool], timeout: float | None) -> bool:
        """Whether it holds within the time; raises what has ended the service, or the client."""
        with self._notified(lambda: self._over or holds()) as condition:
            return await self._wait(condition, timeout)

    @contextmanager
    def _notified(self, holds: Callable[[], bool]) -> Generator[Condition, None, None]:
        """A condition that each :meth:`_changed` notifies meanwhile."""
        condition = Condition(holds)
        self._waiting[condition] = None
        try:
            yield condition
        finally:
            self._waiting.pop(condition, None)

    async def _left(self, path: str, limit: float | None) -> None:
        """Wait for the end of one that is ``_leaving``; raises the error that has kept it."""
        earlier = self._error
        with self._notified(lambda: self._over) as over:
            in_time = await self._sessions.holds(over, limit)
        if self._error is not earlier and self._error is not None:
            raise self._error
        if not in_time:
            message = "it did not end in time, and goes on to do so in the background"
            raise OperationTimeoutError(message, op="close", path=path, maybe_applied=True)
