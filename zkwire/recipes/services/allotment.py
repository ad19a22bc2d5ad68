"""Which member gets which items: the same answer wherever the same question is asked.

Every member computes it by itself from the names alone, so it must depend on nothing else.  Each
pair of an item and a member has a score, a hash of both names, and the pairs with the best scores
are joined first, as far as the member has room.  A pair keeps its score whatever others there are,
so most pairs outlive a member that comes or goes: with five members a quarter more items move than
have to.
"""

from __future__ import annotations

from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def allot(items: Iterable[str], members: Iterable[str]) -> dict[str, str]:
    """The member of each item, of one member at least; none has two more items than another."""
    items, rooms = sorted(items), dict.fromkeys(members, 0)
    each, larger = divmod(len(items), len(rooms))
    pairs = ((sha256(f"{item}/{member}".encode()).digest(), item, member)
             for item in items for member in rooms)  # fmt: skip
    owners: dict[str, str] = {}
    for _, item, member in sorted(pairs):
        has = rooms[member]
        if item in owners or has > each or (has == each and not larger):
            continue
        larger -= has == each
        rooms[member] = has + 1
        owners[item] = member
    return owners


MARK = b"zkwire partition of "
"""What the data of a member begins with."""
LISTED = 8192
"""Bytes: up to so many a member's data names the items, in a second line."""
_SHOWN = 5


def digest(items: Iterable[str]) -> bytes:
    """What stands in a member's node: a line about the items, and if they are few their names."""
    names = sorted(items)
    text = "/".join(names).encode()
    line = b"%s%d items %s" % (MARK, len(names), sha256(text).hexdigest().encode())
    return line + b"\n" + text if len(text) <= LISTED else line


def same(data: bytes, other: bytes) -> bool:
    """Whether two members share out the same items."""
    return data.partition(b"\n")[0] == other.partition(b"\n")[0]


def difference(items: Iterable[str], other: bytes) -> str:
    """How the items differ from those of which ``other``, another member's data, tells."""
    mine = set(items)
    line, _, text = other.partition(b"\n")
    if not text:
        return f"{line[:60]!r}, and this one has {len(mine)}"
    theirs = set(text.decode("utf-8", "replace").split("/"))
    parts = {"it alone has": theirs - mine, "it has not": mine - theirs}
    return "; ".join(f"{what} {_shown(sorted(names))}" for what, names in parts.items() if names)


def _shown(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(f"{name[:60]!r}" for name in names[:_SHOWN]) + (
        f" and {more} more" if more > 0 else ""
    )
