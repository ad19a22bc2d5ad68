"""How a cache reads what is stale: requests in bounded windows, answers in their order.

While one half of a window is answered, the other is under way.  A later answer is never older, so
what says that a node is gone overrules all that was asked before.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice

from zkwire import errors
from zkwire.recipes.services.cache_stale import CHILDREN, DATA, STAT, Stale
from zkwire.recipes.trees import WINDOW
from zkwire.session.watch import Watch
from zkwire.wire.model import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.operations import Operations
    from zkwire.recipes.services.cache_scope import Scope
    from zkwire.recipes.services.cache_tree import Tree

    Asked = tuple[str, int, Any, Any]

AGAIN = (errors.ConnectionLossError, *errors.BUSY)
_BYTES = 4 << 20  # of data that a window may bring, more or less


class Reading:
    """See the module's docstring.  ``quiet``: nothing was left to read, and no event has come."""

    def __init__(self, tree: Tree, scope: Scope) -> None:
        self.quiet: bool = False
        self.unwatched: bool = False  # the recursive watch is gone
        self.requests: int = 0
        self._root = scope.root
        self._tree = tree
        self._stale = Stale(tree, scope)
        self._asked: deque[Asked] = deque()
        self._window = WINDOW
        self._operations: Any = None
        self._watch: Any = Watch()

    @property
    def done(self) -> bool:
        """Whether nothing is stale and nothing under way."""
        return not (self._stale.paths or self._asked)

    def begin(self, operations: Operations, watch: Watch, *, recursive: bool) -> None:
        """Everything may be different; a ``recursive`` watch, or one that reads set, tells more."""
        self._operations, self._watch = operations, watch
        self.unwatched, self._stale.recursive = False, recursive
        self._stale.compare()

    def end(self) -> None:
        """No answer is taken any more.  What was heard counts: no later session tells it again."""
        self._take_back()
        with suppress(errors.ZooKeeperError, ValueError):
            self.listen()
        self.quiet = False

    def _take_back(self) -> None:
        while self._asked:
            path, bits, *_ = self._asked.popleft()
            self._stale.mark(path, bits)

    def listen(self) -> None:
        """Take the events that have come."""
        watch = self._watch
        with suppress(RuntimeError):  # no read has set it yet
            while watch.ready:
                self.quiet = False
                event = watch.take()
                if event.type is EventType.REREAD:
                    self._take_back()
                if event.type is EventType.PERSISTENT_WATCH_REMOVED:
                    self.unwatched = True
                else:
                    self._stale.hear(event)

    async def step(self) -> None:
        """Ask for what is stale, as far as the window goes; take answers until half of it."""
        stale = self._stale.paths
        for path in list(islice(stale, max(0, self._window - len(self._asked)))):
            try:
                self._ask(path, stale[path])
            except RuntimeError:  # another watch on the path, which has not been answered yet
                with suppress(*AGAIN):
                    await self._operations.sync(path)
                break
            del stale[path]
        size = count = 0
        for _ in range(max(1, len(self._asked) - self._window // 2)):
            if self._asked:
                size, count = size + await self._take(self._asked[0]), count + 1
        self._window = min(WINDOW, max(2, count * _BYTES // (size + 1)))

    def _ask(self, path: str, bits: int) -> None:
        operations = self._operations
        watch = None if self._stale.recursive else self._watch
        node = names = None
        if bits & DATA:
            node = operations.get_data(path, watch=watch)
        elif bits & STAT:
            node = operations.exists(path, watch=watch)
        if bits & CHILDREN:
            names = operations.get_children_with_stat(path, watch=watch)
        self.requests += (node is not None) + (names is not None)
        self._asked.append((path, bits, node, names))

    async def _take(self, asked: Asked) -> int:
        """Take what was answered about one path; how many bytes of data came."""
        path, bits, node, names = asked
        stale = self._stale
        read: Any = None
        listed: Any = None
        refused: Exception | None = None
        try:
            read = node and await node
            listed = names and await names
        except (errors.NoNodeError, errors.NoAuthError, *AGAIN) as error:
            refused = error
        self.listen()
        if not self._asked or self._asked[0] is not asked:
            return 0  # it was taken back
        self._asked.popleft()
        if refused is not None:
            self._refused(path, bits, refused)
            return 0
        if bits & DATA:
            stale.has_data(path, *read)
        elif bits & STAT:
            stale.has_stat(path, read)
        if names is not None:
            stale.has_children(path, *listed)
        return len(read.data) if bits & DATA else 0

    def _refused(self, path: str, bits: int, error: Exception) -> None:
        if isinstance(error, errors.NoNodeError):
            self._stale.gone(path)
        elif not isinstance(error, errors.NoAuthError):
            self._stale.mark(path, bits)
        elif path == self._root:
            raise error
        else:
            self._tree.remove(path)
