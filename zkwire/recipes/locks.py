"""The locks of one node, the re-entrant lock, and several locks at once.

**One ephemeral node is the lock**: the attempt that has created it holds it.  With ``wait`` this is
the blocking lock: each contender that finds the node watches it and tries again when it is gone.
All waiters wake at each release and all but one lose (the herd effect), and nothing says which one
wins: :mod:`zkwire.recipes.sequential` is the fair lock.

All holders' nodes have one path, and a server compares versions only.  So what makes the node makes
a token as well, in the same multi: an ephemeral child, named by the attempt's id, of a node beside
the lock's (ephemeral nodes have no children).  What deletes the node deletes the token with it:

    /path                              the lock: its content is the attempt's id
    /path-zkwire-grants/<attempt id>   the token

The multi writes the tokens' parent, too.  Its stat then says whether there are other tokens: older
ones are left if an outsider has deleted a holder's node.  The grant begins when these are gone and
the node is still its own.  A node made by hand has version 0, a node with a token version 1.

Invariants:

* While a grant lasts its token is there, and no older one, as long as no outsider deletes tokens.
  So a multi that deletes its own token and the node cannot hit the node of a later grant, and one
  that checks its own token is the holder's (``guard``).
* A grant deletes older tokens only, so that none takes a later one's.

When the connection is lost during the multi, it is not known whether it took effect.  So it is
repeated, and "node exists" leads to a look at its owner.  That is this attempt (the first try had
worked), another attempt, or there is no node any more (start over).  Each of these steps can lose
the connection again.

**The re-entrant lock** decides which thread or task has which fair lock, and counts.  How long a
thread or a task lives is the runtime's matter: it says which one runs, and when one has ended.

**Several locks at once** are acquired in the order of their paths, the same for all, so no two
contenders can each hold what the other waits for.  If one cannot be acquired, the locks before it
are released at once.  They are held while every one of them is, and lost as soon as one is.
"""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial

from zkwire import errors
from zkwire.operations.multi import Check, Create, Delete, Operation, SetData
from zkwire.recipes._lock import Acquirable, AsyncPathLock
from zkwire.recipes._node import Attempt, former, is_permanent, permanent
from zkwire.recipes._recipe import (
    LockInUseError,
    Lost,
    check_kind,
    exclusive_call,
    shield_from_interrupts,
)
from zkwire.recipes.runtime import newest, unwrap_multi_error
from zkwire.recipes.sequential import AsyncSequentialLock, Queued
from zkwire.session.waitable import Watch, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from zkwire.operations import Operations
    from zkwire.recipes.runtime import Runtime
    from zkwire.wire.model import DataAndStat


_VERSION = 1  # of a node that came with a token
GRANTS = "-zkwire-grants"
"""What the name of the tokens' parent ends in; before that is the lock's path."""


