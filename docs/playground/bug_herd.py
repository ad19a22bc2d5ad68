"""Find the bug: a waiter that takes an event for its turn."""

from __future__ import annotations

from docs.playground.bug import Bug
from zkwire import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from docs.playground.bug import Resource
    from zkwire.testing.simulation.client import SimulatedClient


async def contender(client: SimulatedClient, resource: Resource) -> None:
    """Queue for the lock, use the resource, and leave."""
    node = await client.create("/lock/n-", ephemeral=True, sequential=True)
    while True:
        names = sorted(await client.get_children("/lock"))
        ahead = names[: names.index(node.rpartition("/")[2])]
        if not ahead:
            break
        watch = Watch()
        if await client.exists(f"/lock/{ahead[-1]}", watch=watch):
            await watch
            break  # the one in front has gone, so it is this one's turn
    resource.enter(client)
    await resource.prepare()
    resource.leave(client)
    await client.delete(node)


LESSON = Bug(
    title="a waiter that takes an event for its turn",
    cast="A, B and C, which want the same lock; a server that may expire a session",
    run=contender,
    remember="an event says that something has changed: only a look says whose turn it is.",
    in_code="SequentialLock looks at the queue again behind each event.",
    clients="ABC",
    faults=("expire",),
)
