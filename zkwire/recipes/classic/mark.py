"""A mark: what tells, after a lost reply, whether a change was made.

A multi makes a change and writes a token, which no other change has, into an ephemeral node, the
mark: the client's own, and in the hands of one change at a time.  Each try of a change names the
same version of the mark, so only one of them can take effect, also if one arrives late; and one
look at the mark says whether one has.  Its mzxid is that of the change.

The mark is a child of the node that is changed: it cannot outlive it, so what a change has left in
the mark (the node's data and version, for the next change to begin with) is about this very node
and not about another one that was created on its path since.

A client keeps the marks that no change uses, ``KEPT`` of them at most, for the next changes.  One
whose change has not ended well is deleted.  All go with the session.  Invariant: nothing but the
client deletes its marks; where an outsider does, a change that is in doubt says so, but for a
mark's first one, which may be made twice.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    ConnectionLossError,
    MultiError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    ZooKeeperError,
)
from zkwire.jute.records import Stat
from zkwire.operations.multi import Create, SetData
from zkwire.recipes.attempt import Attempt
from zkwire.recipes.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.operations import Operations
    from zkwire.operations.multi import Operation

KEPT = 64


class Mark(Attempt):
    """A mark below one node; ``version`` is -1 while it is not there."""

    __slots__ = ("below", "seen", "version")

    def __init__(self, session_id: int, unique: str, below: str) -> None:
        super().__init__(session_id, unique)
        self.below: str = below
        self.node = f"{below}/{self.id}-mark"
        self.version: int = -1
        self.seen: tuple[bytes, int] | None = None  # data and version that the change has left


class Marks(Entry):
    """The marks of one client below one node."""

    def new(self) -> Mark:
        """A mark for one change; it is to be kept or dropped behind that."""
        return Mark(self._runtime.session_id, self._runtime.unique(), self._path)

    def take(self) -> Mark | None:
        """The same, one that is there already, if there is one."""
        idle = self._runtime.idle_marks
        for mark in reversed(tuple(idle)):
            if mark.below == self._path:
                with suppress(ValueError):  # another thread has taken it
                    idle.remove(mark)
                    return mark
        return None

    def keep(self, mark: Mark) -> None:
        """The change has ended well."""
        idle = self._runtime.idle_marks
        if mark.version >= 0:
            idle.append(mark)
        if len(idle) > KEPT:
            with suppress(IndexError):  # other threads have taken them
                self.drop(idle.pop(0))

    def drop(self, mark: Mark) -> None:
        """Delete the mark, in the background; called where nothing may await."""
        self._clean_up_after(mark)

    async def change(self, mark: Mark, operations: list[Operation], deadline: float | None) -> int:
        """Execute the operations, a SetData among them, exactly once; the zxid of the change.

        MultiError: none of it is done; the mark itself is behind the operations.  Any other error
        says whether it may be: ``maybe_applied``.
        """
        token = self._runtime.unique().encode()
        step = SetData(mark.node or "", token, mark.version)
        if mark.version < 0:
            step = Create(mark.node or "", token, self._acl, ephemeral=True)
        mark.entered, tried, doubt = True, False, False
        try:
            while True:
                try:
                    multi = self._runtime.operations.multi([*operations, step])
                    results = await self._runtime.until(multi, deadline)
                    zxid = max(result.mzxid for result in results if isinstance(result, Stat))
                    break
                except NotSentError:
                    continue
                except (MultiError, OutcomeUnknownError) as error:
                    refused = isinstance(error, MultiError)
                    if refused and not tried:
                        mark.entered = mark.version >= 0
                        raise
                    tried = doubt = True
                    found = await self._look(mark, token, deadline)
                    doubt = False
                    if found is None and refused:
                        raise
                if found is not None:
                    zxid = found
                    break
        except ZooKeeperError as error:
            error.maybe_applied = error.maybe_applied or doubt
            raise
        mark.version += 1
        return zxid

    async def _look(self, mark: Mark, token: bytes, deadline: float | None) -> int | None:
        """The zxid of the change if it has been made."""
        operations, node = self._runtime.operations, mark.node or ""
        while True:
            # sync: a server that is behind could still show the mark as it was before.
            synced, read = operations.sync(node), operations.get_data(node)
            try:
                await self._runtime.until(synced, deadline)
                data, stat = await self._runtime.until(read, deadline)
                return stat.mzxid if data == token else None
            except ConnectionLossError:
                continue
            except NoNodeError:
                if mark.version < 0:
                    return None
                raise OutcomeUnknownError(
                    "its mark was deleted, perhaps with all of the node: read it and decide",
                    path=self._path,
                ) from None

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        await operations.delete(attempt.node or "")
