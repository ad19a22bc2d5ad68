"""What the three locks have in common: one attempt, one grant, how both end.

Invariants, for every lock:

* At most one node per attempt outlives the attempt, and only while the lock is held.  An attempt
  that ends in any other way (timeout, refusal, interrupt, error) hands its node to a clean-up that
  is repeated on every connection until it is done or the session is over.  It is bound to this
  session and to the attempt's own id, so it can never touch anybody else's node.
* The claim ends before the request that frees the lock is sent.
* A node is one's own if its owner is this session *and* it carries the attempt's id.  The session
  alone proves nothing (two locks of one client), nor the id alone (an earlier session's node).
* ``held`` is a pure function: granted, not lost, not released, lease not run out.  It asks nobody.
* Nothing awaits in the handling of an interrupt or a cancellation.
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire.errors import (
    BUSY,
    BadVersionError,
    ConnectionLossError,
    LockLostError,
    NoAuthError,
    NoNodeError,
    NotReadOnlyError,
    OperationTimeoutError,
    SessionExpiredError,
    ZooKeeperError,
)
from zkwire.model import OPEN_ACL_UNSAFE
from zkwire.paths import check_path
from zkwire.recipes.lost import Lost, OwnNode
from zkwire.recipes.trees import ensure_path
from zkwire.watches import ClosedWatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.jute.records import Stat
    from zkwire.recipes.world import World
    from zkwire.verbs import Verbs


NOT_NOW = (*BUSY, NotReadOnlyError)
"""Refusals that say nothing about the node."""


class InOtherHandsError(RuntimeError):
    """A lock object that cannot be acquired as it is.  Nothing was done, nothing is to be undone:
    what it holds, now or soon, is somebody else's."""


class Attempt:
    """One try to get the lock: its id, and what is known of its node."""

    __slots__ = ("entered", "id", "node", "stat")

    def __init__(self, session_id: int, unique: str) -> None:
        self.id = f"{session_id & 0xFFFFFFFFFFFFFFFF:016x}-{unique}"
        self.entered = False  # a create may be on its way, or done
        self.node: str | None = None
        self.stat: Stat | None = None


