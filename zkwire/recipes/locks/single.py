"""One ephemeral node is the lock: the attempt that has created it holds it.

It decides what a contender waits for, and what ends a grant.  How the node is made, found and
deleted is in :mod:`zkwire.recipes.locks.single_entry`.

With ``wait`` this is the blocking lock: each contender that finds the node watches it and tries
again when it is gone.  All waiters wake at each release and all but one lose (the herd effect), and
nothing says which one wins: :mod:`zkwire.recipes.locks.sequential` is the fair lock.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import BadVersionError, NoNodeError
from zkwire.operations.multi import Check
from zkwire.recipes.attempt import is_permanent, permanent
from zkwire.recipes.locks.lock import AsyncPathLock
from zkwire.recipes.locks.single_entry import SingleEntry
from zkwire.recipes.runtime import one_refusal, persist, runtime_of
from zkwire.session.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.attempt import Attempt
    from zkwire.recipes.runtime import AsyncClientLike


class SingleNodeLock(SingleEntry, AsyncPathLock):
    """The algorithm of both kinds."""

    def __init__(
        self, client: AsyncClientLike, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(runtime_of(client), path, acl)

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        while True:
            if await self._create(attempt, deadline):
                return True
            if not wait:
                if await is_permanent(self._runtime, deadline, self._path):
                    raise permanent(self._path)
                return False
            self._seen_taken = True
            with suppress(NoNodeError), closing(Watch()) as watch:  # freed since the create
                # get_data and not exists: it leaves no watch behind on a node that is gone.
                read = self._runtime.operations.get_data
                seen = await persist(self._runtime, deadline, read, self._path, watch=watch)
                if self._adopt(attempt, seen):
                    if await self._outlast(attempt, deadline):
                        return True
                elif await self._runtime.event(watch, deadline) is None:
                    raise self._taken_error(deadline)

    async def _free(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        runtime, operations = self._runtime, self._runtime.operations
        multi = operations.multi(self._end(attempt, version))
        try:
            await one_refusal(runtime.until, multi, deadline)
        except BadVersionError:
            sync, read = operations.sync(self._path), operations.get_data(self._path)
            await runtime.until(sync, deadline)
            if not self._is_own(attempt, await runtime.until(read, deadline)):
                raise NoNodeError(op="delete", path=self._path) from None
            raise

    def _proof(self, attempt: Attempt) -> list[Operation]:
        assert attempt.stat is not None
        # Of this version: the node could be one made by hand by now.
        return [Check(self._token(attempt)), Check(self._path, attempt.stat.version)]


class AsyncBlockingLock(SingleNodeLock):
    """A lock that waits: one ephemeral node, watched by every contender.

    Simple, but each release wakes all waiters, and any of them may win.  What a lock can promise
    is said at :class:`AsyncSequentialLock`.
    """


class AsyncNonBlockingLock(SingleNodeLock):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever ephemeral node stands there, and
    NodeExistsError names one that is not ephemeral, which does not go by itself.
    ``acquire(timeout)`` limits the time for the answer; without, it is :meth:`try_acquire`.
    """

    _waits = False
