"""The members of a group: each has an ephemeral node below one path, with its name and its data.

It decides when the list of members and the data of each are read.  How a member's node is kept is
:mod:`zkwire.recipes.persistent_node`'s matter.

    /path                      a container, made by the first member
    /path/<name>               a member: an ephemeral node; its content is the member's data

A made name ends in ``__party__``, by which kazoo's Party knows its members; Curator's GroupMember
takes every node below the path for one.

One watch stands on the children and on the data of each member.  Only what it tells of is read
again: a burst of changes costs one list, and each version of a member's data is read once at most.
A member whose data may not be read is left out: one such node must not hide all others.

Invariants:

* A list is published when all that is known to be stale has been read.  So no list has an older
  state of a member than the list before it, and the last state is published.
* A request is answered by a list that was read after it.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire import errors
from zkwire.jute.record import Record
from zkwire.operations.nodes import check_acl, check_text
from zkwire.recipes import _service
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.persistent_node import AsyncPersistentNode
from zkwire.recipes.runtime import REPEATABLE, WINDOW
from zkwire.session.waitable import Watch, check_timeout
from zkwire.wire.model import EventType
from zkwire.wire.paths import check_below_root, check_characters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes._service import Background, OnProblem
    from zkwire.recipes.runtime import AsyncClientLike


PARTY = "__party__"
"""What kazoo's Party knows the names of its members by."""


class Member(Record):
    """A member of a group: its name and data, its session, and the fence of its membership.

    The fence is the czxid of its node: a later membership has a higher fence, even under the same
    name.  ``session_id`` is 0 for a node of no session.
    """

    name: str
    data: bytes
    session_id: int
    fence: int


def check_name(what: str, name: str) -> str:
    """``name`` if it can be that of a node."""
    if not check_text(what, name) or "/" in name:
        raise ValueError(f"{what} must not {'contain a slash' if name else 'be empty'}: {name!r}")
    if name in {".", ".."}:
        raise ValueError(f"{what} must not be '.' or '..': {name!r}")
    check_characters(what, name)
    return str.__str__(name)  # a member of an enumeration is formatted as its name


