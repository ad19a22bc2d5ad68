"""A number that many clients change, for threads."""

from __future__ import annotations

from zkwire.blocking.faces import runtime_of
from zkwire.blocking.run import blocking
from zkwire.recipes.classic.counter import CounterView, SharedCounter
from zkwire.recipes.public import public

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, Literal

    from zkwire.blocking.client import Client
    from zkwire.jute.records import ACL


@public
class Counter(CounterView):
    """A number that many clients change; each change is made exactly once.

        counter = Counter(client, "/orders/count")
        number = counter.add(1)

    ``add`` returns the new number, and has added exactly once, however often the connection was
    lost meanwhile.  Threads may share a counter.  The node is made by the first change; where there
    is none the number is 0.  Below it stands an ephemeral node for each client that has changed it.

    ``format``: ``"text"`` is decimal digits, of any length, as kazoo's Counter writes them;
    ``"int32"`` and ``"int64"`` are those of Curator's SharedCount and DistributedAtomicLong.

    Raises ValueError for a bad path or format.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        format: Literal["text", "int32", "int64"] = "text",
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self._algorithm = SharedCounter(runtime_of(client), path, format, acl)

    get: Final = blocking(SharedCounter.get)
    add: Final = blocking(SharedCounter.add)
    set: Final = blocking(SharedCounter.set)
    compare_and_set: Final = blocking(SharedCounter.compare_and_set)
