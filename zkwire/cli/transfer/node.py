"""A node on its way from one tree to another, and paths in a tree."""

from __future__ import annotations

from zkwire.wire.paths import join, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire import ACL, Stat


class Node:
    """One node.  ``path`` begins at the root of its tree, which is ``/`` itself.

    ``sequence``: the number that its next sequential child would have got where it was read.
    """

    __slots__ = ("acl", "data", "path", "sequence", "stat")

    def __init__(
        self,
        path: str,
        data: bytes,
        acl: Sequence[ACL],
        stat: Stat | None = None,
        sequence: int | None = None,
    ) -> None:
        self.path: str = path
        self.data: bytes = data
        self.acl: Sequence[ACL] = acl
        self.stat: Stat | None = stat
        self.sequence: int | None = sequence


def below(root: str, path: str) -> str:
    """The absolute path of what is at ``path`` in the tree of ``root``."""
    return join("" if root == "/" else root, path)


def child(path: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if path == "/" else f"{path}/{name}"


def ancestors(path: str) -> list[str]:
    """What is above a path, the nearest first."""
    found: list[str] = []
    while path != "/":
        path = parent(path)
        found.append(path)
    return found


def has_hidden_hash(acl: Sequence[ACL]) -> bool:
    """Whether the server has hidden a password's hash: no password would fit what it shows.

    It does from clients that may not change the list (3.4.14, 3.5.5: ZOOKEEPER-1392).
    """
    return any(entry.id.scheme == "digest" and entry.id.id.endswith(":x") for entry in acl)
