"""The three locks for asyncio: what users hold.  The algorithms are in the cores."""

from __future__ import annotations

from asyncio import CancelledError, current_task
from contextlib import asynccontextmanager

from zkwire.aio.client import AsyncClient
from zkwire.calls import check_timeout
from zkwire.errors import LockLostError, LockTakenError
from zkwire.recipes.contenders import contenders
from zkwire.recipes.face import Bodied, LockFace, check_kind
from zkwire.recipes.lock import InOtherHandsError
from zkwire.recipes.sequential import SequentialLockCore
from zkwire.recipes.single import SingleNodeLock, TriedOnce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from typing import Any, Self

    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.world import World
    from zkwire.verbs.multi import Operation


def world_of(client: AsyncClient) -> World:
    """What the recipes ask of the client; TypeError if it is none, or not for asyncio."""
    return check_kind("client must be an AsyncClient", client, AsyncClient)._world


class AsyncEntered(Bodied):
    """What an ``async with`` does with a lock."""

    async def acquire(self) -> bool:
        """Wait for the lock; see the subclasses."""
        raise NotImplementedError

    async def release(self) -> None:
        """Give it up; see the subclasses."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        mine = not self._owned
        try:
            if not await self.acquire():
                raise LockTakenError(f"{self._called} is held by somebody else")
        except InOtherHandsError:
            raise
        except BaseException:
            if mine:  # an interrupt may have come right behind the acquisition
                self._give_up()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.release()
        except LockLostError:
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


class AsyncLocking(LockFace, AsyncEntered):
    """A lock on ``path``, held by at most one contender at a time.

        async with AsyncSequentialLock(client, "/locks/report") as lock:
            await storage.write(data, fence=lock.fence)

    Not re-entrant, and one object is for one contender: tasks that compete need one each.
    ``await lock.lost`` waits for the loss of the lock.

    **What it can promise** is what the lock for threads can: at most one contender's ``held`` is
    True at any moment; give ``fence`` to whatever the lock guards.
    """

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes, through lost connections too; 0 is
        :meth:`try_acquire`.  When this returns False, raises or is cancelled, nothing is held and
        no node stays behind: what cannot be deleted at once is deleted on the next connection, or
        goes with the session.
        """
        limit = check_timeout("timeout", timeout)
        if limit == 0:
            return await self.try_acquire()
        deadline = None if limit is None else self._core.world.now() + limit
        return await self._core.acquire(deadline, True)

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if somebody else has it.

        Raises OperationTimeoutError when no server could tell within a session timeout.
        """
        world = self._core.world
        return await self._core.acquire(world.now() + world.session_timeout, False)

    async def release(self) -> None:
        """Give the lock up; ``held`` is False before the request is sent.

        A lost connection is no error, and a cancellation undoes nothing: the node is deleted soon,
        or goes with the session.  Raises LockLostError if the lock had been lost before (what was
        done under it may not have been exclusive), RuntimeError if it was never acquired.
        """
        self._core.world.check()
        await self._core.release()


class AsyncNonBlockingLock(AsyncLocking):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever node stands there.
    ``acquire(timeout)`` limits the time for the answer.
    """

    def __init__(self, client: AsyncClient, path: str) -> None:
        super().__init__(TriedOnce(world_of(client), path))

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock if it is free; False if somebody else has it.

        Raises OperationTimeoutError when no server could tell within ``timeout`` seconds (None, 0:
        a session timeout).  See also :meth:`AsyncLocking.acquire`.
        """
        limit = check_timeout("timeout", timeout)
        if not limit:
            return await self.try_acquire()
        return await self._core.acquire(self._core.world.now() + limit, False)


class AsyncBlockingLock(AsyncLocking):
    """A lock that waits: one ephemeral node, watched by everybody who wants it.

    Simple, but each release wakes all waiters, and any of them may win.  NodeExistsError when the
    node that it would wait for is not ephemeral: that is nobody's, and does not go by itself.
    """

    def __init__(self, client: AsyncClient, path: str) -> None:
        super().__init__(SingleNodeLock(world_of(client), path))


class AsyncQueueLock(AsyncLocking):
    """A lock whose contenders queue, each with a node of its own."""

    def __init__(self, core: SequentialLockCore) -> None:
        super().__init__(core)
        self._queue = core

    async def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> bool:
        """Acquire the lock; see :meth:`AsyncLocking.acquire`.

        ``on_position`` is called with the number of contenders ahead: when this one has its place
        in the queue, and whenever the one right ahead has gone.
        """
        if on_position is not None and not callable(on_position):
            raise TypeError(f"on_position must be callable, not {on_position!r}")
        self._queue.refuse_two()  # or this one would take its listener away
        self._queue.on_position = on_position
        return await super().acquire(timeout)

    async def contenders(self) -> list[Contender]:
        """Who is in the queue, the holder first: session and text of each.  Not a snapshot."""
        return await contenders(self._core.world, self._queue.path)

    async def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

        See :meth:`zkwire.SequentialLock.guard`.
        """
        return await self._queue.guarded(operations)


class AsyncSequentialLock(AsyncQueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

    ``text`` is shown to others, see :meth:`contenders`.
    """

    def __init__(self, client: AsyncClient, path: str, text: str = "") -> None:
        super().__init__(SequentialLockCore(world_of(client), path, text))


AsyncLock = AsyncSequentialLock
