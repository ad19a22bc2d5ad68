"""The data tree of a ZooKeeper server, as a pure model: no sockets, no clock, no sessions' timers.

It decides what each operation does to the nodes, which error refuses it, and which events it
causes, with the checks of the real server in the real order (``PrepRequestProcessor`` and
``DataTree`` of 3.8).  A refusal is the client's own error class for the code.  It must not know
connections, watches or frames: `state` sends the events.

Invariants: a refused operation has changed nothing.  All operations between two calls of
:meth:`DataTree.begin` belong to one transaction, carry its zxid and its time, and can be undone
together (:meth:`DataTree.roll_back`).

A path has a quota if there is a node ``/zookeeper/quota<path>/zookeeper_limits``.  The statistics
are the data of the node ``zookeeper_stats`` beside it (``StatsTrack``).  They change in the
transaction that changes the counted nodes, without an event, a version or a zxid of their own.  If
one quota is inside another, only the inner one counts.  Limits are not enforced: a real server
enforces them only with ``enforceQuota``.  A quota on the root would crash a real server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from zkwire import errors
from zkwire.jute.records import ACL, Stat
from zkwire.testing.server.credentials import Credentials
from zkwire.wire.model import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, EventType, Perms
from zkwire.wire.paths import CONFIG_NODE, LAST_SEQUENCE, check_path

_QUOTAS: Final = "/zookeeper/quota"
_LIMITS: Final = "/zookeeper_limits"
_STATISTICS: Final = "/zookeeper_stats"
_SEPARATOR: Final = re.compile("[,;]")
_NUMBER: Final = re.compile(r"[+-]?\d+")  # what Java's parseLong takes
_UNKNOWN: Final = -1


def _statistics_for(nodes: Mapping[str, Node], path: str) -> Node | None:
    """The node with the statistics that a change at ``path`` belongs to, if there is one."""
    while len(path) > 1:
        if f"{_QUOTAS}{path}{_LIMITS}" in nodes:
            return nodes.get(f"{_QUOTAS}{path}{_STATISTICS}")
        path = path.rpartition("/")[0]
    return None


def _statistics(nodes: Mapping[str, Node], path: str) -> bytes:
    """The number of nodes at and below ``path``, and of their bytes, as statistics."""
    below = "/" if path == "/" else path + "/"
    sizes = [
        len(node.data or b"")
        for name, node in nodes.items()
        if name == path or name.startswith(below)
    ]
    return f"count={len(sizes)},bytes={sum(sizes)}".encode()


def adjusted(data: bytes | None, count: int, size: int) -> bytes | None:
    """The statistics after a change; text that cannot be parsed stays as it is."""
    found = {"count": _UNKNOWN, "bytes": _UNKNOWN}
    try:
        for part in filter(None, _SEPARATOR.split((data or b"").decode())):
            name, _, number = part.partition("=")
            if not _NUMBER.fullmatch(number := number.rstrip("=")):
                return data
            found[name] = int(number)
    except ValueError:
        return data
    found["count"] += count
    found["bytes"] += size
    first = f"count={found.pop('count')},bytes={found.pop('bytes')}"
    limits = [f"{name}={found[name]}" for name in sorted(found)]
    return ";".join([first + "=" * bool(limits), *limits]).encode()


# Owners that are no session (EphemeralType.java); clients see 0 in their place (DataNode.copyStat).
CONTAINER = -(2**63)
_TTL_MARK = -(2**56)  # 0xFF in the highest byte, a reserved 0x0000, then 40 bits of milliseconds
LONGEST_TTL = 2**40 - 1

_SIGN, _WORD = 1 << 31, 1 << 32

Acls = tuple[ACL, ...]


class NewNode(NamedTuple):
    """The request of a create; ``owner`` is a session id, CONTAINER, a :func:`ttl_owner`, or 0."""

    path: str
    data: bytes | None
    acl: Acls | None
    owner: int = 0
    sequential: bool = False


def ttl_owner(milliseconds: int) -> int:
    """The owner that marks a node with this time to live."""
    return _TTL_MARK | milliseconds


def time_to_live(owner: int) -> int:
    """The time to live in an owner that :func:`ttl_owner` made; 0 for any other owner."""
    return owner - _TTL_MARK if _TTL_MARK < owner <= _TTL_MARK + LONGEST_TTL else 0


@dataclass(slots=True, eq=False)
class Node:
    """One node.  ``created`` counts the children ever created, which numbers sequential ones."""

    data: bytes | None
    acl: Acls
    owner: int
    czxid: int
    ctime: int
    mzxid: int = field(init=False)
    pzxid: int = field(init=False)
    mtime: int = field(init=False)
    version: int = 0
    aversion: int = 0
    created: int = 0
    # A dict and no set: with an order, a run can be repeated.
    names: dict[str, None] = field(default_factory=dict[str, None])

    def __post_init__(self) -> None:
        self.mzxid = self.pzxid = self.czxid
        self.mtime = self.ctime

    @property
    def children(self) -> Set[str]:
        """The names of the children."""
        return self.names.keys()

    @property
    def ephemeral_owner(self) -> int:
        """The session whose end deletes the node, or 0."""
        return 0 if self.owner == CONTAINER or time_to_live(self.owner) else self.owner

    def stat(self) -> Stat:
        """The stat that clients see (DataNode.copyStat).

        Its cversion is the sum of the creates and the deletes of children.  A create adds one to
        the counter; the deletes are the counter less the children that are there.
        """
        count = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            signed(2 * self.created - count),
            self.aversion,
            self.ephemeral_owner,
            len(self.data or b""),
            count,
            self.pzxid,
        )


values_of: Callable[[Node], tuple[Any, ...]] = attrgetter(*Node.__slots__)
"""The values of all attributes of a node."""


def signed(number: int) -> int:
    """``number`` as Java's int holds it."""
    return (number + _SIGN) % _WORD - _SIGN


