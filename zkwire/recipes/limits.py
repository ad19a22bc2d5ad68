"""The time limits of locks: one rule for every kind of lock, for threads and for asyncio.

It decides how long each call may take and how it ends when that is over.  It knows of a lock only
whether it waits, and turns a time limit into a deadline on the world's clock.

* ``acquire(timeout)`` of a lock (a lease, too) that runs out is False, whatever the reason: another
  contender has it, no server answers.
* Every other call that runs out raises OperationTimeoutError, which is a TimeoutError:
  ``with lock.within(timeout)``, ``Semaphore.acquire``, ``try_acquire``, ``release``, the end of a
  ``with``, ``guard`` and ``contenders``.  From an acquisition it is a LockTimeoutError if another
  contender was seen to hold the lock.
* A call without a limit has the client's ``operation_timeout``; without that ``try_acquire`` has a
  session timeout, the others two.  ``acquire()`` and ``with lock`` of a lock that waits have none.
* ``acquire(timeout=0)`` is False at once without a connection; with one it is a try for which the
  server has a third of a session timeout, or the ``operation_timeout`` if that is shorter.
"""

from __future__ import annotations

from zkwire.recipes.runtime import in_time
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from zkwire.recipes.lock import Lock
    from zkwire.recipes.multi_lock import AllLocks
    from zkwire.recipes.runtime import Runtime

    Core: TypeAlias = Lock | AllLocks


async def take(core: Core, timeout: float | None) -> bool:
    """Whether the lock was acquired; OperationTimeoutError when the time ran out.

    False from one try only: another contender has it.
    """
    if timeout is None:
        return await (core.acquire(None, True) if core.waits else take_if_free(core))
    limit, world = check_timeout("timeout", timeout), core.world
    if limit:
        return await core.acquire(world.now() + limit, True)
    core.refuse_two()
    await world.connected(world.now())
    return await core.acquire(world.now() + min(_try(world), world.session_timeout / 3), False)


async def take_if_free(core: Core) -> bool:
    """Whether the lock was free, and was acquired; OperationTimeoutError if no server told."""
    return await core.acquire(core.world.now() + _try(core.world), False)


def _try(world: Runtime) -> float:
    limit = world.operation_timeout
    return world.session_timeout if limit is None else limit


def deadline_of(world: Runtime, timeout: float | None) -> float:
    """When a release must have ended."""
    if timeout is None:
        return in_time(world, None)
    check_timeout("timeout", timeout)
    return world.now() + timeout
