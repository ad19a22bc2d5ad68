"""A service that ends by itself, after what it has to do for that."""

from __future__ import annotations

from zkwire.errors import OperationTimeoutError
from zkwire.recipes.services.service import Service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Sessions


class AwaitedService(Service):
    """Its background steps call :meth:`_changed` behind each change of what callers wait for."""

    def __init__(self, sessions: Sessions, on_problem: OnProblem | None = None) -> None:
        super().__init__(sessions, on_problem)
        self._leaving = False  # it ends by itself, behind what it has to do for that

    def _leave(self) -> None:
        """Begin to close, in the background: where nothing may await.  Idempotent."""
        raise NotImplementedError

    async def close(self, timeout: float | None = 10.0) -> None:
        """End it, within ``timeout`` seconds."""
        raise NotImplementedError

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        try:
            await self.close()
        except OperationTimeoutError:
            if kind is None:
                raise

    def _abandon(self) -> None:
        self._leave()

    async def _left(self, path: str, limit: float | None) -> None:
        """Wait for the end of one that is ``_leaving``; raises the error that has kept it."""
        if self._over:
            return
        in_time, refusal = await self._outcome(lambda: False, limit)
        kept_by = self._error or (None if self._over else refusal or self._problem)
        if kept_by is not None:
            raise kept_by
        if not in_time:
            message = "it did not end in time, and goes on to do so in the background"
            raise OperationTimeoutError(message, op="close", path=path, maybe_applied=True)
