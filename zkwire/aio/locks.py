"""The locks for asyncio: the algorithms in :mod:`zkwire.recipes` themselves, for an AsyncClient.

What each one is stands at its counterpart for threads, :mod:`zkwire.blocking.locks`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

from zkwire.aio.client import AsyncClient
from zkwire.aio.waiting import cancelled_by
from zkwire.errors import LockLostError
from zkwire.recipes.locks.acquirable import Acquirable
from zkwire.recipes.locks.election import Candidates
from zkwire.recipes.locks.kazoo_lease import KazooLease
from zkwire.recipes.locks.lease import SemaphoreLease
from zkwire.recipes.locks.lock import Lock
from zkwire.recipes.locks.multi_lock import AllLocks
from zkwire.recipes.locks.read_write import ReadLockQueue, ReadWriteQueue, WriteLockQueue
from zkwire.recipes.locks.reentrant import Reentrant
from zkwire.recipes.locks.semaphore import Leases
from zkwire.recipes.locks.sequential import SequentialQueue
from zkwire.recipes.locks.single import SingleNodeLock, TriedOnce
from zkwire.recipes.public import public
from zkwire.recipes.view import check_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.sequential_entry import Names
    from zkwire.recipes.runtime import Runtime


def runtime_of(client: AsyncClient) -> Runtime:
    """What the recipes ask of the client; TypeError if it is none, or not for asyncio."""
    return check_kind("client must be an AsyncClient", client, AsyncClient)._driver


class Cancelling(Acquirable):
    """A lock that can cancel the task that works under it."""

    def cancel_on_loss(self) -> AbstractAsyncContextManager[Self]:
        """Cancel the body of the ``async with`` when the lock is lost, then raise LockLostError.

            async with lock, lock.cancel_on_loss():
                await work()

        As with ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
        """
        return self._cancelling()

    @asynccontextmanager
    async def _cancelling(self) -> AsyncGenerator[Self, None]:
        self.check()
        lost = self.lost

        def add(cancel: Callable[[object], None]) -> Callable[[], None]:
            return partial(lost._drop_waker, lost._call_back(cancel))

        def error() -> LockLostError:
            return LockLostError(f"{self._called} was lost: {lost.reason}")

        async with cancelled_by(add, error):
            yield self


@public
class AsyncNonBlockingLock(Cancelling, TriedOnce):
    """A lock that never waits for its holder; see :class:`zkwire.NonBlockingLock`."""

    def __init__(self, client: AsyncClient, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(runtime_of(client), path, acl)


@public
class AsyncBlockingLock(Cancelling, SingleNodeLock):
    """A lock that waits: one ephemeral node; see :class:`zkwire.BlockingLock`."""

    def __init__(self, client: AsyncClient, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(runtime_of(client), path, acl)


@public
class AsyncSequentialLock(Cancelling, SequentialQueue):
    """The fair lock; see :class:`zkwire.SequentialLock`.

        async with AsyncSequentialLock(client, "/locks/report") as lock:
            await storage.write(data, fence=lock.fence)

    Tasks that compete need one each.  ``await lock.lost`` waits for the loss of the lock.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(runtime_of(client), path, text, acl, names)


AsyncLock = AsyncSequentialLock


@public
class AsyncReadLock(Cancelling, ReadLockQueue):
    """The side of the readers; see :class:`zkwire.ReadWriteLock`."""


@public
class AsyncWriteLock(Cancelling, WriteLockQueue):
    """The side of the writer; see :class:`zkwire.ReadWriteLock`."""


@public
class AsyncReadWriteLock(ReadWriteQueue):
    """Readers together, a writer alone, in order of arrival; see :class:`zkwire.ReadWriteLock`."""

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        runtime = runtime_of(client)
        self.write: AsyncWriteLock = AsyncWriteLock(runtime, path, text, acl, names)
        self.read: AsyncReadLock = AsyncReadLock(runtime, path, text, self.write, acl, names)
        super().__init__(self.write)


@public
class AsyncLease(Cancelling, SemaphoreLease):
    """One lease of a semaphore, a lock like all others; see :class:`AsyncSemaphore`."""


@public
class _AsyncKazooLease(AsyncLease, KazooLease):
    """The same beside kazoo's Semaphore."""


@public
class AsyncSemaphore(Leases):
    """At most ``count`` leases at a time, in order of arrival.

        async with semaphore.lease() as lease:
            ...

    See :class:`zkwire.Semaphore`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(runtime_of(client), path, count, text, acl, names)

    def lease(self) -> AsyncLease:
        kind = _AsyncKazooLease if self._for_kazoo else AsyncLease
        return kind(*self._arguments)


@public
class AsyncMultiLock(Cancelling, AllLocks):
    """Several locks at once: all of them, or none; see :class:`zkwire.MultiLock`."""

    def __init__(self, *locks: Lock) -> None:
        wanted = "an AsyncMultiLock takes locks such as AsyncSequentialLock"
        super().__init__([check_kind(wanted, lock, Lock) for lock in locks])
        self.locks = locks


@public
class AsyncReentrantLock(Cancelling, Reentrant):
    """A fair lock that the task which holds it may acquire again.

    One object serves any number of tasks: each has its own place in the queue.  The properties are
    those of the running task's lock.

    Only the task that holds it can release it.  When that ends without doing so, the lock is
    released in its place, as if by a last ``release``, and a warning is logged.  That is the fate
    of a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what it waits for in a
    task of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        make = partial(AsyncSequentialLock, client, path, text, acl=acl, names=names)
        super().__init__(runtime_of(client), make)

    @property
    def lock(self) -> AsyncSequentialLock:
        return super().lock


@public
class AsyncElection(Candidates):
    """One leader at a time; leadership is lost exactly as a lock is.

        async with election.lead() as leadership, leadership.cancel_on_loss():
            ...

    See :class:`zkwire.Election`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        make = partial(AsyncSequentialLock, client, path, text, acl=acl, names=names)
        super().__init__(runtime_of(client), make)

    def lead(self) -> AsyncSequentialLock:
        return self._new()