class AsyncGroup(HasPath, _service.ObservableService):
    """The members of a group, each with its data: to join them, and to know them.

        async with AsyncGroup(supervisor, "/services/web") as group:
            await group.join(b"10.0.0.5:8080")
            async for members in group.changes():
                balance(members)  # yours to write

    A member is an ephemeral node below ``path``, kept as an :class:`AsyncPersistentNode` is;
    kazoo's Party and Curator's GroupMember see the same members.  ``acl``: for the nodes of the
    members and for the missing ones above (None: the client's ``default_acl``).  ``on_problem`` and
    ``problem`` tell what is refused of the memberships too; see docs/supervisor.md#refusals.
    """

    _called = "Group"

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        *,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(_service.sessions_of(client), on_problem)
        self._path = check_below_root(path, "a group")
        self._acl = None if acl is None else check_acl(acl)
        self._joined: list[AsyncPersistentNode] = []
        # By id; each gets the list that answers it.
        self._requests: dict[int, list[tuple[Member, ...]]] = {}
        self._members: tuple[Member, ...] | None = None  # the newest list
        self._names: list[str] | None = None  # of the members; None: stale
        self._known: dict[str, Member] = {}  # those whose newest state is known
        self._asked = _service.Condition(lambda: bool(self._requests))

    @property
    def problem(self) -> Exception | None:
        problems = [super().problem, *(keeper._problem for keeper in self._joined)]
        return next((problem for problem in problems if problem is not None), None)

    async def join(
        self, data: bytes = b"", name: str | None = None, timeout: float | None = None
    ) -> AsyncPersistentNode:
        """Be a member from now on, in each session; returns the membership, a PersistentNode.

        It waits for the node to be there, at most ``timeout`` seconds, and returns the membership
        in either case (``present`` tells).  ``name``: None makes one; while a foreign node has the
        name, the membership waits for it (``conflict``).  ``close`` of the membership, or
        :meth:`leave`, ends it.

        ValueError for a name that is empty or has a ``/``.  NodeExistsError if this client has a
        member of that name already.  Raises the error that has ended the client or the supervisor,
        or with which a server refuses the node; there is no membership then, and nothing of it
        stays.  A later refusal does not end a membership: its ``problem`` and the group's report
        it.
        """
        self._check()
        if name is None:
            name = f"{self._sessions._recipe_runtime.unique()}{PARTY}"
        keeper = AsyncPersistentNode(
            self._sessions,
            f"{self._path}/{check_name('the name of a member', name)}",
            data,
            acl=self._acl,
            on_problem=self._part_problem,
        )
        try:
            self._joined = [other for other in self._joined if not other._over] + [keeper]
            await keeper.wait_present(timeout)
        except errors.ServerError:
            with suppress(errors.ZooKeeperError):
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
        """The members as the server has them, at this call or later; the oldest member first.

        Only what has changed since the last call is read again: from this call until :meth:`close`
        the group is watched.  A lost connection is not an error.  OperationTimeoutError after
        ``timeout`` seconds.  Raises what has ended the client, or the supervisor; NoAuthError if
        the group may not be read, and a later call may succeed.  A member that may not be read is
        left out, with a warning in the log.
        """
        answer: list[tuple[Member, ...]] = []
        self._requests[id(answer)] = answer
        try:
            self._begin()
            self._asked.notify()
            if not await self._until(lambda: bool(answer), timeout):
                message = "the members were not read in time"
                raise errors.OperationTimeoutError(message, op="members", path=self._path)
            return list(answer[0])
        finally:
            self._requests.pop(id(answer), None)  # or an outage would collect them

    def changes(self) -> AsyncGenerator[list[Member], None]:
        """The list of members as it is now, and then each newer list, forever.

        A slow reader gets the newest list when it asks, and not the lists before it.  A change of a
        member's data counts as a change.  It ends after :meth:`close`; errors as of
        :meth:`members`.
        """
        seen: tuple[Member, ...] | None = None

        def is_newer() -> bool:
            return self._members is not None and self._members != seen

        async def newer() -> list[Member]:
            nonlocal seen
            self._begin()
            await self._until(is_newer, None)
            seen = self._members
            return list(seen or ())

        return _service.until_closed(newer, lambda: self._closed)

    async def wait_for(self, count: int, timeout: float | None = None) -> bool:
        """Wait until there are ``count`` members, or more; False after ``timeout`` seconds."""
        self._begin()
        return await self._until(lambda: len(self._members or ()) >= count, timeout)

    async def close(self, timeout: float | None = 10.0) -> None:
        """:meth:`leave`, and watch no longer.  Idempotent."""
        limit = check_timeout("timeout", timeout)
        self._leave()
        await self.leave(limit)

    def _leave(self) -> None:
        for keeper in self._joined:
            keeper._leave()
        self._end_well()

    async def _serve(self, runtime: Background) -> None:
        self._names, self._known = None, {}
        with closing(Watch()) as watch:
            while True:
                try:
                    await self._read(runtime, watch)
                except REPEATABLE:
                    continue
                if self._names is not None:
                    await self._idle(runtime, watch, self._asked)
                    self._note(watch)

    async def _read(self, runtime: Background, watch: Watch) -> None:
        """Read what is stale, and publish it."""
        operations, names = runtime.operations, self._names
        requests = tuple(self._requests.values())
        if requests or names is None:
            names = self._names = await self._list(operations, watch)
            self._note(watch)  # data that has changed before the list is read for these requests
        if names is None:
            return
        stale = [name for name in names if name not in self._known]
        refusal, self._begun_try, self._again_at = None, self._asked_try, None
        for start in range(0, len(stale), WINDOW):
            window = stale[start : start + WINDOW]
            replies = [operations.get_data(f"{self._path}/{n}", watch=watch) for n in window]
            for name, reply in zip(window, replies, strict=True):
                try:
                    data, stat = await reply
                except errors.NoNodeError:  # gone meanwhile, which the watch on the list tells
                    continue
                except errors.NoAuthError as error:
                    refusal = error
                    continue
                self._known[name] = Member(name, data, stat.ephemeral_owner, stat.czxid)
        self._is_right_but(refusal, runtime)
        self._publish(names, requests)

    async def _list(self, operations: Operations, watch: Watch) -> list[str] | None:
        """The names of the members; None if they must be read again."""
        try:
            return await operations.get_children(self._path, watch=watch)
        except errors.NoNodeError:
            there = await operations.exists(self._path, watch=watch)
            return [] if there is None else None

    def _note(self, watch: Watch) -> None:
        """Take the events: what they tell of is stale."""
        with suppress(RuntimeError):  # nothing is watched at this moment
            while (event := watch.take()) is not None:
                if event.type is not EventType.NODE_DATA_CHANGED:
                    self._names = None
                self._known.pop(event.path.rpartition("/")[2], None)

    def _publish(self, names: list[str], requests: tuple[list[tuple[Member, ...]], ...]) -> None:
        known = [self._known[name] for name in names if name in self._known]
        members = tuple(sorted(known, key=lambda m: (m.fence, m.name)))
        self._members = members
        for answer in requests:
            self._requests.pop(id(answer), None)
            answer.append(members)
        self._changed()
