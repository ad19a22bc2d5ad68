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


def digest(items: Iterable[str]) -> bytes:
    """What is the same for the same items, in whatever order."""
    names = sorted(items)
    return b"%s%d items %s" % (
        MARK,
        len(names),
        sha256("/".join(names).encode()).hexdigest().encode(),
    )


MARK = b"zkwire partition of "
"""What the data of a member begins with."""
