"""What a cache knows: the nodes of a tree as they were read last.

It decides what counts as a change, and when there is too much.  It must not know how nodes are read
or watched.  One background coroutine changes it, any thread reads it: each step is one operation on
a dict, and a node is never changed, it is replaced.
"""

from __future__ import annotations

from zkwire.wire.paths import parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from zkwire.jute.records import Stat

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

    def with_stat(self, stat: Stat) -> CachedNode:
        """The node with the same data and a newer stat."""
        node = CachedNode(self.path, self.data, stat, self._decode)
        node._value = self._value
        return node


class Tree:
    """See the module's docstring.  ``changed(path, before)`` is called behind each change.

    ``size`` are the bytes of all paths and data, at most ``max_bytes``.
    """

    __slots__ = ("_below", "_changed", "_decode", "_max_bytes", "nodes", "size")

    def __init__(
        self,
        changed: Callable[[str, CachedNode | None], None],
        decode: Callable[[bytes], Any] | None,
        max_bytes: int | None,
    ) -> None:
        self.nodes: dict[str, CachedNode] = {}
        self.size: int = 0
        self._below: dict[str, set[str]] = {}  # the paths of children, where there are any
        self._changed = changed
        self._decode = decode
        self._max_bytes = max_bytes

    def below(self, path: str) -> list[str]:
        """The paths of the children that are known."""
        return list(self._below.get(path, ()))

    def put(self, path: str, data: bytes, stat: Stat) -> None:
        """The node is there with these data; CacheFullError if that is too much."""
        before = self.nodes.get(path)
        more = len(data) - len(before.data) if before else len(path.encode()) + len(data)
        if self._max_bytes is not None and self.size + more > self._max_bytes:
            raise CacheFullError(
                f"{path} with {len(data)} bytes does not fit: the cache has {len(self.nodes)} "
                f"nodes in {self.size} bytes, of at most {self._max_bytes} (max_bytes); leave "
                "parts out by skip or depth, or allow more"
            )
        self.size += more
        if before is not None and before.stat.mzxid == stat.mzxid:
            self.nodes[path] = before.with_stat(stat)
            return
        self.nodes[path] = CachedNode(path, data, stat, self._decode)
        if before is None and path != "/":
            self._below.setdefault(parent(path), set()).add(path)
        self._changed(path, before)

    def put_stat(self, path: str, stat: Stat) -> bool:
        """The node has this stat now; False if its data are other ones then, or unknown."""
        node = self.nodes.get(path)
        if node is None or node.stat.mzxid != stat.mzxid:
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
                siblings = self._below.get(parent(one))
                if siblings is not None:
                    siblings.discard(one)
                    if not siblings:
                        del self._below[parent(one)]
                self._changed(one, before)
