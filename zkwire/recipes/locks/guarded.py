"""Operations that the server executes only for the holder of a lock.

The checks that prove it are those of the lock's kind.  It decides which refusal is theirs.
"""

from __future__ import annotations

from zkwire.errors import BadVersionError, LockLostError, MultiError, NoNodeError
from zkwire.operations.multi import Check
from zkwire.recipes.locks.claim import Claim
from zkwire.recipes.runtime import in_time
from zkwire.session.liveness import LAPSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from zkwire.operations.multi import Operation
    from zkwire.recipes.attempt import Attempt


class GuardedClaim(Claim):
    """A claim whose node the server can be asked about."""

    def _proof(self, attempt: Attempt) -> list[Operation]:
        """Checks that the server passes as long as the attempt's grant lasts."""
        assert attempt.node is not None
        # Of any version: what writes into the node does not take the lock away.
        return [Check(attempt.node)]

    async def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

            lock.guard([SetData("/report", data)])

        A check of the lock's own node goes with them, so a holder that has lost the lock without
        knowing cannot write.  Returns the operations' results.  Raises LockLostError if the lock is
        lost (nothing was done), else what ``client.multi`` raises, and OperationTimeoutError after
        the ``operation_timeout``, without one two session timeouts.

        If the connection is lost, or the caller is cancelled or interrupted, it is as with
        ``client.multi``: NotSentError says that nothing was done, OutcomeUnknownError that all or
        nothing was.  To repeat it under the same lock is safe if doing it twice does no harm.
        """
        self._runtime.check()
        checks = self._checks()
        multi = self._runtime.operations.multi([*checks, *operations])
        try:
            results = await self._runtime.until(multi, in_time(self._runtime, None))
        except MultiError as error:
            index = error.index - len(checks)
            if index >= 0:
                raise MultiError(error.results[len(checks) :], index) from error.__cause__
            refusal = error._culprit
            if not isinstance(refusal, (NoNodeError, BadVersionError)):
                raise refusal from error
            raise self._lost_before("the server does not find its node", "used") from error
        return results[len(checks) :]

    def _checks(self) -> list[Operation]:
        """What the server finds true as long as the lock is held; raises if it is not."""
        attempt = self._granted
        if attempt is None or attempt.node is None:
            raise RuntimeError("this lock object does not hold the lock")
        if not self._holds:
            raise self._lost_before(self._lost.reason or LAPSED, "used")
        return self._proof(attempt)

    def _lost_before(self, reason: str, done: str = "released") -> LockLostError:
        """The error for something that only a holder may do."""
        return LockLostError(
            f"{self._path} had been lost before it was {done}: {reason}",
            session_id=self._runtime.session_id,
        )
