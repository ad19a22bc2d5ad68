"""The locks for threads: tables of what the algorithms in :mod:`zkwire.recipes` can do.

A new lock is a class here, one in :mod:`zkwire.aio.locks`, and its names in :mod:`zkwire`.
"""

from __future__ import annotations

from functools import partial

from zkwire.blocking.faces import LockFace, runs, runtime_of
from zkwire.blocking.run import blocking
from zkwire.recipes.locks.election import Candidates, ElectionView
from zkwire.recipes.locks.kazoo_lease import KazooLease
from zkwire.recipes.locks.lease import SemaphoreLease
from zkwire.recipes.locks.lock import Lock as _Lock
from zkwire.recipes.locks.multi_lock import AllLocks
from zkwire.recipes.locks.read_write import ReadLockQueue, ReadWriteQueue, WriteLockQueue
from zkwire.recipes.locks.reentrant import Reentrant, ReentrantView
from zkwire.recipes.locks.semaphore import Leases, SemaphoreView
from zkwire.recipes.locks.sequential import SequentialQueue
from zkwire.recipes.locks.single import SingleNodeLock, TriedOnce
from zkwire.recipes.public import public
from zkwire.recipes.view import LockView, PathView, check_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL
    from zkwire.recipes.locks.sequential_entry import Names


class PathLock(LockView, LockFace):
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

    guard: Final = blocking(_Lock.guard)


@public
class NonBlockingLock(PathLock):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever ephemeral node stands there, and
    NodeExistsError names one that is not ephemeral, which does not go by itself.
    ``acquire(timeout)`` limits the time for the answer; without, it is :meth:`try_acquire`.
    """

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(TriedOnce(runtime_of(client), path, acl))


@public
class BlockingLock(PathLock):
    """A lock that waits: one ephemeral node, watched by every contender.

    Simple, but each release wakes all waiters, and any of them may win.
    """

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        super().__init__(SingleNodeLock(runtime_of(client), path, acl))


class QueueLock(PathLock):
    """A lock whose contenders queue, each with a node of its own."""

    @runs(SequentialQueue.acquire)
    def acquire(self) -> None: ...

    contenders: Final = blocking(SequentialQueue.contenders)


@public
class SequentialLock(QueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

    A lost connection is no error: a waiter keeps its place in the queue and a holder the lock, as
    long as their session lives; ``held`` is False when the lease ends, at the latest.

    ``text`` is shown to others, see :meth:`contenders`.  ``names="kazoo"`` names the nodes as
    kazoo's own locks do, which see no others: each contender on such a path then needs it, or
    kazoo.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        super().__init__(SequentialQueue(runtime_of(client), path, text, acl, names))


Lock = SequentialLock


@public
class ReadLock(QueueLock):
    """The side of the readers; see :class:`ReadWriteLock`."""


@public
class WriteLock(QueueLock):
    """The side of the writer; see :class:`ReadWriteLock`."""


@public
class ReadWriteLock(PathView):
    """Readers together, a writer alone, in order of arrival.

        table = ReadWriteLock(client, "/locks/table")
        with table.read:
            ...
        with table.write:
            ...

    ``read`` and ``write`` are locks like :class:`SequentialLock`; threads that compete need an
    object each, and a thread that reads while another thread writes by the same one gets a
    LockInUseError.  A reader never waits for a later writer.

    Downgrade: acquire ``read`` in the thread that holds ``write``, then release ``write``.  There
    is no upgrade: acquiring ``write`` while holding ``read`` raises LockInUseError.  After a
    downgrade go on with the fence of ``write``: the reader's is higher than those of writers that
    wait already, so what it was given to would refuse the next one.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        runtime = runtime_of(client)
        write = WriteLockQueue(runtime, path, text, acl, names)
        self._algorithm = ReadWriteQueue(write)
        self.read: ReadLock = ReadLock(ReadLockQueue(runtime, path, text, write, acl, names))
        self.write: WriteLock = WriteLock(write)

    contenders: Final = blocking(ReadWriteQueue.contenders)


@public
class Lease(QueueLock):
    """One lease of a semaphore, a lock like all others; see :class:`Semaphore`."""


@public
class Semaphore(SemaphoreView):
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = Semaphore(client, "/locks/printers", 3)
        with semaphore.lease() as lease:
            ...

    The semaphore itself is made to be shared; each contender has a lease of its own.  All must
    agree on the count: it is written down, and ValueError tells of another one.  That node stays
    when the last lease is released; delete it when none will be wanted.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = Leases(runtime_of(client), path, count, text, acl, names)

    def lease(self) -> Lease:
        kind = KazooLease if self._algorithm._for_kazoo else SemaphoreLease
        return Lease(kind(*self._algorithm._arguments))

    holders: Final = blocking(Leases.holders)


@public
class MultiLock(LockFace):
    """Several locks at once: all of them, or none.

        with MultiLock(SequentialLock(client, "/a"), SequentialLock(client, "/b")) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  ``held`` if all are, ``lost`` as soon as one is; each keeps its own ``fence``.
    """

    def __init__(self, *locks: PathLock) -> None:
        wanted = "a MultiLock takes locks such as SequentialLock"
        super().__init__(
            AllLocks([check_kind(wanted, lock, PathLock)._algorithm for lock in locks])
        )
        self.locks = locks


@public
class ReentrantLock(ReentrantView, LockFace):
    """A fair lock that the thread which holds it may acquire again.

    One object serves any number of threads: each has its own place in the queue.  The properties
    are those of the calling thread's lock.

    Only the thread that holds it can release it.  When that ends without doing so, the lock is
    released in its place, as if by a last ``release``, and a warning is logged.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        make = partial(SequentialLock, client, path, text, acl=acl, names=names)
        super().__init__(Reentrant(runtime_of(client), make))

    @property
    def lock(self) -> SequentialLock:
        return super().lock

    @runs(Reentrant.acquire)
    def acquire(self) -> None: ...

    @runs(Reentrant.try_acquire)
    def try_acquire(self) -> None: ...

    @runs(Reentrant.release)
    def release(self) -> None: ...


@public
class Election(ElectionView):
    """One leader at a time; leadership is lost exactly as a lock is.

        election = Election(client, "/election", "worker-7")
        with election.lead() as leadership:
            while leadership.held:
                ...

    ``text`` tells others which candidate this is.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        make = partial(SequentialLock, client, path, text, acl=acl, names=names)
        self._algorithm = Candidates(runtime_of(client), make)

    def lead(self) -> SequentialLock:
        return self._algorithm._new()

    candidates: Final = blocking(Candidates.candidates)
    leader: Final = blocking(Candidates.leader)
