"""A double barrier: so many members begin together, and end together.

To enter, a member creates its node and waits for a round that begins with it; the one that sees
enough of them there begins it.  To leave, a member deletes its node and waits until no member of
its round is left; only the lowest keeps its node until it is alone, so that its end wakes all
others, once.  What a round is: :mod:`zkwire.recipes.classic.rounds`.

A member that comes while a round is on waits for the next one.
"""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial

from zkwire.errors import NoNodeError, OperationTimeoutError
from zkwire.recipes.alone import alone
from zkwire.recipes.attempt import Attempt, LockInUseError
from zkwire.recipes.classic.member_node import MemberNode
from zkwire.recipes.classic.rounds import ANY, Seen
from zkwire.recipes.enterable import Enterable
from zkwire.recipes.runtime import deadline_of, persist, runtime_of
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, Self

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike

    Step = Callable[[float | None], Coroutine[Any, Any, None]]


class AsyncDoubleBarrier(MemberNode, Enterable):
    """One member of a group that begins a piece of work together and ends it together.

        async with AsyncDoubleBarrier(client, "/step-1", 16):
            await work()

    ``enter`` returns when ``count`` members are there at one moment, ``leave`` when all of them
    have left or died.  An error in the body of the ``async with`` leaves without a wait for the
    others.  An object is one member: each task has its own, and may enter again when it has left.

    ``text`` stands in the member's node.  Raises ValueError for a bad path or a count below 1.
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
        super().__init__(runtime_of(client), path, text, acl)
        self._count = count
        self._round = 0

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter together with ``count`` members; False if there was no round within ``timeout``.

        Without a limit it waits as long as it takes.  A lost connection is no error.  When this
        returns False, raises, is cancelled or interrupted, this is no member, and its node is being
        deleted.  A round that had begun at this very moment counts it as one that has left.

        RuntimeError if this object is inside, or in use by another thread or task.
        """
        if self._inside is not None:
            raise LockInUseError("this member is inside already; it leaves first")
        return await self._in_time(self._enter, timeout)

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all members of the round have; False if they have not in time.

        It has left in any case, also when this raises, is cancelled or interrupted: its node is
        deleted, at the latest with its session, and no other member waits for it.  A member that
        has died counts as one that has left.  RuntimeError if this object is not inside.
        """
        if self._inside is None:
            raise RuntimeError("this member is not inside: enter first")
        return await self._in_time(self._exit, timeout)

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
        deadline = deadline_of(self._runtime, timeout)
        try:
            return await alone(self, partial(self._take_or_clean_up, step, deadline))
        finally:
            self._disengage()

    async def _take_or_clean_up(self, step: Step, deadline: float | None) -> bool:
        try:
            self._runtime.engaged.add(self)
            await step(deadline)
            return True
        except OperationTimeoutError:
            return False
        finally:
            self._clean_up_pending()

    def _refuse_two(self) -> None:
        self._runtime.check()
        if self._busy:
            raise LockInUseError("another thread or task uses this very member")

    async def _enter(self, deadline: float | None) -> None:
        await self._runtime.connected(deadline)
        attempt = Attempt(self._runtime.session_id, self._runtime.unique())
        self._pending_cleanup, self._round, begun = attempt, 0, False
        attempt.node, attempt.entered = f"{self._path}/{attempt.id}", True
        while not self._round:
            with closing(Watch()) as watch:
                seen = await self._stand(attempt, deadline, watch)
                if begun and not seen.round:
                    self._round = ANY  # kazoo's first member to leave deletes what says which
                elif await self._waits(attempt, seen, deadline, watch):
                    begun = (await self._event(watch, deadline)).type is EventType.NODE_CREATED
        self._inside = attempt
        self._pending_cleanup = None

    async def _waits(
        self, attempt: Attempt, seen: Seen, deadline: float | None, watch: Watch
    ) -> bool:
        """Enter a round, or begin one, or return True: nothing is to be done before an event."""
        assert attempt.stat is not None
        if seen.round > attempt.stat.czxid:
            self._round = seen.round
        elif seen.round:
            before = await self._rounds.members(seen, seen.round, deadline)
            if before:
                path = f"{self._path}/{before[0]}"
                look = self._runtime.operations.exists
                return await persist(self._runtime, deadline, look, path, watch=watch) is not None
            await self._rounds.end(seen, None, deadline)
        elif len(seen.names) < self._count:
            return True
        else:
            self._round = await self._rounds.begin(seen, deadline)
        return False

    async def _exit(self, deadline: float | None) -> None:
        attempt = self._pending_cleanup = self._inside
        assert attempt is not None
        self._inside = None
        delete = self._runtime.operations.delete
        with suppress(NoNodeError):
            while True:
                seen = await self._rounds.look(deadline)
                own = attempt.id if attempt.id in seen.names else None
                members = await self._rounds.members(seen, self._round, deadline)
                others = [name for name in members if name != attempt.id]
                if not others and seen.round != self._round:
                    break  # the clean-up deletes the own node
                if not others:
                    if await self._rounds.end(seen, own, deadline):
                        break
                elif own is not None and own < others[0]:
                    await self._gone(others[-1], deadline)
                else:
                    if own is not None:
                        with suppress(NoNodeError):
                            await persist(self._runtime, deadline, delete, attempt.node or "")
                    await self._gone(others[0], deadline)
