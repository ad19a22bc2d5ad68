"""Several locks at once: all of them, or none.

They are acquired in the order of their paths, the same for everybody, so no two contenders can each
hold what the other waits for.  What was acquired before one failed is given up at once.

Invariant: held exactly if every one of them is; lost as soon as one is lost.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import LockLostError, OperationTimeoutError, ZooKeeperError
from zkwire.recipes.attempt import LockInUseError
from zkwire.recipes.insist import insist
from zkwire.recipes.lost import Loss

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.recipes.lock import Lock
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.runtime import Runtime


class AllLocks:
    """The algorithm of the multi-lock."""

    waits = True  # what waits for a holder are its parts

    def __init__(self, cores: Sequence[Lock]) -> None:
        self.cores: list[Lock] = sorted(cores, key=lambda core: core.path)
        paths = [core.path for core in self.cores]
        if not paths or len(set(paths)) < len(paths):
            raise ValueError("a multi-lock takes one or more locks, each on another path")
        self.world: Runtime = self.cores[0].world
        if any(core.world is not self.world for core in self.cores):
            raise ValueError("the locks of a multi-lock must be of one client")
        self._lost = AnyLost(self.world)
        self._taken: list[Lock] = []
        self._acquired = False  # all of them
        self._busy = False  # somebody acquires them
        self._releasing = False

    @property
    def owned(self) -> bool:
        """Whether they were acquired and not released."""
        return self._acquired

    def check(self) -> None:
        """Raise if a client cannot be used here: in a forked child, in another event loop."""
        for core in self.cores:
            core.world.check()

    async def acquire(self, deadline: float | None, wait: bool) -> bool:
        """Get all; False if one is somebody else's, and it does not wait.

        Raises OperationTimeoutError at the ``deadline``, as its parts do.
        """
        self.refuse_two()
        self._busy = True
        try:
            self._forget_loss()
            return await self._acquire(deadline, wait)
        except BaseException:
            if not self._acquired:
                self._settle()
            raise
        finally:
            self._busy = False

    def refuse_two(self) -> None:
        """Raise LockInUseError if somebody is at this object; or ForkedError."""
        self.check()
        if self._busy or self._releasing:
            raise LockInUseError("another thread or task is at this very multi-lock")

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        if self._acquired:
            raise LockInUseError("this multi-lock holds its locks already; it is not re-entrant")
        taken = self._taken
        for core in self.cores:
            taken.append(core)  # before, for an interrupt right behind the acquisition
            try:
                if await core.acquire(deadline, wait):
                    continue
            except LockInUseError:
                taken.pop()
                raise
            if not wait:  # who tries expects to see it done; who has waited is late already
                for other in reversed(taken[:-1]):
                    with suppress(LockLostError, OperationTimeoutError):
                        await other.release(deadline)
            self._settle()
            return False
        self.world.check_open()
        if not self.held:
            raise LockLostError("one of the locks was lost while another was acquired")
        self._lost.watch([core.lost for core in taken])
        self._acquired = True
        return True

    def _forget_loss(self) -> None:
        """Be as new after a loss that nobody has answered with a release."""
        if self._taken and (not self._acquired or self._lost.is_set()):
            self._settle()
        if self._lost.ready:
            self._lost = AnyLost(self.world)

    def _settle(self) -> None:
        """Give up what is taken; what interrupts it each time is raised, and it is to be repeated.

        An interrupt is raised when all is given up.
        """
        insist(self._give_up_taken)

    def _give_up_taken(self) -> None:
        self._acquired = False
        for core in reversed(self._taken):
            core.give_up()
        self._taken = []

    def give_up(self) -> None:
        """Give all up without waiting for it, if they are held; where nothing may await."""
        if not (self._busy or self._releasing):
            self._settle()

    async def release(self, deadline: float | None = None) -> None:
        """Give all up, whatever happens to one; raises the first error, of a loss if there is one.

        The ``deadline`` is for all together.
        """
        if self._taken and not (self._acquired or self._busy or self._releasing):
            self._settle()  # an earlier release was interrupted each time it was tried
            return
        if self._releasing or not self._acquired:
            raise RuntimeError("this multi-lock does not hold its locks")
        self._releasing = True
        try:
            await self._release(deadline)
        except BaseException:
            self._settle()
            raise
        finally:
            self._releasing = False

    async def _release(self, deadline: float | None) -> None:
        errors: list[ZooKeeperError] = []
        try:
            for core in reversed(self.cores):
                try:
                    await core.release(deadline)
                except ZooKeeperError as error:
                    errors.append(error)
        finally:
            self._settle()
        losses = [error for error in errors if isinstance(error, LockLostError)]
        if errors:
            raise (losses or errors)[0]

    @property
    def held(self) -> bool:
        """Whether all are surely held at this moment."""
        return all(core.held for core in self.cores)

    def lease_remaining(self) -> float:
        """Seconds for which all are surely held even if nothing more is heard."""
        return min(core.lease_remaining() for core in self.cores)

    @property
    def lost(self) -> AnyLost:
        """The loss of the first one."""
        return self._lost


class AnyLost(Loss):
    """The loss of any of several locks."""

    __slots__ = ("_parts",)

    def __init__(self, world: Runtime) -> None:
        super().__init__(world)
        self._parts: list[Lost] = []  # none before all of them are held

    def __repr__(self) -> str:
        return f"<AnyLost: {self.reason or ('released' if self.ready else 'not lost')}>"

    def _why(self) -> str | None:
        return self.reason

    @property
    def ready(self) -> bool:
        """Whether one has been lost or released: nothing more will happen."""
        return any(part.ready for part in self._parts)

    @property
    def reason(self) -> str | None:
        """Why the first one was lost; None if none was."""
        return next((part.reason for part in self._parts if part.reason is not None), None)

    def watch(self, parts: list[Lost]) -> None:
        """All are held: from now on their losses count."""
        self._parts = parts
        for part in parts:
            self._world.when_ready(part, self._wake)

    def _wake(self) -> None:
        for waker in self.take_wakers():
            waker()
