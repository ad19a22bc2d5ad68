"""What all locks on one path have in common: one attempt, one grant, how both end.

It decides when an attempt begins and how a release ends.  How contenders take turns, and which
nodes that needs, is a subclass's matter; whether the caller blocks or awaits is the runtime's, and
this must not know it.

Invariants, for every lock, beside those of :mod:`zkwire.recipes.entry` and
:mod:`zkwire.recipes.locks.claim`:

* What an attempt has created (one node; beside that of a lock of one node a token) outlives it only
  while the lock is held.  An attempt that ends in any other way (timeout, refusal, interrupt,
  error) hands it to the clean-up.
* The claim ends before the request that frees the lock is sent.
* A node is one's own if its owner is this session *and* it carries the attempt's id.  The session
  alone proves nothing (two locks of one client), nor the id alone (an earlier session's node).
"""

from __future__ import annotations

from functools import partial

from zkwire.errors import (
    BadVersionError,
    ConnectionLossError,
    LockTimeoutError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    ZooKeeperError,
)
from zkwire.recipes.alone import alone
from zkwire.recipes.attempt import NOT_NOW, Attempt, LockInUseError
from zkwire.recipes.locks.acquirable import Acquirable
from zkwire.recipes.locks.guarded import GuardedClaim
from zkwire.session.liveness import LAPSED


class AsyncPathLock(GuardedClaim, Acquirable):
    """A lock on one path: its state, and the parts of its life that do not depend on its kind."""

    _seen_taken = False  # another contender was seen to have the lock, in the last attempt

    # --- what a kind of lock adds -----------------------------------------------------------------

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        """Get the lock, or return False if another contender has it and ``wait`` is False.

        Sets ``_seen_taken`` if that has it.  Raises OperationTimeoutError at the deadline.  Leaves
        cleaning up to the caller.
        """
        raise NotImplementedError

    async def _free(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the attempt's node, which has this version; the clean-up deletes all else.

        Raises what the server refuses it with: NoNodeError if the lock had been lost before.
        """
        assert attempt.node is not None
        await self._runtime.until(self._runtime.operations.delete(attempt.node, version), deadline)

    @property
    def _called(self) -> str:
        return self._path

    # --- to acquire -------------------------------------------------------------------------------

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        try:
            return await alone(self, partial(self._acquire, deadline, wait and self._waits))
        except BaseException:
            self._disengage()
            raise

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy or self._releasing:
            doing = "releasing" if self._releasing else "acquiring"
            raise LockInUseError(f"another thread or task is {doing} this very lock object")
        if self._granted is not None and self._lost._reason is None:
            raise LockInUseError("this lock object holds the lock already; it is not re-entrant")

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        runtime, self._seen_taken = self._runtime, False
        try:
            runtime.engaged.add(self)
            self._clean_up_pending()
            self._forget_grant()
            await runtime.connected(deadline)
            attempt = Attempt(runtime.session_id, runtime.unique(), (*runtime.going,))
            self._pending_cleanup = attempt
            won = await self._contend(attempt, deadline, wait)
            if won:
                self._grant(attempt)
            else:
                self._pending_cleanup = None
                runtime.engaged.discard(self)
            return won
        except BaseException as error:  # and not else: another thread may be releasing it already
            if self._granted is not None:
                self._pending_cleanup, self._granted = self._granted, None
            self._clean_up_pending()
            if not isinstance(error, OperationTimeoutError):
                raise
            if self._seen_taken or isinstance(error, LockTimeoutError):
                raise self._taken_error(deadline) from None
            raise OperationTimeoutError(
                f"no server could tell in time whether {self._path} is free; nothing is held"
            ) from None

    # --- to release -------------------------------------------------------------------------------

    async def _release_by(self, deadline: float | None) -> None:
        attempt = self._granted
        pending = self._pending_cleanup is not None
        if attempt is None and pending and not (self._busy or self._releasing):
            self._resume_cleanup()  # an earlier release was interrupted each time it was tried
            return
        if attempt is None or attempt.node is None or attempt.stat is None:
            raise RuntimeError("this lock object does not hold the lock")
        self._releasing = True  # or else one clean-up would be pending for two attempts
        try:
            self._pending_cleanup, self._granted = attempt, None
            try:
                await self._delete(attempt, attempt.stat.version, deadline)
            finally:
                if self._pending_cleanup is not None:
                    self._clean_up_pending()
        finally:
            self._releasing = False
            if self._pending_cleanup is not None:
                self._runtime.unfinished = True  # first: the stack may have no room for a call
            self._disengage()

    async def _delete(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the lock's node; what this leaves undone is left to the clean-up."""
        try:
            self._refuse_if_lost()
            if not self._runtime.usable:
                await self._reconnected(deadline)
                self._refuse_if_lost()
            self._end_claim()
            await self._free(attempt, version, deadline)
            self._pending_cleanup = None
        except NoNodeError:
            raise self._lost_before("its node was deleted") from None
        except SessionExpiredError as error:
            raise self._lost_before("the session has expired") from error
        except (ConnectionLossError, BadVersionError, *NOT_NOW):
            pass
        except OperationTimeoutError:
            raise self._in_doubt() from None

    async def _reconnected(self, deadline: float | None) -> None:
        """Wait for a connection, in which the guard first tells what became of the node meanwhile.

        A delete that was queued with a node gone since would hit the next holder's.
        """
        try:
            lease = self._runtime.lease_deadline
            await self._runtime.connected(lease if deadline is None else min(lease, deadline))
        except ZooKeeperError:
            return  # the lock is lost then

    def _refuse_if_lost(self) -> None:
        if self._lost._reason is not None:
            raise self._lost_before(self._lost._reason)
        if self._runtime.now() >= self._runtime.lease_deadline:
            raise self._lost_before(LAPSED)

    def _in_doubt(self) -> OperationTimeoutError:
        return OperationTimeoutError(
            f"no server has confirmed in time that {self._path} is free; it is not held here, and "
            "the client goes on deleting its node: there is nothing to do",
            op="release",
            path=self._path,
            maybe_applied=True,
        )

    def _release_later(self) -> None:
        if not (self._busy or self._releasing) and self._granted is not None:
            self._pending_cleanup, self._granted = self._granted, None
        self._resume_cleanup()

    def _owner_ended(self, owner: str) -> None:
        """Release it in the place of the ``owner`` that has ended, if that has not released it."""
        if self._holds:
            self._runtime.warn(
                f"{self._path}: {owner} has ended and still held this re-entrant lock, which "
                "nothing else can release: it is released"
            )
        self._release_later()
