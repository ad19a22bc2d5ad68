"""The stage of a lesson: clients, servers, the faults that it can have happen, and words.

All of it is in one process and on a virtual clock, without a socket.  ``server_stage`` has the same
for a server that is somewhere else.
"""

from __future__ import annotations

from zkwire.cli.lessons.play import Activity, Cut, Play, Wire
from zkwire.cli.lessons.record import Record
from zkwire.testing.simulation.asyncio_client import SimulatedClient
from zkwire.testing.simulation.client import Step, Suspend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from zkwire import Credentials
    from zkwire.cli.lessons.event import Event
    from zkwire.cli.lessons.play import Followed

TICK = 2.0
_SETTLED = 0.2


class Stage(Record):
    """What a lesson is given.

    ``flags`` are the lesson's own flags, parsed.  ``tell`` gets each event.  ``tick`` is the
    server's unit of time, in seconds.  ``root``: the node of the server that clients see as ``/``,
    empty for ``/`` itself.
    """

    def __init__(
        self, flags: Namespace, tell: Callable[[Event], object], *, servers: int = 1
    ) -> None:
        super().__init__(tell)
        self.flags = flags
        self.root = ""
        self.tick: float = getattr(flags, "tick", TICK)
        self._play = Play(self._tell, tick=self.tick, servers=servers)

    def run(self, lesson: Coroutine[Any, Any, object]) -> None:
        """Run a lesson to its end; raises what has ended it."""
        self._play.play(lesson)

    # --- clients ----------------------------------------------------------------------------------

    def client(
        self,
        name: str,
        *,
        session_timeout: float = 10.0,
        server: str = "S1",
        auth: Sequence[tuple[str, bytes]] = (),
        resume: Credentials | None = None,
    ) -> SimulatedClient:
        """A client, which begins to connect; the options are those of AsyncClient."""
        options = {"timeout": session_timeout, "resume": resume}
        return SimulatedClient(self._play.enter(name, _number(server), auth, **options))

    def start(self, client: SimulatedClient, coroutine: Coroutine[Any, Any, Any]) -> Activity:
        """Run a coroutine in the client's process, beside the lesson; await what this returns."""
        activity = Activity(coroutine)
        client.actor.spawn(activity.run())
        return activity

    def wire(self, name: str) -> Wire:
        """A bare connection, for bytes."""
        return self._play.wire(name)

    # --- time and faults --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._play.elapsed

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await Suspend(self._play.now + seconds)

    async def settle(self) -> None:
        """Let all that is on its way arrive, and what follows from it."""
        await self.sleep(_SETTLED)

    def pause(self, client: SimulatedClient, seconds: float) -> None:
        """The client's whole process stands still: SIGSTOP, a collection of garbage, a lid."""
        client.actor.paused_until = self._play.now + seconds

    def silence(self, client: SimulatedClient, seconds: float) -> None:
        """The client's network carries nothing, in either direction, and says so to no end."""
        client.actor.silent_until = self._play.now + seconds
        self._play.look()

    async def cut(
        self, client: SimulatedClient, *, before: str = "", lost: str = "", after: str = ""
    ) -> None:
        """The connection breaks, now or at a request of this kind.

        ``before`` it is sent, while it is on its way (``lost``), or ``after`` the server has
        executed it and before the answer arrives.
        """
        for when, op in (("before", before), ("lost", lost), ("after", after)):
            if op:
                self._play.cuts.append(Cut(client.actor, when, op))
        if not (before or lost or after):
            self._play.cut(client.actor)

    def follow(self, client: SimulatedClient, lock: Followed) -> None:
        """From now on tell when the client holds this lock, by what ``lock.held`` says."""
        self._play.follow(client.actor, lock)

    async def expire(self, client: SimulatedClient) -> None:
        """The server ends the session of the client."""
        self._play.perform(Step("expire", client.name))

    def freeze(self, server: str) -> None:
        """From now on the server does not hear of writes; clients that come to it notice."""
        self._play.freeze(_number(server))

    async def children(self, path: str) -> list[str]:
        """The children of a node as the server has them now, without a frame."""
        return sorted(self._play.tree.nodes[path].children)


def _number(server: str) -> int:
    """The number of the server that is called S1, S2, ..."""
    return int(server.removeprefix("S")) - 1
