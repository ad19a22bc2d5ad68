"""The recipes, for threads.  Written by `tools/generate.py`: do not edit.

Each class runs the coroutines of the class ``Async…`` of the same name in the caller's thread.
"""

from __future__ import annotations

from zkwire.blocking.faces import Entered, Sized, With, algorithms_of, runtime_of, wrapped
from zkwire.blocking.run import iterate, run
from zkwire.recipes.classic.barrier import AsyncBarrier
from zkwire.recipes.classic.counter import AsyncCounter, CounterView
from zkwire.recipes.classic.double_barrier import AsyncDoubleBarrier
from zkwire.recipes.classic.once_per import AsyncOncePer
from zkwire.recipes.classic.queue_taking import AsyncQueue
from zkwire.recipes.locks.election import AsyncElection
from zkwire.recipes.locks.lease import AsyncLease
from zkwire.recipes.locks.lock import AsyncPathLock
from zkwire.recipes.locks.multi_lock import AsyncMultiLock
from zkwire.recipes.locks.read_write import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock
from zkwire.recipes.locks.reentrant import AsyncReentrantLock
from zkwire.recipes.locks.semaphore import AsyncSemaphore
from zkwire.recipes.locks.sequential import AsyncQueueLock, AsyncSequentialLock
from zkwire.recipes.locks.single import AsyncBlockingLock, AsyncNonBlockingLock
from zkwire.recipes.view import LockView, PathView, View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from typing import Any, Literal, Self

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.classic.queue_items import QueueItem
    from zkwire.recipes.locks.contenders import Contender


