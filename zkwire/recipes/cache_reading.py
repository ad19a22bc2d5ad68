"""How a cache reads: which paths are stale, what must be asked about each, and what answers mean.

Requests leave in bounded windows: while one half of a window is answered, the other is under way.
Answers are taken in the order of the requests.  So a later answer is never older, and what says
that a node is gone overrules all that was asked before.

With a recursive watch every change is an event with its path, and a list of children is needed only
where nothing was known, or after a gap (``CHECK``: compare with the stat that is known).  With
watches that fire once, each read sets its watch again.

Invariant: what is not as the server has it is stale, or under way, or its event has not been heard.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice

from zkwire.errors import (
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    RequestTimeoutError,
    ThrottledOpError,
)
from zkwire.recipes.trees import WINDOW
from zkwire.wire.model import EventType
from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.operations import Operations
    from zkwire.recipes.cache_scope import Scope
    from zkwire.recipes.cache_tree import Tree
    from zkwire.session.watch import Watch
    from zkwire.wire.model import Event

# What must be asked: its data with the stat; the stat alone; the children.
DATA, STAT, CHILDREN, CHECK = 1, 2, 4, 8
_AGAIN = (ConnectionLossError, RequestTimeoutError, ThrottledOpError)
_BYTES = 4 << 20  # of data that a window may bring, more or less


class Reading:
    """See the module's docstring."""

    def __init__(self, tree: Tree, scope: Scope) -> None:
        self._tree = tree
        self._scope = scope
        self._stale: dict[str, int] = {}
        self._asked: deque[tuple[str, int, Any, Any]] = deque()
        self._window = WINDOW
        self._watch: Watch | None = None  # that each read sets
        self._operations: Any = None
        self.requests: int = 0

    @property
    def done(self) -> bool:
        """Whether nothing is stale and nothing under way."""
        return not (self._stale or self._asked)

    def begin(self, operations: Operations, watch: Watch | None) -> None:
        """Everything may be different; without ``watch`` a recursive one tells of changes."""
        self._operations, self._watch = operations, watch
        self.take_back()
        for path in [self._scope.root, *self._tree.nodes, *self._stale]:
            known = path in self._tree.nodes or path == self._scope.root
            self._mark(path, STAT | CHECK | self._watching(path) if known else self._new(path))

    def take_back(self) -> None:
        """The answers that are under way will not be taken."""
        while self._asked:
            path, bits, *_ = self._asked.popleft()
            self._mark(path, bits)

    def _watching(self, path: str) -> int:
        """What must be read besides, since only a read watches the children."""
        return CHILDREN if self._watch is not None and self._scope.lists(path) else 0

    def _new(self, path: str) -> int:
        return DATA | CHECK | self._watching(path)

    def _mark(self, path: str, bits: int) -> None:
        self._stale[path] = self._stale.get(path, 0) | bits

    # --- events -----------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Something has happened; what it was is read."""
        kind, path = event.type, event.path
        if kind is EventType.REREAD:
            self.begin(self._operations, self._watch)
        elif kind in (EventType.NODE_CHILDREN_CHANGED, EventType.CHILD_WATCH_REMOVED):
            self._mark(path, CHILDREN)
        elif kind is EventType.DATA_WATCH_REMOVED:
            self._mark(path, STAT)
        else:
            appears = kind in (EventType.NODE_CREATED, EventType.NODE_DELETED)
            if self._scope.has(path):
                self._mark(path, DATA | (self._watching(path) if appears else 0))
            if appears and self._watch is None and path != self._scope.root:
                above = parent(path)  # of which the list has changed, and so its stat
                if above in self._tree.nodes and self._scope.lists(above):
                    self._mark(above, STAT)

    # --- requests ---------------------------------------------------------------------------------

    async def step(self) -> None:
        """Ask for what is stale, as far as the window goes; take answers until half of it."""
        for path in list(islice(self._stale, max(0, self._window - len(self._asked)))):
            try:
                self._ask(path, self._stale[path])
            except RuntimeError:  # another watch on the path, which has not been answered yet
                with suppress(*_AGAIN):
                    await self._operations.sync(path)
                break
            del self._stale[path]
        if not self._asked:
            return
        size, count = 0, max(1, len(self._asked) - self._window // 2)
        for _ in range(count):
            size += await self._take(*self._asked[0])
        self._window = min(WINDOW, max(2, count * _BYTES // (size + 1)))

    def _ask(self, path: str, bits: int) -> None:
        operations, watch = self._operations, self._watch
        node = names = None
        if bits & DATA:
            node = operations.get_data(path, watch=watch)
        elif bits & STAT:
            node = operations.exists(path, watch=watch)
        if bits & CHILDREN:
            names = operations.get_children_with_stat(path, watch=watch)
        self.requests += (node is not None) + (names is not None)
        self._asked.append((path, bits, node, names))

    async def _take(self, path: str, bits: int, node: Any, names: Any) -> int:
        """Take what was answered about one path; how many bytes of data came."""
        size = 0
        try:
            if bits & DATA:
                data, stat = await node
                size = len(data)
                self._data(path, bits, data, stat)
            elif bits & STAT:
                self._stat(path, bits, await node)
            bits &= CHILDREN
            if bits and (node is None or path in self._tree.nodes):
                self._names(path, *await names)
        except _AGAIN:
            self._mark(path, bits)
        except NoNodeError:
            self._gone(path, bits)
        except NoAuthError:
            if path == self._scope.root:
                raise
            self._tree.remove(path)
        self._asked.popleft()
        return size

    # --- answers ----------------------------------------------------------------------------------

    def _gone(self, path: str, bits: int) -> None:
        self._tree.remove(path)
        if path == self._scope.root and self._watch is not None:
            self._mark(path, STAT)  # sets the watch that tells when it is created

    def _data(self, path: str, bits: int, data: bytes, stat: Stat) -> None:
        before = self._tree.nodes.get(path)
        self._tree.put(path, data, stat)
        if bits & CHECK or before is None:
            self._check_children(path, stat, None if before is None else before.stat)

    def _stat(self, path: str, bits: int, stat: Stat | None) -> None:
        before = self._tree.nodes.get(path)
        if stat is None:
            self._tree.remove(path)
        elif before is None:
            self._mark(path, self._new(path))
        elif not self._tree.put_stat(path, stat):
            self._mark(path, DATA | bits & CHECK)
        elif bits & CHECK:
            self._check_children(path, stat, before.stat)

    def _check_children(self, path: str, stat: Stat, before: Stat | None) -> None:
        differ = stat.num_children if before is None else stat.pzxid != before.pzxid
        if differ and self._watch is None and self._scope.lists(path):
            self._mark(path, CHILDREN)

    def _names(self, path: str, names: list[str], stat: Stat) -> None:
        stem = "" if path == "/" else path
        there = {f"{stem}/{name}" for name in names}
        for one in self._tree.below(path):
            if one not in there:
                self._tree.remove(one)
        for one in there:
            if one not in self._tree.nodes and self._scope.has(one):
                self._mark(one, self._new(one))
        if path in self._tree.nodes and not self._tree.put_stat(path, stat):
            self._mark(path, DATA)
