"""Barriers: one is closed while a node is there; for the other, members begin and end together.

The barrier has the layout of kazoo's Barrier and Curator's DistributedBarrier: one persistent node,
and all that matters is whether it is there.

To enter a double barrier, a member creates its node and waits for a round that includes it; a
member that sees enough nodes there begins the round.  To leave, a member deletes its node and waits
until no member of its round is left; only the lowest member keeps its node until it is alone, so
that all others are woken once, by its end.  A member that comes during a round waits for the next
round.

    /path                  persistent; its version is the number of rounds that have begun
    /path/<member>         ephemeral, whatever its name; kazoo, Curator and zkwire make them alike
    /path/ready            there while a round is on

A round has the zxid of its ``ready``.  Its members are the children that are older than ``ready``.
The round lasts while ``ready`` and a member are there.  A ``ready`` without a member is left over
from a round whose last member has died; it is deleted.

Invariants:

* A round begins in a multi that checks that ``count`` members are there, and raises the version of
  the path.  So if two members begin a round at the same time, only one succeeds.
* ``ready`` is deleted only together with a check of that version, or with a member of its round.
"""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial

from zkwire import errors
from zkwire.operations.multi import Check, Create, Delete, Operation, SetData
from zkwire.operations.nodes import check_acl
from zkwire.recipes._node import Attempt, OwnedNode, encoded
from zkwire.recipes._recipe import Enterable, HasPath, LockInUseError, exclusive_call
from zkwire.recipes.runtime import CHANGED, runtime_of, unwrap_multi_error
from zkwire.session.waitable import Watch
from zkwire.wire.model import EventType
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import AsyncClientLike

    Step = Callable[[float | None], Coroutine[Any, Any, None]]


