"""The rest of the family, for threads: read-write, semaphore, multi, re-entrant, election.

The algorithms are in the cores; each lock here keeps the promises of the locks in
:mod:`zkwire.blocking.locks`, and has their properties unless its class says where they are.
"""

from __future__ import annotations

from zkwire.blocking.locks import Entered, Locking, QueueLock, SequentialLock, world_of
from zkwire.blocking.owners import belongs_to_this_thread
from zkwire.blocking.run import run
from zkwire.errors import LockTakenError, LockTimeoutError
from zkwire.recipes import limits
from zkwire.recipes.contenders import contenders
from zkwire.recipes.face import check_kind
from zkwire.recipes.multi_lock import AllLocks
from zkwire.recipes.read_write import ReadLockQueue, WriteLockQueue
from zkwire.recipes.semaphore import LastTry, SemaphoreLease

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL
    from zkwire.recipes.contenders import Contender
    from zkwire.recipes.lost import Lost
    from zkwire.recipes.multi_lock import AnyLost


class ReadWriteLock:
    """Readers together, a writer alone, in order of arrival.

        table = ReadWriteLock(client, "/locks/table")
        with table.read:
            ...
        with table.write:
            ...

    ``read`` and ``write`` are locks like :class:`SequentialLock`; threads that compete need an
    object each, and RuntimeError tells those who read while another thread writes by the same one.
    A reader never waits for a later writer.

    Downgrade: acquire ``read`` in the thread that holds ``write``, then release ``write``.  There
    is no upgrade: acquiring ``write`` while holding ``read`` raises RuntimeError.  After a
    downgrade go on with the fence of ``write``: the reader's is higher than those of writers that
    wait already, so what it was given to would refuse the next one.
    """

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        world = world_of(client)
        write = WriteLockQueue(world, path, text, acl)
        read = ReadLockQueue(world, path, text, write, acl)
        write.read = read
        self.path = path
        self.read: QueueLock = QueueLock(read)
        self.write: QueueLock = QueueLock(write)
        self._world = world

    def contenders(self) -> list[Contender]:
        """Who is in the queue, in order.  Not a snapshot."""
        return run(contenders(self._world, self.path))


class Lease(QueueLock):
    """One lease of a semaphore; see :class:`Semaphore`."""

    def _enter(self, timeout: float | None) -> None:
        try:
            acquired = self._owned
            if acquired:
                self.check()
        except BaseException:
            self._give_up()  # nobody will come by at __exit__
            raise
        if not acquired:
            super()._enter(timeout)


class Semaphore:
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = Semaphore(client, "/locks/printers", 3)
        with semaphore.acquire() as lease:
            ...

    All contenders must agree on the count: it is written down, and ValueError tells of another one.
    That node stays when nobody has a lease; delete it when nobody will want one.
    Every lease has ``held``, ``fence``, ``lost``, ``release()``, as a lock has.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._world = world_of(client)
        self.path = path
        self.count = count
        self._text = text
        self._acl = acl
        self._last_try = LastTry()
        self._core()  # checks the arguments

    def _core(self) -> SemaphoreLease:
        return SemaphoreLease(
            self._world, self.path, self.count, self._text, self._acl, self._last_try
        )

    def lease(self) -> Lease:
        """A lease that is not acquired yet: a lock like all others.

            with semaphore.lease() as lease:
                ...

        The ``with`` acquires it, so an interrupt finds it acquired there, or not at all.
        """
        return Lease(self._core())

    def within(self, timeout: float | None) -> AbstractContextManager[Lease]:
        """A lease, to be entered within ``timeout`` seconds.

        See :meth:`Entered.within`.
        """
        return self.lease().within(timeout)

    def acquire(self, timeout: float | None = None) -> Lease:
        """Wait for a lease, at most ``timeout`` seconds, and return it.

        LockTimeoutError if the others had all of them until then, OperationTimeoutError if no
        server could tell.  ``timeout`` 0 is one try, which fails as well while somebody else is in
        the queue: LockTakenError.  See :meth:`SequentialLock.acquire` for lost connections and
        what is left behind (nothing).  An interrupt between this and a ``with`` leaves the lease
        acquired: :meth:`lease` and :meth:`within` have no such gap.
        """
        lease, kind = self.lease(), LockTakenError
        try:
            if lease._take(timeout):
                return lease
        except LockTimeoutError:
            kind = LockTimeoutError
        when = f" within {timeout} s" if timeout else ""
        raise kind(f"{self.path}: none of {self.count} leases was free{when}")

    def holders(self) -> list[Contender]:
        """Who has a lease, in order: the first ``count``; behind them who gets the next one.

        The rest of the queue stands in the node ``locks`` below the path.  Not a snapshot.
        """
        return run(contenders(self._world, f"{self.path}/leases"))


