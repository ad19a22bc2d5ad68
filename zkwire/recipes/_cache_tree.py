"""What a cache knows, what of it is stale, and how that is read.

:class:`Tree` has the nodes as they were read last.  It decides what counts as a change, and when
there is too much.  One background coroutine changes it, any thread reads it: each step is one
operation on a dict, and a node is never changed, it is replaced.

:class:`Reading` decides what an event, a gap or an answer says about which path must be read, and
reads it: requests in bounded windows, answers in their order.  While one half of a window is
answered, the other is under way.  A later answer never shows an older state.  So an answer that
says that a node is gone overrules everything that was asked before.

With a recursive watch every change is an event with its path.  A list of children is needed only
for a node of which nothing was known, and where the first stat after a gap differs from the known
one.  That stat may come with the answer to an event, before the answer to the comparison itself.
With watches that fire once, each read sets the watch again, so a new node is listed in any case.

Invariant: where the tree differs from the server, the path is marked stale, or is being read, or an
event about it has not been heard yet.  The stat of a node must fulfil one thing more: it must not
be newer than what is known of the node's children, or no comparison would find the changed
children.  So no answer of a new connection is taken before the gap has been heard of.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice

from zkwire import errors
from zkwire.recipes._service import check_function
from zkwire.recipes.runtime import REPEATABLE, WINDOW
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType
from zkwire.wire.paths import check_path, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.jute.records import Stat
    from zkwire.operations import Operations

    Asked = tuple[str, int, Any]  # the path, what is read of it, and the reply


def check_limit(name: str, limit: int | None) -> None:
    """TypeError or ValueError unless it is None or a number not below 0."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"{name} must be a number or None, not {limit!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"{name} must not be negative: {limit}")


class Scope:
    """Which nodes a cache has.  Of ``skip`` only the answers to paths below the root count."""

    def __init__(self, root: str, depth: int | None, skip: Callable[[str], object] | None) -> None:
        root = check_path(root)
        check_limit("depth", depth)
        check_function("skip", skip)
        self.root: str = root
        self._stem = root if root == "/" else f"{root}/"
        self._depth = depth
        self._skip = skip

    def covers(self, path: str) -> bool:
        """Whether the path is the root or below it."""
        return path == self.root or path.startswith(self._stem)

    def check(self, path: str) -> None:
        """ValueError if the path is neither the root nor below it."""
        if not self.covers(check_path(path)):
            raise ValueError(f"{path} is not in this cache, which is of {self.root}")

    def _deep(self, path: str) -> int:
        return 0 if path == self.root else path.count("/", len(self._stem)) + 1

    def lists(self, path: str) -> bool:
        """Whether the children of this node belong to it."""
        return self._depth is None or self._deep(path) < self._depth

    def has(self, path: str) -> bool:
        """Whether the node belongs to it."""
        if not self.covers(path) or (self._depth is not None and self._deep(path) > self._depth):
            return False
        return self._skip is None or not self._skipped(path, self._skip)

    def _skipped(self, path: str, skip: Callable[[str], object]) -> bool:
        """Whether the node or one above it is left out.  ValueError if ``skip`` has failed."""
        end = len(self._stem) - 1
        while path != self.root and end != len(path):
            end = path.find("/", end + 1)
            end = len(path) if end < 0 else end
            try:
                skipped = skip(path[:end])
                if hasattr(skipped, "__await__"):  # which is true, whatever it would come to
                    raise TypeError("it is async, and is not awaited")
                if skipped:
                    return True
            except Exception as error:
                raise ValueError(f"skip({path[:end]!r}) has failed: {error!r}") from error
        return False


_UNKNOWN: Any = object()


class CacheFullError(ValueError):
    """What a cache would have to keep is more than its ``max_bytes``; it has stopped."""


class CachedNode:
    """A node as it was read: its ``path``, ``data`` and ``stat`` at one moment.

    A later state is another object.
    """

    __slots__ = ("_decode", "_value", "data", "path", "stat")

    def __init__(
        self, path: str, data: bytes, stat: Stat, decode: Callable[[bytes], Any] | None
    ) -> None:
        #: The node's path, as the client names it.
        self.path: str = path
        #: The node's data; null, which only other clients write, reads as b"".
        self.data: bytes = data
        #: The node's stat, of a moment at which it had these data.
        self.stat: Stat = stat
        self._decode = decode
        self._value = _UNKNOWN

    def __repr__(self) -> str:
        return f"<CachedNode {self.path} version {self.stat.version}, {len(self.data)} bytes>"

    @property
    def value(self) -> Any:
        """What the cache's ``decode`` makes of the data; without one, the data.

        It is decoded when it is first asked for, by the caller, and remembered.  What ``decode``
        raises is raised here, each time.
        """
        if self._decode is None:
            return self.data
        if self._value is _UNKNOWN:
            self._value = self._decode(self.data)
        return self._value

    def _is_of(self, stat: Stat) -> bool:
        """Whether the stat is of these data.  Where servers have lost theirs, zxids come again."""
        return (self.stat.mzxid, self.stat.mtime) == (stat.mzxid, stat.mtime)

    def with_stat(self, stat: Stat) -> CachedNode:
        """The node with the same data and a newer stat."""
        node = CachedNode(self.path, self.data, stat, self._decode)
        node._value = self._value
        return node


