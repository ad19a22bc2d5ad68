"""A client of a simulation as its users see it: an AsyncClient whose I/O layer is the simulation.

Coroutines of a simulation can use it as any other, locks and services included, but for what needs
asyncio itself (tasks, ``asyncio.timeout``, ``cancel_on_loss``).
"""

from __future__ import annotations

from zkwire.aio.client import AsyncClient
from zkwire.aio.replies import StepReply
from zkwire.net.pipeline import Pipeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zkwire.testing.simulation.client import Client


class SimulatedClient(AsyncClient):
    """See the module's docstring.  ``actor`` is the client as the simulation has it."""

    _driver: Any

    def __init__(self, actor: Client) -> None:
        Pipeline.__init__(self, actor.world, actor.session.chroot, StepReply)
        self.actor: Any = actor
        self.name: str = actor.name
        self._session = actor.session
        self._hosts = "server"
        self._operation_timeout = None

    def __del__(self) -> None:
        """Nothing that ends with it is real."""

    async def close(self) -> None:
        """End the session."""
        actor = self.actor
        request = actor.session.close(actor.sim.now)
        if request is not None:
            await self._driver.within(request)
        actor.session.closed()
        if actor in actor.sim.clients:
            actor.sim.clients.remove(actor)