class LockCore:
    """A lock's state and the parts of its life that do not depend on its kind."""

    waits = True  # for a holder to go

    def __init__(self, world: World, path: str) -> None:
        if check_path(path) == "/":
            raise ValueError("the root cannot be a lock")
        self.world = world
        self.path = path
        self.lost = Lost(world)
        self._busy = False  # somebody acquires it
        self._releasing = False
        self._owed: Attempt | None = None  # may have left a node that nobody takes care of
        self._granted: Attempt | None = None
        self._guard: OwnNode | None = None
        self._fence: int | None = None

    # --- what a kind of lock adds -----------------------------------------------------------------

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        """Get the lock, or return False if somebody else has it and ``wait`` is False.

        Raises OperationTimeoutError at the deadline.  Leaves cleaning up to the caller.
        """
        raise NotImplementedError

    async def _leave(self, verbs: Verbs, attempt: Attempt) -> None:
        """Delete whatever the attempt has left on the server, if that is its own.

        Raises ConnectionLossError and what the server refuses it with.
        """
        raise NotImplementedError

    # --- the life of a lock -----------------------------------------------------------------------

    async def acquire(self, deadline: float | None, wait: bool) -> bool:
        """Whether the lock was acquired by the ``deadline``; see the shells."""
        self.refuse_two()
        self._busy = True
        try:
            self.world.engaged.add(self)
            if await self._acquire(deadline, wait and self.waits):
                return True
            self.world.engaged.discard(self)
            return False
        except BaseException:  # and not else: another thread may be at its release already
            self._settle()
            self.world.engaged.discard(self)
            raise
        finally:
            self._busy = False  # and nothing that an interrupt could hit: the lock may be held

    def refuse_two(self) -> None:
        """Raise InOtherHandsError if this object is held, or somebody is at it; or ForkedError."""
        self.world.check()
        if self._busy or self._releasing:
            doing = "releasing" if self._releasing else "acquiring"
            raise InOtherHandsError(f"another thread or task is {doing} this very lock object")
        if self._granted is not None and not self.lost.is_set():
            raise InOtherHandsError("this lock object holds the lock already; it is not re-entrant")

    @property
    def engaged(self) -> bool:
        """Whether a node of it may stand on the server that nobody else takes care of."""
        return self.owned or self._busy or self._releasing

    @property
    def owned(self) -> bool:
        """Whether it was acquired and not released, be it lost or not."""
        return self._granted is not None

    def _disengage(self) -> None:
        if not self.engaged:
            self.world.engaged.discard(self)

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        try:
            self._forget_grant()
            await self.world.connected(deadline)
            attempt = self._owed = Attempt(self.world.session_id, self.world.unique())
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
            if not isinstance(error, OperationTimeoutError):
                raise
            if wait and deadline is not None:
                return False
            raise OperationTimeoutError(
                f"no server could tell in time whether {self.path} is free; nothing is held"
            ) from None

    async def _provide(self, path: str, deadline: float | None) -> None:
        """Create what is missing of a path, however long that takes if there is no deadline."""
        while True:
            try:
                await ensure_path(self.world, path, OPEN_ACL_UNSAFE, deadline)
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

    def _stand_guard(self, attempt: Attempt, guard: OwnNode) -> None:
        """From here on it is noticed if somebody deletes the attempt's node."""
        assert attempt.node is not None
        assert attempt.stat is not None
        guard.stands = True  # first: a release that dismisses it meanwhile must forget it, too
        guard.request = self.world.verbs._stand_guard(attempt.node, attempt.stat.czxid, guard)

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNode) -> None:
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
        guard = self._guard = self._guard or OwnNode()
        guard.lost = self.lost
        self._fence = attempt.stat.czxid
        self.world.hold(self.lost)
        if late:
            self.world.shortly(partial(self._stand_guard_late, attempt, guard))
        if not self._lasts:
            raise LockLostError(f"{self.path} was lost in the moment it was acquired")
        # Last, and together: another thread may release it at once.
        self._granted = attempt
        self._owed = None

    def _withdraw(self, attempt: Attempt) -> None:
        """Clean up behind an attempt, in the background; called where nothing may await."""
        while True:
            try:
                self._release_claim()
                if attempt.entered:
                    self.world.spawn(lambda verbs: self._clean_up(verbs, attempt))
                break
            except KeyboardInterrupt:
                continue  # the first interrupt is on its way to the caller already
            except ZooKeeperError:
                break  # the session is over, and its nodes go with it
        self._owed = None

    async def _clean_up(self, verbs: Verbs, attempt: Attempt) -> None:
        while True:
            try:
                await self._leave(verbs, attempt)
                return
            except ConnectionLossError:
                pass  # on the next connection; each try waits for one
            except NotReadOnlyError:
                await self.world.another_state()
            except BUSY:
                pass  # who takes his time to refuse is asked again at once
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

    async def release(self) -> None:
        """Give the lock up; see the shells."""
        attempt = self._granted
        if attempt is None or attempt.node is None or attempt.stat is None:
            raise RuntimeError("this lock object does not hold the lock")
        self._releasing = True  # or else what is owed would be that of two attempts
        try:
            self._owed = attempt
            try:
                await self._delete(attempt.node, attempt.stat.version)
            finally:
                self._settle()
        finally:
            self._releasing = False
            self._disengage()

    async def _delete(self, node: str, version: int) -> None:
        """Delete the lock's node; what this leaves undone is owed."""
        try:
            self._granted = None
            self._refuse_if_lost()
            if not self.world.usable:
                await self._reconnected()
                self._refuse_if_lost()
            self._release_claim()
            await self.world.until(self.world.verbs.delete(node, version), None)
            self._owed = None
        except NoNodeError:
            self._owed = None
            raise self._lost_before("its node was deleted") from None
        except SessionExpiredError as error:
            self._settle()
            raise self._lost_before("the session has expired") from error
        except (ConnectionLossError, BadVersionError, *NOT_NOW):
            self._settle()
        except BaseException:
            self._settle()
            raise

    async def _reconnected(self) -> None:
        """Wait for a connection, in which the guard first tells what became of the node meanwhile.

        A delete that was queued with a node gone since would hit the next holder's.
        """
        try:
            await self.world.connected(self.world.lease_deadline)
        except ZooKeeperError:
            return  # the lock is lost then

    def _refuse_if_lost(self) -> None:
        if self.lost.reason is not None:
            raise self._lost_before(self.lost.reason)
        if self.world.now() >= self.world.lease_deadline:
            raise self._lost_before("no server has answered for a session timeout")

    def _lost_before(self, reason: str, done: str = "released") -> LockLostError:
        return LockLostError(f"{self.path} had been lost before it was {done}: {reason}")

    def give_up(self) -> None:
        """Give the lock up without waiting for it, if it is held; where nothing may await.

        What an interrupt has kept from being done is done when this is called again.
        """
        if self._busy or self._releasing:
            return  # whoever does that leaves nothing behind
        if self._granted is not None:
            self._owed = self._granted
        self._settle()
        self._disengage()

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
