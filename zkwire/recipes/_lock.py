"""What all locks have in common: how they are acquired, held, lost and released.

It decides when an attempt begins, when it has won, whether that still counts, how long each call
may take and how a release ends.  How contenders take turns, and which nodes that needs, is a
subclass's matter; whether the caller blocks or awaits is the runtime's, and this must not know it.

Time limits:

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

Invariants, for every lock, beside those of :mod:`zkwire.recipes._node`:

* ``held`` is a pure function: granted, not lost, not released, lease not run out.  It asks nothing.
* A lock is lost when its session is over, when the session may have expired because no answer has
  prolonged its lease for a session timeout, or when its node is deleted.  A loss is noticed from
  before the hold can be seen until it is released.
* What an attempt has created (one node; for a lock of one node, a token, too) outlives the attempt
  only while the lock is held.  An attempt that ends in any other way (timeout, refusal, interrupt,
  error) hands it to the clean-up.
* The hold ends before the request that frees the lock is sent.
* A node is one's own if its owner is this session *and* it carries the attempt's id.  The session
  alone proves nothing (one client may have two locks), nor does the id alone (the node may be an
  earlier session's).
"""

from __future__ import annotations

import contextlib
from functools import partial

from zkwire import errors
from zkwire.operations.multi import Check, Operation
from zkwire.recipes._node import RETRYABLE, Attempt, OwnedNode, OwnNodeWatch
from zkwire.recipes._recipe import Enterable, HasPath, LockInUseError, Lost, Recipe, exclusive_call
from zkwire.session.liveness import LAPSED
from zkwire.session.waitable import ClosedWatchError, check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike, Runtime