class MultiLock(Entered):
    """Several locks at once: all of them, or none.

        with MultiLock(SequentialLock(client, "/a"), SequentialLock(client, "/b")) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  ``held`` if all are, ``lost`` as soon as one is; each keeps its own ``fence``.
    """

    def __init__(self, *locks: Locking) -> None:
        wanted = "a MultiLock takes locks such as SequentialLock"
        parts = [check_kind(wanted, lock, Locking) for lock in locks]
        self._core = AllLocks([lock._core for lock in parts])
        self.locks = locks

    def _take(self, timeout: float | None) -> bool:
        return run(limits.take(self._core, timeout))

    def try_acquire(self) -> bool:
        """Acquire all if they are free; False, without waiting, if one is not.

        OperationTimeoutError by the limits of :meth:`Locking.try_acquire`, for all together.
        """
        return run(limits.take_if_free(self._core))

    def release(self, timeout: float | None = None) -> None:
        """Give all up, within ``timeout`` seconds in all; see :meth:`Locking.release`.

        LockLostError if one had been lost before, whatever has become of the others.
        """
        self._core.check()
        deadline = limits.deadline_of(self._core.world, timeout)
        run(self._core.release(deadline))

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


class ReentrantLock(Entered):
    """A fair lock that the thread which holds it may acquire again.

    One object serves any number of threads: each has its own place in the queue.  The properties
    are those of the calling thread's lock.

    Nobody but the thread that holds it can release it.  When that ends without doing so, the lock
    is released in its place, as if by a last ``release``, and a warning is logged.
    """

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._client = client
        self._text = text
        self._acl = acl
        self.path = path
        self._threads: object = None
        self._renew()
        SequentialLock(client, path, text, acl=acl)  # checks the arguments

    def _renew(self) -> None:
        """Have a value for each thread, of the kind that there is now: gevent replaces threads."""
        import threading

        if self._threads is not threading.get_ident:
            self._threads = threading.get_ident
            self._own = threading.local()

    @property
    def lock(self) -> SequentialLock:
        """The calling thread's lock: ``fence``, ``lost``, ``guard`` and all the rest."""
        self._renew()
        lock: SequentialLock | None = getattr(self._own, "lock", None)
        if lock is None:
            lock = self._own.lock = SequentialLock(
                self._client, self.path, self._text, acl=self._acl
            )
            self._own.count = 0
            belongs_to_this_thread(lock._core)
        return lock

    def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this thread holds it.

        Raises LockLostError if this thread had acquired it and lost it: first release it.
        See also :meth:`Entered.acquire`.
        """
        return super().acquire(timeout)

    def _take(self, timeout: float | None) -> bool:
        lock = self.lock
        if self._own.count:
            lock.check()
        elif not lock._take(timeout):
            return False
        self._own.count += 1
        return True

    def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one gives the lock up.  RuntimeError if it is not this thread's.

        The last one is :meth:`Locking.release`: LockLostError, OperationTimeoutError.
        """
        lock = self.lock
        if self._own.count == 0:
            raise RuntimeError("this thread does not hold the lock")
        if self._own.count > 1:
            self._own.count -= 1
            return
        try:
            lock.release(timeout)
        finally:
            # 1: an interrupt was faster, and it is to be released still.
            self._own.count = int(lock._core.owned)

    @property
    def held(self) -> bool:
        """Whether this thread surely holds the lock at this moment."""
        return self.lock.held

    @property
    def lost(self) -> Lost:
        """The loss of this thread's last acquisition."""
        return self.lock.lost

    def _check_place(self) -> None:
        self.lock._check_place()

    @property
    def _called(self) -> str:
        return self.path

    def _give_up(self) -> None:
        if self._own.count > 1:
            self._own.count -= 1
            return
        self.lock._give_up()
        self._own.count = 0

    @property
    def _owned(self) -> bool:
        return self.lock._owned


class Election:
    """One leader at a time; leadership is lost exactly as a lock is.

        election = Election(client, "/election", "worker-7")
        with election.lead() as leadership:
            while leadership.held:
                ...

    ``text`` tells others who the candidate is.
    """

    def __init__(
        self, client: Client, path: str, text: str = "", *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._client = client
        self._text = text
        self._acl = acl
        self.path = path
        self.lead()  # checks the arguments

    def lead(self) -> SequentialLock:
        """A candidacy: a lock whose holder is the leader.  Enter it, or acquire it, to run."""
        return SequentialLock(self._client, self.path, self._text, acl=self._acl)

    def candidates(self) -> list[Contender]:
        """The candidates in order, the leader first.  Not a snapshot."""
        return run(contenders(self._client._world, self.path))

    def leader(self) -> Contender | None:
        """Who leads at this moment, as far as the server that was asked knows."""
        return next(iter(self.candidates()), None)
