"""Brings the counter of sequential names past the names: see :mod:`zkwire.operations.sequence`."""

from __future__ import annotations

from zkwire.errors import NodeExistsError
from zkwire.operations.sequence import behind, highest_number, next_number, used_up
from zkwire.recipes.runtime import one_refusal, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.runtime import Runtime


async def catch_up(runtime: Runtime, path: str, most: int, deadline: float | None) -> int:
    """Bring the counter of ``path`` past the names of its children; returns where it stands.

    NodeExistsError if more than ``most`` numbers are missing; nothing is changed then.  A lost
    connection is no error.  OperationTimeoutError at the deadline: the next call goes on from where
    this one was.
    """
    read = runtime.operations.get_children_with_stat
    names, stat = await persist(runtime, deadline, read, path)
    number, highest = next_number(stat.cversion, stat.num_children), highest_number(names)
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
        await one_refusal(persist, runtime, deadline, runtime.operations.multi, pairs)
        missing -= len(pairs) // 2
    return highest + 1
