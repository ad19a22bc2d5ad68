"""One ephemeral node is the lock: whoever has created it holds it.

The node's content is the attempt's unique id.  With ``wait`` this is the blocking lock: everybody
who finds the node watches it and tries again when it is gone.  All waiters wake at each release and
all but one lose (the herd effect), and nothing says who wins: :mod:`zkwire.recipes.sequential` is
the fair lock.

When the connection is lost during the create, nobody knows whether it took effect.  So it is
created again, and "node exists" leads to a look at who owns the node: this attempt (the first try
had worked), somebody else, or nobody any more (start over).  Each of these steps can lose the
connection again.
"""

from __future__ import annotations

from zkwire.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
)
from zkwire.paths import parent
from zkwire.recipes.lock import Attempt, LockCore
from zkwire.recipes.world import persist
from zkwire.watches import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.model import DataAndStat
    from zkwire.verbs import Verbs


class SingleNodeLock(LockCore):
    """The algorithm of the blocking lock and, for one try, of the non-blocking one.

    All holders' nodes have one path.  If an outsider deletes the holder's, and somebody else makes
    it anew before the holder hears of it, a release that is on its way takes that one away: a
    server compares the version only, which is the same.  The sequential lock has no such weakness.
    """

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        while True:
            if await self._create(attempt, deadline):
                return True
            if not wait:
                return False
            watch = Watch()
            try:
                # get_data and not exists: it leaves no watch behind on a node that is gone.
                read = self.world.verbs.get_data
                seen = await persist(self.world, deadline, read, self.path, watch=watch)
                if self._adopt(attempt, seen):
                    return True
                if await self.world.event(watch, deadline) is None:
                    raise OperationTimeoutError(f"{self.path} was not free in time")
            except NoNodeError:
                pass  # freed between the create and the look
            finally:
                watch.close()

    async def _create(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the node; False if it is somebody else's."""
        verbs, doubt = self.world.verbs, False
        while True:
            attempt.entered = True
            create = verbs.create_with_stat(self.path, attempt.id.encode(), ephemeral=True)
            try:
                attempt.node, attempt.stat = await self.world.until(create, deadline)
                return True
            except NodeExistsError:
                if not doubt:
                    attempt.entered = False
                    return False
                try:
                    seen = await persist(self.world, deadline, verbs.get_data, self.path)
                except NoNodeError:
                    continue  # gone meanwhile, whosever it was
                attempt.entered = self._adopt(attempt, seen)
                return attempt.entered
            except NoNodeError:
                await self._provide(parent(self.path), deadline)
            except NotSentError:
                pass
            except OutcomeUnknownError:
                doubt = True

    def _adopt(self, attempt: Attempt, seen: DataAndStat) -> bool:
        """Whether the node that was seen is this attempt's; then it is taken over.

        NodeExistsError if it is nobody's: it would go with no session, and the wait never end.
        """
        if not self._is_own(attempt, seen):
            if seen.stat.ephemeral_owner == 0:
                message = f"{self.path} is no lock: the node there is not ephemeral"
                raise NodeExistsError(message, path=self.path)
            return False
        attempt.node, attempt.stat, attempt.entered = self.path, seen.stat, True
        return True

    def _is_own(self, attempt: Attempt, seen: DataAndStat) -> bool:
        if attempt.stat is not None:
            return seen.stat.czxid == attempt.stat.czxid  # whatever has been written into it
        owner = seen.stat.ephemeral_owner
        return owner == self.world.session_id and seen.data == attempt.id.encode()

    async def _leave(self, verbs: Verbs, attempt: Attempt) -> None:
        while True:
            # sync: a server that is behind could still show this node where another's is by now.
            sync, read = verbs.sync(self.path), verbs.get_data(self.path)
            try:
                await sync
                seen = await read
                if self._is_own(attempt, seen):
                    await verbs.delete(self.path, seen.stat.version)
                return
            except BadVersionError:
                continue  # somebody has written into it; it is still this attempt's


class TriedOnce(SingleNodeLock):
    """The non-blocking lock: it waits for an answer, and for no holder, a multi-lock's part too."""

    waits = False
