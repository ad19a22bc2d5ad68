"""A server of the ensemble that lags: it has not applied the latest writes.

It answers reads from an older tree, and sends events later.  A request that needs the latest tree
(a write, a sync) makes it catch up first, and so does a persistent watch, which would need an event
for each write that is still to be applied.  A client never sees a tree older than one that it has
seen: a server with such a tree refuses the client.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from zkwire.jute.records import SetWatches
from zkwire.testing.server.node import Node
from zkwire.testing.server.reads import READS
from zkwire.testing.server.watchers import Mode
from zkwire.wire.model import EventType
from zkwire.wire.ops import NOTIFICATION_XID, SET_WATCHES

if TYPE_CHECKING:
    from zkwire.testing.server.connection import Connection
    from zkwire.testing.server.state import ServerState
    from zkwire.testing.server.tree import DataTree

_OF_CHILDREN: Final = frozenset({EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED})
_OF_DATA: Final = frozenset(
    {EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED}
)
_EVENT: Final = struct.Struct(">iii")  # after a reply's header: type, state, length of the path
_EVENT_AT: Final = 20
_NOTIFICATION: Final = struct.pack(">i", NOTIFICATION_XID)
_values = attrgetter(*Node.__slots__)


def event_in(frame: bytes) -> tuple[EventType, str] | None:
    """The watch event in a server's frame; None if the frame is something else."""
    if frame[4:8] != _NOTIFICATION:
        return None
    kind, _, length = _EVENT.unpack_from(frame, _EVENT_AT)
    at = _EVENT_AT + _EVENT.size
    return EventType(kind), frame[at : at + length].decode("utf-8", "replace")


def _copied(tree: DataTree, before: DataTree | None = None) -> DataTree:
    """A copy for reads only; it shares the nodes that have not changed since ``before``."""
    old = copy(tree)
    known = {} if before is None else before.nodes
    old.nodes = {path: _same(node, known.get(path)) for path, node in tree.nodes.items()}
    old._of_session = {owner: dict(paths) for owner, paths in tree._of_session.items()}
    return old


def _same(node: Node, known: Node | None) -> Node:
    if known is not None and _values(known) == _values(node):
        return known
    same = copy(node)
    same.names = None if node.names is None else dict(node.names)
    return same


def tree_fingerprint(tree: DataTree) -> int:
    """A number that is equal for trees that give equal answers, apart from the times of nodes.

    The order of the nodes counts: some answers depend on which node is the first.
    """
    nodes = [
        (path, n.owner, n.czxid, n.mzxid, n.pzxid, n.version, n.created, n.data, n.acl, n.aversion)
        for path, n in tree.nodes.items()
    ]
    owned = [(owner, *paths) for owner, paths in tree._of_session.items()]
    return hash((tree.zxid, *nodes, *sorted(owned)))


class TreeHistory:
    """The tree as it was before each write, if it is ``wanted``: copies take time."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._trees: list[DataTree] = []
        self._prints: list[int] = []  # of the first trees, as far as they were asked for

    def remember(self, tree: DataTree) -> None:
        """Copy the tree before a step that may write to it."""
        last = self._trees[-1] if self._trees else None
        if self._wanted and (last is None or last.zxid < tree.zxid):
            self._trees.append(_copied(tree, last))

    def forget(self) -> None:
        """Drop all copies: no more servers will lag, and those that do have their own tree."""
        self._wanted = False
        self._trees.clear()
        self._prints.clear()

    def oldest(self, zxid: int, tree: DataTree) -> DataTree:
        """The oldest tree with all writes up to ``zxid``."""
        return next((old for old in self._trees if old.zxid >= zxid), None) or _copied(tree)

    @contextmanager
    def as_seen_by(self, state: ServerState, stale: StaleServer | None) -> Generator[None]:
        """A context in which the server's state has the tree of this stale server, if it is one."""
        if stale is None:
            yield
            return
        now, state.tree = state.tree, stale.tree
        try:
            yield
        finally:
            state.tree = now

    def fingerprint(self, zxid: int) -> list[int]:
        """The fingerprints of the trees that a client that has seen ``zxid`` may still see."""
        self._prints += map(tree_fingerprint, self._trees[len(self._prints) :])
        return [
            found
            for tree, found in zip(self._trees, self._prints, strict=True)
            if tree.zxid >= zxid
        ]


class StaleServer:
    """The server of one connection that lags: its tree, and the events that it holds back."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree
        self.held: list[bytes] = []
        self._events: set[tuple[EventType, str]] = set()

    def fingerprint(self) -> tuple[object, ...]:
        """A value that is equal for stale servers that behave equally from now on."""
        return (tree_fingerprint(self.tree), *self.held, "|", *sorted(self._events))

    def hold_back(self, frames: list[bytes]) -> list[bytes]:
        """Keep the events back, and return the other frames."""
        passed: list[bytes] = []
        for frame in frames:
            event = event_in(frame)
            if event is None:
                passed.append(frame)
            else:
                self.held.append(frame)
                self._events.add(event)
        return passed

    def catch_up(self, state: ServerState, connection: Connection) -> None:
        """Send the events for watches that were set in the old tree and that later writes fire.

        A one-shot watch that was set again while its event was held back is used up by that event.
        Persistent watches have had all their events, and stay.
        """
        tables = (state.watchers._data, state.watchers._child)
        kept = [
            (table, path, table.modes(path, connection))
            for table in tables
            for path in table.paths.get(connection, ())
        ]
        data, child = (
            sorted(
                path
                for its, path, modes in kept
                if its is table and modes & Mode.ONE_SHOT and not self._told(path, kinds)
            )
            for table, kinds in zip(tables, (_OF_DATA, _OF_CHILDREN), strict=True)
        )
        watches = SetWatches(
            self.tree.zxid,
            tuple(path for path in data if path in self.tree.nodes),
            tuple(path for path in data if path not in self.tree.nodes),
            tuple(child),
        )
        state.watchers.forget(connection)
        READS[SET_WATCHES.opcode](state, connection, watches.encode())
        for table, path, modes in kept:
            if staying := modes & ~Mode.ONE_SHOT:
                table.add(path, connection, staying)

    def _told(self, path: str, kinds: frozenset[EventType]) -> bool:
        return any((kind, path) in self._events for kind in kinds)