class Acquirable(Recipe, Enterable):
    """The algorithm of any lock, as far as it is acquired and released."""

    _runtime: Runtime
    _path: str
    _waits = True  # until a holder releases
    _busy = False
    _cancelled = False  # the attempt that is being made
    # How to wake what makes it.
    _waiting: tuple[Callable[[object, Any], None], object] | None = None

    @property
    def _called(self) -> str:
        return self._path

    if TYPE_CHECKING:

        def _refuse_two(self) -> None:
            """Raise LockInUseError if this object is in use, else what ``Runtime.check`` raises."""

        async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
            """Acquire it; False if another contender has it, and it does not wait.

            Raises LockTimeoutError when another contender had it at the ``deadline``,
            OperationTimeoutError when no server could tell by then.
            """
            ...

        async def _release_by(self, deadline: float | None) -> None:
            """Release it; OperationTimeoutError at the ``deadline``."""

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
        raise NotImplementedError

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
        raise NotImplementedError

    def lease_remaining(self) -> float:
        """Seconds until the lease ends if no server answers any more; 0.0 if the lock is not held.

        For a MultiLock it is the least of its locks' times.
        """
        left = self._runtime.lease_deadline - self._runtime.now()
        return max(0.0, left) if self.held else 0.0

    def check(self) -> None:
        """Raise LockLostError unless the lock is ``held``; asks no server.

        Of a node that an outsider has just deleted, it knows as much as ``held``.
        """
        if not self.held:
            self._runtime.check()
            held_once = self.lost.is_set() or self._owned
            raise errors.LockLostError(
                f"{self._called} is not held: {self.lost.reason or 'not acquired, or no longer'}",
                session_id=self._runtime.session_id if held_once else 0,
            )

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the lock; True when it is held, False if ``timeout`` seconds pass first.

        ``timeout`` None waits as long as it takes; 0 is one try, False at once without a
        connection.  A lost connection is not an error here.  When this returns False, raises, or is
        cancelled or interrupted, nothing is held, no node stays behind, and the caller may try
        again at once; :meth:`zkwire.Lock.acquire` says more.
        """
        try:
            return await self._take(timeout)
        except errors.OperationTimeoutError:
            if timeout is None:
                raise
            return False

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free; False, without waiting, if another contender has it.

        A MultiLock acquires all of its locks, or none.  Raises OperationTimeoutError if no server
        answers within the client's ``operation_timeout`` (a session timeout if it has none).
        NodeExistsError names a node in the way that is not ephemeral, and so is no contender's.  A
        lost connection, a cancellation and an interrupt do what they do in :meth:`acquire`.
        """
        return await self._acquire_by(self._runtime.now() + self._one_try(), False)

    async def release(self, timeout: float | None = None) -> None:
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
        self._runtime.check()
        await self._release_by(self._runtime.deadline(timeout))

    def within(self, timeout: float | None) -> AbstractAsyncContextManager[Self]:
        """The lock, to be entered within ``timeout`` seconds.

            async with lock.within(5.0):
                ...

        OperationTimeoutError, before the body, when the lock is not acquired in time; it is a
        LockTimeoutError if another contender was seen to hold it.
        """
        return Within(self, check_timeout("timeout", timeout))

    def cancel(self) -> bool:
        """End the acquisition that is under way, from any thread or task; whether there was one.

        The call that acquires, or enters the ``with``, raises LockCancelledError.  As after any
        other error, nothing is held then and no node is left.  A call that waits for its turn or
        for a server is woken at once, and every call within a second.  If it has just succeeded,
        the lock stays held: ``held`` tells.  The client goes on, and a lock that is already held
        stays held.
        """
        if not self._busy:
            return False
        self._cancelled = True
        waiting = self._waiting
        if waiting is not None:
            interrupt, waiter = waiting
            interrupt(waiter, self)
        return True

    def _may_be_cancelled(self) -> None:
        """The attempt begins; raises LockCancelledError if it has been cancelled already."""
        self._waiting = self._runtime.interrupt, self._runtime.waiter()
        if self._cancelled:
            raise self._cancelled_error()

    def _is_cancelled(self, waiter: object) -> bool:
        """Whether the attempt that this thread or task makes is."""
        waiting = self._waiting
        return self._busy and self._cancelled and waiting is not None and waiting[1] == waiter

    def _cancelled_error(self) -> errors.LockCancelledError:
        message = f"{self._called}: the acquisition was cancelled; nothing is held"
        return errors.LockCancelledError(message)

    def cancel_on_loss(self) -> AbstractAsyncContextManager[Self]:
        """Cancel the body of the ``async with`` when the lock is lost, then raise LockLostError.

            async with lock, lock.cancel_on_loss():
                await work()  # yours to write

        As with ``asyncio.timeout``, a cancellation from outside stays a CancelledError.
        """
        self.check()
        lost = self.lost

        def add(cancel: Callable[[object], None]) -> Callable[[], None]:
            return partial(lost._drop_waker, lost._call_back(cancel))

        def error() -> errors.LockLostError:
            return errors.LockLostError(
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
        except (errors.LockLostError, errors.OperationTimeoutError):
            if kind is None:
                raise

    def _taken_error(self, timeout: float | None) -> errors.LockTakenError:
        kind = errors.LockTakenError if timeout is None else errors.LockTimeoutError
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
        limit = min(self._one_try(), runtime.session.timeout / 3)
        return await self._acquire_by(runtime.now() + limit, False)

    def _one_try(self) -> float:
        limit = self._runtime.operation_timeout
        return self._runtime.session.timeout if limit is None else limit


class Within(Enterable):
    """A lock and a time limit, for one ``async with``."""

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
        self._lock._release_in_background()


class AsyncPathLock(HasPath, OwnedNode, Acquirable):
    """A lock on one path: its state, and the parts of its life that do not depend on its kind.

    Its node holds it as long as that stands and its session lives.
    """

    _seen_taken = False  # another contender was seen to have the lock, in the last attempt

    def __init__(
        self, client: AsyncClientLike, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        super().__init__(client, path, acl=acl)
        self._lost = Lost(self._runtime)
        self._own_watch: OwnNodeWatch | None = None
        self._deferred: Callable[[], object] | None = None  # what makes that watch for a holder
        self._fence: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{' held' if self.held else ''}>"

    @property
    def lost(self) -> Lost:
        return self._lost

    @property
    def fence(self) -> int:
        """The fencing token of the last acquisition: higher than those of all before it.

        It is the czxid of the lock's node.  If the tree is moved to another ensemble, fences begin
        low again there.  RuntimeError if the lock was never acquired.
        """
        if self._fence is None:
            raise RuntimeError("this lock object has never held the lock")
        return self._fence

    @property
    def node(self) -> str | None:
        """The path of the lock's own node while it is held or waits in the queue; else None.

        A lock whose contenders share one node has it only while the lock is held.
        """
        attempt = self._pending_cleanup if self._busy else self._granted
        return None if attempt is None or not (self._busy or self.held) else attempt.node

    def _grant(self, attempt: Attempt) -> None:
        """The attempt has won.  A loss is noticed before a claim can be seen."""
        watch = self._own_watch
        if watch is not None:
            watch.lost = self._lost
        self._fence = attempt.stat.czxid
        self._runtime.hold(self._lost)
        self._runtime.check_open()  # first: a caller that is told of an end knows that all is lost
        if not self._lasts:
            why = f"{self._path} was lost in the moment it was acquired"
            raise errors.LockLostError(why, session_id=self._runtime.session_id)
        # interrupt-safe: behind all that may be refused: another thread may release it at once.
        self._granted = attempt
        self._pending_cleanup = None
        if watch is None:
            self._deferred = partial(self._watch_own_node_later, attempt)
            self._runtime.defer(self._deferred)

    def _watch_own_node(self, attempt: Attempt, watch: OwnNodeWatch) -> None:
        """From here on it is noticed if the attempt's node is deleted."""
        watch.stands = True  # first: a release that dismisses it meanwhile must forget it, too
        operations = self._runtime.operations
        watch.request = operations._watch_own_node(attempt.node, attempt.stat.czxid, watch)

    def _watch_own_node_later(self, attempt: Attempt) -> None:
        """The same, in any thread, if the attempt still holds and this has not been done."""
        with self._runtime.mutex:
            if self._granted is not attempt or self._own_watch is not None:
                return
            watch = self._own_watch = OwnNodeWatch()
            watch.lost = self._lost
            if self._granted is not attempt:  # it has just been released, as by a signal handler
                self._own_watch = None
                return
        # What is over ends the claim, too; a watch may be dismissed at any moment of this.
        with contextlib.suppress(errors.ZooKeeperError, ClosedWatchError):
            self._watch_own_node(attempt, watch)

    def _end_claim(self) -> None:
        """From here on nothing is held."""
        self._granted = None  # first: a watch that is just being made is taken back, or seen below
        self._runtime.unhold(self._lost)
        self._runtime.undefer(self._deferred)
        self._deferred = None  # which refers to this object
        watch = self._own_watch  # once: with a supervisor, another thread may take it back just now
        if watch is not None:
            self._dismiss(watch)
            self._own_watch = None

    def _part_with_claim(self) -> Callable[[], None]:
        watch, lost = self._own_watch, self._lost
        self._granted = self._own_watch = None
        held = lost in self._runtime.session.lease_holders
        wakers = lost._let_go() if held else ()  # so that another attempt has another loss

        def end_claim() -> None:
            for waker in wakers:
                waker()
            self._runtime.unhold(lost)
            if watch is not None:
                self._dismiss(watch)

        return end_claim

    def _dismiss(self, watch: OwnNodeWatch) -> None:
        watch.dismiss()
        if watch.stands:
            if watch.request is not None:
                self._runtime.withdraw(watch.request)
                watch.request = None  # which has it
            self._runtime.close_watch(watch, tell=False)

    @property
    def held(self) -> bool:
        return self._granted is not None and self._lasts

    @property
    def _lasts(self) -> bool:
        """Whether the session surely lives, and the node is not known to be deleted."""
        watch = self._own_watch
        return (
            self._lost._reason is None
            and not (watch is not None and watch.gone)
            and self._runtime.now() < self._runtime.lease_deadline
        )

    def _proof(self, attempt: Attempt) -> list[Operation]:
        """Checks that the server passes as long as the attempt's grant lasts."""
        # Of any version: what writes into the node does not take the lock away.
        return [Check(attempt.node)]

    async def guard(self, operations: Iterable[Operation]) -> list[Any]:
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
        self._runtime.check()
        attempt = self._granted
        if attempt is None:
            raise RuntimeError("this lock object does not hold the lock")
        if not self.held:
            raise self._lost_before(self._lost.reason or LAPSED, "used")
        checks = self._proof(attempt)
        multi = self._runtime.operations.multi([*checks, *operations])
        try:
            results = await self._runtime.until(multi, self._runtime.in_time(None))
        except errors.MultiError as error:
            index = error.index - len(checks)
            if index >= 0:
                raise errors.MultiError(error.results[len(checks) :], index) from error.__cause__
            refusal = error._culprit
            if not isinstance(refusal, (errors.NoNodeError, errors.BadVersionError)):
                raise refusal from error
            raise self._lost_before("the server does not find its node", "used") from error
        return results[len(checks) :]

    def _lost_before(self, reason: str, done: str = "released") -> errors.LockLostError:
        """The error for something that only a holder may do."""
        return errors.LockLostError(
            f"{self._path} had been lost before it was {done}: {reason}",
            session_id=self._runtime.session_id,
        )

    # --- what a kind of lock adds -----------------------------------------------------------------

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        """Get the lock, or return False if another contender has it and ``wait`` is False.

        Sets ``_seen_taken`` if another contender has it.  Raises OperationTimeoutError at the
        deadline.  Leaves cleaning up to the caller.
        """
        raise NotImplementedError

    async def _free(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the attempt's node, which has this version; the clean-up deletes all else.

        Raises what the server refuses it with: NoNodeError if the lock had been lost before.
        """
        runtime = self._runtime
        await runtime.exchange(deadline, runtime.drafts.delete(attempt.node, version))

    # --- to acquire -------------------------------------------------------------------------------

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        return await exclusive_call(self, partial(self._acquire, deadline, wait and self._waits))

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy or self._releasing:
            doing = "releasing" if self._releasing else "acquiring"
            raise LockInUseError(f"another thread or task is {doing} this very lock object")
        if self._granted is not None and self._lost._reason is None:
            raise LockInUseError("this lock object holds the lock already; it is not re-entrant")
        self._cancelled = False

    async def _acquire(self, deadline: float | None, wait: bool) -> bool:
        runtime, self._seen_taken = self._runtime, False
        try:
            runtime.active_locks.add(self)
            self._may_be_cancelled()
            self._clean_up_pending()
            if self._granted is not None:  # a loss that no release has followed
                self._clean_up_after(self._granted)
            if self._lost._over:
                self._lost = Lost(runtime)
            if not runtime.usable:
                await runtime.connected(deadline)
            attempt = Attempt(runtime)
            self._pending_cleanup = attempt
            won = await self._contend(attempt, deadline, wait)
            if won:
                self._grant(attempt)
            else:
                self._pending_cleanup = None
            return won
        except BaseException as error:  # and not else: another thread may be releasing it already
            if self._granted is not None:
                self._pending_cleanup, self._granted = self._granted, None
            self._clean_up_pending()
            if not isinstance(error, errors.OperationTimeoutError):
                raise
            if self._seen_taken or isinstance(error, errors.LockTimeoutError):
                raise self._taken_error(deadline) from None
            raise errors.OperationTimeoutError(
                f"no server could tell in time whether {self._path} is free; nothing is held"
            ) from None

    # --- to release -------------------------------------------------------------------------------

    async def _release_by(self, deadline: float | None) -> None:
        attempt = self._granted
        pending = self._pending_cleanup is not None
        if attempt is None and pending and not (self._busy or self._releasing):
            self._resume_cleanup()  # an earlier release was interrupted each time it was tried
            return
        if attempt is None:
            raise RuntimeError("this lock object does not hold the lock")
        self._releasing = True  # or else one clean-up would be pending for two attempts
        try:
            self._pending_cleanup, self._granted = attempt, None
            try:
                await self._delete(attempt, attempt.stat.version, deadline)
            finally:
                if self._pending_cleanup is not None:
                    self._clean_up_pending()
        finally:
            self._releasing = False
            if self._pending_cleanup is not None:
                self._runtime.unfinished = True  # first: the stack may have no room for a call
            self._set_inactive()

    async def _delete(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        """Delete the lock's node; what this leaves undone is left to the clean-up."""
        try:
            self._refuse_if_lost()
            if not self._runtime.usable:
                await self._reconnected(deadline)
                self._refuse_if_lost()
            self._end_claim()
            await self._free(attempt, version, deadline)
            self._pending_cleanup = None
        except errors.NoNodeError:
            raise self._lost_before("its node was deleted") from None
        except errors.SessionExpiredError as error:
            raise self._lost_before("the session has expired") from error
        except (errors.ConnectionLossError, errors.BadVersionError, *RETRYABLE):
            pass
        except errors.OperationTimeoutError:
            raise errors.OperationTimeoutError(
                f"no server has confirmed in time that {self._path} is free; it is not held here, "
                "and the client goes on deleting its node: there is nothing to do",
                op="release",
                path=self._path,
                maybe_applied=True,
            ) from None

    async def _reconnected(self, deadline: float | None) -> None:
        """Wait for a connection, in which the watch first tells what became of the node meanwhile.

        If the node had gone meanwhile, a delete that was queued would hit the next holder's node.
        """
        try:
            lease = self._runtime.lease_deadline
            await self._runtime.connected(lease if deadline is None else min(lease, deadline))
        except errors.ZooKeeperError:
            return  # the lock is lost then

    def _refuse_if_lost(self) -> None:
        if self._lost._reason is not None:
            raise self._lost_before(self._lost._reason)
        if self._runtime.now() >= self._runtime.lease_deadline:
            raise self._lost_before(LAPSED)

    def _owner_ended(self, owner: str) -> None:
        """Release it in the place of the ``owner`` that has ended, if that has not released it."""
        if self.held:
            self._runtime.warn(
                f"{self._path}: {owner} has ended and still held this re-entrant lock, which "
                "nothing else can release: it is released"
            )
        self._release_in_background()
