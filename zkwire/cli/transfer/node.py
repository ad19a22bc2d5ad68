"""A node on its way from one tree to another, and how its access list is written.

An entry is ``scheme:id:perms``, as ``zkCli.sh`` takes it; an id may have colons, a scheme has none.
"""

from __future__ import annotations

from zkwire import ACL, Id
from zkwire.wire.paths import join, parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire import Stat

LETTERS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}


class Node:
    """One node.  ``path`` begins at the root of its tree, which is ``/`` itself."""

    __slots__ = ("acl", "data", "path", "stat")

    def __init__(
        self, path: str, data: bytes, acl: Sequence[ACL], stat: Stat | None = None
    ) -> None:
        self.path: str = path
        self.data: bytes = data
        self.acl: Sequence[ACL] = acl
        self.stat: Stat | None = stat


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


def acl_text(entry: ACL) -> str:
    """``scheme:id:perms``."""
    perms = "".join(letter for letter, bit in LETTERS.items() if entry.perms & bit)
    return f"{entry.id.scheme}:{entry.id.id}:{perms}"


def acl_of(text: str) -> ACL:
    """The opposite of :func:`acl_text`; ValueError if it is none."""
    scheme, _, rest = text.partition(":")
    name, colon, letters = rest.rpartition(":")
    if not (scheme and colon and set(letters) <= set(LETTERS)):
        raise ValueError(f"{text!r} is no entry of an access list, such as world:anyone:cdrwa")
    return ACL(sum(LETTERS[letter] for letter in set(letters)), Id(scheme, name))


def has_hidden_hash(acl: Sequence[ACL]) -> bool:
    """Whether the server has hidden a password's hash: no password would fit what it shows.

    It does from clients that may not change the list (3.4.14, 3.5.5: ZOOKEEPER-1392).
    """
    return any(entry.id.scheme == "digest" and entry.id.id.endswith(":x") for entry in acl)
