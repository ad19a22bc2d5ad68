"""The queue for asyncio."""

from __future__ import annotations

from zkwire.aio.locks import runtime_of
from zkwire.recipes.classic.queue import ItemQueue
from zkwire.recipes.classic.queue_taking import Taking
from zkwire.recipes.public import public

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from zkwire.aio.client import AsyncClient
    from zkwire.jute.records import ACL
    from zkwire.recipes.classic.queue_items import QueueItem


@public
class AsyncQueue(ItemQueue):
    """Each item is put once, and removed by one consumer.

        async with queue.take() as item:
            await work(item.data)

    See :class:`zkwire.Queue`.
    """

    def __init__(
        self,
        client: AsyncClient,
        path: str,
        *,
        flat: bool = False,
        max_items: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        super().__init__(runtime_of(client), path, flat=flat, max_items=max_items, acl=acl)

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.path}>"

    def take(self, timeout: float | None = None) -> AbstractAsyncContextManager[QueueItem]:
        """The first item, claimed for an ``async with``; see :meth:`zkwire.Queue.take`."""
        return AsyncQueueTaking(self, timeout)


class AsyncQueueTaking(Taking):
    """One item, for one ``async with``; see :meth:`zkwire.Queue.take`."""

    async def __aenter__(self) -> QueueItem:
        return await self._enter()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._exit(kind is None)
        except BaseException:
            self._exit_later()
            raise