class Tree:
    """The nodes as they were read last.  ``changed(path, before)`` is called after each change.

    ``size`` are the bytes of all paths and data, at most ``max_bytes``.
    """

    def __init__(
        self,
        changed: Callable[[str, CachedNode | None], None],
        decode: Callable[[bytes], Any] | None,
        max_bytes: int | None,
    ) -> None:
        self.nodes: dict[str, CachedNode] = {}
        self.size: int = 0
        self._below: dict[str, set[str]] = {}  # the paths of children, where there have been any
        self._changed = changed
        self._decode = decode
        self._max_bytes = max_bytes

    def below(self, path: str) -> list[str]:
        """The paths of the children that are known."""
        return list(self._below.get(path, ()))

    def put(self, path: str, data: bytes, stat: Stat) -> None:
        """The node is there with these data; CacheFullError if that is too much."""
        if self.put_stat(path, stat):
            return
        before = self.nodes.get(path)
        more = len(data) - len(before.data) if before else len(path.encode()) + len(data)
        if self._max_bytes is not None and self.size + more > self._max_bytes:
            raise CacheFullError(
                f"{path} with {len(data)} bytes does not fit: the cache has {len(self.nodes)} "
                f"nodes in {self.size} bytes, of at most {self._max_bytes} (max_bytes); leave "
                "parts out by skip or depth, or allow more"
            )
        self.size += more
        self.nodes[path] = CachedNode(path, data, stat, self._decode)
        if before is None and path != "/":
            self._below.setdefault(parent(path), set()).add(path)
        self._changed(path, before)

    def put_stat(self, path: str, stat: Stat) -> bool:
        """The node has this stat now; False if its data are other ones then, or unknown."""
        node = self.nodes.get(path)
        if node is None or not node._is_of(stat):
            return False
        if node.stat != stat:
            self.nodes[path] = node.with_stat(stat)
        return True

    def remove(self, path: str) -> None:
        """The node and all nodes below it are gone; children first."""
        gone = [path]
        for one in gone:  # which grows
            gone += self._below.get(one, ())
        for one in reversed(gone):
            self._below.pop(one, None)
            before = self.nodes.pop(one, None)
            if before is not None:
                self.size -= len(one.encode()) + len(before.data)
                self._below.get(parent(one), set()).discard(one)
                self._changed(one, before)


# What must be read: the data with the stat; the stat alone; the children.
DATA, STAT, CHILDREN = 1, 2, 4
_APPEARS = (EventType.NODE_CREATED, EventType.NODE_DELETED)
_OF_CHILDREN = (EventType.NODE_CHILDREN_CHANGED, EventType.CHILD_WATCH_REMOVED)
_BYTES = 4 << 20  # of data that a window may bring, more or less


