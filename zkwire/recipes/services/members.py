"""The members of a group, as a program sees them: joining, leaving, waiting for the newest list.

How the list is read is :mod:`zkwire.recipes.services.group`'s matter.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import OperationTimeoutError, ServerError, ZooKeeperError
from zkwire.operations.checks import check_acl
from zkwire.recipes.services.awaited import AwaitedService
from zkwire.recipes.services.member import UnnamedKeeper, check_name
from zkwire.recipes.services.persistent_node import AsyncPersistentNode
from zkwire.recipes.services.service import SESSION_OVER, Condition, until_closed
from zkwire.recipes.view import PathView, ServiceView
from zkwire.session.waitable import check_timeout
from zkwire.wire.paths import check_below_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.services.member import Member
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Sessions


class ListRequest:
    """A call that waits for a list, and the answer."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: tuple[Member, ...] | None = None


class GroupOwner(PathView, ServiceView, AwaitedService):
    """What callers do; the session's side is a subclass's.  It is served when it is first read."""

    _called = "Group"

    def __init__(
        self,
        sessions: Sessions,
        path: str,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(sessions, on_problem)
        self._path = check_below_root(path, "a group")
        self._acl = None if acl is None else check_acl(acl)
        self._joined: list[AsyncPersistentNode] = []
        self._requests: list[ListRequest] = []
        self._members: tuple[Member, ...] | None = None  # the newest list
        self._names: list[str] | None = None  # of the members; None: stale
        self._known: dict[str, Member] = {}  # those whose newest state is known
        self._asked = Condition(lambda: self._leaving or bool(self._requests))
        self._started = False

    @property
    def _shown_problem(self) -> Exception | None:
        problems = [self._problem, *(keeper._problem for keeper in self._joined)]
        return next((problem for problem in problems if problem is not None), None)

    def _start(self) -> None:
        self._check()
        if not self._started:
            self._begin()
            self._started = True  # last: it may be refused here and now alone

    async def join(
        self, data: bytes = b"", name: str | None = None, timeout: float | None = None
    ) -> AsyncPersistentNode:
        """Be a member from now on, in each session; returns the membership, a PersistentNode.

        It waits for the node to be there, at most ``timeout`` seconds, and returns the membership
        in either case (``present``).  ``name``: without one it is made; a name that a foreign node
        has is waited for (``conflict``).  ``close`` of the membership, or :meth:`leave`, ends it.

        ValueError for a name that is empty or has a ``/``.  NodeExistsError if this client has a
        member of that name already.  Raises what has ended the client, or the supervisor, and what
        a server refuses the node with; then it is no membership, and nothing of it stays.  What is
        refused later does not end a membership: its ``problem`` says so, and the group's.
        """
        self._check()
        if name is None:
            kind: type[AsyncPersistentNode] = UnnamedKeeper
            path = self._path
        else:
            kind, path = (
                AsyncPersistentNode,
                f"{self._path}/{check_name('the name of a member', name)}",
            )
        keeper = kind(self._sessions, path, data, acl=self._acl, on_problem=self._part_problem)
        try:
            self._joined = [other for other in self._joined if not other._over] + [keeper]
            await keeper.wait_present(timeout)
        except ServerError:
            with suppress(ZooKeeperError):
                await keeper.close()  # at once: a repetition must not meet it
            raise
        except BaseException:
            keeper._leave()  # in the background, for nothing else knows of it
            raise
        return keeper

    async def leave(self, timeout: float | None = 10.0) -> None:
        """End all memberships that this object has joined; like ``PersistentNode.close``."""
        limit = check_timeout("timeout", timeout)
        for keeper in self._joined:
            keeper._leave()
        for keeper in self._joined:
            await keeper.close(limit)

    async def members(self, timeout: float | None = None) -> list[Member]:
        """The members as the server has them, at this call or later, the longest-standing first.

        Only what has changed since the last call is read again: from this call until :meth:`close`
        the group is watched.  A lost connection is no error.  OperationTimeoutError after
        ``timeout`` seconds; raises what has ended the client, or the supervisor; NoAuthError if the
        group may not be read; a later call may succeed.  A member that may not is left out, with a
        warning in the log.
        """
        request = ListRequest()
        self._requests.append(request)
        self._start()
        self._asked.notify()
        if not await self._until(lambda: request.members is not None, timeout):
            message = "the members were not read in time"
            raise OperationTimeoutError(message, op="members", path=self._path)
        return list(request.members or ())

    def changes(self) -> AsyncGenerator[list[Member], None]:
        """The list of members, for ever: as it is now, then whenever it is another.

        A reader that is slow gets the newest list when it asks for it, not those between.  A change
        of a member's data is a change.  It ends behind :meth:`close`; errors as of :meth:`members`.
        """
        seen: tuple[Member, ...] | None = None

        def is_newer() -> bool:
            return self._members is not None and self._members != seen

        async def newer() -> list[Member]:
            nonlocal seen
            self._start()
            await self._until(is_newer, None)
            seen = self._members
            return list(seen or ())

        return until_closed(newer, lambda: self._closed)

    async def wait_for(self, count: int, timeout: float | None = None) -> bool:
        """Wait until there are ``count`` members, or more; False after ``timeout`` seconds."""
        self._start()
        return await self._until(lambda: len(self._members or ()) >= count, timeout)

    async def close(self, timeout: float | None = 10.0) -> None:
        """:meth:`leave`, and watch no longer.  Idempotent."""
        limit = check_timeout("timeout", timeout)
        self._leave()
        await self.leave(limit)
        with suppress(*SESSION_OVER):
            await self._left(self._path, limit)

    def _leave(self) -> None:
        for keeper in self._joined:
            keeper._leave()
        self._leaving = True
        if self._started:
            self._asked.notify()
        else:
            self._end_well()
