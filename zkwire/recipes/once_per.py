"""Work that one of all clients does in each period: "at most once per hour over all machines".

The mtime of a persistent node says when it was claimed last, and its data says by which attempt.
All times are the servers' time.  To learn it, a client creates, writes and deletes a node in one
multi, which leaves nothing; the answer says when that was.  A claim sets the data only if the node
still has the version that was found old enough.  So if several clients claim at once, one succeeds.

    /path      persistent: "<attempt id> <text>", its mtime is the time of the claim; or empty

After a lost reply the data tells whether the claim was made: no other client claims before the
period is over.  When a claim is given back, the node becomes empty and is not deleted: a new node
could have a version that an earlier node had.
"""

from __future__ import annotations

from datetime import timedelta

from zkwire import errors
from zkwire.operations.multi import Create, Delete, SetData
from zkwire.recipes._node import Attempt, OwnedNode, encoded
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.runtime import CHANGED, SESSION_OVER, newest, unwrap_multi_error
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import AsyncClientLike


class AsyncOncePer(HasPath, OwnedNode):
    """Run something at most once per period, over all machines.

        hourly = AsyncOncePer(client, "/jobs/clean-up", timedelta(hours=1))
        if await hourly.claim():
            await clean_up()  # yours to write

    Each machine may ask as often as it likes.  The period is counted on the servers' clock, from
    one claim to the next, even if the client that has claimed ends; ``give_back`` lets another
    machine claim at once.  ``period`` is in seconds, or a timedelta; all machines should name the
    same period.  ``text`` is written into the node, after the claim's id.

    Raises ValueError or TypeError for bad arguments.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        period: float | timedelta,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(client, path, acl=acl)
        self._period = milliseconds(period)
        self._text = encoded(text)

    async def claim(self, timeout: float | None = None) -> bool:
        """Whether it is this caller's turn: True once in each period, for only one caller.

        A lost connection is not an error: on the next one the client finds out whether the claim
        was made.  OperationTimeoutError after ``timeout`` seconds (None: the
        ``operation_timeout``).  When this raises, is cancelled or interrupted, nothing is claimed:
        if the claim may have been made, it is given back in the background.  The end of the session
        is the one exception: with ``maybe_applied``, the period may be claimed although its work is
        not done.
        """
        deadline, runtime = self._runtime.deadline(timeout), self._runtime
        await runtime.connected(deadline)
        attempt = Attempt(runtime)
        attempt.node, doubt = self._path, False
        try:
            while True:
                try:
                    if doubt:  # a server that is behind could still show the node without the claim
                        await runtime.retry(deadline, runtime.operations.sync, self._path)
                    won = await self._try(attempt, deadline)
                    break
                except errors.OutcomeUnknownError:
                    doubt = True
                except (errors.NotSentError, *CHANGED):
                    continue  # look again
        except BaseException as error:
            if isinstance(error, errors.ZooKeeperError):
                # A session that is over gives nothing back, and the node is not ephemeral.
                over = isinstance(error, SESSION_OVER)
                error.maybe_applied = over and attempt.entered
            self._clean_up_after(attempt)
            raise
        if won:
            self._granted = attempt
        return won

    async def give_back(self, timeout: float | None = None) -> None:
        """Let another caller claim at once: the work was not done.

        Nothing happens if the period is over and another has claimed.  RuntimeError if this object
        has claimed nothing.  Ends as :meth:`claim` does; what is not done in time is done in the
        background.
        """
        deadline = self._runtime.deadline(timeout)
        attempt, self._granted = self._granted, None
        if attempt is None:
            raise RuntimeError("nothing was claimed by this object")
        try:
            data, stat = await self._read(deadline)
            if data.startswith(attempt.id.encode()):
                write = self._runtime.operations.set_data
                await self._runtime.retry(deadline, write, self._path, b"", stat.version)
        except (errors.NoNodeError, errors.BadVersionError):
            pass
        except BaseException:
            self._clean_up_after(attempt)
            raise

    async def _try(self, attempt: Attempt, deadline: float) -> bool:
        operations, until = self._runtime.operations, self._runtime.until
        data = attempt.id.encode() + b" " + self._text
        try:
            seen, stat = await self._read(deadline)
        except errors.NoNodeError:
            await self._runtime.ensure_path(parent(self._path), self._acl, deadline)
            attempt.entered = True
            await until(operations.create(self._path, data, self._acl), deadline)
            return True
        if seen == data:
            return True
        if seen and await self._time(deadline) - stat.mtime < self._period:
            return False
        attempt.entered = True
        await until(operations.set_data(self._path, data, stat.version), deadline)
        return True

    async def _read(self, deadline: float) -> tuple[bytes, Stat]:
        return await self._runtime.retry(deadline, self._runtime.operations.get_data, self._path)

    async def _time(self, deadline: float) -> int:
        """The servers' time in milliseconds."""
        node = f"{self._path}/{self._runtime.unique()}-time"
        probe = [Create(node, b"", self._acl), SetData(node, b""), Delete(node)]
        multi = self._runtime.operations.multi
        results = await unwrap_multi_error(self._runtime.retry, deadline, multi, probe)
        return int(results[1].mtime)

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        data, stat = await newest(operations, operations.get_data, self._path)
        if data.startswith(attempt.id.encode()):
            await operations.set_data(self._path, b"", stat.version)


def milliseconds(period: float | timedelta) -> int:
    """The period in milliseconds; ValueError or TypeError if it is not a period."""
    seconds = period.total_seconds() if isinstance(period, timedelta) else period
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"period must be seconds or a timedelta, not {type(period).__name__}")
    if not 1 <= seconds * 1000 < float("inf"):
        raise ValueError(f"period must be at least a millisecond, and finite, not {period}")
    return int(seconds * 1000)