class Reading:
    """What is stale, and how it is read.  ``recursive``: one watch tells of all changes.

    ``quiet``: nothing was left to read, and no event has come.
    """

    def __init__(self, tree: Tree, scope: Scope) -> None:
        self.quiet: bool = False
        self.recursive: bool = True
        self.unwatched: bool = False  # the recursive watch is gone
        self.left_out: dict[str, errors.NoAuthError] = {}
        self.stale: dict[str, int] = {}  # the paths, with what of each must be read
        self._tree = tree
        self._scope = scope
        self._unchecked: set[str] = set()  # nodes of which no stat has come since the gap
        self._asked: deque[Asked] = deque()
        self._window = WINDOW
        self._operations: Any = None
        self._watch: Any = Watch()

    @property
    def done(self) -> bool:
        """Whether nothing is stale and nothing under way."""
        return not (self.stale or self._asked)

    def begin(self, operations: Operations, watch: Watch, *, recursive: bool) -> None:
        """Everything may be different; a ``recursive`` watch, or one that reads set, tells more."""
        self._operations, self._watch = operations, watch
        self.unwatched, self.recursive = False, recursive
        self.left_out.clear()
        self.compare()

    def begin_left_out(self) -> None:
        """Read once more what was refused."""
        for path in self.left_out:
            self._mark_watched(path, DATA)
        self.left_out.clear()

    def end(self) -> None:
        """No answer is taken any more.  What was heard counts: no later session tells it again."""
        self._take_back()
        with suppress(errors.ZooKeeperError, ValueError):
            self.listen()
        self.quiet = False

    # --- what must be read ------------------------------------------------------------------------

    def _mark(self, path: str, bits: int) -> None:
        """This must be read."""
        self.stale[path] = self.stale.get(path, 0) | bits

    def _mark_watched(self, path: str, bits: int) -> None:
        """The same, and the children where only that watches them."""
        lists = not self.recursive and self._scope.lists(path)
        self._mark(path, bits | CHILDREN if lists else bits)

    def compare(self) -> None:
        """Everything may be different; where nothing is known, the stat has the rest read."""
        self._unchecked = set(self._tree.nodes)
        for path in [self._scope.root, *self._tree.nodes, *self.stale]:
            self._mark_watched(path, STAT)

    def _take_back(self) -> None:
        while self._asked:
            path, bits, _ = self._asked.popleft()
            self._mark(path, bits)

    def listen(self) -> None:
        """Take the events that have come."""
        watch = self._watch
        with suppress(RuntimeError):  # no read has set it yet
            while watch.ready:
                self.quiet = False
                self._hear(watch.take())

    def _hear(self, event: Event) -> None:
        """Something has happened; what it was must be read."""
        kind, path = event.type, event.path
        if kind is EventType.REREAD:
            self._take_back()
            self.compare()
        elif kind is EventType.PERSISTENT_WATCH_REMOVED:
            self.unwatched = True
        elif kind in _OF_CHILDREN:
            self._mark(path, CHILDREN)
        elif kind is EventType.DATA_WATCH_REMOVED:
            self._mark(path, STAT)
        else:
            if self._scope.has(path):
                mark = self._mark_watched if kind in _APPEARS else self._mark
                mark(path, DATA)
            if self.recursive and kind in _APPEARS and path != self._scope.root:
                above = parent(path)  # of which the list has changed, and so the stat
                if self._scope.lists(above) and self._scope.has(above):
                    self._mark(above, STAT)

    # --- requests and answers ---------------------------------------------------------------------

    async def step(self) -> None:
        """Ask for what is stale, as far as the window goes; take answers until half of it."""
        for path in list(islice(self.stale, max(0, self._window - len(self._asked)))):
            try:
                self._ask(path, self.stale[path])
            except RuntimeError:  # another watch on the path, which has not been answered yet
                with suppress(*REPEATABLE):
                    await self._operations.sync(path)
                break
            del self.stale[path]
        size = count = 0
        for _ in range(max(1, len(self._asked) - self._window // 2)):
            if self._asked:
                size, count = size + await self._take(self._asked[0]), count + 1
        self._window = min(WINDOW, max(2, count * _BYTES // (size + 1)))

    def _ask(self, path: str, bits: int) -> None:
        operations = self._operations
        watch = None if self.recursive else self._watch
        if bits & DATA:
            self._asked.append((path, DATA, operations.get_data(path, watch=watch)))
        elif bits & STAT:
            self._asked.append((path, STAT, operations.exists(path, watch=watch)))
        if bits & CHILDREN:
            children = operations.get_children_with_stat(path, watch=watch)
            self._asked.append((path, CHILDREN, children))

    async def _take(self, asked: Asked) -> int:
        """Take an answer; how many bytes of data came."""
        path, what, reply = asked
        answer: Any = None
        refused: Exception | None = None
        try:
            answer = await reply
        except (errors.NoNodeError, errors.NoAuthError, *REPEATABLE) as error:
            refused = error
        self.listen()
        if not self._asked or self._asked[0] is not asked:
            return 0  # it was taken back
        self._asked.popleft()
        if what != CHILDREN:
            self.left_out.pop(path, None)
        if refused is not None:
            self._refused(path, what, refused)
        elif what == CHILDREN:
            self._has_children(path, *answer)
        elif what == STAT:
            self.has_stat(path, answer)
        else:
            self.has_data(path, *answer)
            return len(answer.data)
        return 0

    def _refused(self, path: str, bits: int, error: Exception) -> None:
        if isinstance(error, errors.NoNodeError):
            self._tree.remove(path)
            if path == self._scope.root and not self.recursive:
                self._mark(path, STAT)  # watches for its creation
        elif not isinstance(error, errors.NoAuthError):
            self._mark(path, bits)
        elif path == self._scope.root:
            raise error
        else:
            self._tree.remove(path)
            self.left_out[path] = error.with_traceback(None)

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
            self._mark_watched(path, DATA)
        else:
            if not self._tree.put_stat(path, stat):
                self._mark(path, DATA)
            self._check_children(path, stat, before)

    def _check_children(self, path: str, stat: Stat, before: CachedNode | None) -> None:
        if before is not None and path not in self._unchecked:
            return
        self._unchecked.discard(path)
        known = None if before is None else (before.stat.pzxid, before.stat.ctime)
        differ = stat.num_children if known is None else (stat.pzxid, stat.ctime) != known
        if differ and self.recursive and self._scope.lists(path):
            self._mark(path, CHILDREN)

    def _has_children(self, path: str, names: list[str], stat: Stat) -> None:
        """The node has these children."""
        stem = "" if path == "/" else path
        there = {f"{stem}/{name}" for name in names}
        for child in self._tree.below(path):
            if child not in there:
                self._tree.remove(child)
        for child in there:
            if child not in self._tree.nodes and self._scope.has(child):
                self._mark_watched(child, DATA)
        if path in self._tree.nodes and not self._tree.put_stat(path, stat):
            self._mark(path, DATA)
