"""A queue: each item is put once, and removed by one consumer.

    /path/entries/entry-<priority>-<number>   an item; its data is the node's
    /path/taken/entry-<priority>-<number>     its claim, ephemeral
    /path/marks, /path/waiting                the tokens of changes; the consumers that wait

That is the layout of kazoo's LockingQueue.  ``flat`` is the layout of kazoo's Queue: the items are
children of the path itself, and everything else is below ``<path>-zkwire-queue``.  The names of
items are in the order of priorities, and within a priority in the order of puts; so the id of an
attempt cannot be part of a name.

**Put, get and claim** are multis that are executed exactly once, by an idempotency token
(:mod:`zkwire.recipes._node`).  After a lost reply, a look for the item would not tell, since a
consumer may have removed it.  A removal creates and deletes the item's claim, so it fails for an
item that a consumer has claimed.  It names the version of the item that was read, so it fails if
the item has changed since.  In the flat layout only zkwire makes claims; there, version 0 says that
the item was never claimed.

**Take** claims an item while a block works on it.  With the claim, in the same multi, the item gets
a new version.  So the version counts deliveries, and a removal that names it fails as soon as
another consumer has claimed the item, even if an outsider has deleted the claim.

**Which item is tried next.**  Consumers that try the same item cost each other a request for each
removal.  So a consumer that has missed many takes one name of every two, four, ... of a listing
instead, each time at another offset.  A listing is used for a tenth of a second, and its items are
read some at a time, the next ones together with the removal of the last one.

**Waiting.**  Consumers that find nothing queue for a fair lock, and only the first of them watches:
a new item wakes one consumer.  To lose that lock does no harm.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractAsyncContextManager, closing, suppress
from itertools import islice
from zlib import crc32

from zkwire import errors
from zkwire.jute.record import Record
from zkwire.operations.multi import Appended, Check, Create, Delete, Operation, SetData
from zkwire.operations.nodes import check_acl, check_data, check_flag
from zkwire.recipes._node import Attempt, OwnedNode, TemporaryTokens, Token
from zkwire.recipes._recipe import Enterable, HasPath, LockInUseError, Lost, Recipe
from zkwire.recipes.runtime import CHANGED, newest, runtime_of, unwrap_multi_error
from zkwire.recipes.sequential import SPARE_NUMBERS, OrderQueue, catch_up
from zkwire.session.waitable import Watch, check_timeout
from zkwire.wire.paths import LAST_SEQUENCE, SEQUENCE_DIGITS, check_below_root, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

    from zkwire.jute.records import ACL, Stat
    from zkwire.operations import Operations, Reply
    from zkwire.recipes.runtime import AsyncClientLike
    from zkwire.wire.model import DataAndStat


_PREFIX = "entry-"
_PRIORITY = slice(len(_PREFIX), len(_PREFIX) + 3)
_LOWEST = 999
_NAME_LENGTH = len(_PREFIX) + len("100-") + SEQUENCE_DIGITS
_OTHER_BYTES = 8192


class QueueEmptyError(errors.OperationTimeoutError):
    """The time limit passed, and there was no item to take."""


class QueueFullError(errors.ZooKeeperError):
    """The queue has ``max_items`` items, or these would be too many; none of them was put."""


class QueueItem(Record):
    """An item of a queue.

    ``name`` is the name of its node, which no other item has.  ``zxid`` is what its ``put`` has
    returned.  ``deliveries``: how often it has been taken, this time included; 0 from ``get`` and
    ``peek`` if it was never taken.

    ``lost`` is the loss of the claim, if ``take`` has claimed the item.  As with the loss of a
    lock, a program can wait for it or be called back by it.  It fires when the session is over, or
    may be; if an outsider deletes the claim, only the end of the ``with`` says so.  A copy of the
    item in another process has no ``lost``.
    """

    data: bytes
    priority: int
    name: str
    zxid: int
    deliveries: int
    lost: Lost | None = None

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return QueueItem, tuple(self)[:-1]  # pyright: ignore


def prefix(priority: int) -> str:
    """The beginning of the name of an item."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}")
    if not 0 <= priority <= _LOWEST:
        raise ValueError(f"priority must be 0 (first) to {_LOWEST}, not {priority}")
    return f"{_PREFIX}{priority:03d}-"


