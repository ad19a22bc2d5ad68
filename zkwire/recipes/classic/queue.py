"""A queue: each item is put once, and removed by one consumer.

A removal is a multi that is executed exactly once (:mod:`zkwire.recipes.classic.mark`).  It
creates and deletes the item's claim, so it cannot hit an item that a consumer has claimed; it
names the version of the item that was read, so it hits that and no later state of it.  In the flat
layout, where claims are zkwire's alone, version 0 says that the item never was claimed.

:mod:`zkwire.recipes.classic.queue_putting` puts, :mod:`zkwire.recipes.classic.queue_taking` claims.
"""

from __future__ import annotations

from zkwire.errors import BadVersionError, MultiError, NodeExistsError, NoNodeError
from zkwire.operations.multi import Create, Delete
from zkwire.recipes.classic.queue_items import item
from zkwire.recipes.classic.queue_putting import PuttingQueue
from zkwire.recipes.classic.queue_search import Search
from zkwire.recipes.runtime import in_time, persist, within
from zkwire.session.waitable import check_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from zkwire.operations.multi import Operation
    from zkwire.recipes.classic.mark import Mark
    from zkwire.recipes.classic.queue_items import QueueItem


class ItemQueue(PuttingQueue):
    """The queue, without claims."""

    async def get(self, timeout: float | None = None) -> QueueItem:
        """Remove the first item, and return it.

        Waits for one as long as it takes; with a ``timeout``, QueueEmptyError when that has passed,
        with 0 as soon as a server has said so.  OperationTimeoutError if no server has answered in
        that time (with 0: within the ``operation_timeout``, without one two session timeouts).

        A lost connection is no error: whether this call has removed the item is found out on the
        next one.  But an item that is removed is in the hands of this program alone: if that ends
        before its work is done, or if this call is cancelled or interrupted or ends with
        ``maybe_applied`` (OperationTimeoutError, SessionExpiredError), the item may be lost.  Where
        no item may be lost, use :meth:`take`.
        """
        search = self._search(timeout)
        mark = await self._marks.lend(search._deadline)
        try:
            while True:
                name, (data, stat) = await search.next()
                removal = self._removal(name, stat.version)
                if await self._claimed(mark, removal, search._deadline):
                    return item(name, data, stat)
        except BaseException:
            self._choice.forget()  # or the next call would pass over what this one has tried
            raise
        finally:
            search.end()
            self._marks.give_back(mark)

    async def __aiter__(self) -> AsyncGenerator[QueueItem, None]:
        """The items, as they come, each removed from the queue as by :meth:`get`; never ends."""
        while True:
            yield await self.get()

    async def peek(self, *, timeout: float | None = None) -> QueueItem | None:
        """The first item that no consumer has claimed, which stays in the queue; None without."""
        deadline = within(self._runtime, timeout)
        read = self._runtime.operations.get_data
        while names := await self._choice.list(deadline):
            name = names[0]
            try:
                seen = await persist(self._runtime, deadline, read, f"{self._layout.items}/{name}")
                return item(name, *seen)
            except NoNodeError:
                pass  # removed meanwhile
        return None

    # --- inside -----------------------------------------------------------------------------------

    def _search(self, timeout: float | None) -> Search:
        self._runtime.check()
        limit = check_timeout("timeout", timeout)
        # With 0 the answers have their usual time.
        deadline = None if limit is None else within(self._runtime, limit or None)
        return Search(self._choice, deadline, limit != 0)

    def _removal(self, name: str, version: int) -> list[Operation]:
        """What removes an item that no consumer has claimed, in this version."""
        delete = Delete(f"{self._layout.items}/{name}", version)
        if self._layout.flat and not version:
            return [delete]
        claim = f"{self._layout.taken}/{name}"
        return [Create(claim, b"", self._acl, ephemeral=True), Delete(claim), delete]

    async def _claimed(
        self, mark: Mark, operations: list[Operation], deadline: float | None
    ) -> bool:
        """Whether this removal or claim was executed; else another consumer was faster."""
        await self._marks.make(mark, in_time(self._runtime, deadline))
        while True:
            try:
                await self._marks.execute(mark, operations, in_time(self._runtime, deadline))
                return True
            except MultiError as error:
                refusal = error._culprit
                if not isinstance(refusal, (NodeExistsError, NoNodeError, BadVersionError)):
                    raise refusal from None
                # Where a claim is created, its folder may be missing; else it is the item.
                folder = error.index == 0 < len(operations) - 1
                if not folder or isinstance(refusal, NodeExistsError):
                    self._choice.missed()
                    return False
                await self._layout.provide(self._runtime, self._acl, deadline)
