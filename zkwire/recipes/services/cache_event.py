"""One change of a cache, as its readers are told of it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from zkwire.jute.records import Stat
    from zkwire.recipes.services.cache_tree import CachedNode

    Kind = Literal["added", "changed", "removed", "resynced"]


class CacheEvent:
    """One change: its ``kind``, the ``path`` and the ``node``, after ``removed`` its last state.

    ``resynced``: the reader was too far behind.  What it has missed is not told; it finds the
    newest state in the cache, and the changes behind that follow.  The path is the cache's, and
    ``node`` is None.
    """

    __slots__ = ("kind", "node", "path")

    def __init__(self, kind: Kind, path: str, node: CachedNode | None) -> None:
        #: "added", "changed", "removed" or "resynced".
        self.kind: Kind = kind
        #: The node's path, as the client names it.
        self.path: str = path
        #: The node as it is now; if it was removed, as it was last.
        self.node: CachedNode | None = node

    def __repr__(self) -> str:
        return f"<CacheEvent {self.kind} {self.path}>"

    @property
    def data(self) -> bytes | None:
        """The node's data."""
        return None if self.node is None else self.node.data

    @property
    def stat(self) -> Stat | None:
        """The node's stat."""
        return None if self.node is None else self.node.stat

    @property
    def value(self) -> Any:
        """The node's value; see :attr:`CachedNode.value`."""
        return None if self.node is None else self.node.value


def between(path: str, before: CachedNode | None, now: CachedNode | None) -> CacheEvent | None:
    """What has become of the node that was ``before``; None if nothing."""
    if now is None:
        return None if before is None else CacheEvent("removed", path, before)
    if before is None:
        return CacheEvent("added", path, now)
    if before.stat.mzxid == now.stat.mzxid:
        return None
    return CacheEvent("changed", path, now)
