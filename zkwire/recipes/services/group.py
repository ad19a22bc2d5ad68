"""The members of a group: an ephemeral node for each below one path, named by it, with its data.

It decides when the list of members and the data of one are read.  How a member's node is kept is
:mod:`zkwire.recipes.services.persistent_node`'s matter.

    /path                      a container, made by the first member
    /path/<name>               a member: an ephemeral node; its content is the member's data

A made name ends in ``__party__``, by which kazoo's Party knows its members; Curator's GroupMember
takes every node below the path for one.

One watch stands on the children and on the data of each member.  What it tells of is read again,
and nothing else: a burst of changes costs one list, and each member's data is read once a version.
A member whose data may not be read is left out: one such node must not hide all others.

Invariants:

* A list is published when all that is known to be stale has been read.  So no list has an older
  state of a member than the list before it, and the last state is published.
* A request is answered by a list that was read behind it.
"""

from __future__ import annotations

from contextlib import closing, suppress

from zkwire.errors import BUSY, ConnectionLossError, NoAuthError, NoNodeError
from zkwire.recipes.services.member import Member
from zkwire.recipes.services.members import GroupOwner
from zkwire.recipes.services.service import sessions_of
from zkwire.recipes.trees import WINDOW
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations import Operations
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.recipes.services.members import ListRequest
    from zkwire.recipes.services.problem import OnProblem
    from zkwire.recipes.services.service import Background


class AsyncGroup(GroupOwner):
    """The members of a group, each with its data: to join them, and to know them.

        async with AsyncGroup(supervisor, "/services/web") as group:
            await group.join(b"10.0.0.5:8080")
            async for members in group.changes():
                balance(members)

    A member is an ephemeral node below ``path``, kept as an :class:`AsyncPersistentNode` is;
    kazoo's Party and Curator's GroupMember see the same members.  ``acl``: for the nodes of the
    members and for the missing ones above (None: the client's ``default_acl``).  ``on_problem`` and
    ``problem`` tell what is refused of the memberships too; see docs/supervisor.md#refusals.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        *,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        super().__init__(sessions_of(client), path, acl, on_problem)

    async def _serve(self, runtime: Background) -> None:
        self._names, self._known = None, {}
        self._hidden = set[str]()
        with closing(Watch()) as watch:
            while not self._leaving:
                try:
                    await self._read(runtime, watch)
                except (ConnectionLossError, *BUSY):
                    continue
                if self._names is not None:
                    await runtime.wait_for(watch, self._asked)
                    self._note(watch)
        self._end_well()

    async def _read(self, runtime: Background, watch: Watch) -> None:
        """Read what is stale, and publish it."""
        operations, requests, names = runtime.operations, tuple(self._requests), self._names
        if requests or names is None:
            names = self._names = await self._list(operations, watch)
            self._note(watch)  # data that has changed before the list is read for these requests
        if names is None:
            return
        stale = [name for name in names if name not in self._known]
        for start in range(0, len(stale), WINDOW):
            window = stale[start : start + WINDOW]
            replies = [operations.get_data(f"{self._path}/{n}", watch=watch) for n in window]
            for name, reply in zip(window, replies, strict=True):
                try:
                    data, stat = await reply
                except NoNodeError:  # gone meanwhile, which the watch on the list tells
                    continue
                except NoAuthError as error:
                    self._leave_out(runtime, name, error)
                    continue
                self._known[name] = Member(name, data, stat.ephemeral_owner, stat.czxid)
        self._publish(names, requests)

    def _leave_out(self, runtime: Background, name: str, error: NoAuthError) -> None:
        if name not in self._hidden:
            self._hidden.add(name)
            runtime.warn(f"a member is left out of its group: {error}")

    async def _list(self, operations: Operations, watch: Watch) -> list[str] | None:
        """The names of the members; None if they must be read again."""
        try:
            return await operations.get_children(self._path, watch=watch)
        except NoNodeError:
            there = await operations.exists(self._path, watch=watch)
            return [] if there is None else None

    def _note(self, watch: Watch) -> None:
        """Take the events: what they tell of is stale."""
        with suppress(RuntimeError):  # nothing is watched at this moment
            while (event := watch.take()) is not None:
                if event.type is not EventType.NODE_DATA_CHANGED:
                    self._names = None
                self._known.pop(event.path.rpartition("/")[2], None)

    def _publish(self, names: list[str], requests: tuple[ListRequest, ...]) -> None:
        known = [self._known[name] for name in names if name in self._known]
        members = tuple(sorted(known, key=lambda m: (m.fence, m.name)))
        if self._members != members:
            self._members = members
        del self._requests[: len(requests)]
        self._is_right()
        for request in requests:
            request.members = members
        self._changed()
