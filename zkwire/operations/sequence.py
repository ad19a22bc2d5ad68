"""The counter from which a server numbers the sequential children of a node, seen from outside.

A server counts the children that were ever created; a child that is deleted keeps its number.  The
counter of a tree that was copied, or restored by a tool, begins anew, and may be behind the numbers
in the names that were kept: then new names sort before old ones, and in the end one is taken.  No
request sets the counter.  Each create counts, so pairs of a create and a delete bring it forward.
"""

from __future__ import annotations

from zkwire.operations.multi import Create, Delete, Operation
from zkwire.wire.paths import LAST_SEQUENCE, sequence_number

TYPE_CHECKING = bool()
if TYPE_CHECKING:
    from collections.abc import Iterable


TOGETHER = 500
"""Numbers that one request uses up at most: a server is busy with it for some hundredths of a
second."""
_TOGETHER_BYTES = 500_000  # of a request
_BYTES = 150  # of a pair, beside its two paths
_NAME = "zkwire-number"  # no contender and no item: it ends in no number


def next_number(cversion: int, num_children: int) -> int:
    """The number that the next sequential child of a node with such a stat gets.

    The version of the children that a server shows counts deletions, too: twice the counter, less
    the children that there are (``DataNode.copyStat``), in 32 bits.
    """
    return ((cversion + num_children) & 0xFFFFFFFF) >> 1


def highest_number(names: Iterable[str]) -> int:
    """The highest number that a sequential create can have put behind one of the names; -1."""
    numbers = (sequence_number(name) for name in names)
    return max((n for n in numbers if n is not None and n <= LAST_SEQUENCE), default=-1)


def used_up(path: str, count: int) -> list[Operation]:
    """A multi that uses up ``count`` numbers of the node at ``path``, or as many as go into one.

    It leaves nothing, and can be repeated: it then uses up more.
    """
    node = f"{path}/{_NAME}" if path != "/" else f"/{_NAME}"
    most = max(1, min(TOGETHER, _TOGETHER_BYTES // (2 * len(node.encode()) + _BYTES)))
    return [Create(node), Delete(node)] * min(count, most)


def behind(path: str, number: int, highest: int) -> str:
    """What a counter is that is behind the names of the children, in words."""
    return (
        f"the counter of {path} for sequential names stands at {number}, behind a name that is "
        f"there already, with the number {highest}, as in a copied or restored tree"
    )
