"""The semaphore: it makes leases, of which at most ``count`` are held at a time.

What a lease does is in :mod:`zkwire.recipes.locks.lease`; each is a lock of its own.
"""

from __future__ import annotations

from zkwire.recipes.locks.contenders import contenders
from zkwire.recipes.locks.kazoo_lease import KazooLease
from zkwire.recipes.locks.lease import AsyncLease, LastTry
from zkwire.recipes.locks.sequential_entry import of_kazoo
from zkwire.recipes.runtime import runtime_of
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.contenders import Contender
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.runtime import AsyncClientLike


class AsyncSemaphore(PathView):
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = AsyncSemaphore(client, "/locks/printers", 3)
        async with semaphore.lease() as lease:
            ...

    The semaphore itself is made to be shared; each contender has a lease of its own.  All must
    agree on the count: it is written down, and ValueError tells of another one.  That node stays
    when the last lease is released; delete it when none will be wanted.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._runtime = runtime = runtime_of(client)
        self._path, self._count = path, count
        self._for_kazoo = of_kazoo(names)
        self._arguments = (runtime, path, count, text, acl, LastTry())
        AsyncLease(*self._arguments)  # checks the arguments

    @property
    def count(self) -> int:
        """How many leases there are at a time."""
        return self._count

    def lease(self) -> AsyncLease:
        """A lease that is not acquired yet: a lock like all others, for one contender.

            async with semaphore.lease() as lease:
                ...

        ``held``, ``fence``, ``lost``, ``acquire(timeout)``, ``within(timeout)``, ``release()`` and
        the rest are as a lock's.  Nothing is asked of a server before it is acquired.
        """
        kind = KazooLease if self._for_kazoo else AsyncLease
        return kind(*self._arguments)

    async def holders(self) -> list[Contender]:
        """The holders of the leases, in order: the first ``count``; behind them the next ones.

        The rest of the queue stands in the node ``locks`` below the path; with ``names="kazoo"`` it
        is in another node, and all that are shown hold.  Not a snapshot.  It only
        reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        folder = self._path if self._for_kazoo else f"{self._path}/leases"
        return await contenders(self._runtime, folder, numbered=not self._for_kazoo)
