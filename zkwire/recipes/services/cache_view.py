"""What a cache shows: one text for threads and for asyncio.  Nothing here waits or reads."""

from __future__ import annotations

from zkwire.recipes.view import PathView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.recipes.services.cache_tree import CachedNode


class CacheView(PathView):
    """What a cache shows."""

    def get(self, path: str) -> CachedNode | None:
        """The node as it was read last; None if there is none.

        ValueError if the path is not the cache's or below it.
        """
        node: CachedNode | None = self._algorithm._tree.nodes.get(path)
        if node is None:
            self._algorithm._scope.check(path)
        return node

    def children(self, path: str) -> list[str]:
        """The names of the node's children in the cache, sorted; none if there is no such node."""
        self._algorithm._scope.check(path)
        below = self._algorithm._tree.below(path)
        return sorted(child[child.rindex("/") + 1 :] for child in below)

    def __contains__(self, path: object) -> bool:
        return path in self._algorithm._tree.nodes

    def __len__(self) -> int:
        return len(self._algorithm._tree.nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._algorithm._tree.nodes))

    def __bool__(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        """Whether the tree has been read once; from then on the cache is never half empty."""
        return self._algorithm._is_ready

    @property
    def fresh(self) -> bool:
        """Whether the cache shows what the connected server has told, and nothing is to be read.

        False while the connection is lost, between two sessions, and until all differences are
        read again.  The nodes stay readable meanwhile.
        """
        return self._algorithm._is_fresh
