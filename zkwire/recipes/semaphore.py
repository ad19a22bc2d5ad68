"""The semaphore: at most ``count`` leases at a time, in order of arrival.

Two queues below one node, as Curator's InterProcessSemaphoreV2 has: whoever wants a lease first
gets the sequential lock ``locks``, then creates a child of ``leases`` and waits until fewer than
``count`` stand before it there.  So only one contender looks at the leases, and a lease that is
given back wakes one contender.  The lock is for order and quiet only: what decides is the rank
among the leases, so a lock that is lost can never make one lease too many.

Invariant: all contenders agree on the count; it stands in the node's data, the first one writes it.
"""

from __future__ import annotations

from zkwire.errors import (
    BadVersionError,
    ConnectionLossError,
    NoNodeError,
    OperationTimeoutError,
)
from zkwire.paths import check_path
from zkwire.recipes.sequential import SequentialLockCore, before
from zkwire.recipes.world import persist
from zkwire.watches import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes.lock import Attempt
    from zkwire.recipes.world import World

SHOWN_BYTES = 40  # of what somebody else has written


class SemaphoreCore(SequentialLockCore):
    """The algorithm of one lease; ``count`` of them may be held at a time."""

    label = "lease-"

    def __init__(self, world: World, path: str, count: int, text: str = "") -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"a semaphore has at least one lease, not {count!r}")
        if check_path(path) == "/":
            raise ValueError("the path of a semaphore cannot be the root")
        super().__init__(world, f"{path}/leases", text)
        self._base = path
        self._count = count
        self._queue = SequentialLockCore(world, f"{path}/locks", text)

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        await self._agree(deadline)
        try:
            if not await self._queue.acquire(deadline, wait):
                if wait:
                    raise OperationTimeoutError(f"{self._base} had no lease left in time")
                return False
            won = await self._take_lease(attempt, deadline, wait)
            await self._queue.leave(deadline)
            return won
        finally:
            self._queue.give_up()

    def _settle(self) -> None:
        self._queue.give_up()
        super()._settle()

    async def _enter(self, attempt: Attempt, deadline: float | None) -> list[str]:
        if attempt.stat is not None:  # somebody has deleted its node, and perhaps everything
            await self._agree(deadline)
        return await super()._enter(attempt, deadline)

    async def _take_lease(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        """Stand among the leases until few enough are ahead."""
        return await super()._contend(attempt, deadline, wait)

    def _ahead(self, names: list[str], own: str) -> str | None:
        ahead = before(names, own)
        return None if len(ahead) < self._count else max(ahead)[1]

    async def _look_again(
        self, attempt: Attempt, names: list[str], ahead: str, deadline: float | None
    ) -> list[str]:
        return await self._await_change(names, deadline)

    async def _await_change(self, names: list[str], deadline: float | None) -> list[str]:
        """The leases, as soon as they are others than ``names``."""
        watch = Watch()
        try:
            read = self.world.verbs.get_children
            now = await persist(self.world, deadline, read, self.path, watch=watch)
            if sorted(now) == sorted(names) and not await self.world.event(watch, deadline):
                raise OperationTimeoutError(f"{self._base} had no lease left in time")
        except NoNodeError:
            pass  # somebody has deleted all of it; the list will say so
        finally:
            watch.close()
        return await self._list(deadline)

    async def _agree(self, deadline: float | None) -> None:
        """Write the count down if nobody has; ValueError if it is another."""
        world = self.world
        while True:
            try:
                data, stat = await persist(world, deadline, world.verbs.get_data, self._base)
                if not data:
                    count = str(self._count).encode()
                    await world.until(
                        world.verbs.set_data(self._base, count, stat.version), deadline
                    )
                    return
            except NoNodeError:
                await self._provide(self._base, deadline)
                continue
            except (BadVersionError, ConnectionLossError):
                continue  # look again
            if data != str(self._count).encode():
                # Anybody may have written it: not at any length, nor lines of its own into a log.
                start = data[:SHOWN_BYTES]
                theirs = start.decode() if start.isdigit() else repr(start)
                raise ValueError(
                    f"{self._base} is a semaphore of {theirs}, not of {self._count}; the number is "
                    "the node's data, to be changed when nobody uses it"
                )
            return