# DataTree.isSpecialPath: nodes that exist from the start and stay.
_SPECIAL = ("/", "/zookeeper", _QUOTAS, CONFIG_NODE)


class Event(NamedTuple):
    """A change that watches may wait for; ``acl`` is the ACL of the node at ``path``."""

    type: EventType
    path: str
    acl: Acls


class DataTree:
    """All nodes, and the zxid and the time (milliseconds since 1970) of the last transaction.

    ``config``: whether there is ``/zookeeper/config``, which servers have since 3.5.
    """

    def __init__(self, *, config: bool = True) -> None:
        self.zxid: int = 0
        self.now: int = 0
        self.nodes: dict[str, Node] = {}
        self._of_session: dict[int, dict[str, None]] = {}
        self._reapable: dict[str, None] = {}  # containers and nodes with a time to live
        self._acls: dict[Acls, Acls] = {}  # each ACL once: most nodes share one
        self._undo: list[Callable[[], object]] = []
        self._special = _SPECIAL if config else _SPECIAL[:-1]
        for path in self._special:
            # The parents' counters leave these nodes out: a fresh root shows cversion -1.
            self.nodes[path] = Node(b"", OPEN_ACL_UNSAFE, 0, 0, 0)
            above, _, name = path.rpartition("/")
            if name:
                self.nodes[above or "/"].names[name] = None
        if config:  # DataTree.addConfigNode: every client may read it, none may write it
            node = self.nodes[CONFIG_NODE]
            node.acl, node.aversion = READ_ACL_UNSAFE, -1

    def begin(self, now: int) -> None:
        """Start a transaction: it takes the next zxid, even if it is refused."""
        self.zxid += 1
        self.now = now
        self._undo.clear()

    def roll_back(self) -> None:
        """Undo everything since :meth:`begin`; the zxid stays used."""
        while self._undo:
            self._undo.pop()()

    # --- reads ------------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """The node at ``path``; "" is the root, as on a real server."""
        try:
            return self.nodes[path or "/"]
        except KeyError:
            raise errors.NoNodeError from None

    def ephemerals(self, session_id: int) -> list[str]:
        """The paths of a session's ephemeral nodes."""
        return list(self._of_session.get(session_id, ()))

    def descendants(self, path: str) -> int:
        """How many nodes there are below ``path`` (DataTree.getAllChildrenNumber)."""
        if path == "/":
            return len(self.nodes) - 1
        return sum(1 for other in self.nodes if other.startswith(path + "/"))

    def reapable(self, now: int) -> list[str]:
        """The nodes that a server deletes by itself (ContainerManager.getCandidates).

        These are containers whose last child is gone, and nodes without children that were not
        written for longer than their time to live.
        """
        found: list[str] = []
        for path in self._reapable:
            node = self.nodes[path]
            if node.owner == CONTAINER:
                due = node.created > 0
            else:
                due = now - node.mtime > time_to_live(node.owner)
            if due and not node.children:
                found.append(path)
        return found

    # --- writes: each returns its result and the events it causes ---------------------------------

    def create(self, new: NewNode, caller: Credentials) -> tuple[str, Node, list[Event]]:
        """PrepRequestProcessor.pRequest2TxnCreate, then DataTree.createNode."""
        path = new.path
        above_path = _above(path)
        acl = caller.expand(new.acl)
        above = self.node(above_path)
        caller.require(above.acl, Perms.CREATE)
        if new.sequential:
            path += f"{above.created:010d}"
        _validate(path)
        if path in self.nodes:
            raise errors.NodeExistsError
        if above.ephemeral_owner:
            raise errors.NoChildrenForEphemeralsError
        node = Node(new.data, self._acls.setdefault(acl, acl), new.owner, self.zxid, self.now)
        self._keep(above)
        # The counter stops at the largest number, and from then on the parent keeps its pzxid:
        # DataTree.createNode sets both only if the new counter is greater.
        if above.created < LAST_SEQUENCE:
            above.created += 1
            above.pzxid = self.zxid
        self._put(path, node)
        self._undo.append(partial(self._take, path))
        return path, node, _events(EventType.NODE_CREATED, path, node, above)

    def delete(self, path: str, version: int, caller: Credentials) -> list[Event]:
        """Delete a node that has this version (-1: any) and no children."""
        above_path = _above(path)
        if path in self._special:
            raise errors.BadArgumentsError
        caller.require(self.node(above_path).acl, Perms.DELETE)
        node = self.node(path)
        _check_version(node.version, version)
        if node.children:
            raise errors.NotEmptyError
        return self.remove(path)

    def delete_container(self, path: str) -> list[Event]:
        """Delete a node without children that is not ephemeral; no permission is needed."""
        _above(path)
        if path in self._special:
            raise errors.BadArgumentsError
        node = self.node(path)
        if node.children:
            raise errors.NotEmptyError
        if node.ephemeral_owner:
            raise errors.BadVersionError
        return self.remove(path)

    def remove(self, path: str) -> list[Event]:
        """Delete a node without any check (DataTree.deleteNode)."""
        above = self.node(_above(path))
        self._keep(above)
        node = self._take(path)
        self._undo.append(partial(self._put, path, node))
        self._count(path, -1, -len(node.data or b""))
        above.pzxid = self.zxid
        return _events(EventType.NODE_DELETED, path, node, above)

    def set_data(
        self, path: str, data: bytes | None, version: int, caller: Credentials
    ) -> tuple[Node, list[Event]]:
        """Replace a node's data if it has this version (-1: any)."""
        node = self.check(path, version, caller, Perms.WRITE)
        self._keep(node)
        self._count(path, 0, len(data or b"") - len(node.data or b""))
        node.data, node.version = data, signed(node.version + 1)
        node.mzxid, node.mtime = self.zxid, self.now
        return node, [Event(EventType.NODE_DATA_CHANGED, path, node.acl)]

    def set_acl(self, path: str, acl: Acls | None, version: int, caller: Credentials) -> Node:
        """Replace a node's ACL if it has this ACL version (-1: any).  Never part of a multi."""
        _validate(path)
        expanded = caller.expand(acl)
        node = self.node(path)
        caller.require(node.acl, Perms.ADMIN)
        _check_version(node.aversion, version)
        node.acl = self._acls.setdefault(expanded, expanded)
        node.aversion = signed(node.aversion + 1)
        return node

    def check(self, path: str, version: int, caller: Credentials, perms: int = Perms.READ) -> Node:
        """The node, if it has this version (-1: any) and the caller has the permission."""
        _validate(path)
        node = self.node(path)
        caller.require(node.acl, perms)
        _check_version(node.version, version)
        return node

    def configure(self, data: bytes) -> list[Event]:
        """Replace the ensemble's configuration, whose node has no versions of its own."""
        node = self.nodes[CONFIG_NODE]
        node.data, node.version = data, -1
        node.mzxid, node.mtime = self.zxid, self.now
        return [Event(EventType.NODE_DATA_CHANGED, CONFIG_NODE, node.acl)]

    def end_session(self, session_id: int) -> Iterator[Event]:
        """Delete a session's ephemeral nodes."""
        for path in self.ephemerals(session_id):
            yield from self.remove(path)

    def count_new(self, path: str) -> None:
        """Add a node to the statistics of quotas, after the answer to its create was encoded."""
        node = self.nodes[path]
        size = len(node.data or b"")
        if path.startswith(_QUOTAS + "/") and path.endswith(_STATISTICS):
            counted = path[len(_QUOTAS) : -len(_STATISTICS)] or "/"
            node.data = _statistics(self.nodes, counted)
        self._count(path, 1, size)

    def _count(self, path: str, count: int, size: int) -> None:
        """Add these numbers of nodes and bytes to the statistics for a path."""
        if not self.nodes[_QUOTAS].names:
            return
        kept = _statistics_for(self.nodes, path)
        if kept is not None:
            self._keep(kept)
            kept.data = adjusted(kept.data, count, size)

    def _keep(self, node: Node) -> None:
        """Have a :meth:`roll_back` give the node the values that it has now."""
        self._undo.append(partial(_restore, node, values_of(node)))

    # --- the indexes ------------------------------------------------------------------------------

    def _put(self, path: str, node: Node) -> None:
        above, _, name = path.rpartition("/")
        self.nodes[above or "/"].names[name] = None
        self.nodes[path] = node
        if node.ephemeral_owner:
            self._of_session.setdefault(node.owner, {})[path] = None
        elif node.owner:
            self._reapable[path] = None

    def _take(self, path: str) -> Node:
        above, _, name = path.rpartition("/")
        del self.nodes[above or "/"].names[name]
        node = self.nodes.pop(path)
        self._reapable.pop(path, None)
        if node.ephemeral_owner:
            paths = self._of_session[node.owner]
            del paths[path]
            if not paths:
                del self._of_session[node.owner]
        return node


def _restore(node: Node, values: tuple[Any, ...]) -> None:
    for name, value in zip(Node.__slots__, values, strict=True):
        setattr(node, name, value)


def _events(kind: EventType, path: str, node: Node, above: Node) -> list[Event]:
    """The events of a node that comes or goes: its own, and its parent's."""
    changed = Event(EventType.NODE_CHILDREN_CHANGED, _above(path) or "/", above.acl)
    return [Event(kind, path, node.acl), changed]


def _above(path: str) -> str:
    """The parent's path as the server computes it: "" for children of the root."""
    slash = path.rfind("/")
    if slash < 0 or "\0" in path:
        raise errors.BadArgumentsError
    return path[:slash]


def _validate(path: str) -> None:
    try:
        check_path(path)
    except ValueError:
        raise errors.BadArgumentsError from None


def _check_version(actual: int, expected: int) -> None:
    if expected not in {-1, actual}:
        raise errors.BadVersionError
