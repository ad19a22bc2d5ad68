"""How items get into a queue: each one once, and not too many.

A put is a multi that is executed exactly once (:mod:`zkwire.recipes.classic.mark`).  To look for
the item after a lost reply would not do: a consumer may have removed it before the look, and a
second put would deliver it twice.
"""

from __future__ import annotations

from zkwire.errors import NodeExistsError, NoNodeError, SequenceExhaustedError, ZooKeeperError
from zkwire.operations.checks import check_acl
from zkwire.operations.multi import Appended
from zkwire.recipes.classic.marks import PassingMarks
from zkwire.recipes.classic.queue_choice import Choice
from zkwire.recipes.classic.queue_items import Layout, QueueFullError, check_item, prefix
from zkwire.recipes.locks.sequential_entry import SPARE_NUMBERS
from zkwire.recipes.runtime import one_refusal, persist, runtime_of, within
from zkwire.recipes.sequence import catch_up
from zkwire.recipes.view import PathView
from zkwire.wire.paths import LAST_SEQUENCE, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from zkwire.jute.records import ACL
    from zkwire.operations.multi import Operation
    from zkwire.recipes.classic.mark import Mark
    from zkwire.recipes.runtime import AsyncClientLike

TOGETHER = 100  # items of one request, and their bytes
TOGETHER_BYTES = 256 * 1024
MOST_MISSING = 100_000
"""Numbers that a put uses up so that the counter is past the names of a copied queue: seconds."""


class PuttingQueue(PathView):
    """A queue for producers."""

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        *,
        flat: bool = False,
        max_items: int | None = None,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        wrong = not isinstance(max_items, int) or isinstance(max_items, bool) or max_items < 1
        if wrong and max_items is not None:
            raise ValueError(f"max_items must be at least 1, or None, not {max_items!r}")
        self._runtime = runtime = runtime_of(client)
        self._layout = Layout(path, flat)
        self._path = path = self._layout.path
        self._max_items = max_items
        self._acl = None if acl is None else check_acl(acl)
        self._marks = PassingMarks(runtime, self._layout.marks, path, self._acl)
        self._choice = Choice(runtime, self._layout, self._acl)
        self._number = 0  # of the last item that was put here

    async def put(self, data: bytes, priority: int = 100, *, timeout: float | None = None) -> int:
        """Put an item into the queue, exactly once; returns its zxid.

        Items of a lower ``priority``, 0 to 999, come first, those of one priority in the order of
        their puts.  The zxid rises from put to put, and ``item.zxid`` of the consumer is the same
        (0 if an outsider has written into the node that would tell).

        A lost connection is no error: whether the item was put is found out on the next one, within
        ``timeout`` seconds, by default the client's ``operation_timeout``.  OperationTimeoutError,
        SessionExpiredError or a cancellation leave it in doubt if ``maybe_applied``: the item was
        put once, or not at all.  QueueFullError if there are ``max_items`` already; of several
        producers each may be too late to see that.  ValueError if the item is too large.
        NodeExistsError in a copied queue whose counter is more than 100,000 behind the names of its
        items; if it is less, it is brought past them.
        """
        (zxid,) = await self.put_many([data], priority, timeout=timeout)
        return zxid

    async def put_many(
        self, items: Iterable[bytes], priority: int = 100, *, timeout: float | None = None
    ) -> list[int]:
        """Put the items in this order, each exactly once; returns the zxid of each.

        Up to 100, or 256 KiB, are put in one request: all of these or none, with one zxid, and
        nothing between them.  ``timeout`` is for each request.  An error says by ``maybe_applied``
        whether some may have been put; these are the first ones.  See :meth:`put`.
        """
        beginning = f"{self._layout.items}/{prefix(priority)}"
        if isinstance(items, bytes | str):
            raise TypeError("put_many takes a list of items: put() takes a single one")
        limit = self._runtime.send_limit
        checked = [check_item(data, limit) for data in items]
        zxids: list[int] = []
        deadline = within(self._runtime, timeout)
        mark = await self._marks.lend(deadline)
        try:
            for together in _together(checked, limit):
                zxid = await self._add(mark, beginning, together, deadline)
                zxids += [zxid] * len(together)
                deadline = within(self._runtime, timeout)
        except ZooKeeperError as error:
            error.maybe_applied = error.maybe_applied or bool(zxids)
            raise
        finally:
            self._marks.give_back(mark)
            self._choice.forget()
        return zxids

    async def size(self, *, timeout: float | None = None) -> int:
        """How many items there are, claimed ones included."""
        return await self._size(within(self._runtime, timeout))

    # --- inside -----------------------------------------------------------------------------------

    async def _size(self, deadline: float) -> int:
        look = self._runtime.operations.exists
        stat = await persist(self._runtime, deadline, look, self._layout.items)
        return 0 if stat is None else stat.num_children

    async def _refuse_if_full(self, most: int, more: int, deadline: float) -> None:
        size = await self._size(deadline)
        if size + more > most:
            raise QueueFullError(
                f"{self.path} has {size} of {most} items and cannot take {more} more"
            )

    def _used_up(self) -> SequenceExhaustedError:
        return SequenceExhaustedError(
            f"no number is left: empty the queue, delete {self._layout.items}, make a new Queue"
        )

    async def _add(self, mark: Mark, beginning: str, items: list[bytes], deadline: float) -> int:
        if self._number > LAST_SEQUENCE - SPARE_NUMBERS:
            raise self._used_up()
        if self._max_items is not None:
            await self._refuse_if_full(self._max_items, len(items), deadline)
        creates: list[Operation] = [Appended(beginning, items, self._acl)]
        while True:
            try:
                execute = self._marks.execute
                paths, zxid = await one_refusal(execute, mark, creates, deadline)
                if paths:
                    self._number = sequence_number(paths[-1]) or 0
                return zxid
            except NodeExistsError:  # the counter is behind the names, or at its end
                number = await catch_up(self._runtime, self._layout.items, MOST_MISSING, deadline)
                if number > LAST_SEQUENCE - SPARE_NUMBERS:
                    self._number = LAST_SEQUENCE
                    raise self._used_up() from None
            except NoNodeError:
                await self._layout.provide(self._runtime, self._acl, deadline)


def _together(items: list[bytes], send_limit: int) -> Iterator[list[bytes]]:
    """The items in groups that go into one request each.

    A quarter of its bytes, at most, are data, and each item has its share of the rest.
    """
    most = min(TOGETHER, send_limit // 1024)
    most_of_data = min(TOGETHER_BYTES, send_limit // 4)
    group: list[bytes] = []
    size = 0
    for data in items:
        if group and (len(group) == most or size + len(data) > most_of_data):
            yield group
            group, size = [], 0
        group.append(data)
        size += len(data)
    if group:
        yield group
