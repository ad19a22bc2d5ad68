"""The read-write lock: readers together, a writer alone, in order of arrival.

All contenders queue below one node, as in the sequential lock, and the names say what they want.

* A writer waits for all before it, one at a time.
* A reader waits for the writers before it, never for a later writer.  So no writer overtakes a
  reader, and no writer starves because of readers that came later.
* Downgrade: the holder of the write lock may acquire the read lock of the same object, and release
  the write lock.  The reader then stands in the writer's place, not at the end.  At the end, it
  would wait for a writer that has queued meanwhile, while that writer waits for the holder; or that
  writer would enter beside the reader.  There is no upgrade: two readers that each waited for the
  other to go would wait forever.

Names as Curator's InterProcessReadWriteLock has them, or as kazoo's ReadLock and WriteLock do.
``__rlock__`` is a reader in any case, and every other name that ends in a number a writer.
"""

from __future__ import annotations

from zkwire.errors import ConnectionLossError, MultiError, NodeExistsError, NoNodeError
from zkwire.operations.multi import Check, Create
from zkwire.recipes._recipe import LockInUseError
from zkwire.recipes.sequential import AsyncQueueLock, Contended, Queued, before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes._node import Attempt
    from zkwire.recipes.sequential import Place


_READERS = ("__READ__", "__rlock__")
_DIGITS = 10


def is_reader(name: str) -> bool:
    """Whether the contender with this name wants to read only."""
    return name[:-_DIGITS].endswith(_READERS)


class AsyncWriteLock(AsyncQueueLock):
    """The side of the writer, which waits for all before it; see :class:`AsyncReadWriteLock`."""

    _label = "__WRIT__"
    _read: AsyncReadLock  # of the same object
    _holder: object = None

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        if self._read._node_name is not None:
            raise LockInUseError("a read lock cannot become a write lock: release it first")
        return await super()._acquire_by(deadline, wait)

    def _grant(self, attempt: Attempt) -> None:
        self._holder = self._runtime.caller()
        super()._grant(attempt)

    @property
    def _own_place(self) -> str | None:
        """The name of the node while the lock is held; LockInUseError if another thread has it.

        A reader that took the place of another thread's writer would read while that writes.
        """
        name = self._node_name
        if name is not None and self._holder != self._runtime.caller():
            raise LockInUseError(
                f"another thread or task holds the write lock of {self._path} by this very object: "
                "each needs an object of its own"
            )
        return name

    def _leaves_its_place(self, ahead: str) -> bool:
        return False


class AsyncReadLock(AsyncQueueLock):
    """The side of the readers, who wait for the writers before them."""

    _label = "__READ__"
    _kazoo_label = "__rlock__"
    _write: AsyncWriteLock  # of the same object

    def _ahead(self, names: list[str], own: str) -> list[Place]:
        return [place for place in before(names, own) if not is_reader(place[1])]

    def _leaves_its_place(self, ahead: str) -> bool:
        return True  # a reader there need not be waited for

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        """Stand in the place of one's own write lock while that is held, else at the end."""
        unknown = False
        while (mine := self._write._own_place) is not None:
            try:
                names = await self._stand_beside(mine, attempt, deadline)
            except ConnectionLossError:
                unknown = True
                continue  # the name is the attempt's own, so repeating makes no second node
            if names is not None:
                return names
            unknown = False
            break  # the write lock is lost
        if unknown:  # and the write lock was released meanwhile: a second node would be an orphan
            names = await self._find(attempt, deadline)
            if attempt.node is not None:
                return names
        return await super()._join(attempt, deadline)

    async def _stand_beside(
        self, writer: str, attempt: Attempt, deadline: float | None
    ) -> list[str] | None:
        """Create a reader with the writer's number; None if that has gone and left the place."""
        runtime, operations = self._runtime, self._runtime.operations
        node = f"{self._path}/{attempt.id}-{self._label}{writer[-_DIGITS:]}"
        attempt.entered = True
        create = Create(node, self._data, self._acl, ephemeral=True)
        both = operations.multi([Check(f"{self._path}/{writer}"), create])
        look, listing = operations.exists(node), operations.get_children(self._path)
        try:
            await runtime.until(both, deadline)
        except MultiError as error:
            # An earlier try may have worked, and the writer be gone since; else it is an error.
            if error.index and error.code != NodeExistsError.code:
                raise error._culprit from None
        stat = await runtime.until(look, deadline)
        if stat is None:
            return None
        attempt.node, attempt.stat = node, stat
        try:
            return await runtime.until(listing, deadline)
        except NoNodeError:
            return []


class AsyncReadWriteLock(Queued, Contended):
    """Readers together, a writer alone, in order of arrival.

        table = AsyncReadWriteLock(client, "/locks/table")
        async with table.read:
            ...
        async with table.write:
            ...

    ``read`` and ``write`` are locks like :class:`AsyncSequentialLock`; tasks that compete need an
    object each, and a task that reads while another task writes by the same one gets a
    LockInUseError.  A reader never waits for a later writer.

    Downgrade: acquire ``read`` in the task that holds ``write``, then release ``write``.  There
    is no upgrade: acquiring ``write`` while holding ``read`` raises LockInUseError.  After a
    downgrade go on with the fence of ``write``.  The reader's fence is higher than the fences of
    writers that wait already, so a resource that has seen it would refuse the next writer.
    """

    def _make(self) -> None:
        self._write: AsyncWriteLock = self._new(AsyncWriteLock)
        self._read: AsyncReadLock = self._new(AsyncReadLock)
        self._write._read, self._read._write = self._read, self._write

    @property
    def read(self) -> AsyncReadLock:
        """The lock of the readers."""
        return self._read

    @property
    def write(self) -> AsyncWriteLock:
        """The lock of the writer."""
        return self._write