class AsyncBarrier(HasPath):
    """A barrier: while it is closed, all callers of ``wait`` wait.

        barrier = AsyncBarrier(client, "/maintenance")
        await barrier.close()       # from here on the others wait
        ...
        await barrier.open()

        await barrier.wait(60)      # the others: True when it is open

    It is closed while its node is there, even if the client that has closed it ends.  Any client
    may close or open it.  kazoo's Barrier and Curator's DistributedBarrier use the same node.

    Raises ValueError for a bad path.
    """

    def __init__(
        self, client: AsyncClientLike, path: str, *, acl: Sequence[ACL] | None = None
    ) -> None:
        self._runtime = runtime_of(client)
        self._path = check_below_root(path, "a barrier")
        self._acl = None if acl is None else check_acl(acl)

    async def close(self, timeout: float | None = None) -> None:
        """Close the barrier; nothing happens if it is closed.

        A lost connection is not an error: the request is repeated until a server has answered.  If
        the lost request was executed, and another client has opened the barrier since, the
        repetition closes it again.  OperationTimeoutError after ``timeout`` seconds (None: the
        ``operation_timeout``): call it again, or ``open``.
        """
        await self._runtime.ensure_path(self._path, self._acl, self._runtime.deadline(timeout))

    async def open(self, timeout: float | None = None) -> None:
        """Open the barrier for all that wait; nothing happens if it is open.

        Ends as :meth:`close` does; a repetition opens the barrier again if another client has
        closed it since.  NotEmptyError if the node has children: then it is no barrier.
        """
        await self._runtime.ensure_gone(self._runtime.deadline(timeout), self._path)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the barrier is open; True then, False if ``timeout`` seconds pass first.

        Without a limit it waits as long as it takes.  With 0 it looks once, and a server has the
        ``operation_timeout`` to answer, or two session timeouts if the client has none.  A lost
        connection is not an error, and no watch is left.
        """
        deadline = None if timeout is None else self._runtime.deadline(timeout)
        answer = self._runtime.in_time(None) if timeout == 0 else deadline
        path, operations = self._path, self._runtime.operations
        sync, read = operations.sync, operations.get_data
        while True:
            try:
                with closing(Watch()) as watch:
                    # sync: if another client has closed it before this call, this call sees that.
                    # get_data and not exists: it leaves no watch where there is no node.
                    await self._runtime.answers(
                        answer, lambda: (sync(path), read(path, watch=watch))
                    )
                    await self._runtime.event(watch, deadline)
            except errors.NoNodeError:
                return True
            except errors.OperationTimeoutError:
                return False


READY = "ready"
ANY = 1 << 63  # a round that is known to have begun, and no more: all that stand there are in it


class Snapshot:
    """The children of a double barrier, at one moment: ``round`` is 0 if none has begun."""

    def __init__(self, names: list[str], version: int, round: int) -> None:
        self.names: list[str] = sorted(name for name in names if name != READY)
        self.version = version
        self.round = round


class AsyncDoubleBarrier(HasPath, OwnedNode, Enterable):
    """One member of a group that begins a piece of work together and ends it together.

        async with AsyncDoubleBarrier(client, "/step-1", 16):
            await work()  # yours to write

    ``enter`` returns when ``count`` members are there at one moment, ``leave`` when all of them
    have left or died.  After an error in the body of the ``async with``, the member leaves without
    waiting for the others.  An object is one member: each task needs its own.  A member may enter
    again when it has left.

    ``text`` is written into the member's node.  Raises ValueError for a bad path or a count below
    1.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"a double barrier has at least one member, not {count!r}")
        super().__init__(client, path, acl=acl)
        self._count = count
        self._kept = self._path
        self._data = encoded(text)
        self._round = 0

    # --- what members read and write together -----------------------------------------------------

    async def _look(self, deadline: float | None, watch: Watch | None = None) -> Snapshot:
        """The children; ``watch`` tells when ``ready`` comes or goes.  NoNodeError without a path.

        The list is read first: a member of the round that it does not show is gone for good.
        """
        operations, path = self._runtime.operations, self._path

        def ask() -> tuple[Reply[Any], ...]:
            listing = operations.get_children_with_stat(path)
            return listing, operations.exists(f"{path}/{READY}", watch=watch)

        (names, stat), found = await self._runtime.answers(deadline, ask)
        return Snapshot(names, stat.version, 0 if found is None else found.czxid)

    async def _members(self, seen: Snapshot, round: int, deadline: float | None) -> list[str]:
        """The members of a round that are there, sorted.

        Every time anew: a name may be there again that an outsider has deleted.
        """
        exists, paths = self._runtime.operations.exists, [f"{self._path}/{n}" for n in seen.names]
        stats = await self._runtime.answers(deadline, lambda: [exists(path) for path in paths])
        there = zip(seen.names, stats, strict=True)
        return [name for name, stat in there if stat is not None and stat.czxid < round]

    async def _begin_round(self, seen: Snapshot, deadline: float | None) -> int:
        """Begin a round of all that were seen; its zxid, or 0: a look says why not."""
        checks = [Check(f"{self._path}/{name}") for name in seen.names]
        steps = [
            SetData(self._path, b"", seen.version),
            Create(f"{self._path}/{READY}", b"", self._acl),
        ]
        results = await self._unless_changed([*checks, *steps], deadline)
        return int(results[-2].mzxid) if results else 0

    async def _end_round(self, seen: Snapshot, own: str | None, deadline: float | None) -> bool:
        """Delete ``ready``, and with it the own node; False: a look says what has changed."""
        steps = [Check(self._path, seen.version), Delete(f"{self._path}/{READY}")]
        if own is not None:
            steps.insert(1, Delete(f"{self._path}/{own}"))
        return bool(await self._unless_changed(steps, deadline))

    async def _unless_changed(self, steps: list[Operation], deadline: float | None) -> list[Any]:
        """The results of a multi; none if it was refused for what has changed, or is in doubt."""
        try:
            multi = self._runtime.operations.multi(steps)
            return await unwrap_multi_error(self._runtime.until, multi, deadline)
        except (errors.ConnectionLossError, *CHANGED):
            return []

    # --- one member -------------------------------------------------------------------------------

    async def _stand(self, attempt: Attempt, deadline: float | None, watch: Watch) -> Snapshot:
        """What is there, the own node included."""
        runtime, operations, node = self._runtime, self._runtime.operations, attempt.node
        create = partial(operations.create, ephemeral=True)
        while True:
            try:
                if attempt.stat is None:
                    with suppress(errors.NodeExistsError):  # the reply was lost
                        await runtime.retry(deadline, create, node, self._data, self._acl)
                    attempt.stat = await runtime.retry(deadline, operations.exists, node)
                seen = await self._look(deadline, watch)
                if attempt.stat is not None and attempt.id in seen.names:
                    return seen
                attempt.stat = None  # an outsider has deleted it
            except errors.NoNodeError:
                await self._provide(self._path, deadline)
                attempt.stat = None

    async def _gone(self, name: str, deadline: float | None) -> None:
        """Wait until a member has gone, or something has happened to it."""
        with suppress(errors.NoNodeError), closing(Watch()) as watch:
            read, path = self._runtime.operations.get_data, f"{self._path}/{name}"
            await self._runtime.retry(deadline, read, path, watch=watch)
            await self._runtime.event(watch, deadline)

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(errors.NoNodeError):
            await operations.delete(attempt.node)
        names, stat = await operations.get_children_with_stat(self._path)
        if names == [READY]:
            ready = Delete(f"{self._path}/{READY}")
            await operations.multi([Check(self._path, stat.version), ready])

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter together with ``count`` members; False if there was no round within ``timeout``.

        Without a limit it waits as long as it takes.  A lost connection is not an error.  When this
        returns False, raises, is cancelled or interrupted, this object is no member, and its node
        is being deleted.  If a round began at this very moment, the others see a member that has
        left.

        RuntimeError if this object is inside, or in use by another thread or task.
        """
        if self._granted is not None:
            raise LockInUseError("this member is inside already; it leaves first")
        return await self._in_time(self._enter, timeout)

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all members of the round have left; False if they do not in time.

        This member has left in any case, even when this raises, is cancelled or interrupted: its
        node is deleted, at the latest with its session, and no other member waits for it.  A member
        that has died counts as a member that has left.  RuntimeError if this object is not inside.
        """
        if self._granted is None:
            raise RuntimeError("this member is not inside: enter first")
        all_left = await self._in_time(self._exit, timeout)
        self._set_inactive()
        return all_left

    if TYPE_CHECKING:

        async def __aenter__(self) -> Self: ...

    async def _enter_body(self) -> Self:
        await self.enter()
        return self

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        if kind is None:
            await self.leave()
        else:
            self._abandon()

    async def _in_time(self, step: Step, timeout: float | None) -> bool:
        deadline = None if timeout is None else self._runtime.deadline(timeout)

        async def attempt() -> bool:
            try:
                self._runtime.active_locks.add(self)
                await step(deadline)
                return True
            except errors.OperationTimeoutError:
                return False
            finally:
                self._clean_up_pending()

        return await exclusive_call(self, attempt)

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy:
            raise LockInUseError("another thread or task uses this very member")

    async def _enter(self, deadline: float | None) -> None:
        await self._runtime.connected(deadline)
        attempt = Attempt(self._runtime)
        self._pending_cleanup, self._round, begun = attempt, 0, False
        attempt.node, attempt.entered = f"{self._path}/{attempt.id}", True
        while not self._round:
            with closing(Watch()) as watch:
                seen = await self._stand(attempt, deadline, watch)
                if begun and not seen.round:
                    self._round = ANY  # kazoo's first member to leave deletes what says which
                elif await self._waits(attempt, seen, deadline, watch):
                    event = await self._runtime.event(watch, deadline)
                    begun = event.type is EventType.NODE_CREATED
        self._granted = attempt
        self._pending_cleanup = None

    async def _waits(
        self, attempt: Attempt, seen: Snapshot, deadline: float | None, watch: Watch
    ) -> bool:
        """Enter a round, or begin one, or return True: nothing is to be done before an event."""
        awaited: str | None = None  # whose end is an event, too
        if seen.round > attempt.stat.czxid:
            self._round = seen.round
        elif seen.round:
            before = await self._members(seen, seen.round, deadline)
            if before:
                awaited = f"{self._path}/{before[0]}"
            else:
                await self._end_round(seen, None, deadline)
        elif len(seen.names) < self._count:
            awaited = attempt.node  # or the others would never find enough members
        else:
            self._round = await self._begin_round(seen, deadline)
        if awaited is None:
            return False
        look = self._runtime.operations.exists
        return await self._runtime.retry(deadline, look, awaited, watch=watch) is not None

    async def _exit(self, deadline: float | None) -> None:
        attempt = self._pending_cleanup = self._granted
        assert attempt is not None
        self._granted = None
        with suppress(errors.NoNodeError):
            while True:
                seen = await self._look(deadline)
                own = attempt.id if attempt.id in seen.names else None
                members = await self._members(seen, self._round, deadline)
                others = [name for name in members if name != attempt.id]
                if not others and seen.round != self._round:
                    break  # the clean-up deletes the own node
                if not others:
                    if await self._end_round(seen, own, deadline):
                        break
                elif own is not None and own < others[0]:
                    await self._gone(others[-1], deadline)
                else:
                    if own is not None:
                        await self._runtime.ensure_gone(deadline, attempt.node)
                    await self._gone(others[0], deadline)
