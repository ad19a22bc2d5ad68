"""Find the bug: a lost answer, and a retry without a look."""

from __future__ import annotations

from docs.playground.bug import Bug
from zkwire import ConnectionLossError, NoNodeError, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from docs.playground.bug import Resource
    from zkwire.testing.simulation.client import SimulatedClient


async def contender(client: SimulatedClient, resource: Resource) -> None:
    """Queue for the lock, use the resource, and leave."""
    node = ""
    while not node:
        try:
            node = await client.create("/lock/n-", ephemeral=True, sequential=True)
        except ConnectionLossError:
            continue  # no answer, so once more
    while True:
        try:
            names = sorted(await client.get_children("/lock"))
            ahead = names[: names.index(node.rpartition("/")[2])]
            watch = Watch()
            if not ahead:
                break
            if await client.exists(f"/lock/{ahead[-1]}", watch=watch):
                await watch
        except ConnectionLossError:
            continue  # reads may be repeated freely
    resource.enter(client)
    await resource.prepare()
    resource.leave(client)
    while node:
        try:
            await client.delete(node)
            node = ""
        except NoNodeError:
            node = ""
        except ConnectionLossError:
            continue  # deleted or not: a delete may be repeated, the name is used once


LESSON = Bug(
    title="a lost answer, and a retry without a look",
    cast="A and B, which want the same lock; a server; connections that may break",
    run=contender,
    remember="a create without an answer may have happened: look for it before it is repeated.",
    in_code="SequentialLock puts an id into the name of its node, and looks for that.",
    clients="AB",
    faults=("cut",),
)