class SingleNodeLock(AsyncPathLock):
    """The node at the path itself, and its token: the algorithm of both kinds."""

    async def _create(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the node; False if it is another contender's."""
        doubt = False
        while True:
            attempt.entered = True
            try:
                alone = await self._claim(attempt, deadline)
                if alone or await self._outlast(attempt, deadline):
                    return True
            except errors.NodeExistsError:
                if not doubt:
                    attempt.entered = False
                    return False
                try:
                    read = self._runtime.operations.get_data
                    seen = await self._runtime.retry(deadline, read, self._path)
                except errors.NoNodeError:
                    await self._start_over(attempt, deadline)
                    continue  # gone meanwhile, whatever it was
                if not (self._is_own(attempt, seen) and self._adopt(attempt, seen)):
                    await self._start_over(attempt, deadline)
                    attempt.entered = False
                    return False
                if await self._outlast(attempt, deadline):
                    return True
            except errors.NoNodeError:
                await self._provide(self._grants, deadline)
            except (errors.NotSentError, errors.SessionMovedError):
                pass  # nothing was done; the next try waits for the next connection
            except errors.OutcomeUnknownError:
                doubt = True

    async def _claim(self, attempt: Attempt, deadline: float | None) -> bool:
        """Create the node and the token; whether there is no other token."""
        claim = [
            Create(self._path, b"", self._acl, ephemeral=True),
            SetData(self._path, attempt.id.encode()),
            Create(self._token(attempt), b"", self._acl, ephemeral=True),
            SetData(self._grants, b""),
        ]
        multi = self._runtime.operations.multi(claim)
        _, stat, _, grants = await unwrap_multi_error(self._runtime.until, multi, deadline)
        attempt.node, attempt.stat = self._path, stat
        return bool(grants.num_children == 1)

    async def _outlast(self, attempt: Attempt, deadline: float | None) -> bool:
        """Delete the tokens of earlier grants; whether the node is still this attempt's then.

        If it is not, an outsider has deleted it, and the attempt is as if it had not begun.
        """
        runtime, operations = self._runtime, self._runtime.operations
        czxid = attempt.stat.czxid
        with suppress(errors.NoNodeError):
            for name in await runtime.retry(deadline, operations.get_children, self._grants):
                if name == attempt.id:
                    continue
                token = f"{self._grants}/{name}"
                stat = await runtime.retry(deadline, operations.exists, token)
                if stat is not None and stat.czxid < czxid:
                    await runtime.ensure_gone(deadline, token)
        stat = await runtime.retry(deadline, operations.exists, self._path)
        if stat is not None and stat.czxid == czxid:
            return True
        await self._start_over(attempt, deadline)
        return False

    async def _start_over(self, attempt: Attempt, deadline: float | None) -> None:
        """Delete the token of a node that is gone."""
        await self._runtime.ensure_gone(deadline, self._token(attempt))
        attempt.node = attempt.stat = None

    def _adopt(self, attempt: Attempt, seen: DataAndStat) -> bool:
        """Whether the node that was seen is this attempt's; then it is taken over.

        NodeExistsError if it belongs to no session: it would go with none, and the wait never end.
        """
        if not self._is_own(attempt, seen):
            if seen.stat.ephemeral_owner == 0:
                raise permanent(self._path)
            own_session = seen.stat.ephemeral_owner == self._runtime.session_id
            if own_session and attempt.is_former(seen.data.decode("ascii", "replace")):
                raise former(self._path)
            return False
        attempt.node, attempt.stat, attempt.entered = self._path, seen.stat, True
        return True

    def _is_own(self, attempt: Attempt, seen: DataAndStat) -> bool:
        if attempt.stat is not None:
            return seen.stat.czxid == attempt.stat.czxid  # whatever has been written into it
        owner = seen.stat.ephemeral_owner
        return owner == self._runtime.session_id and seen.data == attempt.id.encode()

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        version = _VERSION
        while True:
            try:
                await operations.multi(self._end(attempt, version))
                return
            except errors.MultiError as error:
                refusal = error._culprit
                if not isinstance(refusal, (errors.NoNodeError, errors.BadVersionError)):
                    raise refusal from None
                token_gone = error.index == 0
            try:
                seen = await newest(operations, operations.get_data, self._path)
            except errors.NoNodeError:
                seen = None
            if seen is None or not self._is_own(attempt, seen):
                if not token_gone:
                    await operations.delete(self._token(attempt))
                return
            version = seen.stat.version  # written into since; it is still this attempt's
            if token_gone:  # an outsider has deleted it
                await operations.delete(self._path, version)
                return

    def _end(self, attempt: Attempt, version: int) -> list[Operation]:
        return [Delete(self._token(attempt)), Delete(self._path, version)]

    @property
    def _grants(self) -> str:
        return self._path + GRANTS

    def _token(self, attempt: Attempt) -> str:
        return f"{self._grants}/{attempt.id}"

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        while True:
            if await self._create(attempt, deadline):
                return True
            if not wait:
                if await is_permanent(self._runtime, deadline, self._path):
                    raise permanent(self._path)
                return False
            self._seen_taken = True
            with suppress(errors.NoNodeError), closing(Watch()) as watch:  # freed since the create
                # get_data and not exists: it leaves no watch on a node that is gone.
                read = self._runtime.operations.get_data
                seen = await self._runtime.retry(deadline, read, self._path, watch=watch)
                if self._adopt(attempt, seen):
                    if await self._outlast(attempt, deadline):
                        return True
                else:
                    await self._runtime.event(watch, deadline)

    async def _free(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        runtime, operations = self._runtime, self._runtime.operations
        multi = operations.multi(self._end(attempt, version))
        try:
            await unwrap_multi_error(runtime.until, multi, deadline)
        except errors.BadVersionError:
            sync, read = operations.sync(self._path), operations.get_data(self._path)
            await runtime.until(sync, deadline)
            if not self._is_own(attempt, await runtime.until(read, deadline)):
                raise errors.NoNodeError(op="delete", path=self._path) from None
            raise

    def _proof(self, attempt: Attempt) -> list[Operation]:
        # Of this version: the node could be one made by hand by now.
        return [Check(self._token(attempt)), Check(self._path, attempt.stat.version)]


class AsyncBlockingLock(SingleNodeLock):
    """A lock that waits: one ephemeral node, watched by every contender.

    Simple, but each release wakes all waiters, and any of them may win.  What a lock can promise
    is said at :class:`AsyncSequentialLock`.
    """


class AsyncNonBlockingLock(SingleNodeLock):
    """A lock that never waits for its holder: acquire is one try, and False if it is taken.

    One ephemeral node is the lock: it counts as taken if any ephemeral node stands there.  A node
    that is not ephemeral does not go away by itself, so NodeExistsError names it.
    ``acquire(timeout)`` limits the time for the answer; without a timeout it is
    :meth:`try_acquire`.
    """

    _waits = False


class OwnLock:
    """The lock of one thread or task, and how often that has acquired it."""

    def __init__(self, runtime: Runtime, make: Callable[[], AsyncSequentialLock]) -> None:
        self.lock: AsyncSequentialLock = make()
        self.count: int = 0
        runtime.when_caller_ends(self.lock)


class AsyncReentrantLock(Queued, Acquirable):
    """A fair lock that the task which holds it may acquire again.

    One object serves any number of tasks: each has its own place in the queue.  The properties
    are those of the running task's lock.

    Only the task that holds it can release it.  When that task ends without a release, zkwire
    releases the lock in its place, as if by a last ``release``, and logs a warning.  (Under asyncio
    that also happens to a lock acquired in ``asyncio.wait_for`` up to Python 3.11, which runs what
    it waits for in a task of its own: use ``acquire(timeout)``, or ``asyncio.timeout``.)
    """

    def _make(self) -> None:
        make = partial(self._new, AsyncSequentialLock)
        self._own = self._runtime.local(partial(OwnLock, self._runtime, make))
        self._contending: dict[AsyncSequentialLock, None] = {}  # those that are being acquired

    @property
    def lock(self) -> AsyncSequentialLock:
        """The lock of the task that asks: ``fence``, ``guard`` and all the rest."""
        return self._own().lock

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock, or count one more if this thread or task holds it.

        Raises LockLostError if this thread or task had acquired it and lost it: first release it.
        It returns True or False as :meth:`zkwire.Lock.acquire` does, and like that leaves nothing
        after a lost connection, an error, a cancellation or an interrupt.
        """
        return await super().acquire(timeout)

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free, or count one more; False if another contender has it.

        It does not wait for a holder.  Errors are those of ``try_acquire`` of :attr:`lock`, and
        LockLostError as for :meth:`acquire`.
        """
        return await self._count_one_more(AsyncSequentialLock.try_acquire)

    def cancel(self) -> bool:
        """End all acquisitions that are under way, in any thread or task; whether there were any.

        Each raises LockCancelledError, see :meth:`zkwire.Lock.cancel`; a thread or task that holds
        the lock goes on holding it.
        """
        cancelled = [lock.cancel() for lock in list(self._contending)]
        return any(cancelled)

    async def release(self, timeout: float | None = None) -> None:
        """Count one less; the last one releases the lock, as :meth:`zkwire.Lock.release` does.

        RuntimeError if this thread or task does not hold it.  The last one can end with
        LockLostError or OperationTimeoutError.
        """
        check_timeout("timeout", timeout)
        own = self._own()
        if own.count == 0:
            raise RuntimeError("this thread or task does not hold the lock")
        if own.count > 1:
            own.count -= 1
            return
        try:
            await own.lock.release(timeout)
        finally:
            own.count = int(own.lock._owned)  # 1: an interrupt was faster; to be released still

    async def _take(self, timeout: float | None) -> bool:
        check_timeout("timeout", timeout)
        return await self._count_one_more(lambda lock: lock._take(timeout))

    async def _count_one_more(
        self, acquire: Callable[[AsyncSequentialLock], Coroutine[Any, Any, bool]]
    ) -> bool:
        own = self._own()
        if own.count:
            own.lock.check()
        else:
            self._contending[own.lock] = None
            try:
                if not await acquire(own.lock):
                    return False
            finally:
                self._contending.pop(own.lock, None)
        own.count += 1
        return True

    def _release_in_background(self) -> None:
        own = self._own()
        if own.count > 1:
            own.count -= 1
            return
        own.lock._release_in_background()
        own.count = 0

    @property
    def _owned(self) -> bool:
        return self._own().lock._owned

    @property
    def held(self) -> bool:
        return self._own().lock.held

    @property
    def lost(self) -> Lost:
        return self._own().lock._lost


class AnyLost(Lost):
    """The loss of any of several locks."""

    __slots__ = ("_parts",)

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._parts: list[Lost] = []  # none before all of them are held

    @property
    def ready(self) -> bool:
        """Whether one has been lost or released: nothing more will happen."""
        return any(part.ready for part in self._parts)

    @property
    def reason(self) -> str | None:
        """Why the first one was lost; None if none was."""
        return next((part._reason for part in self._parts if part._reason is not None), None)

    def watch(self, parts: list[Lost]) -> None:
        """All are held: from now on their losses count."""
        self._parts = parts
        for part in parts:
            self._runtime.when_ready(part, self._wake)

    def _wake(self) -> None:
        for waker in self._take_wakers():
            waker()


class AsyncMultiLock(Acquirable):
    """Several locks at once: all of them, or none.

        locks = AsyncSequentialLock(client, "/a"), AsyncSequentialLock(client, "/b")
        async with AsyncMultiLock(*locks) as both:
            ...

    They are acquired in the order of their paths, so two contenders cannot each hold what the other
    waits for.  The MultiLock is ``held`` while all of them are, and ``lost`` as soon as one is;
    each keeps its own ``fence``.
    """

    def __init__(self, *locks: AsyncPathLock) -> None:
        wanted = "an AsyncMultiLock takes locks such as AsyncSequentialLock"
        self.locks: tuple[AsyncPathLock, ...] = locks
        for lock in locks:
            check_kind(wanted, lock, AsyncPathLock)
        self._parts = sorted(locks, key=lambda lock: lock._path)
        paths = [lock._path for lock in self._parts]
        if not paths or len(set(paths)) < len(paths):
            raise ValueError("a multi-lock takes one or more locks, each on another path")
        self._runtime = self._parts[0]._runtime
        if any(lock._runtime is not self._runtime for lock in self._parts):
            raise ValueError("the locks of a multi-lock must be of one client")
        self._lost = AnyLost(self._runtime)
        self._taken: list[AsyncPathLock] = []
        self._acquired = False  # all of them
        self._releasing = False

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        return await exclusive_call(self, partial(self._acquire_or_release, deadline, wait))

    async def _acquire_or_release(self, deadline: float | None, wait: bool) -> bool:
        try:
            self._forget_loss()
            return await self._acquire(deadline, wait)
        except BaseException:
            if not self._acquired:
                self._release_taken()
            raise

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy or self._releasing:
            raise LockInUseError("another thread or task uses this very multi-lock")
        self._cancelled = False

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        if self._acquired:
            raise LockInUseError("this multi-lock holds its locks already; it is not re-entrant")
        self._may_be_cancelled()
        taken = self._taken
        for lock in self._parts:
            taken.append(lock)  # before, for an interrupt right after the acquisition
            try:
                if await lock._acquire_by(deadline, wait):
                    continue
            except LockInUseError:
                taken.pop()
                raise
            if not wait:  # a caller that tries expects to see it done; one that waited is late
                for other in reversed(taken[:-1]):
                    with suppress(errors.LockLostError, errors.OperationTimeoutError):
                        await other._release_by(deadline)
            self._release_taken()
            return False
        self._runtime.check_open()
        if not self.held:
            reasons = [lock._lost._reason for lock in taken if lock._lost._reason]
            why = ": ".join(["one of the locks was lost while another was acquired", *reasons[:1]])
            raise errors.LockLostError(why, session_id=self._runtime.session_id)
        self._lost.watch([lock._lost for lock in taken])
        self._acquired = True
        return True

    def _forget_loss(self) -> None:
        """Be as new after a loss that no release has followed."""
        if self._taken and (not self._acquired or self._lost.is_set()):
            self._release_taken()
        if self._lost.ready:
            self._lost = AnyLost(self._runtime)

    def _release_taken(self) -> None:
        """Release what is taken, later.

        An interrupt is raised when all is done.  What interrupts this each time is raised before
        that: then this is to be repeated.
        """
        shield_from_interrupts(self._release_each)

    def _release_each(self) -> None:
        self._acquired = False
        for lock in reversed(self._taken):
            lock._release_in_background()
        self._taken = []

    def _set_inactive(self) -> None:
        """At the end of a call: have the client release what this could not."""
        if self._taken and not self._acquired:
            for lock in self._taken:
                if lock._granted is not None:
                    lock._pending_cleanup, lock._granted = lock._granted, None
            self._runtime.unfinished = True
            self._runtime.wake()

    def _release_in_background(self) -> None:
        if not (self._busy or self._releasing):
            self._release_taken()

    async def _release_by(self, deadline: float | None) -> None:
        """Release all, whatever happens to one; raises the first error, of a loss if there is one.

        The ``deadline`` is for all together.
        """
        if self._taken and not (self._acquired or self._busy or self._releasing):
            self._release_taken()  # an earlier release was interrupted each time it was tried
            return
        if self._releasing or not self._acquired:
            raise RuntimeError("this multi-lock does not hold its locks")
        self._acquired, self._releasing = False, True
        failed: list[errors.ZooKeeperError] = []
        try:
            for lock in reversed(self._parts):
                try:
                    await lock._release_by(deadline)
                except errors.ZooKeeperError as error:
                    failed.append(error)
        finally:
            try:
                self._release_taken()
            finally:
                self._releasing = False
                self._set_inactive()
        losses = [error for error in failed if isinstance(error, errors.LockLostError)]
        if failed:
            raise (losses or failed)[0]

    @property
    def _called(self) -> str:
        return "one of the locks"

    @property
    def _owned(self) -> bool:
        return self._acquired

    @property
    def lost(self) -> AnyLost:
        return self._lost

    @property
    def held(self) -> bool:
        return all(lock.held for lock in self._parts)
