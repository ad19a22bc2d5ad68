"""A double barrier: so many members begin together, and end together.

To enter, a member creates its node and waits for a round that begins with it; the one that sees
enough of them there begins it.  To leave, a member deletes its node and waits until no member of
its round is left; only the lowest keeps its node until it is alone, so that its end wakes all
others, once.  What a round is: :mod:`zkwire.recipes.rounds`.

A member that comes while a round is on waits for the next one.
"""

from __future__ import annotations

from zkwire.errors import NodeExistsError, NoNodeError, OperationTimeoutError
from zkwire.recipes.attempt import Attempt, LockInUseError
from zkwire.recipes.entry import Entry
from zkwire.recipes.runtime import persist
from zkwire.recipes.rounds import ANY, READY, Rounds, Seen
from zkwire.recipes.sequential_entry import encoded
from zkwire.recipes.trees import ensure_path
from zkwire.recipes.view import PathView
from zkwire.session.waitable import check_timeout
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import Runtime


class Member(PathView, Entry):
    """The algorithm of one member; see :class:`zkwire.DoubleBarrier`."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        count: int,
        text: str = "",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"a double barrier has at least one member, not {count!r}")
        super().__init__(runtime, path, acl)
        self._count = count
        self._data = encoded(text)
        self._rounds = Rounds(runtime, path, self._acl)
        self._inside: Attempt | None = None
        self._round = 0

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter together with ``count`` members; False if there was no round within ``timeout``.

        Without a limit it waits as long as it takes.  A lost connection is no error.  When this
        returns False, raises, is cancelled or interrupted, this is no member, and its node is being
        deleted.  A round that had begun at this very moment counts it as one that has left.

        RuntimeError if this object is inside, or in use by another thread or task.
        """
        if self._inside is not None:
            raise LockInUseError("this member is inside already; it leaves first")
        return await self._in_time(self._enter, timeout)

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all members of the round have; False if they have not in time.

        It has left in any case, also when this raises, is cancelled or interrupted: its node is
        deleted, at the latest with its session, and no other member waits for it.  A member that
        has died counts as one that has left.  RuntimeError if this object is not inside.
        """
        if self._inside is None:
            raise RuntimeError("this member is not inside: enter first")
        return await self._in_time(self._exit, timeout)

    async def _in_time(self, step: Any, timeout: float | None) -> bool:
        limit = check_timeout("timeout", timeout)
        deadline = None if limit is None else self._runtime.now() + limit
        self._runtime.check()
        if self._busy:
            raise LockInUseError("another thread or task uses this very member")
        self._busy = True
        try:
            self._runtime.engaged.add(self)
            await step(deadline)
            return True
        except OperationTimeoutError:
            return False
        finally:
            try:
                self._clean_up_pending()
            finally:
                self._busy = False
                self._disengage()

    async def _enter(self, deadline: float | None) -> None:
        await self._runtime.connected(deadline)
        attempt = Attempt(self._runtime.session_id, self._runtime.unique())
        attempt.node, attempt.entered = f"{self._path}/{attempt.id}", True
        self._pending_cleanup = attempt
        begun = False
        while not self._round:
            watch = Watch()
            try:
                seen = await self._look(attempt, deadline, watch)
                if begun and seen.round == 0:
                    self._round = ANY  # kazoo's first member to leave deletes what says which
                elif await self._step(attempt, seen, deadline, watch):
                    event = await self._runtime.event(watch, deadline)
                    if event is None:
                        raise OperationTimeoutError
                    begun = event.type is EventType.NODE_CREATED
            finally:
                watch.close()
        # interrupt-safe: the last two stores
        self._inside, self._pending_cleanup = attempt, None
