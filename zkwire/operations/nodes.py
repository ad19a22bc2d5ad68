"""What one does with a node: create, delete, read, write, and its access list.

What holds for every operation stands in :mod:`zkwire.operations`.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.base import Requests
from zkwire.operations.checks import (
    CONTAINER,
    check_acl,
    check_create_mode,
    check_data,
    check_version,
)
from zkwire.wire import ops
from zkwire.wire.model import AclAndStat, ChildrenAndStat, DataAndStat, PathAndStat, Perms
from zkwire.wire.paths import strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from zkwire.operations.base import AnyWatch, Reply
    from zkwire.session.watch import Watch
    from zkwire.wire.ops import Op


class Nodes(Requests):
    """The operations on one node."""

    # --- changes ----------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[str]:
        """Create a node; returns its path.

        ``acl``: who may do what with it; None for the client's ``default_acl``.  ``ephemeral``: the
        server deletes it when the session ends.  ``sequential``: ten digits are put behind
        ``path``, which count up for this parent, to 2147483647 (a parent made anew starts again);
        use the path that is returned.  ``container``: the server deletes it some time after its
        last child has gone (since 3.5.1).  ``ttl``: the server deletes it when it has no children
        and its data has not been set for so many seconds, 0.001 to about 1.1e9 (since 3.5.3, and
        only if extended types are switched on there).

        Refused with: NodeExistsError; NoNodeError (the parent is missing);
        NoChildrenForEphemeralsError; NoAuthError; InvalidACLError; QuotaExceededError;
        UnimplementedError (containers and TTLs where the server does not have them).

        If the connection is lost (OutcomeUnknownError): the node may be there.  Not sequential:
        create it again; NodeExistsError then means that the first try, or somebody else, made it,
        and ``ephemeral_owner`` or a unique id in the data tells which.  Sequential: **do not
        repeat it blindly**, a second node would appear; put a unique id into the name, ``sync``,
        list the children and look for it.
        """
        mode = check_create_mode(ephemeral, sequential, container, ttl)
        op, fields = _creation(ops.CREATE, data, self._acl if acl is None else acl, mode)
        return self._call(op, path, fields, self._created, None, None, sequential)

    def create_with_stat(
        self,
        path: str,
        data: bytes = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[PathAndStat]:
        """Create a node as :meth:`create` does; returns its path and its stat (since 3.5)."""
        mode = check_create_mode(ephemeral, sequential, container, ttl)
        op, fields = _creation(ops.CREATE2, data, self._acl if acl is None else acl, mode)
        return self._call(op, path, fields, self._created_with_stat, None, None, sequential)

    def _created(self, record: tuple[str, ...]) -> str:
        return strip(self._chroot, record[0])

    def _created_with_stat(self, record: tuple[str, r.Stat]) -> PathAndStat:
        path, stat = record
        return _new(PathAndStat, (strip(self._chroot, path), stat))

    def delete(self, path: str, version: int = -1) -> Reply[None]:
        """Delete a node if it has this data ``version`` (-1: any).

        Refused with: NoNodeError; BadVersionError; NotEmptyError; NoAuthError.

        If the connection is lost (OutcomeUnknownError): delete again; NoNodeError then means done.
        Where others may create the same path anew, read it first and compare ``czxid``: the node
        there may be theirs.
        """
        if path == "/":
            raise ValueError("the root cannot be deleted")
        return self._call(ops.DELETE, path, (check_version(version),))

    def set_data(self, path: str, data: bytes, version: int = -1) -> Reply[r.Stat]:
        """Replace a node's data if it has this data ``version`` (-1: any); returns its new stat.

        Refused with: NoNodeError; BadVersionError; NoAuthError; QuotaExceededError.

        If the connection is lost (OutcomeUnknownError): with a version, repeat it; BadVersionError
        then means that the first try, or somebody else, got there first: read it and compare.
        Without one, repeat it only if overwriting what others wrote meanwhile is all right.
        """
        return self._call(ops.SET_DATA, path, (check_data(data), check_version(version)))

    def set_acl(self, path: str, acl: Sequence[r.ACL], version: int = -1) -> Reply[r.Stat]:
        """Replace a node's access list if it has this ``aversion`` (-1: any); returns its new stat.

        Refused with: NoNodeError; BadVersionError; NoAuthError; InvalidACLError (an unknown scheme,
        or ``auth`` on a connection that is not authenticated).

        If the connection is lost (OutcomeUnknownError): with a version, repeat it; BadVersionError
        then means that the first try, or somebody else, got there first: read it and compare.
        """
        return self._call(ops.SET_ACL, path, (check_acl(acl), check_version(version)))

    # --- reads ------------------------------------------------------------------------------------

    def exists(self, path: str, *, watch: AnyWatch | None = None) -> Reply[r.Stat | None]:
        """The stat of a node, or None if there is none.

        ``watch`` is set in both cases: it fires when the node is created, changed or deleted.

        Refused with: NoAuthError (from 3.7.3, 3.8.4, 3.9.2).  If the connection is lost: ask again;
        the watch of the lost call was not set.
        """
        return self._call(ops.EXISTS, path, (watch is not None,), None, watch)

    def get_data(self, path: str, *, watch: AnyWatch | None = None) -> Reply[DataAndStat]:
        """A node's data and stat.

        ``watch`` is set if the node exists: it fires when the node is changed or deleted.

        Refused with: NoNodeError; NoAuthError.  If the connection is lost: read again; the watch
        of the lost call was not set.
        """
        return self._call(ops.GET_DATA, path, (watch is not None,), _data, watch)

    def get_children(self, path: str, *, watch: AnyWatch | None = None) -> Reply[list[str]]:
        """The names of a node's children, in no particular order.

        ``watch`` is set if the node exists: it fires when a child is created or deleted, and when
        the node itself is deleted.

        Refused with: NoNodeError; NoAuthError.  If the connection is lost: read again; the watch
        of the lost call was not set.
        """
        return self._call(ops.GET_CHILDREN, path, (watch is not None,), _children, watch)

    def get_children_with_stat(
        self, path: str, *, watch: AnyWatch | None = None
    ) -> Reply[ChildrenAndStat]:
        """As :meth:`get_children`, with the stat of the node itself."""
        asks = (watch is not None,)
        return self._call(ops.GET_CHILDREN2, path, asks, _children_with_stat, watch)

    def get_acl(self, path: str) -> Reply[AclAndStat]:
        """A node's access list, and its stat.

        Passwords' hashes are in it only for those who may change it.  Refused with: NoNodeError;
        NoAuthError.  If the connection is lost: read again.
        """
        return self._call(ops.GET_ACL, path, (), _acl)

    def sync(self, path: str = "/") -> Reply[None]:
        """Let the connected server catch up: a read behind it shows all that was finished before.

        ZooKeeper's is no quorum operation: around a change of leader a read behind it may still be
        stale for a moment.  The guarantee is the connection's: after a loss, sync again before the
        read it is for.
        """
        return self._call(ops.SYNC, path, (), _nothing)

    def _stand_guard(self, path: str, czxid: int, watch: Watch) -> Reply[object]:
        """Fire ``watch`` when the node with this czxid is gone, from this call on and if it is.

        For a node without children, whose child watch fires at nothing but its end.  The watch is
        in the table before the answer; when the connection breaks in between, it is asked again.
        """
        return self._call(ops.GET_CHILDREN2, path, (True,), None, watch, czxid)


def _creation(
    op: Op, data: bytes, acl: Sequence[r.ACL], mode: tuple[int, int | None]
) -> tuple[Op, tuple[object, ...]]:
    """The operation that creates a node of this mode, and its fields behind the path."""
    flags, ttl = mode
    fields: tuple[object, ...] = check_data(data), check_acl(acl), flags
    if ttl is not None:
        return ops.CREATE_TTL, (*fields, ttl)
    return (ops.CREATE_CONTAINER if flags == CONTAINER else op), fields


# Records are read by position and results made without their `__new__`: that spares a lone get_data
# 3 µs of the 33 that the client adds to it.
_new: Any = tuple.__new__  # pyright: ignore


def _data(record: tuple[bytes | None, r.Stat]) -> DataAndStat:
    data, stat = record
    return _new(DataAndStat, (data or b"", stat))


def _acl(record: tuple[tuple[r.ACL, ...], r.Stat]) -> AclAndStat:
    acl, stat = record
    return AclAndStat([r.ACL(_named(entry.perms), entry.id) for entry in acl], stat)


def _named(perms: int) -> int:
    """Permissions with their names; what no server gives stays the number that it is."""
    return Perms(perms) if 0 <= perms <= Perms.ALL else perms


def _children(record: tuple[tuple[str, ...]]) -> list[str]:
    return list(record[0])


def _children_with_stat(record: tuple[tuple[str, ...], r.Stat]) -> ChildrenAndStat:
    children, stat = record
    return ChildrenAndStat(list(children), stat)


def _nothing(_: object) -> None:
    return None
