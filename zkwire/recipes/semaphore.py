"""The semaphore: at most ``count`` leases are held at a time, in order of arrival.

Each lease is a lock of its own.  Two queues below one node, as Curator's InterProcessSemaphoreV2
has: a contender first gets the fair lock ``locks``, then creates a child of ``leases`` and waits
until fewer than ``count`` stand before it there.  So only one contender looks at the leases, and a
lease that is given back wakes one contender.

It decides which contender has a lease: by the rank among the leases and by nothing else.  The lock
``locks`` is for order and quiet only, so to lose that never makes one lease too many.

If a contender's last try found all leases taken, it looks whether a lease is free before it creates
its own, so that a contender that polls pays six requests.  It looks only as the first of the queue:
if others looked, too, a lease that is given back would wake them all.

Invariant: all contenders agree on the count; it stands in the node's data, the first one writes it.
That node is persistent, while the two queues go with their last contender: if it went with them, a
contender that has just read the count and is not in a queue yet would enter beside others that have
agreed on another one.

**Shared with kazoo's Semaphore**, whose layout is another:

    /path                 the number of leases is its data; each child is a lease
    /path-__lock__        a lock, as kazoo's Lock: who holds it may look, and create a lease

There is no order among the leases, so what keeps their number is the lock alone.  Here the server
creates a lease only if it still finds the lock's node.  So if the lock was lost meanwhile, there is
no lease too many.  (kazoo's Semaphore does not check that.)
"""

from __future__ import annotations

import re
from contextlib import closing, suppress
from functools import partial

from zkwire import errors
from zkwire.operations.multi import Check, Create
from zkwire.recipes._node import Attempt, is_permanent, permanent
from zkwire.recipes._recipe import HasPath
from zkwire.recipes.runtime import runtime_of, unwrap_multi_error
from zkwire.recipes.sequential import AsyncQueueLock, OrderQueue, before, contenders, of_kazoo
from zkwire.session.waitable import Watch
from zkwire.wire.paths import check_below_root, sequence_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkwire.jute.records import ACL
    from zkwire.recipes.runtime import AsyncClientLike, Runtime
    from zkwire.recipes.sequential import Contender, Names, Place


SHOWN_BYTES = 40  # of what others have written
LOOK_CLOSER = 1.0  # seconds for which leases are taken for such as end with a session
OWN_CHILDREN = 2  # of a semaphore's node
KAZOO = re.compile("[0-9a-f]{32}")
"""The name of a lease of kazoo's."""


class LastTry:
    """What the leases of one semaphore object tell each other."""

    full = False  # all leases were taken
    warned = False  # of kazoo's leases


