"""A mark: what tells, after a lost reply, whether a change was made.

A multi makes a change and writes a token, which no other change has, into an ephemeral node, the
mark: the client's own, and in the hands of one call at a time.  Each try of a change names the
same version of the mark, so only one of them can take effect, also if one arrives late; and one
look at the mark says whether one has.  Its mzxid is that of the change.  To look for what the
change has made would not tell: another client may have removed it by then.

A client keeps the marks that no call uses, ``KEPT`` of them at most, for the next calls.  One of
which the state is unknown is deleted.  All go with the session.  Invariant: nothing but the client
deletes its marks; where an outsider does, a change that is in doubt says so, but for one that has
made its mark itself: that may be made twice.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ZooKeeperError,
)
from zkwire.operations.multi import Create, SetData
from zkwire.recipes.attempt import Attempt
from zkwire.recipes.entry import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations
    from zkwire.operations.multi import Operation

KEPT = 64
USES = 1_000_000
"""Of one mark: a version has 31 bits."""


class Mark(Attempt):
    """A mark in one folder; ``version`` is -1 while it is not there.

    ``in_doubt``: its state is unknown.  ``seen``: what a change has left for the next one to begin
    with, the data and version of the folder's own node.
    """

    __slots__ = ("folder", "in_doubt", "seen", "version")

    def __init__(self, session_id: int, unique: str, folder: str) -> None:
        super().__init__(session_id, unique)
        self.folder: str = folder
        self.node = f"{folder}/{self.id}-mark"
        self.version: int = -1
        self.in_doubt: bool = False
        self.seen: tuple[bytes, int] | None = None

    def written(self, token: bytes, acl: Sequence[ACL] | None) -> list[Operation]:
        """What writes the token into it; the last of these has a stat for its result."""
        node = self.node or ""
        if self.version >= 0:
            return [SetData(node, token, self.version)]
        return [Create(node, b"", acl, ephemeral=True), SetData(node, token, 0)]


class Marks(Entry):
    """The marks of one client in one folder."""

    async def lend(self, deadline: float | None) -> Mark:
        """A mark that no other call uses; :meth:`give_back` is to follow."""
        await self._runtime.connected(deadline)  # its name begins with the session
        mark = self._take()
        return mark or Mark(self._runtime.session_id, self._runtime.unique(), self._path)

    def _take(self) -> Mark | None:
        idle = self._runtime.idle_marks
        for mark in reversed(tuple(idle)):
            if mark.folder == self._path:
                with suppress(ValueError):  # another thread has taken it
                    idle.remove(mark)
                    return mark
        return None

    def give_back(self, mark: Mark) -> None:
        """The call is over: the mark is for the next one if it is there for sure."""
        idle = self._runtime.idle_marks
        if mark.in_doubt or mark.version > USES:
            self.drop(mark)
        elif mark.version >= 0:
            idle.append(mark)
        if len(idle) > KEPT:
            with suppress(IndexError):  # other threads have taken them
                self.drop(idle.pop(0))

    def drop(self, mark: Mark) -> None:
        """Delete the mark, in the background; called where nothing may await."""
        self._clean_up_after(mark)

    async def execute(
        self, mark: Mark, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        """Execute the operations exactly once: their results, none after a lost reply; the zxid.

        That is 0 if an outsider has written into the mark since.
        MultiError if one of them is refused, NoNodeError if an outsider has deleted the mark, or
        written into it, or if there is no folder: nothing was executed.  Any other error says by
        ``maybe_applied`` whether it may be.
        """
        runtime, token = self._runtime, self._runtime.unique().encode()
        marking = mark.written(token, self._acl)
        steps = [*operations, *marking]  # an operation may have several results
        tried = doubt = False
        refusal: MultiError | None = None
        mark.entered = mark.in_doubt = True
        try:
            while True:
                try:
                    results = await runtime.until(runtime.operations.multi(steps), deadline)
                    return self._done(mark, results[-1], results[: -len(marking)])
                except NotSentError:
                    continue
                except BUSY as error:  # a server that takes its time to refuse is asked again
                    tried, doubt = True, doubt or error.maybe_applied
                    continue
                except OutcomeUnknownError:
                    tried = doubt = True
                except MultiError as error:
                    refusal = error
                if tried:
                    stat = await self._look(mark, token, deadline)
                    if stat is not None:
                        return self._done(mark, stat, [])
                    doubt = False
                else:
                    mark.entered, mark.in_doubt = mark.version >= 0, False
                if refusal is not None:
                    raise _meaning(refusal, len(refusal.results) - len(marking), mark)
        except ZooKeeperError as error:
            error.maybe_applied = error.maybe_applied or doubt
            raise
        finally:
            refusal = None  # or else its traceback leads back to it

    def _done(self, mark: Mark, stat: Stat, results: list[Any]) -> tuple[list[Any], int]:
        zxid = stat.mzxid if stat.version == max(0, mark.version) + 1 else 0
        mark.version, mark.in_doubt = stat.version, False
        return results, zxid

    async def _look(self, mark: Mark, token: bytes, deadline: float | None) -> Stat | None:
        """The mark's stat if the change has been made."""
        operations, node = self._runtime.operations, mark.node or ""
        while True:
            # sync: a server that is behind could still show the mark as it was before.
            synced, read = operations.sync(node), operations.get_data(node)
            try:
                await self._runtime.until(synced, deadline)
                data, stat = await self._runtime.until(read, deadline)
                return stat if data == token else None
            except ConnectionLossError:
                continue
            except OperationTimeoutError:
                self._runtime.withdraw(read)
                raise
            except NoNodeError:
                if mark.version < 0:
                    return None
                raise OutcomeUnknownError(
                    "its mark was deleted, perhaps with all of the node: read it and decide",
                    path=self._path,
                ) from None

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        await operations.delete(attempt.node or "")


def _meaning(refusal: MultiError, count: int, mark: Mark) -> ZooKeeperError:
    """The refusal itself if it is among the first ``count``, else what the mark's is."""
    if refusal.index < count:
        return refusal
    error = refusal._culprit
    if isinstance(error, (BadVersionError, NodeExistsError, NoNodeError)):
        return NoNodeError(path=mark.node)
    return error
