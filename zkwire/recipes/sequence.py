"""The counter from which a server numbers the sequential children of a node, seen from outside.

A server counts the children that were ever created; a child that is deleted keeps its number.  The
counter of a tree that was copied, or restored by a tool, begins anew, and may be behind the numbers
in the names that were kept: then new names sort before old ones, and in the end one is taken.  No
request sets the counter.  Each create counts, so pairs of a create and a delete bring it forward.
"""

from __future__ import annotations

from zkwire.errors import NodeExistsError
from zkwire.operations.multi import Create, Delete
from zkwire.recipes.runtime import one_refusal, persist
from zkwire.wire.paths import LAST_SEQUENCE, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkwire.jute.records import Stat
    from zkwire.operations.multi import Operation
    from zkwire.recipes.runtime import Runtime

TOGETHER = 500
"""Numbers that one request uses up at most: a server is busy with it for some hundredths of a
second."""
_TOGETHER_BYTES = 500_000  # of a request
_BYTES = 150  # of a pair, beside its two paths
_NAME = "zkwire-number"  # no contender and no item: it ends in no number


def next_number(stat: Stat) -> int:
    """The number that the next sequential child of this node gets.

    The version of the children that a server shows counts deletions, too: twice the counter, less
    the children that there are (``DataNode.copyStat``), in 32 bits.
    """
    return ((stat.cversion + stat.num_children) & 0xFFFFFFFF) >> 1


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


async def catch_up(runtime: Runtime, path: str, most: int, deadline: float | None) -> int:
    """Bring the counter of ``path`` past the names of its children; returns where it stands.

    NodeExistsError if more than ``most`` numbers are missing; nothing is changed then.  A lost
    connection is no error.  OperationTimeoutError at the deadline: the next call goes on from where
    this one was.
    """
    read = runtime.operations.get_children_with_stat
    names, stat = await persist(runtime, deadline, read, path)
    number, highest = next_number(stat), highest_number(names)
    if number > highest:
        return number
    missing = highest + 1 - number
    if missing > most:
        message = f"{behind(path, number, highest)}; {missing} numbers are missing, and a client "
        message += f"uses up {most} at most by itself"
        raise NodeExistsError(message, path=path)
    runtime.warn(f"{behind(path, number, highest)}: it is brought past that")
    while missing > 0:
        pairs = used_up(path, missing)
        await one_refusal(persist(runtime, deadline, runtime.operations.multi, pairs))
        missing -= len(pairs) // 2
    return highest + 1
