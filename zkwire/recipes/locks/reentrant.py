"""The re-entrant lock: a fair lock that the thread or task which holds it may acquire again.

It decides which thread or task has which lock, and counts.  How long a thread or a task lives is
the runtime's matter: it says which one runs, and when one has ended.
"""

from __future__ import annotations

from functools import partial

from zkwire.recipes.locks.acquirable import Acquirable
from zkwire.recipes.locks.sequential import AsyncSequentialLock
from zkwire.recipes.runtime import runtime_of
from zkwire.recipes.view import PathView
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.runtime import AsyncClientLike, Runtime


class OwnLock:
    """The lock of one thread or task, and how often that has acquired it."""

    __slots__ = ("count", "lock")

    def __init__(self, runtime: Runtime, make: Callable[[], AsyncSequentialLock]) -> None:
        self.lock: AsyncSequentialLock = make()
        self.count: int = 0
        runtime.when_caller_ends(self.lock)


class AsyncReentrantLock(PathView, Acquirable):
    """A fair lock that the task which holds it may acquire again.

    One object serves any number of tasks: each has its own place in the queue.  The properties
    are those of the running task's lock.

    Only the task that holds it can release it.  When that ends without doing so, the lock is
    released in its place, as if by a last ``release``, and a warning is logged.  (Under asyncio
    that also happens to a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what
    it waits for in a task of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.)
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        make = partial(AsyncSequentialLock, client, path, text, acl=acl, names=names)
        self._runtime = runtime_of(client)
        self._path: str = make().path  # which checks the arguments
        self._own = self._runtime.local(partial(OwnLock, self._runtime, make))

    @property
    def lock(self) -> AsyncSequentialLock:
        """The lock of the task that asks: ``fence``, ``guard`` and all the rest."""
        return self._own().lock

    if TYPE_CHECKING:

        @property
        def lost(self) -> Lost: ...

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this thread or task holds it.

        Raises LockLostError if this thread or task had acquired it and lost it: first release it.
        True, False, and what a lost connection, an error, a cancellation or an interrupt leaves
        behind (nothing) are as for :meth:`zkwire.Lock.acquire`.
        """
        return await super().acquire(timeout)

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free, or count one more; False if another contender has it.

        It does not wait for a holder.  Errors are those of ``try_acquire`` of :attr:`lock`, and
        LockLostError as for :meth:`acquire`.
        """
        own = self._own()
        if own.count:
            own.lock.check()
        elif not await own.lock.try_acquire():
            return False
        own.count += 1
        return True

    async def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one releases the lock, as :meth:`zkwire.Lock.release` does.

        RuntimeError if this thread or task does not hold it.  The last one can end with
        LockLostError or OperationTimeoutError.
        """
        check_timeout("timeout", timeout)
        own = self._own()
        if own.count == 0:
            raise RuntimeError("this thread or task does not hold the lock")
        if own.count > 1:
            own.count -= 1
            return
        try:
            await own.lock.release(timeout)
        finally:
            own.count = int(own.lock._owned)  # 1: an interrupt was faster; to be released still

    async def _take(self, timeout: float | None) -> bool:
        check_timeout("timeout", timeout)
        own = self._own()
        if own.count:
            own.lock.check()
        elif not await own.lock._take(timeout):
            return False
        own.count += 1
        return True

    def _release_later(self) -> None:
        own = self._own()
        if own.count > 1:
            own.count -= 1
            return
        own.lock._release_later()
        own.count = 0

    @property
    def _called(self) -> str:
        return self._path

    @property
    def _owned(self) -> bool:
        return self._own().lock._owned

    @property
    def _holds(self) -> bool:
        return self._own().lock._holds

    @property
    def _lost(self) -> Lost:
        return self._own().lock._lost

    def _lease_left(self) -> float:
        return self._own().lock._lease_left()
