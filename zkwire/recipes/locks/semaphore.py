"""The semaphore: it makes leases, of which at most ``count`` are held at a time.

What a lease does is in :mod:`zkwire.recipes.locks.lease`; each is a lock of its own.
"""

from __future__ import annotations

from zkwire.recipes.locks.contenders import contenders
from zkwire.recipes.locks.lease import LastTry, SemaphoreLease
from zkwire.recipes.locks.sequential_entry import of_kazoo
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.contenders import Contender
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.runtime import Runtime


class SemaphoreView(PathView):
    """What a semaphore shows."""

    @property
    def count(self) -> int:
        """How many leases there are at a time."""
        return self._algorithm._count

    def lease(self) -> Any:
        """A lease that is not acquired yet: a lock like all others, for one contender.

            with semaphore.lease() as lease:
                ...

        ``held``, ``fence``, ``lost``, ``acquire(timeout)``, ``within(timeout)``, ``release()`` and
        the rest are as a lock's.  Nothing is asked of a server before it is acquired.
        """
        raise NotImplementedError


class Leases(SemaphoreView):
    """The algorithm of the semaphore: its leases share what the last try has found."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        count: int,
        text: str = "",
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._runtime, self._path, self._count = runtime, path, count
        self._for_kazoo = of_kazoo(names)
        self._arguments = (runtime, path, count, text, acl, LastTry())
        SemaphoreLease(*self._arguments)  # checks the arguments

    async def holders(self) -> list[Contender]:
        """The holders of the leases, in order: the first ``count``; behind them the next ones.

        The rest of the queue stands in the node ``locks`` below the path; with ``names="kazoo"`` it
        is in another node, and all that are shown hold.  Not a snapshot.  It only
        reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        folder = self._path if self._for_kazoo else f"{self._path}/leases"
        return await contenders(self._runtime, folder, numbered=not self._for_kazoo)
