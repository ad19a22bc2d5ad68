"""A multi that is executed exactly once, whatever becomes of the connection.

With the operations goes the creation of a mark, or the next version of it: an ephemeral node that
only this object changes.  After a lost reply the same multi is sent again; a server that has
executed it before refuses it for the mark, whatever has become of the nodes since.  To look for
what the operations have made would not tell: another client may have removed it by then.

    /folder/<session id>-<attempt id>   the mark

A mark serves one multi after the other, so each costs one request.  Those that lie idle are deleted
some milliseconds after the last multi.
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
        while True:
            proof = self._proof(attempt)
            attempt.entered = True
            try:
                multi = runtime.operations.multi([*proof, *operations])
                results = await runtime.until(multi, deadline)
                self._version += 1
                return results[len(proof) :], results[len(proof) - 1].mzxid
            except MultiError as error:
                index = error.index - len(proof)
                if index >= 0:  # nothing was executed before either, or the mark had been refused
                    attempt.entered = self._version > 0
                    raise MultiError(error.results[len(proof) :], index) from error.__cause__
                if doubt and isinstance(error.results[error.index], _SEEN_BEFORE):
                    return [], await self._executed(attempt, deadline)
                await self._refused(error, doubt, deadline)
            except NotSentError:
                pass
            except OutcomeUnknownError:
                doubt = True
            except BUSY as error:  # a server that takes its time to refuse is asked again at once
                doubt = doubt or error.maybe_applied
            except ZooKeeperError as error:
                error.maybe_applied = error.maybe_applied or doubt
                raise

    async def _refused(self, error: MultiError, doubt: bool, deadline: float | None) -> None:
        """Make it possible to make the mark, or raise the refusal."""
        refusal = error.results[error.index] or error
        if isinstance(refusal, NoNodeError):
            if self._version == 0:  # had it been executed, the folder would not be empty
                await self._provide(self._path, deadline)
                return
            if not doubt:
                self._version = 0
                return
            refusal.args = ("an outsider has deleted the mark that would tell",)
        refusal.maybe_applied = refusal.maybe_applied or doubt
        raise refusal from None

    async def _executed(self, attempt: Attempt, deadline: float | None) -> int:
        """The zxid of what has been executed."""
        runtime, path = self._runtime, self._mark(attempt)
        self._version += 1
        while True:
            sync, look = runtime.operations.sync(path), runtime.operations.exists(path)
            try:
                await runtime.until(sync, deadline)
                stat = await runtime.until(look, deadline)
                return 0 if stat is None else stat.mzxid
            except ConnectionLossError:
                pass
            except ZooKeeperError as error:
                error.maybe_applied = True
                raise

    def _proof(self, attempt: Attempt) -> list[Operation]:
        path = self._mark(attempt)
        if self._version:
            return [SetData(path, b"", self._version)]
        return [Create(path, b"", self._acl, ephemeral=True), SetData(path, b"", 0)]

    def _mark(self, attempt: Attempt) -> str:
        return f"{self._path}/{attempt.id}"

    @property
    def _owned(self) -> bool:
        return self._attempt is not None and self._attempt.entered

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        await operations.delete(self._mark(attempt))


_SEEN_BEFORE = (NodeExistsError, BadVersionError)


class Marks:
    """The marks of one object: as many as it has calls under way."""

    def __init__(
        self, runtime: Runtime, folder: str, kept: str, acl: Sequence[ACL] | None = None
    ) -> None:
        self._runtime = runtime
        self._arguments = runtime, folder, kept, acl
        self._idle: list[Mark] = []

    def lend(self) -> Mark:
        """A mark that no other call uses; ``give_back`` is to follow."""
        try:
            return self._idle.pop()
        except IndexError:
            return Mark(*self._arguments)

    def give_back(self, mark: Mark) -> None:
        if mark._owned:
            self._idle.append(mark)
            self._runtime.defer(self._tidy)

    def _tidy(self) -> None:
        while self._idle:
            try:
                mark = self._idle.pop()
            except IndexError:  # lent to another thread
                return
            mark.discard()
