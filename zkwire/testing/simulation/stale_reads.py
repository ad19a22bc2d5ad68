"""A server of the ensemble that has not applied yet what the others have.

It answers reads from an older tree, and tells events later.  What it cannot answer without being
up to date (a write, a sync) makes it so, and so does a watch that stays, which would have to be
told of each change that is still to come there.  A client never sees a state older than what it has
seen before: a server that is behind that does not take it.
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
_EVENT: Final = struct.Struct(">iii")  # behind a reply's header: type, state, length of the path
_EVENT_AT: Final = 20
_NOTIFICATION: Final = struct.pack(">i", NOTIFICATION_XID)
_values = attrgetter(*Node.__slots__)


def event_in(frame: bytes) -> tuple[EventType, str] | None:
    """The watch event that a server's frame is, if it is one."""
    if frame[4:8] != _NOTIFICATION:
        return None
    kind, _, length = _EVENT.unpack_from(frame, _EVENT_AT)
    at = _EVENT_AT + _EVENT.size
    return EventType(kind), frame[at : at + length].decode("utf-8", "replace")


def _copied(tree: DataTree, before: DataTree | None = None) -> DataTree:
    """A tree for reads only; it shares with the one ``before`` what has not changed since."""
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
    """Equal for trees that give equal answers, but for the times of their nodes.

    In the order in which they were made: there are questions that the first one answers.
    """
    nodes = [
        (path, n.owner, n.czxid, n.mzxid, n.pzxid, n.version, n.created, n.data, n.acl, n.aversion)
        for path, n in tree.nodes.items()
    ]
    owned = [(owner, *paths) for owner, paths in tree._of_session.items()]
    return hash((tree.zxid, *nodes, *sorted(owned)))


class TreeHistory:
    """The tree as it was before each write, if it is ``wanted``: it costs time."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._trees: list[DataTree] = []
        self._prints: list[int] = []  # of the first ones of them; nobody else needs any

    def remember(self, tree: DataTree) -> None:
        """It may be about to be written to."""
        last = self._trees[-1] if self._trees else None
        if self._wanted and (last is None or last.zxid < tree.zxid):
            self._trees.append(_copied(tree, last))

    def forget(self) -> None:
        """No server will be behind any more, but for those that are: what was is no state."""
        self._wanted = False
        self._trees.clear()
        self._prints.clear()

    def oldest(self, zxid: int, tree: DataTree) -> DataTree:
        """The oldest one that shows at least ``zxid``."""
        return next((old for old in self._trees if old.zxid >= zxid), None) or _copied(tree)

    @contextmanager
    def as_seen_by(self, state: ServerState, stale: StaleServer | None) -> Generator[None]:
        """While it answers, the state looks as it looks to that server."""
        if stale is None:
            yield
            return
        now, state.tree = state.tree, stale.tree
        try:
            yield
        finally:
            state.tree = now

    def fingerprint(self, zxid: int) -> list[int]:
        """What of it can still be seen by those who have seen ``zxid``."""
        self._prints += map(tree_fingerprint, self._trees[len(self._prints) :])
        return [
            found
            for tree, found in zip(self._trees, self._prints, strict=True)
            if tree.zxid >= zxid
        ]


class StaleServer:
    """What one connection gets from a server that is behind."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree
        self.held: list[bytes] = []
        self._events: set[tuple[EventType, str]] = set()

    def fingerprint(self) -> tuple[object, ...]:
        """What decides about what comes."""
        return (tree_fingerprint(self.tree), *self.held, "|", *sorted(self._events))

    def hold_back(self, frames: list[bytes]) -> list[bytes]:
        """Keep the events; the rest is on its way."""
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
        """Tell of what was watched in the old tree and has changed since, and was not told yet.

        A one-shot watch that was asked for again when its event was held back is used up by that
        one.  Watches that stay have been told of everything: they stay.
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
