"""The election: a queue of candidates, of which the first leads.  Leadership is a fair lock."""

from __future__ import annotations

from functools import partial

from zkwire.recipes.locks.contenders import contenders
from zkwire.recipes.locks.sequential import AsyncSequentialLock
from zkwire.recipes.runtime import runtime_of
from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.contenders import Contender
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.runtime import AsyncClientLike


class AsyncElection(PathView):
    """One leader at a time; leadership is lost exactly as a lock is.

        election = AsyncElection(client, "/election", "worker-7")
        async with election.lead() as leadership, leadership.cancel_on_loss():
            ...

    ``text`` tells others which candidate this is.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._runtime = runtime_of(client)
        self._new = partial(AsyncSequentialLock, client, path, text, acl=acl, names=names)
        self._path: str = self._new().path  # which checks the arguments

    def lead(self) -> AsyncSequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        return self._new()

    async def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot.

        It only reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return await contenders(self._runtime, self._path)

    async def leader(self) -> Contender | None:
        """The leader at this moment, as far as the server that was asked knows; None without one.

        Errors are those of :meth:`candidates`.
        """
        return next(iter(await self.candidates()), None)
