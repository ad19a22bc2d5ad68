"""One lease of a semaphore that is shared with kazoo's Semaphore, whose layout this has.

    /path                 the number of leases is its data; each child is a lease
    /path-__lock__        a lock, as kazoo's Lock: who holds it may look, and create a lease

There is no order among the leases, so what keeps their number is the lock alone.  Here the server
creates a lease only if it still finds the lock's node, so one that was lost meanwhile makes no
lease too many.  (kazoo's Semaphore does not ask for that.)
"""

from __future__ import annotations

from zkwire.errors import ConnectionLossError, NodeExistsError, NoNodeError
from zkwire.operations.multi import Check, Create
from zkwire.recipes.locks.lease import AsyncLease
from zkwire.recipes.runtime import one_refusal, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.locks.sequential import Place


class KazooLease(AsyncLease):
    """The algorithm of one lease; see the module's docstring."""

    _names = "kazoo"
    _leases, _locks = "", "-__lock__"
    _numbered = False

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        try:
            while True:
                await self._agree(deadline)
                if wait and self._runtime.resumed:
                    await self._refuse_former(attempt, await self._list(deadline), deadline)
                if not await self._queue._acquire_by(deadline, wait):
                    return False
                if not await self._vacant(deadline, wait):
                    return False
                if await self._create_under_lock(attempt, deadline):
                    await self._queue._step_out(deadline)
                    return True
                self._queue._release_later()  # it was lost meanwhile
        finally:
            self._queue._release_later()

    def _counted(self, names: list[str]) -> list[Place]:
        return [(0, name) for name in names]

    async def _create_under_lock(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the lease; False if the server does not find the lock held any more."""
        runtime, operations = self._runtime, self._runtime.operations
        node = f"{self._path}/{attempt.id}"
        held = f"{self._queue._path}/{self._queue._node_name}"
        claim = [Check(held), Create(node, self._data, self._acl, ephemeral=True)]
        attempt.node, attempt.entered = node, True
        while True:
            try:
                await one_refusal(runtime.until, operations.multi(claim), deadline)
            except ConnectionLossError:
                continue  # the name is the attempt's own, so repeating makes no second node
            except (NoNodeError, NodeExistsError):
                pass  # an earlier try may have worked, and the lock be gone since
            attempt.stat = await persist(runtime, deadline, operations.exists, node)
            return attempt.stat is not None
