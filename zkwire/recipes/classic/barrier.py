"""A barrier: closed while its node is there, for as many clients as wait.

The layout is that of kazoo's Barrier and Curator's DistributedBarrier: one persistent node, of
which nothing but its being there matters.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import ConnectionLossError, NoNodeError, OperationTimeoutError
from zkwire.operations.checks import check_acl
from zkwire.recipes.runtime import deadline_of, in_time, persist, runtime_of, within
from zkwire.recipes.trees import ensure_path
from zkwire.recipes.view import PathView
from zkwire.session.watch import Watch
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike


class AsyncBarrier(PathView):
    """A barrier that holds up all that come while it is closed.

        barrier = AsyncBarrier(client, "/maintenance")
        await barrier.close()       # from here on the others wait
        ...
        await barrier.open()

        await barrier.wait(60)      # the others: True when it is open

    It is closed while its node is there, whatever becomes of the client that has closed it.  Any
    client may close or open it.  kazoo's Barrier and Curator's DistributedBarrier are the same.

    Raises ValueError for a bad path.
    """

    def __init__(
        self, client: AsyncClientLike, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._runtime = runtime_of(client)
        self._path = check_below_root(path, "a barrier")
        self._acl = None if acl is None else check_acl(acl)

    async def close(self, timeout: float | None = None) -> None:
        """Close the barrier; nothing happens if it is closed.

        A lost connection is no error: the request is repeated, until a server has answered.  If the
        lost one was executed and another client has opened the barrier since, the repetition closes
        it again.  OperationTimeoutError after ``timeout`` seconds, without one after the
        ``operation_timeout``: call it again, or ``open``.
        """
        await ensure_path(self._runtime, self._path, self._acl, within(self._runtime, timeout))

    async def open(self, timeout: float | None = None) -> None:
        """Open the barrier for all that wait; nothing happens if it is open.

        Ends as :meth:`close` does; a repetition opens again what another client has closed since.
        NotEmptyError if the node has children: it is then no barrier.
        """
        with suppress(NoNodeError):
            delete = self._runtime.operations.delete
            await persist(self._runtime, within(self._runtime, timeout), delete, self._path)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the barrier is open; True then, False after ``timeout`` seconds without.

        Without a limit it waits as long as it takes; with 0 it looks once, for which a server has
        the ``operation_timeout``, without one two session timeouts.  A lost connection is no error,
        and no watch stays behind.
        """
        deadline = deadline_of(self._runtime, timeout)
        answer = in_time(self._runtime, None) if timeout == 0 else deadline
        operations = self._runtime.operations
        while True:
            try:
                with closing(Watch()) as watch:
                    # sync: what another client has closed before this call is closed for this one.
                    # get_data and not exists: that leaves no watch behind where there is no node.
                    synced = operations.sync(self._path)
                    read = operations.get_data(self._path, watch=watch)
                    await self._runtime.until(synced, answer)
                    await self._runtime.until(read, answer)
                    if await self._runtime.event(watch, deadline) is None:
                        return False
            except NoNodeError:
                return True
            except ConnectionLossError:
                continue
            except OperationTimeoutError:
                return False
