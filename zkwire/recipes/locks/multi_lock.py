"""Several locks at once: all of them, or none.

They are acquired in the order of their paths, the same for all, so no two contenders can each hold
what the other waits for.  What was acquired before one failed is released at once.

Invariant: held exactly if every one of them is; lost as soon as one is lost.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from zkwire.errors import LockLostError, OperationTimeoutError, ZooKeeperError
from zkwire.recipes.alone import alone
from zkwire.recipes.attempt import LockInUseError
from zkwire.recipes.insist import insist
from zkwire.recipes.locks.acquirable import Acquirable
from zkwire.recipes.locks.lock import AsyncPathLock
from zkwire.recipes.lost import AnyLost
from zkwire.recipes.view import check_kind


class AsyncMultiLock(Acquirable):
    """Several locks at once: all of them, or none.

        locks = AsyncSequentialLock(client, "/a"), AsyncSequentialLock(client, "/b")
        async with AsyncMultiLock(*locks) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  ``held`` if all are, ``lost`` as soon as one is; each keeps its own ``fence``.
    """

    def __init__(self, *locks: AsyncPathLock) -> None:
        wanted = "an AsyncMultiLock takes locks such as AsyncSequentialLock"
        self.locks: tuple[AsyncPathLock, ...] = locks
        for lock in locks:
            check_kind(wanted, lock, AsyncPathLock)
        self._parts = sorted(locks, key=lambda lock: lock._path)
        paths = [lock._path for lock in self._parts]
        if not paths or len(set(paths)) < len(paths):
            raise ValueError("a multi-lock takes one or more locks, each on another path")
        self._runtime = self._parts[0]._runtime
        if any(lock._runtime is not self._runtime for lock in self._parts):
            raise ValueError("the locks of a multi-lock must be of one client")
        self._lost = AnyLost(self._runtime)
        self._taken: list[AsyncPathLock] = []
        self._acquired = False  # all of them
        self._busy = False  # they are being acquired
        self._releasing = False

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        try:
            return await alone(self, partial(self._acquire_or_release, deadline, wait))
        except BaseException:
            if self._taken and not self._acquired:
                self._leave_to_client()
            raise

    async def _acquire_or_release(self, deadline: float | None, wait: bool) -> bool:
        try:
            self._forget_loss()
            return await self._acquire(deadline, wait)
        except BaseException:
            if not self._acquired:
                self._release_taken()
            raise

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy or self._releasing:
            raise LockInUseError("another thread or task uses this very multi-lock")

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        if self._acquired:
            raise LockInUseError("this multi-lock holds its locks already; it is not re-entrant")
        taken = self._taken
        for lock in self._parts:
            taken.append(lock)  # before, for an interrupt right behind the acquisition
            try:
                if await lock._acquire_by(deadline, wait):
                    continue
            except LockInUseError:
                taken.pop()
                raise
            if not wait:  # a caller that tries expects to see it done; one that waited is late
                for other in reversed(taken[:-1]):
                    with suppress(LockLostError, OperationTimeoutError):
                        await other._release_by(deadline)
            self._release_taken()
            return False
        self._runtime.check_open()
        if not self._holds:
            reasons = [lock._lost._reason for lock in taken if lock._lost._reason]
            why = ": ".join(["one of the locks was lost while another was acquired", *reasons[:1]])
            raise LockLostError(why, session_id=self._runtime.session_id)
        self._lost.watch([lock._lost for lock in taken])
        self._acquired = True
        return True

    def _forget_loss(self) -> None:
        """Be as new after a loss that no release has followed."""
        if self._taken and (not self._acquired or self._lost.is_set()):
            self._release_taken()
        if self._lost.ready:
            self._lost = AnyLost(self._runtime)

    def _release_taken(self) -> None:
        """Release what is taken, later; what interrupts it each time is raised: to be repeated.

        An interrupt is raised when all is done.
        """
        insist(self._release_each)

    def _release_each(self) -> None:
        self._acquired = False
        for lock in reversed(self._taken):
            lock._release_later()
        self._taken = []

    def _leave_to_client(self) -> None:
        """Have the client release what is taken, as the caller could not; without a call."""
        self._acquired = False
        for lock in self._taken:
            if lock._granted is not None:
                lock._pending_cleanup, lock._granted = lock._granted, None
        self._runtime.unfinished = True
        self._runtime.wake()

    def _release_later(self) -> None:
        if not (self._busy or self._releasing):
            self._release_taken()

    async def _release_by(self, deadline: float | None) -> None:
        """Release all, whatever happens to one; raises the first error, of a loss if there is one.

        The ``deadline`` is for all together.
        """
        if self._taken and not (self._acquired or self._busy or self._releasing):
            self._release_taken()  # an earlier release was interrupted each time it was tried
            return
        if self._releasing or not self._acquired:
            raise RuntimeError("this multi-lock does not hold its locks")
        self._releasing = True
        try:
            await self._release_all(deadline)
        finally:
            self._releasing = False
            if self._taken:
                self._leave_to_client()

    async def _release_all(self, deadline: float | None) -> None:
        errors: list[ZooKeeperError] = []
        try:
            for lock in reversed(self._parts):
                try:
                    await lock._release_by(deadline)
                except ZooKeeperError as error:
                    errors.append(error)
        finally:
            self._release_taken()
        losses = [error for error in errors if isinstance(error, LockLostError)]
        if errors:
            raise (losses or errors)[0]

    @property
    def _called(self) -> str:
        return "one of the locks"

    @property
    def _owned(self) -> bool:
        return self._acquired

    @property
    def _holds(self) -> bool:
        return all(lock._holds for lock in self._parts)

    def _lease_left(self) -> float:
        return min(lock._lease_left() for lock in self._parts)
