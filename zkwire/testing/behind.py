"""A server of the ensemble that has not applied yet what the others have.

It answers reads from an older tree, and tells events later.  What it cannot answer without being
up to date (a write, a sync) makes it so.  A client never sees a state older than what it has seen
before: a server that is behind that does not take it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING

from zkwire.jute.records import SetWatches
from zkwire.ops import SET_WATCHES
from zkwire.testing.narration import event_in
from zkwire.testing.reads import READS

if TYPE_CHECKING:
    from zkwire.model import EventType
    from zkwire.testing.connection import Connection
    from zkwire.testing.tree import DataTree
    from zkwire.testing.world import World


def _copied(tree: DataTree) -> DataTree:
    """A tree for reads only."""
    old = copy(tree)
    old.nodes = {}
    for path, node in tree.nodes.items():
        old.nodes[path] = same = copy(node)
        same.children = None if node.children is None else set(node.children)
    old._of_session = {owner: dict(paths) for owner, paths in tree._of_session.items()}
    return old


class Past:
    """The tree as it was before each write, if it is ``wanted``: it costs time."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._trees: list[DataTree] = []

    def remember(self, tree: DataTree) -> None:
        """It is about to be written to."""
        if self._wanted:
            self._trees.append(_copied(tree))

    def oldest(self, zxid: int, tree: DataTree) -> DataTree:
        """The oldest one that shows at least ``zxid``."""
        return next((old for old in self._trees if old.zxid >= zxid), None) or _copied(tree)

    @contextmanager
    def seen_by(self, world: World, behind: Behind | None) -> Generator[None]:
        """While it answers, the world looks as it looks to that server."""
        if behind is None:
            yield
            return
        now, world.tree = world.tree, behind.tree
        try:
            yield
        finally:
            world.tree = now

    def memory(self) -> list[tuple[int, int]]:
        """What of it can still be seen by somebody."""
        return [(tree.zxid, len(tree.nodes)) for tree in self._trees]


class Behind:
    """What one connection gets from a server that is behind."""

    def __init__(self, tree: DataTree) -> None:
        self.tree = tree
        self.held: list[bytes] = []
        self._events: set[tuple[EventType, str]] = set()

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

    def catch_up(self, world: World, connection: Connection) -> None:
        """Tell of what was watched in the old tree and has changed since, and was not told yet.

        A watch that was asked for again when its event was held back is used up by that one.
        """
        data = [p for p in world.watchers._data.paths.get(connection, ()) if not self._told(p)]
        child = [p for p in world.watchers._child.paths.get(connection, ()) if not self._told(p)]
        watches = SetWatches(
            self.tree.zxid,
            tuple(path for path in data if path in self.tree.nodes),
            tuple(path for path in data if path not in self.tree.nodes),
            tuple(child),
        )
        world.watchers.forget(connection)
        READS[SET_WATCHES.opcode](world, connection, watches.encode())

    def _told(self, path: str) -> bool:
        return any(event[1] == path for event in self._events)
