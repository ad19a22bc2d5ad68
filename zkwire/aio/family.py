"""The rest of the family, for asyncio; see :mod:`zkwire.blocking.family` for what each one is."""

from __future__ import annotations

from asyncio import Task, current_task
from weakref import WeakKeyDictionary, ref

from zkwire.aio.locks import (
    AsyncEntered,
    AsyncLocking,
    AsyncQueueLock,
    AsyncSequentialLock,
    world_of,
)
from zkwire.errors import LockTakenError, LockTimeoutError
from zkwire.recipes import limits
from zkwire.recipes.contenders import contenders
from zkwire.recipes.face import check_kind
from zkwire.recipes.multi_lock import AllLocks
from zkwire.recipes.read_write import ReadLockQueue, WriteLockQueue
from zkwire.recipes.semaphore import LastTry, SemaphoreLease

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    from zkwire.aio.client import AsyncClient
    from zkwire.jute.records import ACL
    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.multi_lock import AnyLost


class AsyncReadWriteLock:
    """Readers together, a writer alone, in order of arrival; see :class:`zkwire.ReadWriteLock`."""

    def __init__(
        self, client: AsyncClient, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._world = world_of(client)
        write = WriteLockQueue(self._world, path, text, acl)
        read = ReadLockQueue(self._world, path, text, write, acl)
        write.read = read
        self.path = path
        self.read: AsyncQueueLock = AsyncQueueLock(read)
        self.write: AsyncQueueLock = AsyncQueueLock(write)

    async def contenders(self) -> list[Contender]:
        """Who is in the queue, in order.  Not a snapshot."""
        return await contenders(self._world, self.path)


class AsyncLease(AsyncQueueLock):
    """One lease of a semaphore; see :class:`AsyncSemaphore`."""

    async def _enter(self, timeout: float | None) -> None:
        try:
            acquired = self._owned
            if acquired:
                self.check()
        except BaseException:
            self._give_up()  # nobody will come by at __aexit__
            raise
        if not acquired:
            await super()._enter(timeout)


class AsyncSemaphore:
    """At most ``count`` leases at a time, in order of arrival; see :class:`zkwire.Semaphore`.

    async with await semaphore.acquire() as lease:
        ...
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._world = world_of(client)
        self.path = path
        self.count = count
        self._text = text
        self._acl = acl
        self._last_try = LastTry()
        self._core()  # checks the arguments

    def _core(self) -> SemaphoreLease:
        return SemaphoreLease(
            self._world, self.path, self.count, self._text, self._acl, self._last_try
        )

    def lease(self) -> AsyncLease:
        """A lease that is not acquired yet: a lock like all others.

            async with semaphore.lease() as lease:
                ...

        The ``with`` acquires it, so an interrupt finds it acquired there, or not at all.
        """
        return AsyncLease(self._core())

    def within(self, timeout: float | None) -> AbstractAsyncContextManager[AsyncLease]:
        """A lease, to be entered within ``timeout`` seconds.

        See :meth:`AsyncEntered.within`.
        """
        return self.lease().within(timeout)

    async def acquire(self, timeout: float | None = None) -> AsyncLease:
        """Wait for a lease, at most ``timeout`` seconds, and return it.

        LockTimeoutError if the others had all of them until then, OperationTimeoutError if no
        server could tell.  ``timeout`` 0 is one try, which fails as well while somebody else is in
        the queue: LockTakenError.  See :meth:`AsyncSequentialLock.acquire` for lost connections and
        what is left behind (nothing).  An interrupt between this and a ``with`` leaves the lease
        acquired: :meth:`lease` and :meth:`within` have no such gap.
        """
        lease, kind = self.lease(), LockTakenError
        try:
            if await lease._take(timeout):
                return lease
        except LockTimeoutError:
            kind = LockTimeoutError
        when = f" within {timeout} s" if timeout else ""
        raise kind(f"{self.path}: none of {self.count} leases was free{when}")

    async def holders(self) -> list[Contender]:
        """Who has a lease, in order: the first ``count``; behind them who gets the next one.

        The rest of the queue stands in the node ``locks`` below the path.  Not a snapshot.
        """
        return await contenders(self._world, f"{self.path}/leases")


class AsyncMultiLock(AsyncEntered):
    """Several locks at once: all of them, or none; see :class:`zkwire.MultiLock`."""

    def __init__(self, *locks: AsyncLocking) -> None:
        wanted = "an AsyncMultiLock takes locks such as AsyncSequentialLock"
        parts = [check_kind(wanted, lock, AsyncLocking) for lock in locks]
        self._core = AllLocks([lock._core for lock in parts])
        self.locks = locks

    async def _take(self, timeout: float | None) -> bool:
        return await limits.take(self._core, timeout)

    async def try_acquire(self) -> bool:
        """Acquire all if they are free; False, without waiting, if one is not.

        OperationTimeoutError by the limits of :meth:`AsyncLocking.try_acquire`, for all together.
        """
        return await limits.take_if_free(self._core)

    async def release(self, timeout: float | None = None) -> None:
        """Give all up, within ``timeout`` seconds in all; see :meth:`AsyncLocking.release`.

        LockLostError if one had been lost before, whatever has become of the others.
        """
        self._core.check()
        deadline = limits.deadline_of(self._core.world, timeout)
        await self._core.release(deadline)

    @property
    def held(self) -> bool:
        """Whether all are surely held at this moment."""
        return self._core.held

    def lease_remaining(self) -> float:
        """Seconds for which all are surely held even if no server answers."""
        return self._core.lease_remaining()

    @property
    def lost(self) -> AnyLost:
        """The loss of the first one."""
        return self._core.lost

    def _check_place(self) -> None:
        self._core.check()

    def _give_up(self) -> None:
        self._core.give_up()

    @property
    def _owned(self) -> bool:
        return self._core.owned


class _Own:
    """One task's lock and how often it has acquired it."""

    __slots__ = ("_count", "_task", "lock")

    def __init__(self, lock: AsyncSequentialLock, task: Task[Any]) -> None:
        self.lock = lock
        self._count = 0
        self._task = ref(task)  # which is what it is the value of

    @property
    def count(self) -> int:
        """How often the task has acquired it."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        task = self._task()
        if task is not None and bool(count) is not bool(self._count):
            (task.add_done_callback if count else task.remove_done_callback)(self._bereave)
        self._count = count

    def _bereave(self, task: Task[Any]) -> None:
        self.lock._core.bereave(f"the task {task.get_name()}")


class AsyncReentrantLock(AsyncEntered):
    """A fair lock that the task which holds it may acquire again.

    One object serves any number of tasks: each has its own place in the queue.  The properties are
    those of the running task's lock.

    Nobody but the task that holds it can release it.  When that ends without doing so, the lock is
    released in its place, as if by a last ``release``, and a warning is logged.  That is the fate
    of a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what it waits for in a
    task of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.
    """

    def __init__(
        self, client: AsyncClient, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._client = client
        self._text = text
        self._acl = acl
        self.path = path
        self._owners: WeakKeyDictionary[Task[Any], _Own] = WeakKeyDictionary()
        AsyncSequentialLock(client, path, text, acl=acl)  # checks the arguments

    def _own(self) -> _Own:
        task = current_task()
        if task is None:
            raise RuntimeError("a re-entrant lock is its task's, and this is no task")
        if task not in self._owners:
            lock = AsyncSequentialLock(self._client, self.path, self._text, acl=self._acl)
            self._owners[task] = _Own(lock, task)
        return self._owners[task]

    @property
    def lock(self) -> AsyncSequentialLock:
        """The running task's lock: ``fence``, ``lost``, ``guard`` and all the rest."""
        return self._own().lock

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this task holds it.

        Raises LockLostError if this task had acquired it and lost it: first release it.
        See also :meth:`AsyncEntered.acquire`.
        """
        return await super().acquire(timeout)

    async def _take(self, timeout: float | None) -> bool:
        own = self._own()
        if own.count:
            own.lock.check()
        elif not await own.lock._take(timeout):
            return False
        own.count += 1
        return True

    async def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one gives the lock up.  RuntimeError if it is not this task's.

        The last one is :meth:`AsyncLocking.release`: LockLostError, OperationTimeoutError.
        """
        own = self._own()
        if own.count == 0:
            raise RuntimeError("this task does not hold the lock")
        if own.count > 1:
            own.count -= 1
            return
        try:
            await own.lock.release(timeout)
        finally:
            own.count = int(own.lock._core.owned)

    @property
    def held(self) -> bool:
        """Whether this task surely holds the lock at this moment."""
        return self.lock.held

    @property
    def lost(self) -> Lost:
        """The loss of this task's last acquisition."""
        return self.lock.lost

    def _check_place(self) -> None:
        self.lock._check_place()

    @property
    def _called(self) -> str:
        return self.path

    def _give_up(self) -> None:
        own = self._own()
        if own.count > 1:
            own.count -= 1
            return
        own.lock._give_up()
        own.count = 0

    @property
    def _owned(self) -> bool:
        return self.lock._owned


class AsyncElection:
    """One leader at a time; leadership is lost exactly as a lock is; see :class:`zkwire.Election`.

    async with election.lead() as leadership, leadership.cancel_on_loss():
        ...
    """

    def __init__(
        self, client: AsyncClient, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._client = client
        self._text = text
        self._acl = acl
        self.path = path
        self.lead()  # checks the arguments

    def lead(self) -> AsyncSequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        return AsyncSequentialLock(self._client, self.path, self._text, acl=self._acl)

    async def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot."""
        return await contenders(self._client._world, self.path)

    async def leader(self) -> Contender | None:
        """Who leads at this moment, as far as the server that was asked knows."""
        return next(iter(await self.candidates()), None)
