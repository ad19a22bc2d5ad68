"""A claim: that the attempt of an object has won, and the loss of that.

It decides when a claim begins, whether it still counts, and when its end is told.  What is won, and
how, is a subclass's matter.

Invariants:

* ``held`` is a pure function: granted, not lost, not released, lease not run out.  It asks nothing.
* A loss is noticed from before the claim can be seen until it is released.
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire.errors import LockLostError, ZooKeeperError
from zkwire.recipes.attempt import Attempt
from zkwire.recipes.entry import Entry
from zkwire.recipes.lost import Lost, OwnNodeWatch
from zkwire.recipes.view import LockView
from zkwire.session.watch import ClosedWatchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import Runtime


class Claim(LockView, Entry):
    """An entry that holds something as long as its node stands and its session lives."""

    def __init__(self, runtime: Runtime, path: str, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(runtime, path, acl)
        self._lost = Lost(runtime)
        self._granted: Attempt | None = None
        self._guard: OwnNodeWatch | None = None
        self._fence: int | None = None

    def _grant(self, attempt: Attempt) -> None:
        """The attempt has won.  A loss is noticed before a claim can be seen."""
        assert attempt.stat is not None
        late = self._guard is None
        guard = self._guard = self._guard or OwnNodeWatch()
        guard.lost = self._lost
        self._fence = attempt.stat.czxid
        self._runtime.hold(self._lost)
        if late:
            self._runtime.defer(partial(self._stand_guard_late, attempt, guard))
        self._runtime.check_open()  # first: a caller that is told of an end knows that all is lost
        if not self._lasts:
            why = f"{self._path} was lost in the moment it was acquired"
            raise LockLostError(why, session_id=self._runtime.session_id)
        # interrupt-safe: last, and together: another thread may release it at once.
        self._granted = attempt
        self._pending_cleanup = None

    def _stand_guard(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """From here on it is noticed if the attempt's node is deleted."""
        assert attempt.node is not None
        assert attempt.stat is not None
        guard.stands = True  # first: a release that dismisses it meanwhile must forget it, too
        operations = self._runtime.operations
        guard.request = operations._stand_guard(attempt.node, attempt.stat.czxid, guard)

    def _stand_guard_late(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """The same, in any thread, if the lock has not been released and this not been done."""
        if guard.request is not None or guard.closed:
            return
        # What is over ends the claim, too; a guard may be dismissed at any moment of this.
        with contextlib.suppress(ZooKeeperError, ClosedWatchError):
            self._stand_guard(attempt, guard)

    def _end_claim(self) -> None:
        """From here on nothing is held."""
        self._granted = None
        if self._guard is not None:
            self._dismiss(self._guard, self._lost)
            self._guard = None

    def _part_with_claim(self) -> Callable[[], None]:
        guard, lost = self._guard, self._lost
        self._granted = self._guard = None
        wakers = () if guard is None else lost._let_go()  # so that another attempt has another loss

        def end_claim() -> None:
            for waker in wakers:
                waker()
            if guard is not None:
                self._dismiss(guard, lost)

        return end_claim

    def _dismiss(self, guard: OwnNodeWatch, lost: Lost) -> None:
        self._runtime.unhold(lost)
        guard.dismiss()
        if guard.stands:
            if guard.request is not None:
                self._runtime.withdraw(guard.request)
                guard.request = None  # which has it
            self._runtime.forget(guard)

    def _forget_grant(self) -> None:
        """Be as new after a loss that no release has followed."""
        if self._granted is not None:
            self._clean_up_after(self._granted)
            self._granted = None
        if self._lost.ready:
            self._lost = Lost(self._runtime)

    @property
    def _owned(self) -> bool:
        return self._granted is not None

    @property
    def _holds(self) -> bool:
        return self._granted is not None and self._lasts

    @property
    def _lasts(self) -> bool:
        """Whether the session surely lives, and the node is not known to be deleted."""
        guard = self._guard
        return (
            self._lost._reason is None
            and not (guard is not None and guard.gone)
            and self._runtime.now() < self._runtime.lease_deadline
        )

    def _lease_left(self) -> float:
        left = self._runtime.lease_deadline - self._runtime.now()
        return max(0.0, left) if self._holds else 0.0
