"""What all locks have in common: one attempt, one grant, how both end.

It decides when an attempt begins, whether a grant still counts, and what is cleaned up.  How
contenders take turns, and which nodes that needs, is a subclass's matter; whether the caller blocks
or awaits is the world's, and this must not know it.

Invariants, for every lock:

* What an attempt has created (one node; beside that of a lock of one node a token) outlives it only
  while the lock is held.  An attempt that ends in any other way (timeout, refusal, interrupt,
  error) hands it to a clean-up that is repeated on every connection until it is done or the session
  is over.  It is bound to this session and to the attempt's own id, so it can never touch a node of
  another attempt's.  Its first request is on its way when the call returns, before anything that
  the caller asks for next.
* An attempt is ``_owed`` until that clean-up has it: if something keeps it from being handed over,
  the next call of the object does it, or the end of the interpreter.
* The claim ends before the request that frees the lock is sent.
* A node is one's own if its owner is this session *and* it carries the attempt's id.  The session
  alone proves nothing (two locks of one client), nor the id alone (an earlier session's node).
* ``held`` is a pure function: granted, not lost, not released, lease not run out.  It asks nothing.
* Nothing awaits in the handling of an interrupt or a cancellation.  An interrupt that comes while
  something is cleaned up is raised when that is done.
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    LockLostError,
    LockTimeoutError,
    NoAuthError,
    NoNodeError,
    NotReadOnlyError,
    OperationTimeoutError,
    SessionExpiredError,
    ZooKeeperError,
)
from zkwire.operations.checks import check_acl
from zkwire.operations.multi import Check
from zkwire.recipes.attempt import NOT_NOW, Attempt, LockInUseError
from zkwire.recipes.insist import insist
from zkwire.recipes.lost import Lost, OwnNodeWatch
from zkwire.recipes.trees import ensure_path
from zkwire.session.watch import ClosedWatchError
from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime


class Lock:
    """A lock's state and the parts of its life that do not depend on its kind."""

    waits = True  # for a holder to go
    kept = "/"  # a parent that stays when its last child has gone

    def __init__(self, world: Runtime, path: str, acl: Sequence[ACL] | None = None) -> None:
        if check_path(path) == "/":
            raise ValueError("the root cannot be a lock")
        self.world = world
        self.path = path
        self.acl: tuple[ACL, ...] | None = (
            None if acl is None else check_acl(acl)
        )  # None: the client's own
        self.lost: Lost = Lost(world)
        self._busy = False  # somebody acquires it
        self._releasing = False
        self._owed: Attempt | None = None  # may have left a node that nobody takes care of
        self._granted: Attempt | None = None
        self._guard: OwnNodeWatch | None = None
        self._fence: int | None = None

    # --- what a kind of lock adds -----------------------------------------------------------------

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        """Get the lock, or return False if somebody else has it and ``wait`` is False.

        Raises OperationTimeoutError at the deadline, LockTimeoutError if somebody else was seen to
        have it.  Leaves cleaning up to the caller.
        """
        raise NotImplementedError

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        """Delete whatever the attempt has left on the server, if that is its own.

        Raises ConnectionLossError and what the server refuses it with.
        """
        raise NotImplementedError

    async def _free(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the attempt's node, which has this version; whatever else stays is owed.

        Raises what the server refuses it with: NoNodeError if the lock had been lost before.
        """
        assert attempt.node is not None
        await self.world.until(self.world.operations.delete(attempt.node, version), deadline)

    def _proof(self, attempt: Attempt) -> list[Operation]:
        """Checks that the server passes as long as the attempt's grant lasts."""
        assert attempt.node is not None
        # Of any version: whoever writes into the node does not take the lock away.
        return [Check(attempt.node)]

    # --- the life of a lock -----------------------------------------------------------------------

    async def acquire(self, deadline: float | None, wait: bool) -> bool:
        """Get the lock; False if somebody else has it, and it does not wait.

        Raises LockTimeoutError when somebody else had it at the ``deadline``, OperationTimeoutError
        when no server could tell by then.
        """
        self.refuse_two()
        self._busy = True
        try:
            self.world.engaged.add(self)
            if await self._acquire(deadline, wait and self.waits):
                return True
            self.world.engaged.discard(self)
            return False
        except BaseException:  # and not else: another thread may be at its release already
            try:
                self._settle()
            finally:
                if self._owed is None:
                    self.world.engaged.discard(self)
            raise
        finally:
            self._busy = False  # and nothing that an interrupt could hit: the lock may be held

    def refuse_two(self) -> None:
        """Raise LockInUseError if this object is held, or somebody is at it; or ForkedError."""
        self.world.check()
        if self._busy or self._releasing:
            doing = "releasing" if self._releasing else "acquiring"
            raise LockInUseError(f"another thread or task is {doing} this very lock object")
        if self._granted is not None and not self.lost.is_set():
            raise LockInUseError("this lock object holds the lock already; it is not re-entrant")

    @property
    def engaged(self) -> bool:
        """Whether a node of it may stand on the server that nobody else takes care of."""
        return self.owned or self._busy or self._releasing or self._owed is not None

    @property
    def owned(self) -> bool:
        """Whether it was acquired and not released, be it lost or not."""
        return self._granted is not None

    def _disengage(self) -> None:
        if not self.engaged:
            self.world.engaged.discard(self)

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        try:
            self._settle()
            self._forget_grant()
            await self.world.connected(deadline)
            world = self.world
            attempt = Attempt(world.session_id, world.unique(), tuple(world.going))
            self._owed = attempt
            won = await self._contend(attempt, deadline, wait)
            if won:
                self._grant(attempt)
            else:
                self._owed = None
            return won
        except BaseException as error:
            if self._granted is not None:
                self._owed, self._granted = self._granted, None
            self._settle()
            late = isinstance(error, OperationTimeoutError)
            if not late or isinstance(error, LockTimeoutError):
                raise
            raise OperationTimeoutError(
                f"no server could tell in time whether {self.path} is free; nothing is held"
            ) from None

    async def _provide(self, path: str, deadline: float | None) -> None:
        """Create what is missing of a path, however long that takes if there is no deadline.

        The server removes these nodes when nobody has a child there, perhaps before the caller has
        one: then its create ends with NoNodeError, and this is to be repeated.
        """
        while True:
            try:
                await ensure_path(
                    self.world, path, self.acl, deadline, containers=True, kept=self.kept
                )
                return
            except OperationTimeoutError:
                if deadline is not None:
                    raise

    def _settle(self) -> None:
        """Clean up behind an attempt that did not end well.

        Called in two places, one around the other, so that a second interrupt that hits the one
        finds the other.
        """
        if self._owed is not None:
            self._withdraw(self._owed)

    def _forget_grant(self) -> None:
        """Be as new after a loss that nobody has answered with a release."""
        if self._granted is not None:
            self._withdraw(self._granted)
            self._granted = None
        if self.lost.ready:
            self.lost = Lost(self.world)

    def _stand_guard(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """From here on it is noticed if somebody deletes the attempt's node."""
        assert attempt.node is not None
        assert attempt.stat is not None
        guard.stands = True  # first: a release that dismisses it meanwhile must forget it, too
        guard.request = self.world.operations._stand_guard(attempt.node, attempt.stat.czxid, guard)

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """The same, in any thread, if the lock has not been released and this not been done."""
        if guard.closed or guard.request is not None:
            return
        # What is over ends the claim, too; a guard may be dismissed at any moment of this.
        with contextlib.suppress(ZooKeeperError, ClosedWatchError):
            self._stand_guard(attempt, guard)

    def _grant(self, attempt: Attempt) -> None:
        """The attempt has won.  A loss is noticed before anybody can see a claim."""
        assert attempt.stat is not None
        late = self._guard is None
        guard = self._guard = self._guard or OwnNodeWatch()
        guard.lost = self.lost
        self._fence = attempt.stat.czxid
        self.world.hold(self.lost)
        if late:
            self.world.shortly(partial(self._stand_guard_late, attempt, guard))
        self.world.check_open()  # first: who is told of an end knows that all is lost
        if not self._lasts:
            raise LockLostError(f"{self.path} was lost in the moment it was acquired")
        # Last, and together: another thread may release it at once.
        self._granted = attempt
        self._owed = None

    def _withdraw(self, attempt: Attempt) -> None:
        """Clean up behind an attempt, in the background; called where nothing may await."""
        self._owed = attempt
        insist(partial(self._hand_over, attempt))

    def _hand_over(self, attempt: Attempt) -> None:
        # What is over ends the session's nodes, too.
        with contextlib.suppress(ZooKeeperError):
            self._release_claim()
            if attempt.entered:
                self.world.going.add(attempt.id)
                self.world.spawn(partial(self._clean_up, attempt=attempt))
        self._owed = None

    async def _clean_up(self, operations: Operations, attempt: Attempt) -> None:
        try:
            await self._leave_surely(operations, attempt)
        finally:
            self.world.going.discard(attempt.id)

    async def _leave_surely(self, operations: Operations, attempt: Attempt) -> None:
        while True:
            try:
                await self._leave(operations, attempt)
                return
            except ConnectionLossError:
                pass  # on the next connection; each try waits for one
            except NotReadOnlyError:
                await self.world.another_state()
            except BUSY:
                pass  # a server that takes its time to refuse is asked again at once
            except NoAuthError as error:
                self.world.warn(f"{self.path}: a node stays until this session ends: {error}")
                return
            except ZooKeeperError:
                return  # it is gone; or the session is over, and it with it

    def _release_claim(self) -> None:
        """From here on nothing is held."""
        self._granted = None
        guard = self._guard
        if guard is not None:
            self.world.unhold(self.lost)
            guard.dismiss()
            if guard.stands:
                if guard.request is not None:
                    self.world.withdraw(guard.request)
                self.world.forget(guard)
            self._guard = None

    async def release(self, deadline: float | None = None) -> None:
        """Give the lock up; see the shells.

        Raises OperationTimeoutError at the ``deadline``; the clean-up goes on in the background.
        """
        attempt = self._granted
        if attempt is None and self._owed is not None and not (self._busy or self._releasing):
            self.make_good()  # an earlier release was interrupted each time it was tried
            return
        if attempt is None or attempt.node is None or attempt.stat is None:
            raise RuntimeError("this lock object does not hold the lock")
        self._releasing = True  # or else what is owed would be that of two attempts
        try:
            self._owed = attempt
            try:
                await self._delete(attempt, attempt.stat.version, deadline)
            finally:
                self._settle()
        finally:
            self._releasing = False
            self._disengage()

    async def _delete(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the lock's node; what this leaves undone is owed."""
        try:
            self._granted = None
            self._refuse_if_lost()
            if not self.world.usable:
                await self._reconnected(deadline)
                self._refuse_if_lost()
            self._release_claim()
            await self._free(attempt, version, deadline)
            self._owed = None
        except NoNodeError:
            self._settle()
            raise self.lost_before("its node was deleted") from None
        except SessionExpiredError as error:
            self._settle()
            raise self.lost_before("the session has expired") from error
        except (ConnectionLossError, BadVersionError, *NOT_NOW):
            self._settle()
        except OperationTimeoutError:
            self._settle()
            raise self._in_doubt() from None
        except BaseException:
            self._settle()
            raise

    async def _reconnected(self, deadline: float | None) -> None:
        """Wait for a connection, in which the guard first tells what became of the node meanwhile.

        A delete that was queued with a node gone since would hit the next holder's.
        """
        try:
            lease = self.world.lease_deadline
            await self.world.connected(lease if deadline is None else min(lease, deadline))
        except ZooKeeperError:
            return  # the lock is lost then

    def _refuse_if_lost(self) -> None:
        if self.lost.reason is not None:
            raise self.lost_before(self.lost.reason)
        if self.world.now() >= self.world.lease_deadline:
            raise self.lost_before("no server has answered for a session timeout")

    def lost_before(self, reason: str, done: str = "released") -> LockLostError:
        """The error for something that only a holder may do."""
        return LockLostError(f"{self.path} had been lost before it was {done}: {reason}")

    def _in_doubt(self) -> OperationTimeoutError:
        return OperationTimeoutError(
            f"no server has confirmed in time that {self.path} is free; it is not held here, and "
            "the client goes on deleting its node: there is nothing to do",
            op="release",
            path=self.path,
            maybe_applied=True,
        )

    def proof(self) -> list[Operation]:
        """What the server finds true as long as the lock is held; raises if it is not."""
        attempt = self._granted
        if attempt is None or attempt.node is None:
            raise RuntimeError("this lock object does not hold the lock")
        if not self.held:
            raise self.lost_before(self.lost.reason or "no server has answered in time", "used")
        return self._proof(attempt)

    def give_up(self) -> None:
        """Give the lock up without waiting for it, if it is held; where nothing may await.

        What an interrupt has kept from being done is done when this is called again.
        """
        if not (self._busy or self._releasing) and self._granted is not None:
            self._owed = self._granted
        self.make_good()

    def make_good(self) -> None:
        """Clean up what an interrupt, or an error, has kept from being cleaned up."""
        if self._busy or self._releasing:
            return  # that call leaves nothing behind
        self._settle()
        self._disengage()

    def bereave(self, owner: str) -> None:
        """Give it up in the place of the ``owner`` that has ended, if that has not released it."""
        if self.held:
            self.world.warn(
                f"{self.path}: {owner} has ended and still held this re-entrant lock, which nobody "
                "else can release: it is released"
            )
        if self.owned:
            self.give_up()

    # --- what a holder may ask --------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the lock is surely held at this moment."""
        return self._granted is not None and self._lasts

    @property
    def _lasts(self) -> bool:
        """Whether the session surely lives, and nobody is known to have deleted the node."""
        guard = self._guard
        return (
            not self.lost.is_set()
            and not (guard is not None and guard.gone)
            and self.world.now() < self.world.lease_deadline
        )

    @property
    def fence(self) -> int:
        """The czxid of the node of the last acquisition."""
        if self._fence is None:
            raise RuntimeError("this lock object has never held the lock")
        return self._fence

    def lease_remaining(self) -> float:
        """Seconds for which the lock is surely held even if nothing more is heard."""
        return max(0.0, self.world.lease_deadline - self.world.now()) if self.held else 0.0
