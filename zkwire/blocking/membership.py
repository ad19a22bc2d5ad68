"""Nodes that are kept, and groups, for threads."""

from __future__ import annotations

from zkwire.blocking.faces import runs
from zkwire.blocking.following import check_callback
from zkwire.blocking.run import blocking, iterate, run
from zkwire.blocking.watching import sessions_of
from zkwire.errors import OperationTimeoutError
from zkwire.recipes.services.group import MemberGroup
from zkwire.recipes.services.members import GroupOwner
from zkwire.recipes.services.node_owner import NodeOwner, NodeView
from zkwire.recipes.services.persistent_node import NodeKeeper
from zkwire.recipes.services.standing_node import keeper
from zkwire.recipes.view import PathView, ServiceView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final, Self

    from zkwire.blocking.watching import ThreadNodeWatches
    from zkwire.jute.records import ACL
    from zkwire.recipes.services.member import Member
    from zkwire.recipes.services.problem import OnProblem


class Closing:
    """What is closed at the end of a ``with``."""

    _algorithm: Any  # an AwaitedService

    def close(self, timeout: float | None = 10.0) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except OperationTimeoutError:
            if kind is None:
                raise
        except BaseException:  # an interrupt: it ends in the background
            self._algorithm._leave()
            raise


class PersistentNode(NodeView, Closing):
    """A node that is there for as long as this object wants it, whatever deletes it.

        with PersistentNode(client, "/services/db", b"10.0.0.5:5432") as node:
            serve()

    It is put back when an outsider has deleted it and, with a supervisor, in each new session;
    missing nodes above it are made, as nodes that the server removes when they are empty.  Nothing
    waits for that: ``wait_present`` does.  A foreign node in its place is never overwritten
    (``conflict``), and replaced when it is gone.  One that a process has left which has ended
    without closing its client is foreign, too, until that process's session times out.  Data that
    an outsider writes into it stay until ``set_data``, or until it is put back.

    ``ephemeral=False``: a node that stays when the session ends, but not behind ``close``.
    ``acl``: for the node and the missing ones above (None: the client's ``default_acl``).
    ``on_problem``, ``problem``: a refusal does not end it; see docs/supervisor.md#refusals.
    """

    _algorithm: NodeKeeper

    def __init__(
        self,
        client: ThreadNodeWatches,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = True,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        check_callback(on_problem)
        self._algorithm = keeper(ephemeral)(sessions_of(client), path, data, acl, on_problem)

    wait_present: Final = blocking(NodeOwner.wait_present)
    set_data: Final = blocking(NodeOwner.set_data)

    @runs(NodeOwner.close)
    def close(self) -> None: ...


class Group(PathView, ServiceView, Closing):
    """The members of a group, each with its data: to join them, and to know them.

        with Group(supervisor, "/services/web") as group:
            group.join(b"10.0.0.5:8080")
            for members in group.changes():
                balance(members)

    A member is an ephemeral node below ``path``, kept as a :class:`PersistentNode` is; kazoo's
    Party and Curator's GroupMember see the same members.  ``acl``: for the nodes of the members and
    for the missing ones above (None: the client's ``default_acl``).  ``on_problem`` and
    ``problem`` tell what is refused of the memberships too; see docs/supervisor.md#refusals.
    """

    _algorithm: MemberGroup

    def __init__(
        self,
        client: ThreadNodeWatches,
        path: str,
        *,
        acl: Sequence[ACL] | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        check_callback(on_problem)
        self._algorithm = MemberGroup(sessions_of(client), path, acl, on_problem)

    def join(
        self, data: bytes = b"", name: str | None = None, timeout: float | None = None
    ) -> PersistentNode:
        membership = PersistentNode.__new__(PersistentNode)
        membership._algorithm = run(self._algorithm.join(data, name, timeout))
        return membership

    leave: Final = blocking(GroupOwner.leave)
    members: Final = blocking(GroupOwner.members)
    wait_for: Final = blocking(GroupOwner.wait_for)

    def changes(self) -> Iterator[list[Member]]:
        return iterate(self._algorithm.changes())

    @runs(GroupOwner.close)
    def close(self) -> None: ...

    join.__doc__ = GroupOwner.join.__doc__
    changes.__doc__ = GroupOwner.changes.__doc__
