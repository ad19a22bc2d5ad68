"""Nodes that are kept, and groups, for threads."""

from __future__ import annotations

from zkwire.blocking.run import blocking
from zkwire.blocking.watching import sessions_of
from zkwire.errors import OperationTimeoutError
from zkwire.recipes.node_owner import NodeOwner
from zkwire.recipes.node_view import NodeView
from zkwire.recipes.persistent_node import NodeKeeper
from zkwire.recipes.standing_node import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Self

    from zkwire.blocking.watching import ThreadNodeWatches
    from zkwire.jute.records import ACL


class PersistentNode(NodeView):
    """A node that is there for as long as this object wants it, whatever deletes it.

        with PersistentNode(client, "/services/db", b"10.0.0.5:5432") as node:
            serve()

    It is put back when an outsider has deleted it and, with a supervisor, in each new session;
    missing nodes above it are made, as nodes that the server removes when they are empty.  Nothing
    waits for that: ``wait_present`` does.  A foreign node in its place is never overwritten
    (``conflict``), and replaced when it is gone.  One that a process has left which has ended
    without closing its client is foreign, too, until that process's session times out.

    ``ephemeral=False``: a node that stays when the session ends, but not behind ``close``.
    ``acl``: for the node and the missing ones above (None: the client's ``default_acl``).
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
    ) -> None:
        self._algorithm = keeper(ephemeral)(sessions_of(client), path, data, acl)

    wait_present: Final = blocking(NodeOwner.wait_present)
    set_data: Final = blocking(NodeOwner.set_data)
    close: Final = blocking(NodeOwner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except OperationTimeoutError:
            if kind is None:
                raise
