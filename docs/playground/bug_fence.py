"""Find the bug: a look at the lock, and a write a moment later."""

from __future__ import annotations

from docs.playground.bug import Bug
from zkwire import AsyncSequentialLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from docs.playground.bug import Resource
    from zkwire.testing.simulation.asyncio_client import SimulatedClient


async def contender(client: SimulatedClient, resource: Resource) -> None:
    """Acquire the lock, prepare, look once more, write."""
    lock = AsyncSequentialLock(client, "/lock")
    await lock.acquire()
    if lock.held:
        await resource.prepare()
        resource.write(client, lock.fence, checked=False)
    if lock.held:
        await lock.release()


LESSON = Bug(
    title="a look at the lock, and a write a moment later",
    cast="A and B, which want the same lock; a server; processes that may stand still",
    run=contender,
    remember="a lock says which process should write; only the resource can say which one may.",
    in_code="lock.fence for the resource, lock.guard([...]) has the server check it.",
    clients="AB",
    faults=("pause",),
)
