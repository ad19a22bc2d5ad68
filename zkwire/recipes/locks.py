"""The three locks for threads: what users hold.  The algorithms are in the cores."""

from __future__ import annotations

from zkwire.calls import check_timeout
from zkwire.client import Client
from zkwire.errors import LockLostError, LockTakenError
from zkwire.recipes.contenders import contenders
from zkwire.recipes.driver import run
from zkwire.recipes.face import Bodied, LockFace, check_kind
from zkwire.recipes.lock import InOtherHandsError
from zkwire.recipes.sequential import SequentialLockCore
from zkwire.recipes.single import SingleNodeLock, TriedOnce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.world import World
    from zkwire.verbs.multi import Operation


def world_of(client: Client) -> World:
    """What the recipes ask of the client; TypeError if it is none, or not for threads."""
    return check_kind("client must be a Client", client, Client)._world


class Entered(Bodied):
    """What a ``with`` does with a lock.

    An interrupt that hits the end of it finds somebody who gives the lock up, unless it comes
    before anything of ``__exit__`` has run: then, as with any context manager, nothing is done.
    """

    def acquire(self) -> bool:
        """Wait for the lock; see the subclasses."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it up; see the subclasses."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        mine = not self._owned
        try:
            if not self.acquire():
                raise LockTakenError(f"{self._called} is held by somebody else")
        except InOtherHandsError:
            raise
        except BaseException:
            if mine:  # an interrupt may have come right behind the acquisition
                self._give_up()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except LockLostError:
            if kind is None:
                raise
        except BaseException:
            self._give_up()
            raise


class Locking(LockFace, Entered):
    """A lock on ``path``, held by at most one contender at a time.

        with SequentialLock(client, "/locks/report") as lock:
            storage.write(data, fence=lock.fence)

    Not re-entrant, and one object is for one contender: threads that compete need one each.

    **What it can promise.**  At most one contender's ``held`` is True at any moment, unless an
    outsider deletes a holder's node or ends its session (then until the holder hears of it), or a
    holder's server is cut off from its leader: that one goes on answering for up to syncLimit times
    tickTime, while the leader may end the session (see :mod:`zkwire.liveness`).  No lock can stop a
    process that pauses between looking at ``held`` and acting on it, so give ``fence`` to whatever
    the lock guards and let that refuse a fence lower than one it has seen.
    """

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes, through lost connections too; 0 is
        :meth:`try_acquire`.  When this returns False or raises (SessionExpiredError,
        ClientClosedError, NoAuthError, an interrupt, ...) nothing is held and no node stays behind:
        what cannot be deleted at once is deleted on the next connection, or goes with the session.
        A lost connection is no error here: it is recovered from within the time limit.
        RuntimeError if this object holds the lock already, or is being acquired.
        """
        limit = check_timeout("timeout", timeout)
        if limit == 0:
            return self.try_acquire()
        deadline = None if limit is None else self._core.world.now() + limit
        return run(self._core.acquire(deadline, True))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if somebody else has it.

        Raises OperationTimeoutError when no server could tell within a session timeout.
        """
        world = self._core.world
        return run(self._core.acquire(world.now() + world.session_timeout, False))

    def release(self) -> None:
        """Give the lock up.

        ``held`` is False before the request is sent.  A lost connection is no error: the node is
        deleted on the next one, or goes with the session.  Raises LockLostError if the lock had
        been lost before (what was done under it may not have been exclusive), RuntimeError if it
        was never acquired, or has been released already.  A loss that shows only here is not told
        by ``lost`` any more, to which the lock is released.
        """
        self._core.world.check()
        run(self._core.release())


class NonBlockingLock(Locking):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever node stands there.
    ``acquire(timeout)`` limits the time for the answer.
    """

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(TriedOnce(world_of(client), path))

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock if it is free; False if somebody else has it.

        Raises OperationTimeoutError when no server could tell within ``timeout`` seconds (None, 0:
        a session timeout).  See also :meth:`Locking.acquire`.
        """
        limit = check_timeout("timeout", timeout)
        if not limit:
            return self.try_acquire()
        return run(self._core.acquire(self._core.world.now() + limit, False))


class BlockingLock(Locking):
    """A lock that waits: one ephemeral node, watched by everybody who wants it.

    Simple, but each release wakes all waiters, and any of them may win.  NodeExistsError when the
    node that it would wait for is not ephemeral: that is nobody's, and does not go by itself.
    """

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(SingleNodeLock(world_of(client), path))


class QueueLock(Locking):
    """A lock whose contenders queue, each with a node of its own."""

    def __init__(self, core: SequentialLockCore) -> None:
        super().__init__(core)
        self._queue = core

    def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> bool:
        """Acquire the lock; see :meth:`Locking.acquire`.

        ``on_position`` is called, in the client's callback thread, with the number of contenders
        ahead: when this one has its place in the queue, and whenever the one right ahead has gone.
        """
        if on_position is not None and not callable(on_position):
            raise TypeError(f"on_position must be callable, not {on_position!r}")
        self._queue.refuse_two()  # or this one would take its listener away
        self._queue.on_position = on_position
        return super().acquire(timeout)

    def contenders(self) -> list[Contender]:
        """Who is in the queue, the holder first: session and text of each.  Not a snapshot."""
        return run(contenders(self._core.world, self._queue.path))

    def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

            lock.guard([SetData("/report", data)])

        A check of the lock's own node goes with them, so a holder that has lost the lock without
        knowing cannot write.  Returns the operations' results.  Raises LockLostError if the lock is
        lost (nothing was done), else what ``client.multi`` raises, for a lost connection too.

        Locks of a single node do not have this: all their holders' nodes have one path, and a
        multi cannot tell them apart.
        """
        return run(self._queue.guarded(operations))


class SequentialLock(QueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

    ``text`` is shown to others, see :meth:`contenders`.
    """

    def __init__(self, client: Client, path: str, text: str = "") -> None:
        super().__init__(SequentialLockCore(world_of(client), path, text))


Lock = SequentialLock
