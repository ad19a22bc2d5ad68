"""What of a cache is stale: what an event, a gap or an answer says about which path must be read.

With a recursive watch every change is an event with its path.  A list of children is needed only
for a node of which nothing was known, and where the first stat behind a gap differs from the known
one.  That stat may come with the answer to an event, before the answer to the comparison itself.
With watches that fire once, each read sets the watch again, so a new node is listed in any case.

Invariant: what the tree has otherwise than the server is stale, or under way, or an event about it
has not been heard.  For the stat of a node that is more: it must not be newer than what is known of
its children, or no comparison would find these.  So no answer of a new connection is taken before
the gap has been heard of.
"""

from __future__ import annotations

from zkwire.wire.model import EventType
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.jute.records import Stat
    from zkwire.recipes.services.cache_scope import Scope
    from zkwire.recipes.services.cache_tree import CachedNode, Tree
    from zkwire.wire.model import Event

# What must be read: the data with the stat; the stat alone; the children.
DATA, STAT, CHILDREN = 1, 2, 4

_APPEARS = (EventType.NODE_CREATED, EventType.NODE_DELETED)
_OF_CHILDREN = (EventType.NODE_CHILDREN_CHANGED, EventType.CHILD_WATCH_REMOVED)


class Stale:
    """See the module's docstring.  ``recursive``: one watch tells of all changes."""

    def __init__(self, tree: Tree, scope: Scope) -> None:
        self.paths: dict[str, int] = {}
        self.recursive: bool = True
        self._tree = tree
        self._scope = scope
        self._unchecked: set[str] = set()  # nodes of which no stat has come behind the gap

    def mark(self, path: str, bits: int) -> None:
        """This must be read."""
        self.paths[path] = self.paths.get(path, 0) | bits

    def compare(self) -> None:
        """Everything may be different."""
        self._unchecked = set(self._tree.nodes)
        for path in [self._scope.root, *self._tree.nodes, *self.paths]:
            known = path in self._tree.nodes or path == self._scope.root
            self.mark(path, STAT | self._watching(path) if known else self._new(path))

    def _watching(self, path: str) -> int:
        """What must be read besides, since only that watches the children."""
        return CHILDREN if not self.recursive and self._scope.lists(path) else 0

    def _new(self, path: str) -> int:
        return DATA | self._watching(path)

    def hear(self, event: Event) -> None:
        """Something has happened; what it was must be read."""
        kind, path = event.type, event.path
        if kind is EventType.REREAD:
            self.compare()
        elif kind in _OF_CHILDREN:
            self.mark(path, CHILDREN)
        elif kind is EventType.DATA_WATCH_REMOVED:
            self.mark(path, STAT)
        else:
            if self._scope.has(path):
                self.mark(path, self._new(path) if kind in _APPEARS else DATA)
            if self.recursive and kind in _APPEARS and path != self._scope.root:
                above = parent(path)  # of which the list has changed, and so the stat
                if self._scope.lists(above) and self._scope.has(above):
                    self.mark(above, STAT)

    # --- answers ----------------------------------------------------------------------------------

    def gone(self, path: str) -> None:
        """There is no such node."""
        self._tree.remove(path)
        if path == self._scope.root and not self.recursive:
            self.mark(path, STAT)  # watches for its creation

    def has_data(self, path: str, data: bytes, stat: Stat) -> None:
        """The node is there with these data."""
        before = self._tree.nodes.get(path)
        self._tree.put(path, data, stat)
        self._check_children(path, stat, before)

    def has_stat(self, path: str, stat: Stat | None) -> None:
        """The node has this stat, or is not there."""
        before = self._tree.nodes.get(path)
        if stat is None:
            self._tree.remove(path)
        elif before is None:
            self.mark(path, self._new(path))
        else:
            if not self._tree.put_stat(path, stat):
                self.mark(path, DATA)
            self._check_children(path, stat, before)

    def _check_children(self, path: str, stat: Stat, before: CachedNode | None) -> None:
        if before is not None and path not in self._unchecked:
            return
        self._unchecked.discard(path)
        differ = stat.num_children if before is None else stat.pzxid != before.stat.pzxid
        if differ and self.recursive and self._scope.lists(path):
            self.mark(path, CHILDREN)

    def has_children(self, path: str, names: list[str], stat: Stat) -> None:
        """The node has these children."""
        stem = "" if path == "/" else path
        there = {f"{stem}/{name}" for name in names}
        for child in self._tree.below(path):
            if child not in there:
                self._tree.remove(child)
        for child in there:
            if child not in self._tree.nodes and self._scope.has(child):
                self.mark(child, self._new(child))
        if path in self._tree.nodes and not self._tree.put_stat(path, stat):
            self.mark(path, DATA)
