"""One node of the data tree: its fields, its stat, and the owners that are no session.

Decides what a client sees of a node (``DataNode`` of 3.8).  It must not know other nodes or paths.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from zkwire.jute.records import ACL, Stat

# Owners that are no session (EphemeralType.java); clients see 0 in their place (DataNode.copyStat).
CONTAINER = -(2**63)
_TTL_MARK = -(2**56)  # 0xFF in the highest byte, a reserved 0x0000, then 40 bits of milliseconds
LONGEST_TTL = 2**40 - 1

_NO_NAMES: dict[str, None] = {}
_SIGN, _WORD = 1 << 31, 1 << 32

Acls = tuple[ACL, ...]


class NewNode(NamedTuple):
    """The request of a create; ``owner`` is a session id, CONTAINER, a :func:`ttl_owner`, or 0."""

    path: str
    data: bytes | None
    acl: Acls | None
    owner: int = 0
    sequential: bool = False


def ttl_owner(milliseconds: int) -> int:
    """The owner that marks a node with this time to live."""
    return _TTL_MARK | milliseconds


def time_to_live(owner: int) -> int:
    """The time to live in an owner that :func:`ttl_owner` made; 0 for any other owner."""
    return owner - _TTL_MARK if _TTL_MARK < owner <= _TTL_MARK + LONGEST_TTL else 0


class Node:
    """One node.  ``created`` counts the children ever created, which numbers sequential ones."""

    __slots__ = (
        "acl", "aversion", "created", "ctime", "czxid", "data", "mtime", "mzxid", "names",
        "owner", "pzxid", "version",
    )  # fmt: skip
    aversion: int
    created: int
    ctime: int
    czxid: int
    mtime: int
    mzxid: int
    pzxid: int
    version: int

    def __init__(self, data: bytes | None, acl: Acls, owner: int, zxid: int, now: int) -> None:
        self.data: bytes | None = data
        self.acl: Acls = acl
        self.owner: int = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now
        self.version = self.aversion = self.created = 0
        # A dict and no set: with an order, a run can be repeated.  None: most nodes have none.
        self.names: dict[str, None] | None = None

    @property
    def children(self) -> Set[str]:
        """The names of the children."""
        return (self.names or _NO_NAMES).keys()

    @property
    def ephemeral_owner(self) -> int:
        """The session whose end deletes the node, or 0."""
        return 0 if self.owner == CONTAINER or time_to_live(self.owner) else self.owner

    def stat(self) -> Stat:
        """The stat that clients see (DataNode.copyStat).

        Its cversion is the sum of the creates and the deletes of children.  A create adds one to
        the counter; the deletes are the counter less the children that are there.
        """
        count = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            signed(2 * self.created - count),
            self.aversion,
            self.ephemeral_owner,
            len(self.data or b""),
            count,
            self.pzxid,
        )


def signed(number: int) -> int:
    """``number`` as Java's int holds it."""
    return (number + _SIGN) % _WORD - _SIGN
