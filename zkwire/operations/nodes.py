"""The operations on one node: create, delete, read, write, and its access list.

Decides what each of them sends and returns.  It must not know how a request travels.  What holds
for every operation (order, end of the session, ...) is said in :mod:`zkwire.operations`.
"""

from __future__ import annotations

from zkwire.jute import records as r
from zkwire.operations.base import Requests
from zkwire.operations.checks import (
    CONTAINER,
    check_acl,
    check_create_mode,
    check_node_data,
    check_version,
)
from zkwire.wire import ops
from zkwire.wire.model import (
    AclAndStat,
    ChildrenAndStat,
    DataAndStat,
    NullAndStat,
    PathAndStat,
    Perms,
)
from zkwire.wire.paths import strip

TYPE_CHECKING = bool()
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
        data: bytes | None = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[str]:
        """Create a node; returns its path.

        ``data``: None writes null, which most programs cannot tell from b"" (see ``is_null`` of
        what :meth:`get_data` returns).  ``acl``: the access list, None for the client's
        ``default_acl``.  ``ephemeral``: the server deletes the node when the session ends.
        ``sequential``: the server appends ten digits to ``path``, which count up for this parent,
        to 2147483647 (a parent that is created again starts at 0); the path that is returned has
        them.  ``container``: the server deletes the node some time after its last child is deleted
        (since 3.5.1).  ``ttl``, in seconds from 0.001 to about 1.1e9: the server deletes the node
        when it has no children and its data has not been set for that long (since 3.5.3, if
        extended types are switched on there).

        Refused with: NodeExistsError; NoNodeError (the parent is missing);
        NoChildrenForEphemeralsError; NoAuthError; InvalidACLError; QuotaExceededError;
        UnimplementedError (containers and TTLs on servers without them).

        Lost connection (OutcomeUnknownError): the node may exist.  Without ``sequential``, create
        it again; NodeExistsError then means that the first attempt or another client created it,
        and ``ephemeral_owner`` or a unique id in the data tells which.  With ``sequential``, **do
        not repeat it blindly**, that could create a second node: put a unique id into the name,
        ``sync``, list the children and search for the id.

        Time limit or cancellation: once sent, the node is still created; proceed as after a lost
        connection.
        """
        mode = check_create_mode(ephemeral, sequential, container, ttl)
        op, fields = _creation(ops.CREATE, data, self._acl if acl is None else acl, mode)
        return self._call(op, path, fields, self._created, None, None, sequential)

    def create_with_stat(
        self,
        path: str,
        data: bytes | None = b"",
        acl: Sequence[r.ACL] | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
    ) -> Reply[PathAndStat]:
        """Create a node as :meth:`create` does; returns its path and its stat (since 3.5).

        Refusals, a lost connection and a time limit mean the same as there.
        """
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

        "/" is the node of the chroot; without a chroot it is a ValueError.

        Refused with: NoNodeError; BadVersionError; NotEmptyError; NoAuthError.

        Lost connection (OutcomeUnknownError): delete it again; NoNodeError then means that it is
        deleted.  If other clients may create the same path again, read it first and compare
        ``czxid``: the node there may be theirs.

        Time limit or cancellation: once sent, the node is still deleted.
        """
        if path == "/" and not self._chroot:
            raise ValueError("the root cannot be deleted")
        return self._call(ops.DELETE, path, (check_version(version),))

    def set_data(self, path: str, data: bytes | None, version: int = -1) -> Reply[r.Stat]:
        """Replace a node's data if it has this data ``version`` (-1: any); returns its new stat.

        ``data``: None writes null, as for :meth:`create`.

        Refused with: NoNodeError; BadVersionError; NoAuthError; QuotaExceededError.

        Lost connection (OutcomeUnknownError): with a version, repeat it; BadVersionError then means
        that the first attempt or another client has changed the node: read it and compare.  Without
        a version, a repetition overwrites what other clients have written meanwhile.

        Time limit or cancellation: once sent, the data is still replaced.
        """
        return self._call(ops.SET_DATA, path, (check_node_data(data), check_version(version)))

    def set_acl(self, path: str, acl: Sequence[r.ACL], version: int = -1) -> Reply[r.Stat]:
        """Replace a node's access list if it has this ``aversion`` (-1: any); returns its new stat.

        Refused with: NoNodeError; BadVersionError; NoAuthError; InvalidACLError (an unknown scheme,
        or ``auth`` on a connection that is not authenticated).

        Lost connection (OutcomeUnknownError): with a version, repeat it; BadVersionError then means
        that the first attempt or another client has changed the list: read it and compare.  Without
        a version, a repetition overwrites what other clients have set meanwhile.

        Time limit or cancellation: once sent, the list is still replaced.
        """
        return self._call(ops.SET_ACL, path, (check_acl(acl), check_version(version)))

    # --- reads ------------------------------------------------------------------------------------

    def exists(self, path: str, *, watch: AnyWatch | None = None) -> Reply[r.Stat | None]:
        """The stat of a node, or None if the node does not exist.

        ``watch`` is set in both cases; it fires once, when the node is created, changed or deleted.

        Refused with: NoAuthError (from 3.7.3, 3.8.4, 3.9.2).

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: once sent, it still sets the watch; close the watch to end it.
        """
        return self._call(ops.EXISTS, path, (watch is not None,), None, watch)

    def get_data(self, path: str, *, watch: AnyWatch | None = None) -> Reply[DataAndStat]:
        """A node's data, and its stat at the same moment.

        Null reads as b"", and ``is_null`` of the result is then True.

        ``watch`` is set if the node exists; it fires once, when the node is changed or deleted.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: once sent, it still sets the watch; close the watch to end it.
        """
        return self._call(ops.GET_DATA, path, (watch is not None,), _data, watch)

    def get_children(self, path: str, *, watch: AnyWatch | None = None) -> Reply[list[str]]:
        """The names of a node's children, in no particular order.

        ``watch`` is set if the node exists; it fires once, when a child is created or deleted, or
        when the node itself is deleted.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again; the lost request has not set the watch.

        Time limit or cancellation: once sent, it still sets the watch; close the watch to end it.
        """
        return self._call(ops.GET_CHILDREN, path, (watch is not None,), _children, watch)

    def get_children_with_stat(
        self, path: str, *, watch: AnyWatch | None = None
    ) -> Reply[ChildrenAndStat]:
        """The names of a node's children, and the node's own stat at the same moment.

        ``watch``, refusals, a lost connection and a time limit: as for :meth:`get_children`.
        """
        asks = (watch is not None,)
        return self._call(ops.GET_CHILDREN2, path, asks, _children_with_stat, watch)

    def get_acl(self, path: str) -> Reply[AclAndStat]:
        """A node's access list, and its stat.

        Hashes of passwords are in it only if the client may change the list.

        Refused with: NoNodeError; NoAuthError.

        Lost connection: call it again.  Time limit or cancellation: nothing is left.
        """
        return self._call(ops.GET_ACL, path, (), _acl)

    def sync(self, path: str = "/") -> Reply[None]:
        """Bring the connected server up to date: a later read shows every change finished before.

        ZooKeeper does not make it a quorum operation: around a change of leader a later read may
        still be stale for a moment.

        Refused with: no error of its own.

        Lost connection: its guarantee ends with the connection; call it again before the read that
        needs it.  Time limit or cancellation: nothing is left, and nothing is guaranteed.
        """
        return self._call(ops.SYNC, path, (), _nothing)

    def _watch_own_node(self, path: str, czxid: int, watch: Watch) -> Reply[object]:
        """Set an own-node watch: it fires when the node with this czxid is deleted, or already is.

        For a node without children, whose child watch fires only at its end.  The watch is in the
        table from this call on; after a lost connection the session repeats the request.
        """
        return self._call(ops.GET_CHILDREN2, path, (True,), None, watch, czxid)


def _creation(
    op: Op, data: bytes | None, acl: Sequence[r.ACL], mode: tuple[int, int | None]
) -> tuple[Op, tuple[object, ...]]:
    """The operation that creates a node of this mode, and its fields behind the path."""
    flags, ttl = mode
    fields: tuple[object, ...] = check_node_data(data), check_acl(acl), flags
    if ttl is not None:
        return ops.CREATE_TTL, (*fields, ttl)
    return (ops.CREATE_CONTAINER if flags == CONTAINER else op), fields


# Records are read by position and results made without their `__new__`: a lone get_data is 3 µs
# faster by that, of the 33 that the client adds to it.
_new: Any = tuple.__new__  # pyright: ignore


def _data(record: tuple[bytes | None, r.Stat]) -> DataAndStat:
    if record[0] is None:
        return _new(NullAndStat, (b"", record[1]))
    return _new(DataAndStat, record)


def _acl(record: tuple[tuple[r.ACL, ...], r.Stat]) -> AclAndStat:
    acl, stat = record
    return AclAndStat([r.ACL(_named(entry.perms), entry.id) for entry in acl], stat)


def _named(perms: int) -> int:
    """Permissions by name; a number that no server gives stays a number."""
    return Perms(perms) if 0 <= perms <= Perms.ALL else perms


def _children(record: tuple[tuple[str, ...]]) -> list[str]:
    return list(record[0])


def _children_with_stat(record: tuple[tuple[str, ...], r.Stat]) -> ChildrenAndStat:
    children, stat = record
    return ChildrenAndStat(list(children), stat)


def _nothing(_: object) -> None:
    return None
