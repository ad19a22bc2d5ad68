"""The stage of a lesson: clients, servers, the faults that it can have happen, and words.

All of it is in one process and on a virtual clock, without a socket.  Everything that happens is
kept, so that a lesson takes its numbers from the run, and is told to whatever shows it.
"""

from __future__ import annotations

from contextlib import contextmanager

from zkwire.cli.lessons.event import ASK, EXPECT, FOLD, FRAME, NOTE, PROSE, SAY, TABLE, Event
from zkwire.cli.lessons.play import Activity, Cut, Play, Wire
from zkwire.testing.simulation.asyncio_client import SimulatedClient
from zkwire.testing.simulation.client import Step, Suspend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Any

    from zkwire import Credentials
    from zkwire.cli.lessons.play import Followed
    from zkwire.testing.proxy.frames import Frame

TICK = 2.0


class Stage:
    """What a lesson is given.

    ``flags`` are the lesson's own flags, parsed.  ``tell`` gets each event.  ``tick`` is the
    server's unit of time, in seconds.  ``failures``: the expectations that did not hold.
    """

    def __init__(
        self, flags: Namespace, tell: Callable[[Event], object], *, servers: int = 1
    ) -> None:
        self.flags = flags
        self.tick: float = getattr(flags, "tick", TICK)
        self.failures: list[str] = []
        self.checks: int = 0
        self.events: list[Event] = []
        self._show = tell
        self._quiet = False
        self._play = Play(self._tell, tick=self.tick, servers=servers)

    def run(self, lesson: Coroutine[Any, Any, object]) -> None:
        """Run a lesson to its end; raises what has ended it."""
        self._play.play(lesson)

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in PROSE or event.kind == FOLD or not self._quiet:
            self._show(event)

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

    def pause(self, client: SimulatedClient, seconds: float) -> None:
        """The client's whole process stands still: SIGSTOP, a collection of garbage, a lid."""
        client.actor.paused_until = self._play.now + seconds

    def silence(self, client: SimulatedClient, seconds: float) -> None:
        """The client's network carries nothing, in either direction, and says so to no end."""
        client.actor.silent_until = self._play.now + seconds

    def cut(
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

    def expire(self, client: SimulatedClient) -> None:
        """The server ends the session of the client."""
        self._play.perform(Step("expire", client.name))

    def freeze(self, server: str) -> None:
        """From now on the server does not hear of writes; clients that come to it notice."""
        self._play.freeze(_number(server))

    # --- what has happened ------------------------------------------------------------------------

    def frames(self, client: SimulatedClient, op: str, direction: str = "") -> list[Frame]:
        """The client's frames so far, of one operation or of all (""), ``c2s``, ``s2c`` or both.

        ``connect``, ``ping``, ``auth`` and ``notification`` are operations here.
        """
        return [
            event.frame
            for event in self.events
            if event.frame is not None
            and event.actor == client.name
            and op in {"", event.frame.op}
            and direction in {"", event.frame.direction}
        ]

    def traffic(self, begin: float) -> list[Frame]:
        """All requests, replies and events of watches from that moment on."""
        kinds = {"request", "reply", "notification"}
        frames = [e.frame for e in self.events if e.frame is not None and e.time >= begin]
        return [frame for frame in frames if frame.kind in kinds]

    def children(self, path: str) -> list[str]:
        """The children of a node as the server has them now, without a frame."""
        return sorted(self._play.tree.nodes[path].children)

    @contextmanager
    def quiet(self, what: str) -> Generator[None]:
        """A context whose frames are counted and not shown; ``what`` they are about."""
        begin, self._quiet = len(self.events), True
        try:
            yield
        finally:
            self._quiet = False
            frames = [e.frame for e in self.events[begin:] if e.kind == FRAME and e.frame]
            size = sum(len(frame.raw) for frame in frames)
            actors = dict.fromkeys(event.actor for event in self.events[begin:] if event.actor)
            text = f"{what}: {len(frames)} frames, {size:,} bytes"
            self._tell(Event(self.now, FOLD, text, " ".join(actors)))

    # --- words ------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A paragraph for the reader."""
        self._tell(Event(self.now, SAY, " ".join(text.split())))

    def ask(self, text: str) -> None:
        """A question, which the reader answers before the lesson goes on."""
        self._tell(Event(self.now, ASK, " ".join(text.split())))

    def note(self, name: str, text: str, *, well: bool = True) -> None:
        """A row for what the client of this name does beside the wire."""
        self._tell(Event(self.now, NOTE, f"{name} {text}", name, passed=well))

    def table(self, *rows: Sequence[object]) -> None:
        """Rows of numbers from the run, the first of them with the names of the columns."""
        self._tell(Event(self.now, TABLE, "", rows=rows))

    def expect(self, condition: object, words: str) -> None:
        """The lesson fails unless the condition is true; ``words`` say what it is."""
        self.checks += 1
        passed = bool(condition)
        if not passed:
            self.failures.append(words)
        self._tell(Event(self.now, EXPECT, words, passed=passed))


def _number(server: str) -> int:
    """The number of the server that is called S1, S2, ..."""
    return int(server.removeprefix("S")) - 1