class AsyncLease(AsyncQueueLock):
    """One lease of a semaphore, a lock like all others; see :class:`AsyncSemaphore`."""

    _label = "lease-"
    _names: Names = "zkwire"
    _leases, _locks = "/leases", "/locks"

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        count: int,
        text: str = "",
        acl: Sequence[ACL] | None = None,
        last_try: LastTry | None = None,
    ) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"a semaphore has at least one lease, not {count!r}")
        path = self._base = check_below_root(path, "a semaphore")
        super().__init__(runtime, path + self._leases, text, acl=acl, names=self._names)
        self._places = count
        self._last_try = last_try or LastTry()
        self._queue = OrderQueue(runtime, path + self._locks, text, acl=acl, names=self._names)
        self._kept = self._queue._kept = path

    @property
    def node(self) -> str | None:
        return super().node or self._queue.node

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        try:
            while True:
                await self._agree(deadline)
                if wait and self._runtime.session.resumed:  # a contender after these waits forever
                    await self._refuse_former(attempt, await self._list(deadline), deadline)
                if not await self._queue._acquire_by(deadline, wait):
                    return False
                looks = self._last_try.full or not self._numbered
                if looks and not await self._vacant(deadline, wait):
                    return False
                won = await self._take_lease(attempt, deadline, wait)
                if won is not None:
                    self._last_try.full = not won
                    await self._queue._step_out(deadline)
                    return won
                self._queue._release_in_background()
        finally:
            self._queue._release_in_background()

    async def _vacant(self, deadline: float | None, wait: bool) -> bool:
        """Whether fewer than ``count`` leases stand; with ``wait`` return when that is so."""
        while True:
            with closing(Watch()) as watch:
                read = self._runtime.operations.get_children
                seen = watch if wait else None
                try:
                    names = await self._runtime.retry(deadline, read, self._path, watch=seen)
                except errors.NoNodeError:
                    return True  # there are none
                leases = self._counted(names)
                if len(leases) < self._places:
                    return True
                if not wait:
                    await self._expect_one_to_go(leases, deadline)
                    return False
                self._seen_taken = True
                if self._on_position is not None:
                    self._runtime.dispatch(partial(self._on_position, len(leases)))
                await self._change(watch, leases, deadline)

    def _counted(self, names: list[str]) -> list[Place]:
        """The leases among the children."""
        return [(n, name) for name in names if (n := sequence_number(name)) is not None]

    async def _change(self, watch: Watch, leases: list[Place], deadline: float | None) -> None:
        """Return at the event; the nodes of the leases are looked at if that takes a while."""
        soon = self._runtime.now() + LOOK_CLOSER
        if deadline is None or soon < deadline:
            with suppress(errors.OperationTimeoutError):
                await self._runtime.event(watch, soon)
                return
            await self._expect_one_to_go(leases, deadline)
        await self._runtime.event(watch, deadline)

    def _taken_error(self, timeout: float | None) -> errors.LockTakenError:
        return errors.LockTimeoutError(
            f"{self._base}: none of {self._places} leases was free in time"
        )

    def _clean_up_pending(self) -> None:
        try:
            self._queue._release_in_background()
        finally:
            super()._clean_up_pending()

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        if attempt.entered:  # its node was deleted, and perhaps everything
            await self._agree(deadline)
        return await super()._join(attempt, deadline)

    async def _take_lease(
        self, attempt: Attempt, deadline: float | None, wait: bool
    ) -> bool | None:
        """Stand among the leases until few enough are ahead; None: to be repeated."""
        return await super()._contend(attempt, deadline, wait)

    def _ahead(self, names: list[str], own: str) -> list[Place]:
        ahead = before(names, own)
        return [] if len(ahead) < self._places else ahead

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: list[Place], deadline: float | None
    ) -> list[str]:
        self._last_try.full = True
        await self._expect_one_to_go(ahead, deadline)
        return await self._await_change(names, deadline)

    async def _expect_one_to_go(self, ahead: list[Place], deadline: float | None) -> None:
        """Raise NodeExistsError if none of the leases ahead ends with a session."""
        nodes = [f"{self._path}/{name}" for _, name in sorted(ahead, reverse=True)]
        for node in nodes:
            if not await is_permanent(self._runtime, deadline, node):
                return
        raise permanent(nodes[0])

    async def _warn_of_kazoos_leases(self, deadline: float | None) -> None:
        """Say once that kazoo's semaphore and this one do not see each other."""
        if self._names == "kazoo":
            return
        read = self._runtime.operations.get_children
        if any(map(KAZOO.fullmatch, await self._runtime.retry(deadline, read, self._base))):
            self._last_try.warned = True
            self._runtime.warn(
                f"{self._base}: leases of kazoo's Semaphore are held here, which does not count "
                "those of this one, nor this one those; give it names='kazoo'"
            )

    async def _agree(self, deadline: float | None) -> None:
        """Write the count down if it is not there; ValueError if it is another."""
        runtime = self._runtime
        while True:
            try:
                data, stat = await runtime.retry(deadline, runtime.operations.get_data, self._base)
                if stat.num_children > OWN_CHILDREN and not self._last_try.warned:
                    await self._warn_of_kazoos_leases(deadline)
                if not data:
                    count = str(self._places).encode()
                    await runtime.until(
                        runtime.operations.set_data(self._base, count, stat.version), deadline
                    )
                    return
            except errors.NoNodeError:
                await self._provide(self._base, deadline)
                continue
            except (errors.BadVersionError, errors.ConnectionLossError):
                continue  # look again
            if data != str(self._places).encode():
                # Any client may have written it: not at any length, nor lines into a log.
                start = data[:SHOWN_BYTES]
                theirs = start.decode() if start.isdigit() else repr(start)
                raise ValueError(
                    f"{self._base} is a semaphore of {theirs}, not of {self._places}; the number "
                    "is the node's data, to be changed when it is not in use"
                )
            return