class Barrier(PathView):
    """A barrier that holds up all that come while it is closed.

        barrier = Barrier(client, "/maintenance")
        barrier.close()       # from here on the others wait
        ...
        barrier.open()

        barrier.wait(60)      # the others: True when it is open

    It is closed while its node is there, whatever becomes of the client that has closed it.  Any
    client may close or open it.  kazoo's Barrier and Curator's DistributedBarrier are the same.

    Raises ValueError for a bad path.
    """

    _algorithm: AsyncBarrier

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncBarrier(runtime_of(client), path, acl=acl)

    def close(self, timeout: float | None = None) -> None:
        """Close the barrier; nothing happens if it is closed.

        A lost connection is no error: the request is repeated, until a server has answered.  If the
        lost one was executed and another client has opened the barrier since, the repetition closes
        it again.  OperationTimeoutError after ``timeout`` seconds, without one after the
        ``operation_timeout``: call it again, or ``open``.
        """
        run(self._algorithm.close(timeout))

    def open(self, timeout: float | None = None) -> None:
        """Open the barrier for all that wait; nothing happens if it is open.

        Ends as :meth:`close` does; a repetition opens again what another client has closed since.
        NotEmptyError if the node has children: it is then no barrier.
        """
        run(self._algorithm.open(timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the barrier is open; True then, False after ``timeout`` seconds without.

        Without a limit it waits as long as it takes; with 0 it looks once, for which a server has
        the ``operation_timeout``, without one two session timeouts.  A lost connection is no error,
        and no watch stays behind.
        """
        return run(self._algorithm.wait(timeout))


class Counter(CounterView):
    """A number that many clients change; each change is made exactly once.

        counter = Counter(client, "/orders/count")
        number = counter.add(1)

    ``add`` returns the new number, and has added exactly once, however often the connection was
    lost meanwhile.  Threads may share a counter.  The node is made by the first change; where there
    is none the number is 0.  Below it stands an ephemeral node for each client that has changed it.

    ``format``: ``"text"`` is decimal digits, of any length, as kazoo's Counter writes them;
    ``"int32"`` and ``"int64"`` are those of Curator's SharedCount and DistributedAtomicLong.

    Raises ValueError for a bad path or format.
    """

    _algorithm: AsyncCounter

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        format: Literal["text", "int32", "int64"] = "text",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncCounter(runtime_of(client), path, format=format, acl=acl)

    def get(self, timeout: float | None = None) -> int:
        """The number, as the client's server has it; 0 if there is no node.

        ``client.sync(path)`` before it makes that the newest.  Raises ValueError if the data is no
        number of this format.  A lost connection is no error.  OperationTimeoutError after
        ``timeout`` seconds, without one after the ``operation_timeout``.
        """
        return run(self._algorithm.get(timeout))

    def add(self, number: int = 1, timeout: float | None = None) -> int:
        """Add ``number``, which may be negative, exactly once; the new number.

        A lost connection is no error: on the next one it is seen whether the change was made.
        Raises OverflowError if the new number does not fit the format, ValueError if the data is no
        number of it, SequenceExhaustedError after 2**31 - 1 changes of one node; nothing is changed
        then.

        OperationTimeoutError after ``timeout`` seconds, without one after the
        ``operation_timeout``; it, and what ends the session, says by ``maybe_applied`` if the
        change may have been made or may still be; so may one be that was cancelled or interrupted.
        Then nothing tells which but the number itself, where a caller knows what it can be.
        """
        return run(self._algorithm.add(number, timeout))

    def set(self, value: int, timeout: float | None = None) -> None:
        """Set the number, exactly once, whatever it is.  Ends as :meth:`add` does."""
        run(self._algorithm.set(value, timeout))

    def compare_and_set(self, expected: int, new: int, timeout: float | None = None) -> bool:
        """Set the number to ``new`` if it is ``expected``, exactly once; whether it was.

        Where there is no node the number is 0.  Ends as :meth:`add` does.
        """
        return run(self._algorithm.compare_and_set(expected, new, timeout))


class DoubleBarrier(PathView, With):
    """One member of a group that begins a piece of work together and ends it together.

        with DoubleBarrier(client, "/step-1", 16):
            work()

    ``enter`` returns when ``count`` members are there at one moment, ``leave`` when all of them
    have left or died.  An error in the body of the ``with`` leaves without a wait for the
    others.  An object is one member: each thread has its own, and may enter again when it has left.

    ``text`` stands in the member's node.  Raises ValueError for a bad path or a count below 1.
    """

    _algorithm: AsyncDoubleBarrier

    def __init__(
        self,
        client: Client,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncDoubleBarrier(runtime_of(client), path, count, text, acl=acl)

    def enter(self, timeout: float | None = None) -> bool:
        """Enter together with ``count`` members; False if there was no round within ``timeout``.

        Without a limit it waits as long as it takes.  A lost connection is no error.  When this
        returns False, raises, is cancelled or interrupted, this is no member, and its node is being
        deleted.  A round that had begun at this very moment counts it as one that has left.

        RuntimeError if this object is inside, or in use by another thread or task.
        """
        return run(self._algorithm.enter(timeout))

    def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all members of the round have; False if they have not in time.

        It has left in any case, also when this raises, is cancelled or interrupted: its node is
        deleted, at the latest with its session, and no other member waits for it.  A member that
        has died counts as one that has left.  RuntimeError if this object is not inside.
        """
        return run(self._algorithm.leave(timeout))


class OncePer(PathView):
    """Run something at most once per period, over all machines.

        hourly = OncePer(client, "/jobs/clean-up", timedelta(hours=1))
        if hourly.claim():
            clean_up()

    Each machine may ask as often as it likes.  The period is counted on the servers' clock, from
    one claim to the next, whatever becomes of the client that has claimed; ``give_back`` lets
    another one claim at once.  ``period`` is in seconds, or a timedelta; all should name the same.
    ``text`` stands in the node, behind the claim's id.

    Raises ValueError or TypeError for bad arguments.
    """

    _algorithm: AsyncOncePer

    def __init__(
        self,
        client: Client,
        path: str,
        period: float | timedelta,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncOncePer(runtime_of(client), path, period, text, acl=acl)

    def claim(self, timeout: float | None = None) -> bool:
        """Whether it is this caller's turn: True once in each period, for one caller of all.

        A lost connection is no error: on the next one it is seen whether the claim was made.
        OperationTimeoutError after ``timeout`` seconds, without one after the
        ``operation_timeout``.  When this raises, is cancelled or interrupted, nothing is claimed:
        what may have been is given back in the background.  The end of the session is the one
        exception: with ``maybe_applied`` the period may be claimed, and its work is not done.
        """
        return run(self._algorithm.claim(timeout))

    def give_back(self, timeout: float | None = None) -> None:
        """Let another caller claim at once: the work was not done.

        Nothing happens if the period is over and another has claimed.  RuntimeError if this object
        has claimed nothing.  Ends as :meth:`claim` does; what is not done in time is done in the
        background.
        """
        run(self._algorithm.give_back(timeout))


class Queue(PathView, Sized):
    """A queue in which each item is put once, and removed by one consumer.

        queue = Queue(client, "/jobs")
        queue.put(b"resize image 7")

        with queue.take() as item:
            work(item.data)

    Any number of threads and processes put and take; one object serves all threads of a client.
    A lost connection is no error of any call: what became of a request is found out on the next
    one.  ``get`` removes an item at once, ``take`` when the work on it is done.

    ``flat``: the items are children of ``path`` itself, as those of kazoo's Queue are; else the
    layout is that of kazoo's LockingQueue.  ``max_items``: a put that would exceed it is refused.
    ``acl``: the access list of all nodes, None for the client's.

    A queue lives in the memory of every server, and all its names go into one reply: it is for
    thousands of small items, not for millions.
    """

    _algorithm: AsyncQueue

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        flat: bool = False,
        max_items: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncQueue(
            runtime_of(client), path, flat=flat, max_items=max_items, acl=acl
        )

    def __repr__(self) -> str:
        """Return repr(self)."""
        return self._algorithm.__repr__()

    def take(self, timeout: float | None = None) -> AbstractContextManager[QueueItem]:
        """The first item, claimed for the body of a ``with`` and removed when that ends well.

            with queue.take() as item:
                work(item.data)

        The ``with`` waits for an item as :meth:`get` does: QueueEmptyError, before the body, when
        ``timeout`` seconds have passed without one.  Other consumers leave out an item that is
        claimed.

        When the body raises, the item is given back, at its place in the order.  So it is when this
        program ends or its session expires: the claim is an ephemeral node.  The work may then be
        done twice, which ``item.deliveries`` shows.

        The end of the ``with`` removes item and claim in one request that proves the claim.
        LockLostError: the claim was lost before that (the session had expired, an outsider has
        deleted it), the item was not removed, and another consumer may have it.  (With
        ``maybe_applied`` the session has expired in that moment, and it may be removed.)
        OperationTimeoutError: no server has answered within the ``operation_timeout``, and it is in
        doubt whether the item was removed; if not, it is given back in the background.
        """
        return Entered(self._algorithm.take(timeout), self)

    def get(self, timeout: float | None = None) -> QueueItem:
        """Remove the first item, and return it.

        Waits for one as long as it takes; with a ``timeout``, QueueEmptyError when that has passed,
        with 0 as soon as a server has said so.  OperationTimeoutError if no server has answered in
        that time (with 0: within the ``operation_timeout``, without one two session timeouts).

        A lost connection is no error: whether this call has removed the item is found out on the
        next one.  But an item that is removed is in the hands of this program alone: if that ends
        before its work is done, or if this call is cancelled or interrupted or ends with
        ``maybe_applied`` (OperationTimeoutError, SessionExpiredError), the item may be lost.  Where
        no item may be lost, use :meth:`take`.
        """
        return run(self._algorithm.get(timeout))

    def __iter__(self) -> Iterator[QueueItem]:
        """The items, as they come, each removed from the queue as by :meth:`get`; never ends."""
        return iterate(self._algorithm.__aiter__())

    def peek(self, *, timeout: float | None = None) -> QueueItem | None:
        """The first item that no consumer has claimed, which stays in the queue; None without."""
        return run(self._algorithm.peek(timeout=timeout))

    def put(self, data: bytes, priority: int = 100, *, timeout: float | None = None) -> int:
        """Put an item into the queue, exactly once; returns its zxid.

        Items of a lower ``priority``, 0 to 999, come first, those of one priority in the order of
        their puts.  The zxid rises from put to put, and ``item.zxid`` of the consumer is the same
        (0 if an outsider has written into the node that would tell).

        A lost connection is no error: whether the item was put is found out on the next one, within
        ``timeout`` seconds, by default the client's ``operation_timeout``.  OperationTimeoutError,
        SessionExpiredError or a cancellation leave it in doubt if ``maybe_applied``: the item was
        put once, or not at all.  QueueFullError if there are ``max_items`` already; of several
        producers each may be too late to see that.  ValueError if the item is too large.
        """
        return run(self._algorithm.put(data, priority, timeout=timeout))

    def put_many(
        self, items: Iterable[bytes], priority: int = 100, *, timeout: float | None = None
    ) -> list[int]:
        """Put the items in this order, each exactly once; returns the zxid of each.

        Up to 100, or 256 KiB, are put in one request: all of these or none, with one zxid, and
        nothing between them.  ``timeout`` is for each request.  An error says by ``maybe_applied``
        whether some may have been put; these are the first ones.  See :meth:`put`.
        """
        return run(self._algorithm.put_many(items, priority, timeout=timeout))

    def size(self, *, timeout: float | None = None) -> int:
        """How many items there are, claimed ones included."""
        return run(self._algorithm.size(timeout=timeout))


class PathLock(LockView, With):
    """A lock on one path: its state, and the parts of its life that do not depend on its kind."""

    _algorithm: AsyncPathLock

    def guard(self, operations: Iterable[Operation]) -> list[Any]:
        """Execute the operations of a ``client.multi`` only if this lock is held, says the server.

            lock.guard([SetData("/report", data)])

        A check of the lock's own node goes with them, so a holder that has lost the lock without
        knowing cannot write.  Returns the operations' results.  Raises LockLostError if the lock is
        lost (nothing was done), else what ``client.multi`` raises, and OperationTimeoutError after
        the ``operation_timeout``, without one two session timeouts.

        If the connection is lost, or the caller is cancelled or interrupted, it is as with
        ``client.multi``: NotSentError says that nothing was done, OutcomeUnknownError that all or
        nothing was.  To repeat it under the same lock is safe if doing it twice does no harm.
        """
        return run(self._algorithm.guard(operations))

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is no error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        return run(self._algorithm.acquire(timeout))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        Of a MultiLock all are acquired, or none.  Raises OperationTimeoutError when no server could
        tell within the client's ``operation_timeout``, without one within a session timeout.  A
        lost connection and a caller that is cancelled or interrupted are as for :meth:`acquire`.
        """
        return run(self._algorithm.try_acquire())

    def release(self, timeout: float | None = None) -> None:
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
        background.  RuntimeError if the lock was never acquired, or has been released already.  A
        loss that shows only here is not told by ``lost`` any more, to which the lock is released.
        """
        run(self._algorithm.release(timeout))

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Entered(self._algorithm.within(timeout), self)


class QueueLock(PathLock):
    """A lock whose contenders queue, each with a node of its own."""

    _algorithm: AsyncQueueLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def acquire(
        self, timeout: float | None = None, *, on_position: Callable[[int], object] | None = None
    ) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is no error here: the client finds out on the next one
        whether its node was created, and goes on within the time limit.

        When this returns False, raises (SessionExpiredError, ClientClosedError, NoAuthError, ...)
        or is cancelled or interrupted, nothing is held, no node stays behind, and the caller may
        try again at once: the deletion has been asked for when this ends, and without a connection
        the node is deleted on the next one, or goes with the session.  An error that comes on top
        of an error (a full stack) can delay that to the next call of this object, or to the end of
        the interpreter.

        NodeExistsError names a node that it would wait for and that is not ephemeral.
        RuntimeError if this object holds the lock already, or is being acquired or released.

        ``on_position`` is called, in the client's callback thread or event loop, with the number of
        contenders ahead: when this one has its place in the queue, and whenever the one right ahead
        has gone.
        """
        return run(self._algorithm.acquire(timeout, on_position=on_position))

    def contenders(self) -> list[Contender]:
        """The contenders in the queue, in order: session and text of each.  Not a snapshot.

        The first is the holder; so are all readers before the first writer.  (From a lease it is
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so after an error it can be
        repeated; a lost connection is no error here.  OperationTimeoutError after the
        ``operation_timeout``, without one two session timeouts.
        """
        return run(self._algorithm.contenders())


class SequentialLock(QueueLock):
    """The fair lock: contenders queue, each release wakes one, in order of arrival.

        with SequentialLock(client, "/locks/report") as lock:
            storage.write(data, fence=lock.fence)

    A lost connection is no error: a waiter keeps its place in the queue and a holder the lock, as
    long as their session lives; ``held`` is False when the lease ends, at the latest.

    Not re-entrant, and one object is for one contender: threads that compete need one each.
    ``text`` is shown to others, see :meth:`contenders`.
    ``acl``: for its nodes and for the missing ones above, which the server removes when they are
    empty (None: the client's ``default_acl``).  It protects nothing that exists already.

    **What it can promise.**  At most one contender's ``held`` is True at any moment, unless an
    outsider deletes a holder's node or ends its session (then until the holder hears of it), or a
    holder's server is cut off from its leader: that one goes on answering for up to syncLimit times
    tickTime, while the leader may end the session; or, without a ``lease_margin`` of the client,
    crashes right after an answer (see :mod:`zkwire.session.liveness` for both).  No lock can stop
    a process that pauses between looking at ``held`` and acting on it, so give ``fence`` to
    whatever the lock guards and let that refuse a fence lower than one it has seen.
    """

    _algorithm: AsyncSequentialLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._algorithm = AsyncSequentialLock(runtime_of(client), path, text, acl=acl)  # pyright: ignore[reportIncompatibleVariableOverride]


class Election(PathView):
    """One leader at a time; leadership is lost exactly as a lock is.

        election = Election(client, "/election", "worker-7")
        with election.lead() as leadership, leadership.cancel_on_loss():
            ...

    ``text`` tells others which candidate this is.
    """

    _algorithm: AsyncElection

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._algorithm = AsyncElection(runtime_of(client), path, text, acl=acl)

    def lead(self) -> SequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        return wrapped(SequentialLock, self._algorithm.lead())

    def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot.

        It only reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return run(self._algorithm.candidates())

    def leader(self) -> Contender | None:
        """The leader at this moment, as far as the server that was asked knows; None without one.

        Errors are those of :meth:`candidates`.
        """
        return run(self._algorithm.leader())


class Lease(QueueLock):
    """One lease of a semaphore, a lock like all others; see :class:`Semaphore`."""

    _algorithm: AsyncLease  # pyright: ignore[reportIncompatibleVariableOverride]


class MultiLock(View, With):
    """Several locks at once: all of them, or none.

        locks = SequentialLock(client, "/a"), SequentialLock(client, "/b")
        with MultiLock(*locks) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  ``held`` if all are, ``lost`` as soon as one is; each keeps its own ``fence``.
    """

    _algorithm: AsyncMultiLock

    def __init__(self, *locks: PathLock) -> None:
        self._algorithm = AsyncMultiLock(*algorithms_of(locks, "MultiLock", PathLock))
        self.locks = locks

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False when ``timeout`` seconds passed without.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is no error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        return run(self._algorithm.acquire(timeout))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        Of a MultiLock all are acquired, or none.  Raises OperationTimeoutError when no server could
        tell within the client's ``operation_timeout``, without one within a session timeout.  A
        lost connection and a caller that is cancelled or interrupted are as for :meth:`acquire`.
        """
        return run(self._algorithm.try_acquire())

    def release(self, timeout: float | None = None) -> None:
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
        background.  RuntimeError if the lock was never acquired, or has been released already.  A
        loss that shows only here is not told by ``lost`` any more, to which the lock is released.
        """
        run(self._algorithm.release(timeout))

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


class ReadWriteLock(PathView):
    """Readers together, a writer alone, in order of arrival.

        table = ReadWriteLock(client, "/locks/table")
        with table.read:
            ...
        with table.write:
            ...

    ``read`` and ``write`` are locks like :class:`SequentialLock`; threads that compete need an
    object each, and a thread that reads while another thread writes by the same one gets a
    RuntimeError.  A reader never waits for a later writer.

    Downgrade: acquire ``read`` in the thread that holds ``write``, then release ``write``.  There
    is no upgrade: acquiring ``write`` while holding ``read`` raises RuntimeError.  After a
    downgrade go on with the fence of ``write``: the reader's is higher than those of writers that
    wait already, so what it was given to would refuse the next one.
    """

    _algorithm: AsyncReadWriteLock

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._algorithm = AsyncReadWriteLock(runtime_of(client), path, text, acl=acl)

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
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so after an error it can be
        repeated; a lost connection is no error here.  OperationTimeoutError after the
        ``operation_timeout``, without one two session timeouts.
        """
        return run(self._algorithm.contenders())


class ReentrantLock(PathView, View, With):
    """A fair lock that the thread which holds it may acquire again.

    One object serves any number of threads: each has its own place in the queue.  The properties
    are those of the running thread's lock.

    Only the thread that holds it can release it.  When that ends without doing so, the lock is
    released in its place, as if by a last ``release``, and a warning is logged.  (Under asyncio
    that also happens to a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what
    it waits for in a thread of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.)
    """

    _algorithm: AsyncReentrantLock

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._algorithm = AsyncReentrantLock(runtime_of(client), path, text, acl=acl)

    @property
    def lock(self) -> SequentialLock:
        """The lock of the task that asks: ``fence``, ``guard`` and all the rest."""
        return wrapped(SequentialLock, self._algorithm.lock)

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this thread or task holds it.

        Raises LockLostError if this thread or task had acquired it and lost it: first release it.
        True, False, and what a lost connection, an error, a cancellation or an interrupt leaves
        behind (nothing) are as for :meth:`zkwire.Lock.acquire`.
        """
        return run(self._algorithm.acquire(timeout))

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, or count one more; False if another contender has it.

        It does not wait for a holder.  Errors are those of ``try_acquire`` of :attr:`lock`, and
        LockLostError as for :meth:`acquire`.
        """
        return run(self._algorithm.try_acquire())

    def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one releases the lock, as :meth:`zkwire.Lock.release` does.

        RuntimeError if this thread or task does not hold it.  The last one can end with
        LockLostError or OperationTimeoutError.
        """
        run(self._algorithm.release(timeout))

    def within(self, timeout: float | None) -> AbstractContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Entered(self._algorithm.within(timeout), self)


class Semaphore(PathView):
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = Semaphore(client, "/locks/printers", 3)
        with semaphore.lease() as lease:
            ...

    The semaphore itself is made to be shared; each contender has a lease of its own.  All must
    agree on the count: it is written down, and ValueError tells of another one.  That node stays
    when the last lease is released; delete it when none will be wanted.
    """

    _algorithm: AsyncSemaphore

    def __init__(
        self,
        client: Client,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = AsyncSemaphore(runtime_of(client), path, count, text, acl=acl)

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
        """The holders of the leases, in order: the first ``count``; behind them the next ones.

        The rest of the queue stands in the node ``locks`` below the path.  Not a snapshot.  It only
        reads, so after an error it can be repeated; a lost connection is no error here.
        OperationTimeoutError after the ``operation_timeout``, without one two session timeouts.
        """
        return run(self._algorithm.holders())


class BlockingLock(PathLock):
    """A lock that waits: one ephemeral node, watched by every contender.

    Simple, but each release wakes all waiters, and any of them may win.  What a lock can promise
    is said at :class:`SequentialLock`.
    """

    _algorithm: AsyncBlockingLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncBlockingLock(runtime_of(client), path, acl=acl)  # pyright: ignore[reportIncompatibleVariableOverride]


class NonBlockingLock(PathLock):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock; it counts as taken whatever node stands there.
    ``acquire(timeout)`` limits the time for the answer; without, it is :meth:`try_acquire`.
    """

    _algorithm: AsyncNonBlockingLock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, client: Client, path: str, *, acl: Sequence[ACL] | None = None) -> None:
        self._algorithm = AsyncNonBlockingLock(runtime_of(client), path, acl=acl)  # pyright: ignore[reportIncompatibleVariableOverride]


Lock = SequentialLock
