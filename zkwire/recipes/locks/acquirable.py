"""How a lock is acquired, entered and released: once for every kind of lock.

It decides how long each call may take and how it ends when that time is over.  Of a lock it knows
whether it waits, and turns a time limit into a deadline on the runtime's clock.

* ``acquire(timeout)`` that runs out is False, whatever the reason: another contender has the lock,
  no server answers.
* Every other call that runs out raises OperationTimeoutError, which is a TimeoutError:
  ``with lock.within(timeout)``, ``try_acquire``, ``release``, the end of a ``with``, ``guard`` and
  ``contenders``.  From an acquisition it is a LockTimeoutError if another contender was seen to
  hold the lock.
* A call without a limit has the client's ``operation_timeout``; without that ``try_acquire`` has a
  session timeout, the others two.  ``acquire()`` and ``with lock`` of a lock that waits have none.
* ``acquire(timeout=0)`` is False at once without a connection; with one it is a try for which the
  server has a third of a session timeout, or the ``operation_timeout`` if that is shorter.

An interrupt can come right behind an acquisition: what enters a lock releases it then.
"""

from __future__ import annotations

from functools import partial

from zkwire.errors import LockLostError, LockTakenError, LockTimeoutError, OperationTimeoutError
from zkwire.recipes.enterable import Enterable
from zkwire.recipes.runtime import within
from zkwire.recipes.view import View
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from zkwire.recipes.runtime import Runtime


class Acquirable(View, Enterable):
    """The algorithm of any lock, as far as it is acquired and released."""

    _runtime: Runtime
    _waits = True  # until a holder releases

    if TYPE_CHECKING:

        @property
        def _holds(self) -> bool:
            """Whether the lock is surely held at this moment."""
            ...

        @property
        def _owned(self) -> bool:
            """Whether it was acquired and not released, be it lost or not."""
            ...

        @property
        def _called(self) -> str:
            """What to call it in an error."""
            ...

        def _lease_left(self) -> float:
            """Seconds for which it is surely held even if nothing more is heard."""
            ...

        def _refuse_two(self) -> None:
            """Raise LockInUseError if this object is in use, else what ``Runtime.check`` raises."""
            ...

        async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
            """Acquire it; False if another contender has it, and it does not wait.

            Raises LockTimeoutError when another contender had it at the ``deadline``,
            OperationTimeoutError when no server could tell by then.
            """
            ...

        async def _release_by(self, deadline: float | None) -> None:
            """Release it; OperationTimeoutError at the ``deadline``."""
            ...

        def _release_later(self) -> None:
            """Release it, if it is held, without waiting for that: where nothing may await.

            What an interrupt has kept from being done is done when this is called again.
            """
            ...

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is no error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        try:
            return await self._take(timeout)
        except OperationTimeoutError:
            if timeout is None:
                raise
            return False

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        Of a MultiLock all are acquired, or none.  Raises OperationTimeoutError when no server could
        tell within the client's ``operation_timeout``, without one within a session timeout.
        NodeExistsError names a node in the way that is not ephemeral, and no contender's.  A lost
        connection and a caller that is cancelled or interrupted are as for :meth:`acquire`.
        """
        return await self._acquire_by(self._runtime.now() + self._one_try(), False)

    async def release(self, timeout: float | None = None) -> None:
        """Release the lock, within ``timeout`` seconds; of a MultiLock all, in that time together.

        None: the client's ``operation_timeout``, without one two session timeouts.  ``held`` is
        False before the request is sent.  What the caller knows afterwards:

        * It returns: the lock is free.  A lost connection is no error: if it broke in this moment,
          the node is deleted on the next one, or goes with the session.
        * LockLostError: the lock had been lost before, and what was done under it may not have been
          exclusive.  (One lock of a MultiLock had been; the others are released all the same.)
        * OperationTimeoutError, with ``maybe_applied``: in doubt, since no server has confirmed it
          in time.  There is nothing to do: the client goes on deleting in the background.

        A caller that is cancelled or interrupted need not repeat it: the deletion goes on in the
        background.  The same after any other error, such as RecursionError, that comes when it has
        begun; before, ``held`` stays as it was.

        RuntimeError if the lock was never acquired, or has been released already.  A loss that
        shows only here is not told by ``lost`` any more, to which the lock is released.
        """
        self._runtime.check()
        await self._release_by(within(self._runtime, timeout))

    def within(self, timeout: float | None) -> AbstractAsyncContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            async with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Within(self, check_timeout("timeout", timeout))

    def cancel_on_loss(self) -> AbstractAsyncContextManager[Self]:
        """Cancel the body of the ``async with`` when the lock is lost, then raise LockLostError.

            async with lock, lock.cancel_on_loss():
                await work()

        As with ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
        """
        self.check()
        lost = self.lost

        def add(cancel: Callable[[object], None]) -> Callable[[], None]:
            return partial(lost._drop_waker, lost._call_back(cancel))

        def error() -> LockLostError:
            return LockLostError(
                f"{self._called} was lost: {lost.reason}", session_id=self._runtime.session_id
            )

        return self._runtime.cancelled_by(add, error, self)

    if TYPE_CHECKING:

        async def __aenter__(self) -> Self: ...

    async def _enter_body(self, timeout: float | None = None) -> Self:
        if not await self._take(timeout):
            raise self._taken_error(timeout)
        return self

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        try:
            await self.release()
        except (LockLostError, OperationTimeoutError):
            if kind is None:
                raise

    def _abandon(self) -> None:
        self._release_later()

    def _taken_error(self, timeout: float | None) -> LockTakenError:
        kind = LockTakenError if timeout is None else LockTimeoutError
        return kind(f"{self._called} is held by another contender")

    async def _take(self, timeout: float | None) -> bool:
        """Whether the lock was acquired; OperationTimeoutError when the time ran out.

        False from one try only: another contender has it.
        """
        if timeout is None:
            return await (self._acquire_by(None, True) if self._waits else self.try_acquire())
        limit, runtime = check_timeout("timeout", timeout), self._runtime
        if limit:
            return await self._acquire_by(runtime.now() + limit, True)
        self._refuse_two()
        await runtime.connected(runtime.now())
        limit = min(self._one_try(), runtime.session_timeout / 3)
        return await self._acquire_by(runtime.now() + limit, False)

    def _one_try(self) -> float:
        limit = self._runtime.operation_timeout
        return self._runtime.session_timeout if limit is None else limit


class Within(Enterable):
    """A lock and a time limit, for one ``async with``."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: Acquirable, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    @property
    def _owned(self) -> bool:
        return self._lock._owned

    async def _enter_body(self) -> Acquirable:
        return await self._lock._enter_body(self._timeout)

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        await self._lock._leave_body(kind)

    def _abandon(self) -> None:
        self._lock._release_later()
