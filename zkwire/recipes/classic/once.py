"""A multi that is executed exactly once, whatever becomes of the connection.

With the operations goes a change of a mark: an ephemeral node in which the number of the multi is
written.  After a lost reply the same multi is sent again; a server that has executed it before
refuses it for the mark, whatever has become of the nodes since, and the number there tells.  To
look for what the operations have made would not tell: another client may have removed it by then.

    /folder/<session id>-<attempt id>   the mark

A mark serves one multi after the other (:mod:`zkwire.recipes.classic.marks`), so each costs one
request.
"""

from __future__ import annotations

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
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

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime


class Mark(Entry):
    """One mark, for one multi at a time.  It must stay in ``kept``, which is above the folder."""

    def __init__(
        self, runtime: Runtime, folder: str, kept: str, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(runtime, folder, acl)
        self._kept = kept
        self._attempt: Attempt | None = None
        self._version = 0  # of the mark; 0 before it is made
        self._number = 0

    async def execute(
        self, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        """The operations' results, none if the reply was lost, and the zxid (0 if unknown).

        MultiError if the server refuses one of them: nothing was executed.  With any other error
        ``maybe_applied`` tells whether it is in doubt.
        """
        runtime = self._runtime
        self._busy = True
        try:
            runtime.engaged.add(self)
            await runtime.connected(deadline)
            attempt = self._attempt or Attempt(runtime.session_id, runtime.unique())
            self._attempt = self._pending_cleanup = attempt
            try:
                done = await self._execute(attempt, operations, deadline)
            except MultiError:
                self._pending_cleanup = None
                raise
            self._pending_cleanup = None
            return done
        except BaseException:
            if self._pending_cleanup is not None:
                self.discard()
            raise
        finally:
            self._busy = False
            self._disengage()

    def discard(self) -> None:
        """Delete the mark in the background: where nothing may await."""
        attempt, self._attempt, self._version = self._attempt, None, 0
        if attempt is not None:
            self._clean_up_after(attempt)
        self._disengage()

    async def _execute(
        self, attempt: Attempt, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        runtime, doubt = self._runtime, False
        self._number += 1
        while True:
            change = self._change(attempt)
            attempt.entered = True
            try:
                multi = runtime.operations.multi([*change, *operations])
                results = await runtime.until(multi, deadline)
                stat = results[len(change) - 1]
                self._version = stat.version
                return results[len(change) :], stat.mzxid
            except MultiError as error:
                index = error.index - len(change)
                if index >= 0:  # nothing was executed before either, or it would be the mark's
                    attempt.entered = self._version > 0
                    raise MultiError(error.results[len(change) :], index) from error.__cause__
                zxid = await self._refused(attempt, error, doubt, deadline)
                if zxid is not None:
                    return [], zxid
            except NotSentError:
                pass
            except OutcomeUnknownError:
                doubt = True
            except BUSY as error:  # a server that takes its time to refuse is asked again at once
                doubt = doubt or error.maybe_applied
            except ZooKeeperError as error:
                error.maybe_applied = error.maybe_applied or doubt
                raise

    async def _refused(
        self, attempt: Attempt, error: MultiError, doubt: bool, deadline: float | None
    ) -> int | None:
        """The mark could not be changed: the zxid if the multi was executed, None to repeat it."""
        refusal = error.results[error.index] or error
        try:
            if isinstance(refusal, NodeExistsError | BadVersionError):
                return await self._look(attempt, doubt, deadline)
            if not isinstance(refusal, NoNodeError):
                raise refusal
            if self._version:
                self._gone(doubt)
            else:  # had it been executed, the folder would not be empty
                await self._provide(self._path, deadline)
        except ZooKeeperError as failure:
            failure.maybe_applied = failure.maybe_applied or doubt
            raise failure from None
        return None

    def _gone(self, doubt: bool) -> None:
        """An outsider has deleted the mark: make another one, unless it would have told."""
        self._version = 0
        if doubt:
            message = "an outsider has deleted the node that would tell"
            raise OutcomeUnknownError(message, op="multi", path=self._path)

    async def _look(self, attempt: Attempt, doubt: bool, deadline: float | None) -> int | None:
        """The zxid of the multi if the mark says that it was executed, else None."""
        operations, path = self._runtime.operations, self._mark(attempt)
        while True:
            sync, read = operations.sync(path), operations.get_data(path)
            try:
                await self._runtime.until(sync, deadline)
                data, stat = await self._runtime.until(read, deadline)
            except ConnectionLossError:
                continue
            except NoNodeError:
                self._gone(doubt)
                return None
            before, self._version = self._version, stat.version
            if data != b"%d" % self._number:
                return None  # an outsider has written into it
            return stat.mzxid if stat.version == before + 1 else 0

    def _change(self, attempt: Attempt) -> list[Operation]:
        path, number = self._mark(attempt), b"%d" % self._number
        if self._version:
            return [SetData(path, number, self._version)]
        return [Create(path, b"", self._acl, ephemeral=True), SetData(path, number, 0)]

    def _mark(self, attempt: Attempt) -> str:
        return f"{self._path}/{attempt.id}"

    @property
    def _owned(self) -> bool:
        return self._attempt is not None and self._attempt.entered

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        await operations.delete(self._mark(attempt))
