"""The rest of the family, for asyncio; see :mod:`zkwire.recipes.family` for what each one is."""

from __future__ import annotations

from asyncio import Task, current_task
from weakref import WeakKeyDictionary

from zkwire.calls import check_timeout
from zkwire.errors import LockTakenError
from zkwire.recipes.async_locks import (
    AsyncEntered,
    AsyncLocking,
    AsyncQueueLock,
    AsyncSequentialLock,
    world_of,
)
from zkwire.recipes.contenders import contenders
from zkwire.recipes.face import check_kind
from zkwire.recipes.multi_lock import MultiLockCore
from zkwire.recipes.read_write import ReadLockCore, WriteLockCore
from zkwire.recipes.semaphore import SemaphoreCore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from zkwire.aio.client import AsyncClient
    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.multi_lock import AnyLost


class AsyncReadWriteLock:
    """Readers together, a writer alone, in order of arrival; see :class:`zkwire.ReadWriteLock`."""

    def __init__(self, client: AsyncClient, path: str, text: str = "") -> None:
        self._world = world_of(client)
        write = WriteLockCore(self._world, path, text)
        read = ReadLockCore(self._world, path, text, write)
        write.read = read
        self.path = path
        self.read = AsyncQueueLock(read)
        self.write = AsyncQueueLock(write)

    async def contenders(self) -> list[Contender]:
        """Who is in the queue, in order.  Not a snapshot."""
        return await contenders(self._world, self.path)


class AsyncLease(AsyncQueueLock):
    """One lease of a semaphore; see :class:`AsyncSemaphore`."""

    async def __aenter__(self) -> Self:
        try:
            self.check()  # it was acquired before
        except BaseException:
            self._give_up()  # nobody will come by at __aexit__
            raise
        return self


class AsyncSemaphore:
    """At most ``count`` leases at a time, in order of arrival; see :class:`zkwire.Semaphore`.

    async with await semaphore.acquire() as lease:
        ...
    """

    def __init__(self, client: AsyncClient, path: str, count: int, text: str = "") -> None:
        self._world = world_of(client)
        self.path = path
        self.count = count
        self._text = text
        self._core()  # checks the arguments

    def _core(self) -> SemaphoreCore:
        return SemaphoreCore(self._world, self.path, self.count, self._text)

    async def acquire(self, timeout: float | None = None) -> AsyncLease:
        """Wait for a lease, at most ``timeout`` seconds; LockTakenError if there was none in time.

        ``timeout`` 0 is one try, which fails as well while somebody else is in the queue.
        See :meth:`AsyncSequentialLock.acquire` for lost connections and cancellation.
        """
        lease = AsyncLease(self._core())
        if not await lease.acquire(timeout):
            when = f" within {timeout} s" if timeout else ""
            raise LockTakenError(f"{self.path}: none of {self.count} leases was free{when}")
        return lease

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
        self._core = MultiLockCore([lock._core for lock in parts])
        self.locks = locks

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire all; False when ``timeout`` seconds passed without, and then none is held."""
        limit = check_timeout("timeout", timeout)
        if limit == 0:
            return await self.try_acquire()
        deadline = None if limit is None else self._core.now() + limit
        return await self._core.acquire(deadline, True)

    async def try_acquire(self) -> bool:
        """Acquire all if they are free; False, without waiting, if one is not."""
        return await self._core.acquire(self._core.now() + self._core.session_timeout, False)

    async def release(self) -> None:
        """Give all up.  Raises LockLostError if one had been lost before."""
        self._core.check()
        await self._core.release()

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

    __slots__ = ("count", "lock")

    def __init__(self, lock: AsyncSequentialLock) -> None:
        self.lock = lock
        self.count = 0


class AsyncReentrantLock(AsyncEntered):
    """A fair lock that the task which holds it may acquire again.

    One object serves any number of tasks: each has its own place in the queue.  The properties are
    those of the running task's lock.  ``asyncio.wait_for`` runs what it waits for in a task of its
    own up to Python 3.11, which would be the holder: use ``timeout``, or ``asyncio.timeout``.
    """

    def __init__(self, client: AsyncClient, path: str, text: str = "") -> None:
        self._client = client
        self._text = text
        self.path = path
        self._owners: WeakKeyDictionary[Task[Any], _Own] = WeakKeyDictionary()
        AsyncSequentialLock(client, path, text)  # checks the arguments

    def _own(self) -> _Own:
        task = current_task()
        if task is None:
            raise RuntimeError("a re-entrant lock is its task's, and this is no task")
        if task not in self._owners:
            self._owners[task] = _Own(AsyncSequentialLock(self._client, self.path, self._text))
        return self._owners[task]

    @property
    def lock(self) -> AsyncSequentialLock:
        """The running task's lock: ``fence``, ``lost``, ``guard`` and all the rest."""
        return self._own().lock

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this task holds it.

        Raises LockLostError if this task had acquired it and lost it: first release it.
        """
        own = self._own()
        if own.count:
            own.lock.check()
        elif not await own.lock.acquire(timeout):
            return False
        own.count += 1
        return True

    async def release(self) -> None:
        """Count one less; the last one gives the lock up.  RuntimeError if it is not this task's.

        The last one raises LockLostError if the lock had been lost before.
        """
        own = self._own()
        if own.count == 0:
            raise RuntimeError("this task does not hold the lock")
        if own.count > 1:
            own.count -= 1
            return
        try:
            await own.lock.release()
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

    def __init__(self, client: AsyncClient, path: str, text: str = "") -> None:
        self._client = client
        self._text = text
        self.path = path
        self.lead()  # checks the arguments

    def lead(self) -> AsyncSequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        return AsyncSequentialLock(self._client, self.path, self._text)

    async def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot."""
        return await contenders(self._client._world, self.path)

    async def leader(self) -> Contender | None:
        """Who leads at this moment, as far as the server that was asked knows."""
        return next(iter(await self.candidates()), None)
