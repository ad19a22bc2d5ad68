"""The recipes, for threads.  Written by `tools/generate.py`: do not edit.

Each class runs the coroutines of the class ``Async…`` of the same name in the caller's thread.
"""

from __future__ import annotations

from zkwire.blocking.sync import Entered, With, algorithms_of, complete, core_of, wrapped
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._recipe import Recipe
from zkwire.recipes.locks import (
    AsyncBlockingLock,
    AsyncMultiLock,
    AsyncNonBlockingLock,
    AsyncReentrantLock,
)
from zkwire.recipes.read_write import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock
from zkwire.recipes.semaphore import AsyncLease, AsyncSemaphore
from zkwire.recipes.sequential import AsyncElection, AsyncQueueLock, AsyncSequentialLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Self

    from zkwire.blocking.sync import ClientLike
    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes._recipe import Lost
    from zkwire.recipes.locks import AnyLost
    from zkwire.recipes.sequential import Contender, Names


class PathLock(Recipe, With):
    """A lock on one path: its state, and the parts of its life that do not depend on its kind.

    Its node holds it as long as that stands and its session lives.
    """

    _algorithm: AsyncPathLock

    def __repr__(self) -> str:
        return self._algorithm.__repr__().replace("Async", "", 1)

    @property
    def lost(self) -> Lost:
        """The loss of the last acquisition: something to wait for, or to be called back by.

        Before the first acquisition, it is the loss that the first acquisition may end with.  Each
        later acquisition has an object of its own, so read this again after each.  A MultiLock is
        lost as soon as one of its locks is; a ReentrantLock shows the loss of the thread or task
        that asks.

        If an outsider deletes the node, it fires when ``held`` turns False; if only ``release``
        notices the deletion, only its LockLostError reports it.  A lock may be lost although its
        session lives on, if no answer comes for a session timeout: when a long reply takes that
        time to arrive, the answers to pings come only after it.
        """
        return self._algorithm.lost

    @property
    def fence(self) -> int:
        """The fencing token of the last acquisition: higher than those of all before it.

        It is the czxid of the lock's node.  If the tree is moved to another ensemble, fences begin
        low again there.  RuntimeError if the lock was never acquired.
        """
        return self._algorithm.fence

    @property
    def node(self) -> str | None:
        """The path of the lock's own node while it is held or waits in the queue; else None.

        A lock whose contenders share one node has it only while the lock is held.
        """
        return self._algorithm.node

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here; asks no server.

        A MultiLock is held while all of its locks are, a ReentrantLock while the thread or task
        that asks holds it.

        False as soon as the lease has ended, even if no other thread of this process has run since
        (a machine that slept, a process that was stopped).  A lost connection alone changes
        nothing: the lock is held until the lease ends, and longer if a server answers before.

        If an outsider deletes the node, this stays True until the client hears of it: until the
        watch's event arrives.  In the first tenth of a second after the acquisition, before the
        client watches the node, it stays True until the request that sets the watch is answered.
        ``release`` asks the server; :meth:`check` does not.  See also
        :mod:`zkwire.session.liveness`.
        """
        return self._algorithm.held

    def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations, as ``client.multi`` does, only if the server finds the lock held.

            lock.guard([SetData("/report", data)])

        A check of the lock's own node goes with them, so a holder that has lost the lock without
        knowing cannot write.  Returns the operations' results.  Raises LockLostError if the lock is
        lost (nothing was done), else what ``client.multi`` raises, and OperationTimeoutError after
        the ``operation_timeout`` (two session timeouts if the client has none).

        A lost connection, a cancellation and an interrupt have the effect that they have on
        ``client.multi``: NotSentError says that nothing was done, OutcomeUnknownError that either
        all or nothing was done.  You may repeat it under the same lock if doing it twice does no
        harm.
        """
        return complete(self._algorithm.guard, operations)

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False if ``timeout`` seconds pass first.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is not an error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        return complete(self._algorithm.acquire, timeout)

    def cancel(self) -> bool:
        """End the acquisition that is under way, from any thread or task; whether there was one.

        The call that acquires, or enters the ``with``, raises LockCancelledError.  As after any
        other error, nothing is held then and no node is left.  A call that waits for its turn or
        for a server is woken at once, and every call within a second.  If it has just succeeded,
        the lock stays held: ``held`` tells.  The client goes on, and a lock that is already held
        stays held.
        """
        return self._algorithm.cancel()

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted, it knows as much as ``held``.
        """
        self._algorithm.check()

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if the lock is not held.

        For a MultiLock it is the least of its locks' times.
        """
        return self._algorithm.lease_remaining()

    def release(self, timeout: float | None = None) -> None:
        """Release the lock, within ``timeout`` seconds; a MultiLock releases all in that time.

        None: the client's ``operation_timeout``, or two session timeouts if it has none.  ``held``
        is False before the request is sent.  What the caller knows afterwards:

        * It returns: the lock is free.  A lost connection is not an error: if it breaks at this
          moment, the client deletes the node on the next one, or the node goes with the session.
        * LockLostError: the lock had been lost before, and what was done under it may not have been
          exclusive.  (Of a MultiLock, one lock had been lost; the others are released all the
          same.)
        * OperationTimeoutError, with ``maybe_applied``: in doubt, since no server has confirmed it
          in time.  There is nothing to do: the client goes on deleting in the background.

        A caller that is cancelled or interrupted need not repeat it: the deletion goes on in the
        background.  The same is true after any other error, such as RecursionError, that comes when
        the release has begun; if an error comes before that, ``held`` stays as it was.

        RuntimeError if the lock was never acquired, or has been released already.  If only this
        call notices a loss, ``lost`` does not fire: it counts the lock as released.
        """
        complete(self._algorithm.release, timeout)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        A MultiLock acquires all of its locks, or none.  Raises OperationTimeoutError if no server
        answers within the client's ``operation_timeout`` (a session timeout if it has none).
        NodeExistsError names a node in the way that is not ephemeral, and so is no contender's.  A
        lost connection, a cancellation and an interrupt do what they do in :meth:`acquire`.
        """
        return complete(self._algorithm.try_acquire)

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Entered(self._algorithm.within(timeout), self)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class QueueLock(PathLock):
    """A lock whose contenders queue: a child of the path for each, with a ``_label`` and a number.

    ``text`` stands in the child.
    """

    _algorithm: AsyncQueueLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def acquire(
        self, timeout: float | None = None, *, on_position: Callable[[int], object] | None = None
    ) -> bool:
        """Acquire the lock; True when it is held, False if ``timeout`` seconds pass first.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is not an error here: the client finds out on the next one
        whether its node was created, and goes on within the time limit.

        When this returns False, raises (SessionExpiredError, ClientClosedError, NoAuthError, ...)
        or is cancelled or interrupted, nothing is held, no node is left, and the caller may
        try again at once: the deletion has been asked for when this ends, and without a connection
        the node is deleted on the next one, or goes with the session.  If an error (a full stack,
        memory that has run out) keeps this call from asking for it, the client does so by itself,
        at once if it can, and at the latest with its next heartbeat.

        NodeExistsError names a node that it would wait for and that is not ephemeral.
        LockInUseError if this object holds the lock already, or is being acquired or released.

        ``on_position`` is called, in the client's callback thread or event loop, with the number of
        contenders ahead: when this one has its place in the queue, and whenever the one right ahead
        has gone.
        """
        return complete(self._algorithm.acquire, timeout, on_position=on_position)

    def contenders(self) -> list[Contender]:
        """The contenders in the queue, in order: session and text of each.  Not a snapshot.

        The first is the holder; so are all readers before the first writer.  (From a lease it is
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so you may repeat it after
        an error; a lost connection is not one.  OperationTimeoutError after the
        ``operation_timeout`` (two session timeouts if the client has none).
        """
        return complete(self._algorithm.contenders)


class SequentialLock(QueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

        with SequentialLock(client, "/locks/report") as lock:
            storage.write(data, fence=lock.fence)  # yours to write

    A lost connection is not an error: a waiter keeps its place in the queue and a holder keeps the
    lock, as long as their session lives; ``held`` turns False when the lease ends, at the latest.

    Not re-entrant, and one object is for one contender: threads that compete need one each.
    ``text`` is shown to others, see :meth:`contenders`.  ``names="kazoo"`` names the nodes as
    kazoo's own locks do, because these see no others: all contenders on such a path must be
    kazoo's, or have this argument.
    ``acl``: for its nodes and for the missing ones above, which the server removes when they are
    empty (None: the client's ``default_acl``).  It protects nothing that exists already.

    **What it can promise.**  ``held`` is True for at most one contender at any moment, with these
    exceptions:

    * An outsider deletes a holder's node or ends its session: ``held`` stays True until the holder
      hears of it.
    * A holder's server is cut off from its leader: it goes on answering for up to syncLimit times
      tickTime, and meanwhile the leader may end the session.
    * A holder's server crashes right after an answer, and the client has no ``lease_margin``.

    :mod:`zkwire.session.liveness` says more about the last two.  No lock can stop a process that
    pauses between looking at ``held`` and acting on it.  So give ``fence`` to whatever the lock
    guards, and have that refuse a fence lower than one it has seen.
    """

    _algorithm: AsyncSequentialLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        client: ClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = AsyncSequentialLock(core_of(client), path, text, acl=acl, names=names)  # pyright: ignore[reportIncompatibleVariableOverride]


class BlockingLock(PathLock):
    """A lock that waits: one ephemeral node, watched by every contender.

    Simple, but each release wakes all waiters, and any of them may win.  What a lock can promise
    is said at :class:`SequentialLock`.
    """

    _algorithm: AsyncBlockingLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, client: ClientLike, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncBlockingLock(core_of(client), path, acl=acl)  # pyright: ignore[reportIncompatibleVariableOverride]


class NonBlockingLock(PathLock):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock: it counts as taken if any ephemeral node stands there.  A node
    that is not ephemeral does not go away by itself, so NodeExistsError names it.
    ``acquire(timeout)`` limits the time for the answer; without a timeout it is
    :meth:`try_acquire`.
    """

    _algorithm: AsyncNonBlockingLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, client: ClientLike, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncNonBlockingLock(core_of(client), path, acl=acl)  # pyright: ignore[reportIncompatibleVariableOverride]


class ReentrantLock(Recipe, With):
    """A fair lock that the thread which holds it may acquire again.

    One object serves any number of threads: each has its own place in the queue.  The properties
    are those of the running thread's lock.

    Only the thread that holds it can release it.  When that thread ends without a release, zkwire
    releases the lock in its place, as if by a last ``release``, and logs a warning.  (Under asyncio
    that also happens to a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what
    it waits for in a thread of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.)
    """

    _algorithm: AsyncReentrantLock

    def __init__(
        self,
        client: ClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = AsyncReentrantLock(core_of(client), path, text, acl=acl, names=names)

    @property
    def lock(self) -> SequentialLock:
        """The lock of the task that asks: ``fence``, ``guard`` and all the rest."""
        return wrapped(SequentialLock, self._algorithm.lock)

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this thread or task holds it.

        Raises LockLostError if this thread or task had acquired it and lost it: first release it.
        It returns True or False as :meth:`zkwire.Lock.acquire` does, and like that leaves nothing
        after a lost connection, an error, a cancellation or an interrupt.
        """
        return complete(self._algorithm.acquire, timeout)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, or count one more; False if another contender has it.

        It does not wait for a holder.  Errors are those of ``try_acquire`` of :attr:`lock`, and
        LockLostError as for :meth:`acquire`.
        """
        return complete(self._algorithm.try_acquire)

    def cancel(self) -> bool:
        """End all acquisitions that are under way, in any thread or task; whether there were any.

        Each raises LockCancelledError, see :meth:`zkwire.Lock.cancel`; a thread or task that holds
        the lock goes on holding it.
        """
        return self._algorithm.cancel()

    def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one releases the lock, as :meth:`zkwire.Lock.release` does.

        RuntimeError if this thread or task does not hold it.  The last one can end with
        LockLostError or OperationTimeoutError.
        """
        complete(self._algorithm.release, timeout)

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here; asks no server.

        A MultiLock is held while all of its locks are, a ReentrantLock while the thread or task
        that asks holds it.

        False as soon as the lease has ended, even if no other thread of this process has run since
        (a machine that slept, a process that was stopped).  A lost connection alone changes
        nothing: the lock is held until the lease ends, and longer if a server answers before.

        If an outsider deletes the node, this stays True until the client hears of it: until the
        watch's event arrives.  In the first tenth of a second after the acquisition, before the
        client watches the node, it stays True until the request that sets the watch is answered.
        ``release`` asks the server; :meth:`check` does not.  See also
        :mod:`zkwire.session.liveness`.
        """
        return self._algorithm.held

    @property
    def lost(self) -> Lost:
        """The loss of the last acquisition: something to wait for, or to be called back by.

        Before the first acquisition, it is the loss that the first acquisition may end with.  Each
        later acquisition has an object of its own, so read this again after each.  A MultiLock is
        lost as soon as one of its locks is; a ReentrantLock shows the loss of the thread or task
        that asks.

        If an outsider deletes the node, it fires when ``held`` turns False; if only ``release``
        notices the deletion, only its LockLostError reports it.  A lock may be lost although its
        session lives on, if no answer comes for a session timeout: when a long reply takes that
        time to arrive, the answers to pings come only after it.
        """
        return self._algorithm.lost

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted, it knows as much as ``held``.
        """
        self._algorithm.check()

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if the lock is not held.

        For a MultiLock it is the least of its locks' times.
        """
        return self._algorithm.lease_remaining()

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Entered(self._algorithm.within(timeout), self)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class MultiLock(Recipe, With):
    """Several locks at once: all of them, or none.

        locks = SequentialLock(client, "/a"), SequentialLock(client, "/b")
        with MultiLock(*locks) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  The MultiLock is ``held`` while all of them are, and ``lost`` as soon as one is;
    each keeps its own ``fence``.
    """

    _algorithm: AsyncMultiLock

    def __init__(self, *locks: PathLock) -> None:
        self._algorithm = AsyncMultiLock(*algorithms_of(locks, "MultiLock", PathLock))
        self.locks = locks

    @property
    def lost(self) -> AnyLost:
        """The loss of the last acquisition: something to wait for, or to be called back by.

        Before the first acquisition, it is the loss that the first acquisition may end with.  Each
        later acquisition has an object of its own, so read this again after each.  A MultiLock is
        lost as soon as one of its locks is; a ReentrantLock shows the loss of the thread or task
        that asks.

        If an outsider deletes the node, it fires when ``held`` turns False; if only ``release``
        notices the deletion, only its LockLostError reports it.  A lock may be lost although its
        session lives on, if no answer comes for a session timeout: when a long reply takes that
        time to arrive, the answers to pings come only after it.
        """
        return self._algorithm.lost

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment, as far as is known here; asks no server.

        A MultiLock is held while all of its locks are, a ReentrantLock while the thread or task
        that asks holds it.

        False as soon as the lease has ended, even if no other thread of this process has run since
        (a machine that slept, a process that was stopped).  A lost connection alone changes
        nothing: the lock is held until the lease ends, and longer if a server answers before.

        If an outsider deletes the node, this stays True until the client hears of it: until the
        watch's event arrives.  In the first tenth of a second after the acquisition, before the
        client watches the node, it stays True until the request that sets the watch is answered.
        ``release`` asks the server; :meth:`check` does not.  See also
        :mod:`zkwire.session.liveness`.
        """
        return self._algorithm.held

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False if ``timeout`` seconds pass first.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is not an error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        return complete(self._algorithm.acquire, timeout)

    def cancel(self) -> bool:
        """End the acquisition that is under way, from any thread or task; whether there was one.

        The call that acquires, or enters the ``with``, raises LockCancelledError.  As after any
        other error, nothing is held then and no node is left.  A call that waits for its turn or
        for a server is woken at once, and every call within a second.  If it has just succeeded,
        the lock stays held: ``held`` tells.  The client goes on, and a lock that is already held
        stays held.
        """
        return self._algorithm.cancel()

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted, it knows as much as ``held``.
        """
        self._algorithm.check()

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if the lock is not held.

        For a MultiLock it is the least of its locks' times.
        """
        return self._algorithm.lease_remaining()

    def release(self, timeout: float | None = None) -> None:
        """Release the lock, within ``timeout`` seconds; a MultiLock releases all in that time.

        None: the client's ``operation_timeout``, or two session timeouts if it has none.  ``held``
        is False before the request is sent.  What the caller knows afterwards:

        * It returns: the lock is free.  A lost connection is not an error: if it breaks at this
          moment, the client deletes the node on the next one, or the node goes with the session.
        * LockLostError: the lock had been lost before, and what was done under it may not have been
          exclusive.  (Of a MultiLock, one lock had been lost; the others are released all the
          same.)
        * OperationTimeoutError, with ``maybe_applied``: in doubt, since no server has confirmed it
          in time.  There is nothing to do: the client goes on deleting in the background.

        A caller that is cancelled or interrupted need not repeat it: the deletion goes on in the
        background.  The same is true after any other error, such as RecursionError, that comes when
        the release has begun; if an error comes before that, ``held`` stays as it was.

        RuntimeError if the lock was never acquired, or has been released already.  If only this
        call notices a loss, ``lost`` does not fire: it counts the lock as released.
        """
        complete(self._algorithm.release, timeout)

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        A MultiLock acquires all of its locks, or none.  Raises OperationTimeoutError if no server
        answers within the client's ``operation_timeout`` (a session timeout if it has none).
        NodeExistsError names a node in the way that is not ephemeral, and so is no contender's.  A
        lost connection, a cancellation and an interrupt do what they do in :meth:`acquire`.
        """
        return complete(self._algorithm.try_acquire)

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Entered(self._algorithm.within(timeout), self)


class WriteLock(QueueLock):
    """The side of the writer, which waits for all before it; see :class:`ReadWriteLock`."""

    _algorithm: AsyncWriteLock  # pyright: ignore[reportIncompatibleVariableOverride]


class ReadLock(QueueLock):
    """The side of the readers, who wait for the writers before them."""

    _algorithm: AsyncReadLock  # pyright: ignore[reportIncompatibleVariableOverride]


class ReadWriteLock(Recipe):
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
    downgrade go on with the fence of ``write``.  The reader's fence is higher than the fences of
    writers that wait already, so a resource that has seen it would refuse the next writer.
    """

    _algorithm: AsyncReadWriteLock

    def __init__(
        self,
        client: ClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = AsyncReadWriteLock(core_of(client), path, text, acl=acl, names=names)

    @property
    def read(self) -> ReadLock:
        """The lock of the readers."""
        return wrapped(ReadLock, self._algorithm.read)

    @property
    def write(self) -> WriteLock:
        """The lock of the writer."""
        return wrapped(WriteLock, self._algorithm.write)

    def contenders(self) -> list[Contender]:
        """The contenders in the queue, in order: session and text of each.  Not a snapshot.

        The first is the holder; so are all readers before the first writer.  (From a lease it is
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so you may repeat it after
        an error; a lost connection is not one.  OperationTimeoutError after the
        ``operation_timeout`` (two session timeouts if the client has none).
        """
        return complete(self._algorithm.contenders)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class Lease(QueueLock):
    """One lease of a semaphore, a lock like all others; see :class:`Semaphore`."""

    _algorithm: AsyncLease  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def node(self) -> str | None:
        """The path of the lock's own node while it is held or waits in the queue; else None.

        A lock whose contenders share one node has it only while the lock is held.
        """
        return self._algorithm.node


class Semaphore(Recipe):
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = Semaphore(client, "/locks/printers", 3)
        with semaphore.lease() as lease:
            ...

    Threads may share this object; each contender has a lease of its own.  All must agree on
    the count: it is written into the semaphore's node, and a different count is a ValueError.  The
    node stays when the last lease is released; delete it when the semaphore is no longer used.
    """

    _algorithm: AsyncSemaphore

    def __init__(
        self,
        client: ClientLike,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = AsyncSemaphore(core_of(client), path, count, text, acl=acl, names=names)

    @property
    def count(self) -> int:
        """How many leases there are at a time."""
        return self._algorithm.count

    def lease(self) -> Lease:
        """A lease that is not acquired yet: a lock like all others, for one contender.

            with semaphore.lease() as lease:
                ...

        ``held``, ``fence``, ``lost``, ``acquire(timeout)``, ``within(timeout)``, ``release()`` and
        the rest are as a lock's.  Nothing is asked of a server before it is acquired.
        """
        return wrapped(Lease, self._algorithm.lease())

    def holders(self) -> list[Contender]:
        """The holders of the leases, in order: the first ``count``, and then those that come next.

        The rest of the queue is in the node ``locks`` below the path.  With ``names="kazoo"`` it is
        in another node, and everything that is shown is a holder.  Not a snapshot.  It only reads,
        so you may repeat it after an error; a lost connection is not one.  OperationTimeoutError
        after the ``operation_timeout`` (two session timeouts if the client has none).
        """
        return complete(self._algorithm.holders)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


class Election(Recipe):
    """One leader at a time; leadership is lost exactly as a lock is.

        election = Election(client, "/election", "worker-7")
        with election.lead() as leadership, leadership.cancel_on_loss():
            ...

    ``text`` tells others which candidate this is.
    """

    _algorithm: AsyncElection

    def __init__(
        self,
        client: ClientLike,
        path: str,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._algorithm = AsyncElection(core_of(client), path, text, acl=acl, names=names)

    def lead(self) -> SequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter or acquire it to run."""
        return wrapped(SequentialLock, self._algorithm.lead())

    def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot.

        It only reads, so you may repeat it after an error; a lost connection is not one.
        OperationTimeoutError after the ``operation_timeout`` (two session timeouts if the client
        has none).
        """
        return complete(self._algorithm.candidates)

    def leader(self) -> Contender | None:
        """The leader at this moment, as far as the server that was asked knows; None if none.

        Errors are those of :meth:`candidates`.
        """
        return complete(self._algorithm.leader)

    @property
    def path(self) -> str:
        """The path of its node, or of the node below which its contenders stand."""
        return self._algorithm.path


Lock = SequentialLock