def is_item(name: str) -> bool:
    """Whether a child of this name is an item, and not another client's node."""
    if len(name) != _NAME_LENGTH or not name.startswith(_PREFIX):
        return False
    digits = name[_PRIORITY] + name[-SEQUENCE_DIGITS:]
    return digits.isdigit() and digits.isascii()


def item(name: str, data: bytes, stat: Stat, lost: Lost | None = None) -> QueueItem:
    deliveries = stat.version + (lost is not None)  # a claim counts
    return QueueItem(data, int(name[_PRIORITY]), name, stat.czxid, deliveries, lost)


def most_bytes(send_limit: int) -> int:
    """The longest item for this ``send_limit``; the rest is for paths and access lists."""
    return send_limit - min(_OTHER_BYTES, send_limit // 2)


def check_item(data: bytes, send_limit: int) -> bytes:
    """``data`` if it can be an item, where requests have so many bytes."""
    most = most_bytes(send_limit)
    if len(check_data(data)) > most:
        raise ValueError(
            f"with this client's send_limit, {send_limit}, an item has at most {most} bytes, not "
            f"{len(data)}: put the data elsewhere, and its name into the queue"
        )
    return data


WINDOW = 512  # names of a listing that are used
AHEAD = 8  # items that are read at once
FRESH = 0.1  # seconds for which a listing is used
MOST_APART = 16
FEW = 3  # misses that say nothing yet


class Search:
    """One consumer's search, which ends with a QueueEmptyError: see :meth:`AsyncQueue.get`."""

    def __init__(self, queue: AsyncQueue, timeout: float | None) -> None:
        queue._runtime.check()
        limit = check_timeout("timeout", timeout)
        # With 0, a server has its usual time to answer.
        self._deadline = None if limit is None else queue._runtime.deadline(limit or None)
        self._queue = queue
        self._wait = limit != 0
        self._line: OrderQueue | None = None

    async def next(self) -> tuple[str, DataAndStat]:
        """An item that may be free."""
        queue, found = self._queue, None
        while found is None:
            self._check_time()
            found = await queue._known(self._deadline)
            if found is None:
                names = await queue._list(self._deadline)
                queue._share(names or await self._arrival())
        self._check_time()
        return found

    def _check_time(self) -> None:
        """No request begins that cannot be answered in time: it would end in doubt."""
        if self._deadline is not None and self._queue._runtime.now() >= self._deadline:
            raise self._empty()

    def end(self) -> None:
        if self._line is not None:
            self._line._release_in_background()

    async def _arrival(self) -> list[str]:
        """The names, as soon as there are any and it is this consumer's turn."""
        if not self._wait:
            raise self._empty()
        queue, deadline = self._queue, self._deadline
        try:
            await self._stand_in_line()
            while True:
                with closing(Watch()) as watch:
                    names = await queue._list(deadline, watch)
                    if names:
                        return names
                    await queue._runtime.event(watch, deadline)
        except errors.OperationTimeoutError:
            raise self._empty() from None  # it was, when it was seen last

    async def _stand_in_line(self) -> None:
        """Be the first of the consumers that wait."""
        queue = self._queue
        while self._line is None or not self._line._owned:
            line = self._line = OrderQueue(queue._runtime, queue._waiting, acl=queue._acl)
            line._kept = queue._path
            with suppress(errors.LockLostError):  # nothing of this attempt is left
                await line._acquire_by(self._deadline, True)

    def _empty(self) -> QueueEmptyError:
        return QueueEmptyError("there is no item to take", op="get", path=self._queue._path)


TOGETHER = 100  # items of one request, and their bytes
TOGETHER_BYTES = 256 * 1024
MOST_MISSING = 100_000  # numbers that a put uses up to be past a copied queue's names: seconds


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


class Taking(Recipe, OwnedNode, Enterable):
    """One item, for one block; see :meth:`zkwire.Queue.take`."""

    def __init__(self, queue: AsyncQueue, timeout: float | None) -> None:
        super().__init__(queue._runtime, queue._taken, acl=queue._acl)
        self._queue = queue
        self._timeout = timeout
        self._token: Token | None = None
        self._item: QueueItem | None = None
        self._lost = Lost(self._runtime)

    async def _enter_body(self) -> QueueItem:
        if self._busy or self._owned or self._item is not None:
            raise LockInUseError("a taking is for one block: call take() again")
        search, token = Search(self._queue, self._timeout), None
        self._busy = True
        try:
            self._token = token = await self._queue._tokens.acquire(search._deadline)
            self._runtime.active_locks.add(self)
            while True:
                name, (data, stat) = await search.next()
                attempt = Attempt(self._runtime)
                attempt.node, attempt.entered = f"{self._path}/{name}", True
                self._pending_cleanup = attempt
                claim = [
                    Create(attempt.node, attempt.id.encode(), self._acl, ephemeral=True),
                    SetData(f"{self._queue._items}/{name}", data, stat.version),
                ]
                if await self._queue._claimed(token, claim, search._deadline):
                    lost = self._lost = Lost(self._runtime)  # one for each claim
                    lost._begin(attempt.node)
                    self._item = item(name, data, stat, lost)
                    # interrupt-safe: last, and together.
                    self._granted, self._pending_cleanup = attempt, None
                    return self._item
                self._pending_cleanup = None
        except BaseException:
            self._clean_up_pending()
            self._queue._forget()
            if token is not None:
                self._queue._tokens.release(token)
            raise
        finally:
            self._busy = False  # first: an interrupt of the rest leaves it to `_abandon`
            search.end()
            self._set_inactive()

    async def _leave_body(self, kind: type[BaseException] | None) -> None:
        """Remove the item, or give it back."""
        attempt, token, taken = self._granted, self._token, self._item
        if attempt is None or token is None or taken is None:
            return
        self._releasing, self._pending_cleanup = True, attempt
        try:
            self._end_claim()
            if kind is None:
                await self._remove(token, attempt, taken)
                self._pending_cleanup = None
        finally:
            if self._pending_cleanup is not None:
                self._queue._forget()  # it is the first one again
            try:
                self._clean_up_pending()
            finally:
                self._queue._tokens.release(token)
                self._releasing = False
                self._set_inactive()

    async def _remove(self, token: Token, attempt: Attempt, taken: QueueItem) -> None:
        path, limit = f"{self._queue._items}/{taken.name}", self._runtime.in_time(None)
        removal = [Delete(attempt.node), Delete(path, taken.deliveries)]
        try:
            await unwrap_multi_error(self._queue._tokens.execute, token, removal, limit)
        except (errors.NoNodeError, errors.BadVersionError, errors.SessionExpiredError) as error:
            over = isinstance(error, errors.SessionExpiredError)
            why = "the session has expired" if over else "the server does not find its claim"
            loss = errors.LockLostError(
                f"{path} was no longer claimed when the work on it ended ({why}), and was not "
                "removed: another consumer may have it"
            )
            loss.maybe_applied = over and error.maybe_applied
            raise loss from error

    def _end_claim(self) -> None:
        self._granted = None
        self._runtime.unhold(self._lost)

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        node, taken = attempt.node, self._item
        if taken is not None:  # at once: what the caller asks for next comes after it
            path = f"{self._queue._items}/{taken.name}"
            with suppress(errors.MultiError):
                await operations.multi([Check(path, taken.deliveries), Delete(node)])
                return
        data, stat = await newest(operations, operations.get_data, node)
        if stat.ephemeral_owner == self._runtime.session_id and data == attempt.id.encode():
            await operations.delete(node)


class AsyncQueue(HasPath):
    """A queue in which each item is put once, and removed by one consumer.

        queue = AsyncQueue(client, "/jobs")
        await queue.put(b"resize image 7")

        async with queue.take() as item:
            await work(item.data)  # yours to write

    Any number of tasks and processes put and take; one object serves all tasks of a client.
    A lost connection is not an error of any call: on the next connection the client finds out what
    became of a request.  ``get`` removes an item at once, ``take`` when the work on it is done.

    ``flat``: the items are children of ``path`` itself, as in kazoo's Queue; otherwise the layout
    is that of kazoo's LockingQueue.  ``max_items``: a put that would exceed it is refused.
    ``acl``: the access list of all nodes, None for the client's.

    A queue lives in the memory of every server, and all its names go into one reply: it is for
    thousands of small items, not for millions.
    """

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
        self._runtime = runtime_of(client)
        self._path = path = check_below_root(path, "a queue")
        self._acl = None if acl is None else check_acl(acl)
        self._flat = check_flag("flat", flat)
        self._items = path if flat else f"{path}/entries"
        side = f"{path}-zkwire-queue" if flat else path
        self._taken = f"{side}/taken"
        self._waiting = f"{side}/waiting"
        self._max_items = max_items
        self._tokens = TemporaryTokens(self._runtime, f"{side}/marks", acl=self._acl)
        self._tokens._kept = path
        self._number = 0  # of the last item that was put here
        self._names: list[str] = []  # of the last listing
        self._ahead: deque[tuple[str, Reply[DataAndStat]]] = deque()
        self._fresh_until = 0.0
        self._apart = 1
        self._tried = self._missed = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    async def put(self, data: bytes, priority: int = 100, *, timeout: float | None = None) -> int:
        """Put an item into the queue, exactly once; returns its zxid.

        Items with a lower ``priority``, 0 to 999, come first; items of one priority come in the
        order of their puts.  The zxid rises from put to put, and the consumer's ``item.zxid`` is
        the same.  (This call returns 0 if an outsider has written into the token of the put.)

        A lost connection is not an error: on the next one the client finds out whether the item was
        put, within ``timeout`` seconds, by default the client's ``operation_timeout``.
        OperationTimeoutError, SessionExpiredError or a cancellation leave it in doubt if
        ``maybe_applied``: the item was put once, or not at all.  QueueFullError if there are
        ``max_items`` already; if several producers put at once, there may be more.  ValueError if
        the item is too large.  NodeExistsError in a copied queue whose counter is more than 100,000
        lower than the names of its items; if it is less, the counter is brought past them.
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
        beginning = f"{self._items}/{prefix(priority)}"
        if isinstance(items, bytes | str):
            raise TypeError("put_many takes a list of items: put() takes a single one")
        limit = self._runtime.session.send_limit
        checked = [check_item(data, limit) for data in items]
        zxids: list[int] = []
        deadline = self._runtime.deadline(timeout)
        token = await self._tokens.acquire(deadline)
        try:
            for together in _together(checked, limit):
                zxid = await self._add(token, beginning, together, deadline)
                zxids += [zxid] * len(together)
                deadline = self._runtime.deadline(timeout)
        except errors.ZooKeeperError as error:
            error.maybe_applied = error.maybe_applied or bool(zxids)
            raise
        finally:
            self._tokens.release(token)
            self._forget()
        return zxids

    async def get(self, timeout: float | None = None) -> QueueItem:
        """Remove the first item, and return it.

        Waits for an item as long as it takes.  With a ``timeout``, QueueEmptyError when that has
        passed; with 0, as soon as a server has said that there is none.  OperationTimeoutError if
        no server has answered in that time (with 0: within the ``operation_timeout``, or two
        session timeouts if the client has none).

        A lost connection is not an error: on the next one the client finds out whether this call
        has removed the item.  But once it is removed, only this program has the item.  It may be
        lost if the program ends before the work is done, or if this call is cancelled or
        interrupted or ends with ``maybe_applied`` (OperationTimeoutError, SessionExpiredError).  If
        no item may be lost, use :meth:`take`.
        """
        search = Search(self, timeout)
        token = await self._tokens.acquire(search._deadline)
        try:
            while True:
                name, (data, stat) = await search.next()
                removal = self._removal(name, stat.version)
                if await self._claimed(token, removal, search._deadline):
                    return item(name, data, stat)
        except BaseException:
            self._forget()  # or the next call would pass over what this one has tried
            raise
        finally:
            search.end()
            self._tokens.release(token)

    async def __aiter__(self) -> AsyncGenerator[QueueItem, None]:
        """The items, as they come, each removed from the queue as by :meth:`get`; never ends."""
        while True:
            yield await self.get()

    def take(self, timeout: float | None = None) -> AbstractAsyncContextManager[QueueItem]:
        """The first item, claimed for the body of a ``with`` and removed when that ends well.

            async with queue.take() as item:
                await work(item.data)  # yours to write

        The ``with`` waits for an item as :meth:`get` does: QueueEmptyError, before the body, when
        ``timeout`` seconds have passed without one.  Other consumers leave out an item that is
        claimed.

        When the body raises, the item is given back, at its place in the order.  The same happens
        when this program ends or its session expires, since the claim is an ephemeral node.  The
        work may then be done twice; ``item.deliveries`` shows that.

        The end of the ``with`` removes item and claim in one request that proves the claim.
        LockLostError: the claim was lost before that (the session had expired, an outsider has
        deleted it), the item was not removed, and another consumer may have it.  (With
        ``maybe_applied`` the session has expired in that moment, and it may be removed.)  It comes
        before the body if the session may be over by then, as after a pause of this process.
        OperationTimeoutError: no server has answered within the ``operation_timeout``, and it is in
        doubt whether the item was removed; if not, it is given back in the background.
        """
        return Taking(self, timeout)

    async def peek(self, *, timeout: float | None = None) -> QueueItem | None:
        """The first item that no consumer has claimed, or None.  It stays in the queue."""
        deadline = self._runtime.deadline(timeout)
        read = self._runtime.operations.get_data
        while names := await self._list(deadline):
            name = names[0]
            with suppress(errors.NoNodeError):  # removed meanwhile
                seen = await self._runtime.retry(deadline, read, f"{self._items}/{name}")
                return item(name, *seen)
        return None

    async def size(self, *, timeout: float | None = None) -> int:
        """How many items there are, claimed ones included."""
        return await self._size(self._runtime.deadline(timeout))

    async def _size(self, deadline: float) -> int:
        look = self._runtime.operations.exists
        stat = await self._runtime.retry(deadline, look, self._items)
        return 0 if stat is None else stat.num_children

    # --- which item is tried next: what the consumers of this object know -------------------------

    def _forget(self) -> None:
        """What is known is no longer what is to be used."""
        self._fresh_until = 0.0

    @property
    def _crowded(self) -> bool:
        """Whether other consumers have had many of the items that were tried."""
        return self._missed > FEW and 4 * self._missed > self._tried

    async def _known(self, deadline: float | None) -> tuple[str, DataAndStat] | None:
        """The next item of the last listing; None if a new one is needed."""
        runtime = self._runtime
        while runtime.now() < self._fresh_until and not self._crowded:
            if len(self._ahead) < 2:
                self._read_ahead()
            try:
                name, reply = self._ahead.popleft()
            except IndexError:
                return None
            self._tried += 1
            try:
                return name, await runtime.until(reply, runtime.in_time(deadline))
            except errors.NoNodeError:
                self._missed += 1
            except errors.ConnectionLossError:
                return None  # and the others are lost with it
        return None

    def _read_ahead(self) -> None:
        """Ask for the next items."""
        read, items = self._runtime.operations.get_data, self._items
        names, self._names = self._names[:AHEAD], self._names[AHEAD:]
        self._ahead += [(name, read(f"{items}/{name}")) for name in names]

    def _share(self, names: list[str]) -> None:
        """Use these names."""
        if self._crowded:
            self._apart = min(2 * self._apart, MOST_APART)
            self._tried = self._missed = 0
        elif not self._missed:
            self._apart = max(1, self._apart - 1)
        self._tried, self._missed = self._tried // 2, self._missed // 2
        offset = crc32(self._runtime.unique().encode()) % self._apart
        self._names = names[offset :: self._apart] or names
        self._ahead.clear()
        self._fresh_until = self._runtime.now() + FRESH

    async def _list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        """The names of the first items that no consumer has claimed, in order."""
        runtime = self._runtime
        read, limit = runtime.operations.get_children, runtime.in_time(deadline)
        while True:
            try:
                names, taken = await runtime.answers(
                    limit, lambda: [read(path, watch=watch) for path in (self._items, self._taken)]
                )
                claimed = set(taken)
                free = (name for name in sorted(names) if name not in claimed and is_item(name))
                return list(islice(free, WINDOW))
            except errors.NoNodeError:
                await self._provide(deadline)

    # --- to put, and to remove --------------------------------------------------------------------

    async def _add(self, token: Token, beginning: str, items: list[bytes], deadline: float) -> int:
        if self._number > LAST_SEQUENCE - SPARE_NUMBERS:
            raise self._used_up()
        if self._max_items is not None:
            size = await self._size(deadline)
            if size + len(items) > self._max_items:
                raise QueueFullError(
                    f"{self.path} has {size} of {self._max_items} items and cannot take "
                    f"{len(items)} more"
                )
        creates: list[Operation] = [Appended(beginning, items, self._acl)]
        while True:
            try:
                execute = self._tokens.execute
                paths, zxid = await unwrap_multi_error(execute, token, creates, deadline)
                if paths:
                    self._number = sequence_number(paths[-1]) or 0
                return zxid
            except errors.NodeExistsError:  # the counter is behind the names, or at its end
                number = await catch_up(self._runtime, self._items, MOST_MISSING, deadline)
                if number > LAST_SEQUENCE - SPARE_NUMBERS:
                    self._number = LAST_SEQUENCE
                    raise self._used_up() from None
            except errors.NoNodeError:
                await self._provide(deadline)

    async def _provide(self, deadline: float | None) -> None:
        """Create what is missing; kazoo expects that ``entries`` and ``taken`` stay."""
        limit = self._runtime.in_time(deadline)
        for path, removed in ((self._items, False), (self._taken, self._flat)):
            ensure = self._runtime.ensure_path
            await ensure(path, self._acl, limit, containers=removed, counts=False)

    def _used_up(self) -> errors.SequenceExhaustedError:
        return errors.SequenceExhaustedError(
            f"no number is left: empty the queue, delete {self._items}, make a new Queue"
        )

    def _removal(self, name: str, version: int) -> list[Operation]:
        """What removes an item that no consumer has claimed, in this version."""
        delete = Delete(f"{self._items}/{name}", version)
        if self._flat and not version:
            return [delete]
        claim = f"{self._taken}/{name}"
        return [Create(claim, b"", self._acl, ephemeral=True), Delete(claim), delete]

    async def _claimed(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> bool:
        """Whether this removal or claim was executed; else another consumer was faster."""
        await self._tokens.make(token, self._runtime.in_time(deadline))
        while True:
            try:
                await self._tokens.execute(token, operations, self._runtime.in_time(deadline))
                return True
            except errors.MultiError as error:
                refusal = error._culprit
                if not isinstance(refusal, CHANGED):
                    raise refusal from None
                # Where a claim is created, its folder may be missing; else it is the item.
                folder = error.index == 0 < len(operations) - 1
                if not folder or isinstance(refusal, errors.NodeExistsError):
                    self._missed += 1
                    return False
                await self._provide(deadline)
