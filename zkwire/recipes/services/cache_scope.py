"""Which nodes a cache has: how deep it goes, and what is left out."""

from __future__ import annotations

from zkwire.wire.paths import check_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def check_limit(name: str, limit: int | None) -> None:
    """TypeError or ValueError unless it is None or a number not below 0."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"{name} must be a number or None, not {limit!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"{name} must not be negative: {limit}")


def check_function(name: str, function: object) -> None:
    """TypeError unless it is None or can be called."""
    if function is not None and not callable(function):
        raise TypeError(f"{name} must be a function, not {function!r}")


class Scope:
    """See the module's docstring.  Of ``skip`` only the answers to paths below the root count."""

    __slots__ = ("_depth", "_skip", "_stem", "root")

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

    @property
    def deep(self) -> bool:
        """Whether it has more than one node."""
        return self._depth != 0

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
