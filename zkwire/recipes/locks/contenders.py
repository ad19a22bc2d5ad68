"""The contenders in a queue: what a person asks for that waits in it."""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import NoAuthError, NoNodeError
from zkwire.jute.record import Record
from zkwire.jute.records import Stat
from zkwire.recipes.runtime import answered, in_time, persist
from zkwire.wire.paths import sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.runtime import Runtime


UNKNOWN = Stat(*[0] * 11)


class Contender(Record):
    """One contender: its place in the order, its session, and the text that it has left.

    The first is the holder of a lock, or the leader.  Of a node that may not be read ``text`` is
    None, and ``session_id`` is 0 where the server (3.8.4, 3.9.2 and later) hides that, too.
    """

    path: str
    sequence: int
    session_id: int
    text: str | None


async def contenders(runtime: Runtime, path: str, *, numbered: bool = True) -> list[Contender]:
    """The contenders below ``path`` in order; no snapshot, some may be gone by now.

    Without ``numbered`` each child is one, and the transaction that has made it is its number.
    Raises OperationTimeoutError after the ``operation_timeout``, without one after two session
    timeouts.
    """
    deadline = in_time(runtime, None)
    try:
        names = await persist(runtime, deadline, runtime.operations.get_children, path)
    except NoNodeError:
        return []
    numbers = {f"{path}/{name}": sequence_number(name) if numbered else 0 for name in names}
    replies = {
        n: runtime.operations.get_data(n) for n, number in numbers.items() if number is not None
    }
    found: list[Contender] = []
    for node, reply in replies.items():
        with suppress(NoNodeError):  # gone meanwhile
            try:
                data, stat = await answered(
                    runtime, deadline, reply, runtime.operations.get_data, node
                )
            except NoAuthError:
                text, stat = None, await _stat(runtime, deadline, node)
            else:
                text = data.decode("utf-8", "replace")
            number = numbers[node] or (0 if numbered else stat.czxid)
            found.append(Contender(node, number, stat.ephemeral_owner, text))
    return sorted(found, key=lambda contender: contender.sequence)


async def _stat(runtime: Runtime, deadline: float, node: str) -> Stat:
    """The stat of a node; all zeros if the server does not tell.  NoNodeError if it is gone."""
    try:
        stat = await persist(runtime, deadline, runtime.operations.exists, node)
    except NoAuthError:
        return UNKNOWN
    if stat is None:
        raise NoNodeError(op="exists", path=node)
    return stat


class Contended:
    """What contenders queue for, below its path."""

    _runtime: Runtime
    _path: str
    _numbered = True  # by a sequence number in the name of each

    async def contenders(self) -> list[Contender]:
        """The contenders in the queue, in order: session and text of each.  Not a snapshot.

        The first is the holder; so are all readers before the first writer.  (From a lease it is
        what :meth:`zkwire.Semaphore.holders` returns.)  It only reads, so after an error it can be
        repeated; a lost connection is no error here.  OperationTimeoutError after the
        ``operation_timeout``, without one two session timeouts.
        """
        return await contenders(self._runtime, self._path, numbered=self._numbered)