class KazooLease(AsyncLease):
    """A lease in the layout of kazoo's Semaphore."""

    _names = "kazoo"
    _leases, _locks = "", "-__lock__"
    _numbered = False

    def _counted(self, names: list[str]) -> list[Place]:
        return [(0, name) for name in names]

    async def _take_lease(
        self, attempt: Attempt, deadline: float | None, wait: bool
    ) -> bool | None:
        """Create the lease; None if the server does not find the lock held any more."""
        runtime, operations = self._runtime, self._runtime.operations
        node = f"{self._path}/{attempt.id}"
        held = f"{self._queue._path}/{self._queue._node_name}"
        claim = [Check(held), Create(node, self._data, self._acl, ephemeral=True)]
        attempt.node, attempt.entered = node, True
        # An earlier try may have worked, and the lock be gone since.
        with suppress(errors.NoNodeError, errors.NodeExistsError):
            # The name is the attempt's own, so repeating makes no second node.
            await unwrap_multi_error(runtime.retry, deadline, operations.multi, claim)
        attempt.stat = await runtime.retry(deadline, operations.exists, node)
        return None if attempt.stat is None else True


class AsyncSemaphore(HasPath):
    """At most ``count`` leases at a time, in order of arrival.

        semaphore = AsyncSemaphore(client, "/locks/printers", 3)
        async with semaphore.lease() as lease:
            ...

    Tasks may share this object; each contender has a lease of its own.  All must agree on
    the count: it is written into the semaphore's node, and a different count is a ValueError.  The
    node stays when the last lease is released; delete it when the semaphore is no longer used.
    """

    def __init__(
        self,
        client: AsyncClientLike,
        path: str,
        count: int,
        text: str = "",
        *,
        acl: Sequence[ACL] | None = None,
        names: Names = "zkwire",
    ) -> None:
        self._runtime = runtime = runtime_of(client)
        self._path, self._count = path, count
        self._for_kazoo = of_kazoo(names)
        self._arguments = (runtime, path, count, text, acl, LastTry())
        AsyncLease(*self._arguments)  # checks the arguments

    @property
    def count(self) -> int:
        """How many leases there are at a time."""
        return self._count

    def lease(self) -> AsyncLease:
        """A lease that is not acquired yet: a lock like all others, for one contender.

            async with semaphore.lease() as lease:
                ...

        ``held``, ``fence``, ``lost``, ``acquire(timeout)``, ``within(timeout)``, ``release()`` and
        the rest are as a lock's.  Nothing is asked of a server before it is acquired.
        """
        kind = KazooLease if self._for_kazoo else AsyncLease
        return kind(*self._arguments)

    async def holders(self) -> list[Contender]:
        """The holders of the leases, in order: the first ``count``, and then those that come next.

        The rest of the queue is in the node ``locks`` below the path.  With ``names="kazoo"`` it is
        in another node, and everything that is shown is a holder.  Not a snapshot.  It only reads,
        so you may repeat it after an error; a lost connection is not one.  OperationTimeoutError
        after the ``operation_timeout`` (two session timeouts if the client has none).
        """
        folder = self._path if self._for_kazoo else f"{self._path}/leases"
        return await contenders(self._runtime, folder, numbered=not self._for_kazoo)
