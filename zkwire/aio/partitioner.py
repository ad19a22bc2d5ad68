"""Items shared out among the members of a group, for asyncio."""

from __future__ import annotations

from zkwire.aio.watching import sessions_of
from zkwire.errors import OperationTimeoutError
from zkwire.recipes.services.partition import Partition
from zkwire.recipes.services.partitioner import Partitioning
from zkwire.recipes.services.partitioner_view import PartitionerView
from zkwire.recipes.services.share import AsyncShare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from typing import Self

    from zkwire.aio.watching import AsyncNodeWatches
    from zkwire.jute.records import ACL


class AsyncPartitioner(PartitionerView):
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
        partition = Partition(path, items, name, acl)
        self._algorithm = Partitioning(sessions_of(client), partition, AsyncShare)

    async def next(self, timeout: float | None = None) -> AsyncShare | None:
        return await self._algorithm.next(timeout)

    async def close(self, timeout: float | None = 10.0) -> None:
        await self._algorithm.close(timeout)

    next.__doc__ = Partitioning.next.__doc__
    close.__doc__ = Partitioning.close.__doc__

    def __aiter__(self) -> AsyncGenerator[AsyncShare, None]:
        return self._algorithm.__aiter__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except OperationTimeoutError:
            if kind is None:
                raise
