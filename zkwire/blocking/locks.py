"""The three locks for threads: what users hold.  The algorithms are in the cores."""

from __future__ import annotations

from zkwire.blocking.client import Client
from zkwire.blocking.run import run
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
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.runtime import Runtime


def world_of(client: Client) -> Runtime:
    """What the recipes ask of the client; TypeError if it is none, or not for threads."""
    return check_kind("client must be a Client", client, Client)._world


class Entered(Bodied):
    """What a ``with`` does with a lock.

    An interrupt that hits the end of it finds somebody who gives the lock up, unless it comes
    before anything of ``__exit__`` has run: then, as with any context manager, nothing is done.
    """

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes, through lost connections too; 0 is one try,
        False at once without a connection.  When this returns False or raises (SessionExpiredError,
        ClientClosedError, NoAuthError, an interrupt, ...) nothing is held and no node stays behind:
        its deletion has been asked for when this ends, and without a connection it is deleted on
        the next one, or goes with the session.  An error that comes on top of an error (a full
        stack) can delay that to the next call of this object, or the end of the interpreter.
        A lost connection is no error here: it is recovered from within the time limit.
        NodeExistsError names a node that it would wait for and that is not ephemeral.
        RuntimeError if this object holds the lock already, or is being acquired.
        """
        try:
            return self._take(timeout)
        except OperationTimeoutError:
            if timeout is None:
                raise
            return False

    def release(self, timeout: float | None = None) -> None:
        """Give it up; see the subclasses."""
        raise NotImplementedError

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock was not acquired in time; it is a
        LockTimeoutError if somebody else was seen to hold it.
        """
        return Within(self, check_timeout("timeout", timeout))

    def _take(self, timeout: float | None) -> bool:
        """Acquire the lock; False if one try has failed, else OperationTimeoutError."""
        raise NotImplementedError

    def _enter(self, timeout: float | None) -> None:
        mine = not self._owned
        try:
            if not self._take(timeout):
                kind = LockTakenError if timeout is None else LockTimeoutError
                raise kind(f"{self._called} is held by somebody else")
        except LockInUseError:
            raise
        except BaseException:
            if mine:  # an interrupt may have come right behind the acquisition
                self._give_up()
            raise

    def __enter__(self) -> Self:
        self._enter(None)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except (LockLostError, OperationTimeoutError):
            if kind is None:
                raise
        except BaseException:
            self._give_up()
            raise


class Within:
    """A lock and a time limit, for one ``with``."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: Entered, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> Any:
        self._lock._enter(self._timeout)
        return self._lock

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


class Locking(LockFace, Entered):
    """A lock on ``path``, held by at most one contender at a time.

        with SequentialLock(client, "/locks/report") as lock:
            storage.write(data, fence=lock.fence)

    Not re-entrant, and one object is for one contender: threads that compete need one each.
    ``acl``: for its nodes and for the missing ones above, which the server removes when they are
    empty (None: the client's ``default_acl``).  It protects nothing that exists already.

    **What it can promise.**  At most one contender's ``held`` is True at any moment, unless an
    outsider deletes a holder's node or ends its session (then until the holder hears of it), or a
    holder's server is cut off from its leader: that one goes on answering for up to syncLimit times
    tickTime, while the leader may end the session; or, without a ``lease_margin`` of the client,
    crashes right behind an answer (see :mod:`zkwire.session.liveness` for both).  No lock can stop
    a process that pauses between looking at ``held`` and acting on it, so give ``fence`` to
    whatever the lock guards and let that refuse a fence lower than one it has seen.
    """

    def _take(self, timeout: float | None) -> bool:
        return run(limits.take(self._core, timeout))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if somebody else has it.

        Raises OperationTimeoutError when no server could tell within the client's
        ``operation_timeout``, without one within a session timeout.
        """
        return run(limits.take_if_free(self._core))

    def release(self, timeout: float | None = None) -> None:
        """Give the lock up, within ``timeout`` seconds.

        None: the client's ``operation_timeout``, without one two session timeouts.  ``held`` is
        False before the request is sent.  What the caller knows afterwards:

        * It returns: the lock is free.  A lost connection is no error: if it broke in this moment,
          the node is deleted on the next one, or goes with the session.
        * LockLostError: the lock had been lost before, and what was done under it may not have been
          exclusive.
        * OperationTimeoutError, with ``maybe_applied``: in doubt, since no server has confirmed it
          in time.  There is nothing to do: the client goes on deleting in the background.

        RuntimeError if it was never acquired, or has been released already.  A loss that shows only
        here is not told by ``lost`` any more, to which the lock is released.
        """
        world = self._core.world
        world.check()
        run(self._core.release(limits.deadline_of(world, timeout)))

    def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

            lock.guard([SetData("/report", data)])

        A check of the lock's own node goes with them, so a holder that has lost the lock without
        knowing cannot write.  Returns the operations' results.  Raises LockLostError if the lock is
        lost (nothing was done), else what ``client.multi`` raises, for a lost connection too, and
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return run(guarded(self._core, operations))


class NonBlockingLock(Locking):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever node stands there.
    ``acquire(timeout)`` limits the time for the answer; without, it is :meth:`try_acquire`.
    """

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(TriedOnce(world_of(client), path, acl))


class BlockingLock(Locking):
    """A lock that waits: one ephemeral node, watched by everybody who wants it.

    Simple, but each release wakes all waiters, and any of them may win.
    """

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(SingleNodeLock(world_of(client), path, acl))


class QueueLock(Locking):
    """A lock whose contenders queue, each with a node of its own."""

    def __init__(self, core: SequentialQueue) -> None:
        super().__init__(core)
        self._queue = core

    def acquire(
        self,
        timeout: float | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> bool:
        """Acquire the lock; see :meth:`Entered.acquire`.

        ``on_position`` is called, in the client's callback thread, with the number of contenders
        ahead: when this one has its place in the queue, and whenever the one right ahead has gone.
        """
        if on_position is not None and not callable(on_position):
            raise TypeError(f"on_position must be callable, not {on_position!r}")
        try:
            return self._take(timeout, on_position)
        except OperationTimeoutError:
            if timeout is None:
                raise
            return False

    def _take(
        self, timeout: float | None, on_position: Callable[[int], object] | None = None
    ) -> bool:
        self._queue.refuse_two()  # or this one would take its listener away
        self._queue.on_position = on_position
        return super()._take(timeout)

    def contenders(self) -> list[Contender]:
        """Who is in the queue, the holder first: session and text of each.  Not a snapshot.

        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return run(contenders(self._core.world, self._queue.path))


class SequentialLock(QueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

    ``text`` is shown to others, see :meth:`contenders`.
    """

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(SequentialQueue(world_of(client), path, text, acl))


Lock = SequentialLock
