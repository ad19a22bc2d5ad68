"""The three locks for asyncio: what users hold.  The algorithms are in the cores."""

from __future__ import annotations

from asyncio import CancelledError, current_task
from contextlib import asynccontextmanager

from zkwire.aio.client import AsyncClient
from zkwire.errors import (
    LockLostError,
    LockTakenError,
    LockTimeoutError,
    OperationTimeoutError,
)
from zkwire.recipes import limits
from zkwire.recipes.attempt import LockInUseError
from zkwire.recipes.contenders import contenders
from zkwire.recipes.face import Bodied, LockFace, check_kind
from zkwire.recipes.guarded import guarded
from zkwire.recipes.sequential import SequentialQueue
from zkwire.recipes.single import SingleNodeLock, TriedOnce
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.runtime import Runtime


def world_of(client: AsyncClient) -> Runtime:
    """What the recipes ask of the client; TypeError if it is none, or not for asyncio."""
    return check_kind("client must be an AsyncClient", client, AsyncClient)._world


class AsyncEntered(Bodied):
    """What an ``async with`` does with a lock."""

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes, through lost connections too; 0 is one try,
        False at once without a connection.  When this returns False, raises or is cancelled,
        nothing is held and no node stays behind: what cannot be deleted at once is deleted on the
        next connection, or goes with the session.  NodeExistsError names a node that it would wait
        for and that is not ephemeral.
        """
        try:
            return await self._take(timeout)
        except OperationTimeoutError:
            if timeout is None:
                raise
            return False

    async def release(self, timeout: float | None = None) -> None:
        """Give it up; see the subclasses."""
        raise NotImplementedError

    def within(self, timeout: float | None) -> AbstractAsyncContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            async with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock was not acquired in time; it is a
        LockTimeoutError if somebody else was seen to hold it.
        """
        return AsyncWithin(self, check_timeout("timeout", timeout))

    async def _take(self, timeout: float | None) -> bool:
        """Acquire the lock; False if one try has failed, else OperationTimeoutError."""
        raise NotImplementedError

    async def _enter(self, timeout: float | None) -> None:
        mine = not self._owned
        try:
            if not await self._take(timeout):
                kind = LockTakenError if timeout is None else LockTimeoutError
                raise kind(f"{self._called} is held by somebody else")
        except LockInUseError:
            raise
        except BaseException:
            if mine:  # an interrupt may have come right behind the acquisition
                self._give_up()
            raise

    async def __aenter__(self) -> Self:
        await self._enter(None)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.release()
        except (LockLostError, OperationTimeoutError):
            if kind is None:
                raise
        except BaseException:
            self._give_up()
            raise

    @asynccontextmanager
    async def cancel_on_loss(self) -> AsyncGenerator[Self, None]:
        """Cancel the body of the ``async with`` when the lock is lost, then raise LockLostError.

            async with lock, lock.cancel_on_loss():
                await work()

        As with ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
        """
        self.check()
        task, lost, over = current_task(), self.lost, False
        if task is None:
            raise RuntimeError("only a task can be cancelled, and this is none")
        outside, cancelled = task.cancelling(), False

        def cancel(_: object) -> None:
            nonlocal cancelled
            if not over:
                cancelled = task.cancel()

        waker = lost._call_back(cancel)
        try:
            yield self
        except BaseException as error:
            over = True
            if not cancelled or task.uncancel() > outside or not isinstance(error, CancelledError):
                raise
            raise LockLostError(f"{self._called} was lost: {lost.reason}") from None
        finally:
            lost.drop_waker(waker)
        over = True
        if cancelled:  # and the body has ended before it noticed
            task.uncancel()
            raise LockLostError(f"{self._called} was lost: {lost.reason}")


class AsyncWithin:
    """A lock and a time limit, for one ``async with``."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: AsyncEntered, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    async def __aenter__(self) -> Any:
        await self._lock._enter(self._timeout)
        return self._lock

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)


class AsyncLocking(LockFace, AsyncEntered):
    """A lock on ``path``, held by at most one contender at a time.

        async with AsyncSequentialLock(client, "/locks/report") as lock:
            await storage.write(data, fence=lock.fence)

    Not re-entrant, and one object is for one contender: tasks that compete need one each.
    ``await lock.lost`` waits for the loss of the lock.  ``acl`` is that of the locks for threads.

    **What it can promise** is what the lock for threads can: at most one contender's ``held`` is
    True at any moment; give ``fence`` to whatever the lock guards.
    """

    async def _take(self, timeout: float | None) -> bool:
        return await limits.take(self._core, timeout)

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if somebody else has it.

        Raises OperationTimeoutError when no server could tell within the client's
        ``operation_timeout``, without one within a session timeout.
        """
        return await limits.take_if_free(self._core)

    async def release(self, timeout: float | None = None) -> None:
        """Give the lock up, within ``timeout`` seconds; ``held`` is False before it is sent.

        None: the client's ``operation_timeout``, without one two session timeouts.  A cancellation
        undoes nothing: the node is deleted soon, or goes with the session.  What each ending says
        (a return, LockLostError, OperationTimeoutError) is told by :meth:`zkwire.Lock.release`.
        RuntimeError if it was never acquired.
        """
        world = self._core.world
        world.check()
        await self._core.release(limits.deadline_of(world, timeout))

    async def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

        See :meth:`zkwire.Locking.guard`.
        """
        return await guarded(self._core, operations)


class AsyncNonBlockingLock(AsyncLocking):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever node stands there.
    ``acquire(timeout)`` limits the time for the answer; without, it is :meth:`try_acquire`.
    """

    def __init__(self, client: AsyncClient, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(TriedOnce(world_of(client), path, acl))


class AsyncBlockingLock(AsyncLocking):
    """A lock that waits: one ephemeral node, watched by everybody who wants it.

    Simple, but each release wakes all waiters, and any of them may win.
    """

    def __init__(self, client: AsyncClient, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(SingleNodeLock(world_of(client), path, acl))


class AsyncQueueLock(AsyncLocking):
    """A lock whose contenders queue, each with a node of its own."""

    def __init__(self, core: SequentialQueue) -> None:
        super().__init__(core)
        self._queue = core

    async def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> bool:
        """Acquire the lock; see :meth:`AsyncEntered.acquire`.

        ``on_position`` is called with the number of contenders ahead: when this one has its place
        in the queue, and whenever the one right ahead has gone.
        """
        if on_position is not None and not callable(on_position):
            raise TypeError(f"on_position must be callable, not {on_position!r}")
        try:
            return await self._take(timeout, on_position)
        except OperationTimeoutError:
            if timeout is None:
                raise
            return False

    async def _take(
        self, timeout: float | None, on_position: Callable[[int], object] | None = None
    ) -> bool:
        self._queue.refuse_two()  # or this one would take its listener away
        self._queue.on_position = on_position
        return await super()._take(timeout)

    async def contenders(self) -> list[Contender]:
        """Who is in the queue, the holder first: session and text of each.  Not a snapshot.

        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return await contenders(self._core.world, self._queue.path)


class AsyncSequentialLock(AsyncQueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

    ``text`` is shown to others, see :meth:`contenders`.
    """

    def __init__(
        self, client: AsyncClient, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(SequentialQueue(world_of(client), path, text, acl))


AsyncLock = AsyncSequentialLock
