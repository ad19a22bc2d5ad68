"""Items shared out among the members of a group, for asyncio."""

from __future__ import annotations

from zkwire.aio.membership import AsyncClosing
from zkwire.aio.watching import sessions_of
from zkwire.recipes.public import public
from zkwire.recipes.services.partition import Partition
from zkwire.recipes.services.partitioner import PartitionerView, Partitioning
from zkwire.recipes.services.share import AsyncShare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from zkwire.aio.watching import AsyncNodeWatches
    from zkwire.jute.records import ACL


@public
class AsyncPartitioner(PartitionerView, Partitioning, AsyncClosing):
    """Shares out items among all members that have been given the same ones.

        async with AsyncPartitioner(supervisor, "/crawl", ["a", "b", "c"]) as partitioner:
            async for share in partitioner:
                workers.start(share)
                await share.wait()
                await workers.stop(share.leaving)

    Like :class:`zkwire.Partitioner`.
    """

    def __init__(
        self,
        client: AsyncNodeWatches,
        path: str,
        items: Iterable[str],
        *,
        name: str | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(sessions_of(client), Partition(path, items, name, acl), AsyncShare)

    if TYPE_CHECKING:

        async def next(self, timeout: float | None = None) -> AsyncShare | None: ...
        def __aiter__(self) -> AsyncGenerator[AsyncShare, None]: ...
