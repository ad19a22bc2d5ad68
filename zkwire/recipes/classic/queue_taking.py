"""An item that is claimed while a block works on it, and removed when the block ends well.

The claim is an ephemeral node that carries the attempt's id.  With it the item gets a new version,
in the same multi, so the version counts deliveries: a removal that names it fails as soon as
another consumer has claimed the item, also where an outsider has deleted the claim.
"""

from __future__ import annotations

from contextlib import suppress

from zkwire.errors import (
    BadVersionError,
    LockLostError,
    MultiError,
    NoNodeError,
    SessionExpiredError,
)
from zkwire.operations.multi import Check, Create, Delete, SetData
from zkwire.recipes.attempt import Attempt, LockInUseError
from zkwire.recipes.classic.queue import ItemQueue
from zkwire.recipes.classic.queue_items import item
from zkwire.recipes.enterable import Enterable
from zkwire.recipes.entry import Entry
from zkwire.recipes.lost import Lost
from zkwire.recipes.runtime import in_time, newest, one_refusal
from zkwire.recipes.supervised import Recipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from zkwire.operations import Operations
    from zkwire.recipes.classic.mark import Mark
    from zkwire.recipes.classic.queue_items import QueueItem


class Taking(Recipe, Entry, Enterable):
    """One item, for one block; see :meth:`zkwire.Queue.take`."""

    def __init__(self, queue: ItemQueue, timeout: float | None) -> None:
        super().__init__(queue._runtime, queue._layout.taken, queue._acl)
        self._queue = queue
        self._timeout = timeout
        self._mark: Mark | None = None
        self._claim: Attempt | None = None
        self._item: QueueItem | None = None
        self._lost = Lost(self._runtime)

    async def _enter_body(self) -> QueueItem:
        if self._busy or self._owned or self._item is not None:
            raise LockInUseError("a taking is for one block: call take() again")
        search, mark = self._queue._search(self._timeout), None
        self._busy = True
        try:
            self._mark = mark = await self._queue._marks.lend(search._deadline)
            self._runtime.engaged.add(self)
            while True:
                name, (data, stat) = await search.next()
                attempt = Attempt(self._runtime.session_id, self._runtime.unique())
                attempt.node, attempt.entered = f"{self._path}/{name}", True
                self._pending_cleanup = attempt
                claim = [
                    Create(attempt.node, attempt.id.encode(), self._acl, ephemeral=True),
                    SetData(f"{self._queue._layout.items}/{name}", data, stat.version),
                ]
                if await self._queue._claimed(mark, claim, search._deadline):
                    self._item = item(name, data, stat, self._lost)
                    self._runtime.hold(self._lost)
                    # interrupt-safe: last, and together.
                    self._claim, self._pending_cleanup = attempt, None
                    return self._item
                self._pending_cleanup = None
        except BaseException:
            self._clean_up_pending()
            self._queue._choice.forget()
            if mark is not None:
                self._queue._marks.give_back(mark)
            raise
        finally:
            self._busy = False  # first: an interrupt of the rest leaves it to `_abandon`
            search.end()
            self._disengage()

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        """Remove the item, or give it back."""
        attempt, mark, taken = self._claim, self._mark, self._item
        if attempt is None or mark is None or taken is None:
            return
        self._releasing, self._pending_cleanup = True, attempt
        try:
            self._end_claim()
            if kind is None:
                await self._remove(mark, attempt, taken)
                self._pending_cleanup = None
        finally:
            if self._pending_cleanup is not None:
                self._queue._choice.forget()  # it is the first one again
            try:
                self._clean_up_pending()
            finally:
                self._queue._marks.give_back(mark)
                self._releasing = False
                self._disengage()

    async def _remove(self, mark: Mark, attempt: Attempt, taken: QueueItem) -> None:
        path, limit = f"{self._queue._layout.items}/{taken.name}", in_time(self._runtime, None)
        assert attempt.node is not None
        removal = [Delete(attempt.node), Delete(path, taken.deliveries)]
        try:
            await one_refusal(self._queue._marks.execute, mark, removal, limit)
        except (NoNodeError, BadVersionError) as refusal:
            raise lost(path, "the server does not find its claim") from refusal
        except SessionExpiredError as error:
            loss = lost(path, "the session has expired")
            loss.maybe_applied = error.maybe_applied
            raise loss from error

    def _end_claim(self) -> None:
        self._claim = None
        self._runtime.unhold(self._lost)

    def _abandon(self) -> None:
        """Give the item back: where nothing may await."""
        if self._claim is not None:
            self._pending_cleanup, self._claim = self._claim, None
        self._resume_cleanup()

    @property
    def _owned(self) -> bool:
        return self._claim is not None

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        node, taken = attempt.node, self._item
        assert node is not None
        if taken is not None:  # at once: what the caller asks for next comes behind it
            path = f"{self._queue._layout.items}/{taken.name}"
            with suppress(MultiError):
                await operations.multi([Check(path, taken.deliveries), Delete(node)])
                return
        data, stat = await newest(operations, operations.get_data, node)
        if stat.ephemeral_owner == self._runtime.session_id and data == attempt.id.encode():
            await operations.delete(node)


class AsyncQueue(ItemQueue):
    """A queue in which each item is put once, and removed by one consumer.

        queue = AsyncQueue(client, "/jobs")
        await queue.put(b"resize image 7")

        async with queue.take() as item:
            await work(item.data)

    Any number of tasks and processes put and take; one object serves all tasks of a client.
    A lost connection is no error of any call: what became of a request is found out on the next
    one.  ``get`` removes an item at once, ``take`` when the work on it is done.

    ``flat``: the items are children of ``path`` itself, as those of kazoo's Queue are; else the
    layout is that of kazoo's LockingQueue.  ``max_items``: a put that would exceed it is refused.
    ``acl``: the access list of all nodes, None for the client's.

    A queue lives in the memory of every server, and all its names go into one reply: it is for
    thousands of small items, not for millions.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    def take(self, timeout: float | None = None) -> AbstractAsyncContextManager[QueueItem]:
        """The first item, claimed for the body of a ``with`` and removed when that ends well.

            async with queue.take() as item:
                await work(item.data)

        The ``with`` waits for an item as :meth:`get` does: QueueEmptyError, before the body, when
        ``timeout`` seconds have passed without one.  Other consumers leave out an item that is
        claimed.

        When the body raises, the item is given back, at its place in the order.  So it is when this
        program ends or its session expires: the claim is an ephemeral node.  The work may then be
        done twice, which ``item.deliveries`` shows.

        The end of the ``with`` removes item and claim in one request that proves the claim.
        LockLostError: the claim was lost before that (the session had expired, an outsider has
        deleted it), the item was not removed, and another consumer may have it.  (With
        ``maybe_applied`` the session has expired in that moment, and it may be removed.)
        OperationTimeoutError: no server has answered within the ``operation_timeout``, and it is in
        doubt whether the item was removed; if not, it is given back in the background.
        """
        return Taking(self, timeout)


def lost(path: str, reason: str) -> LockLostError:
    """The error of a claim that its end has not found."""
    return LockLostError(
        f"{path} was no longer claimed when the work on it ended ({reason}), and was not removed: "
        "another consumer may have it"
    )
