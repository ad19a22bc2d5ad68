"""The stage of a lesson: clients, servers, the faults that it can have happen, and words.

All of it is in one process and on a virtual clock, without a socket.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import zkwire
from zkwire.cli.spy.records import record_of, words_of
from zkwire.session.waitable import Waitable
from zkwire.testing.proxy.frames import OPCODES, Direction, Frame
from zkwire.testing.proxy.relay import Conversation
from zkwire.testing.server.sessions import Connection
from zkwire.testing.server.tree import DataTree
from zkwire.testing.simulation import InTurn, Simulation, Step, ViolationError
from zkwire.testing.simulation.client import Client, Link, SimulatedClient, Suspend
from zkwire.testing.simulation.stage import START, StaleServer, TreeHistory
from zkwire.wire.model import session_name

TICK = 2.0
_SETTLED = 0.2


# What happens on a stage, one event at a time, for whatever shows it or keeps it.

PROSE = frozenset({"say", "ask", "expect", "table", "code"})


class Event(NamedTuple):
    """One event, ``time`` seconds after the beginning.

    ``frame``: ``frame`` has passed between ``actor`` and ``server``.  ``cut``: their connection
    is lost.  ``end``: the client has seen the end of the connection.  ``server``: a change there.
    ``stop``, ``go``: the client's process or network stands still, and goes on.  ``held``,
    ``free``: a lock that a lesson follows is held by ``actor``, and no longer.
    ``note``: what a client does beside the wire, and whether that is well (``passed``).
    ``fold``: frames of these clients that are counted and not shown.  ``say``, ``ask``: words for
    the reader.  ``expect``: a condition that must hold, and whether it has (``passed``).
    ``table``: ``rows``.  ``code``: lines as they are.
    """

    time: float
    kind: str
    text: str
    actor: str = ""
    server: str = ""
    detail: str = ""
    frame: Frame | None = None
    passed: bool = True
    rows: Sequence[Sequence[object]] = ()


# --- words ----------------------------------------------------------------------------------------
# A frame in a few words: what it asks for or says, and the numbers that lessons are about.


def described(frame: Frame) -> tuple[str, str]:
    """What the frame says, and its numbers."""
    record, size = record_of(frame), f"{len(frame.raw) - 4} B"
    says = [word for word in words_of(record) if word]
    if frame.kind == "connect":
        return f"connect: {', '.join(says)}", size
    if frame.kind == "notification":
        return f"watch event: {record['path']} {record['type']}", f"xid {frame.xid}  {size}"
    if frame.direction == "c2s":
        return f"{frame.op} {frame.path or ''}".rstrip(), f"xid {frame.xid}  {size}"
    answer = [record["error"]] if frame.error else [*filter(None, [record.get("created")]), *says]
    zxid = f"zxid {frame.zxid:#x}  {size}" if frame.zxid and frame.zxid > 0 else size
    return f"{frame.op}: {', '.join(answer) or 'ok'}", zxid


# --- stage ----------------------------------------------------------------------------------------


class Stage:
    """What a lesson is given.

    ``flags`` are the lesson's own flags, parsed.  ``tell`` gets each event that is to be shown.
    ``tick`` is the server's unit of time, in seconds.  ``events`` are all that have happened, so
    that a lesson takes its numbers from the run, and ``failures`` the expectations that did not
    hold.
    """

    def __init__(
        self, flags: Namespace, tell: Callable[[Event], object], *, servers: int = 1
    ) -> None:
        self.failures: list[str] = []
        self.checks: int = 0
        self.events: list[Event] = []
        self.shown: list[Event] = []
        self._show = tell
        self._quiet = False
        self.flags = flags
        self.tick: float = getattr(flags, "tick", TICK)
        self._play = Play(self._tell, tick=self.tick, servers=servers)

    def run(self, lesson: Coroutine[Any, Any, object]) -> None:
        """Run a lesson to its end; raises what has ended it."""
        self._play.play(lesson)

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in PROSE or event.kind == "fold" or not self._quiet:
            self.shown.append(event)
            self._show(event)

    # --- what has happened ------------------------------------------------------------------------

    def frames(self, client: SimulatedClient, op: str, direction: str = "") -> list[Frame]:
        """The client's frames so far, of one operation or of all (""), ``c2s``, ``s2c`` or both.

        ``connect``, ``ping``, ``auth`` and ``notification`` are operations here.
        """
        mine = [e.frame for e in self.events if e.frame is not None and e.actor == client.name]
        mine = [frame for frame in mine if op in {"", frame.op}]
        return [frame for frame in mine if direction in {"", frame.direction}]

    def traffic(self, begin: float) -> list[Frame]:
        """All requests, replies and events of watches from that moment on."""
        kinds = {"request", "reply", "notification"}
        frames = [e.frame for e in self.events if e.frame is not None and e.time >= begin]
        return [frame for frame in frames if frame.kind in kinds]

    @contextmanager
    def quiet(self, what: str) -> Generator[None]:
        """A context whose frames are counted and not shown; ``what`` they are about."""
        begin, self._quiet = len(self.events), True
        try:
            yield
        finally:
            self._quiet = False
            frames = [e.frame for e in self.events[begin:] if e.kind == "frame" and e.frame]
            size = sum(len(frame.raw) for frame in frames)
            actors = dict.fromkeys(event.actor for event in self.events[begin:] if event.actor)
            text = f"{what}: {len(frames)} frames, {size:,} bytes"
            self._tell(Event(self.now, "fold", text, " ".join(actors)))

    # --- words ------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A paragraph for the reader."""
        self._tell(Event(self.now, "say", " ".join(text.split())))

    def ask(self, text: str) -> None:
        """A question, which the reader answers before the lesson goes on."""
        self._tell(Event(self.now, "ask", " ".join(text.split())))

    def code(self, text: str) -> None:
        """Lines that are shown as they are."""
        self._tell(Event(self.now, "code", text))

    def note(self, name: str, text: str, *, well: bool = True) -> None:
        """A row for what the client of this name does beside the wire."""
        self._tell(Event(self.now, "note", f"{name} {text}", name, passed=well))

    def table(self, *rows: Sequence[object]) -> None:
        """Rows of numbers from the run, the first of them with the names of the columns."""
        self._tell(Event(self.now, "table", "", rows=rows))

    def expect(self, condition: object, words: str) -> None:
        """The lesson fails unless the condition is true; ``words`` say what it is."""
        self.checks += 1
        passed = bool(condition)
        if not passed:
            self.failures.append(words)
        self._tell(Event(self.now, "expect", words, passed=passed))

    # --- clients ----------------------------------------------------------------------------------

    def client(
        self, name: str, *, session_timeout: float = 10.0, server: str = "S1",
        auth: Sequence[tuple[str, bytes]] = (), resume: zkwire.Credentials | None = None,
    ) -> SimulatedClient:  # fmt: skip
        """A client, which begins to connect; the options are those of AsyncClient."""
        options = {"timeout": session_timeout, "resume": resume}
        return SimulatedClient(self._play.enter(name, _number(server), auth, **options))

    def start(self, client: SimulatedClient, coroutine: Coroutine[Any, Any, Any]) -> Activity:
        """Run a coroutine in the client's process, beside the lesson; await what this returns."""
        activity = Activity(coroutine)
        client.actor.spawn(activity.run())
        return activity

    def wire(self, name: str) -> Wire:
        """A bare connection to the first server, for bytes."""
        play = self._play
        client = Client(play, name, "")
        link = client.link = Link(play.processor.connect(now=play.now))
        play._of_connection[link.connection] = client
        return Wire(play, client, link)

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
        asked = {"before": before, "lost": lost, "after": after}
        self._play.cuts += [Cut(client.actor, when, op) for when, op in asked.items() if op]
        if not any(asked.values()):
            self._play.cut(client.actor)

    def follow(self, client: SimulatedClient, lock: Any) -> None:
        """From now on tell when the client holds this lock, by what ``lock.held`` says."""
        self._play.followed.append((client.actor, lock))
        task, name = self._play.leases(client.actor), f"leases of {client.name}"
        self._play.add_task(self._play.director, task, name, background=True)

    async def expire(self, client: SimulatedClient) -> None:
        """The server ends the session of the client."""
        self._play.perform(Step("expire", client.name))

    def freeze(self, server: str) -> None:
        """From now on the server does not hear of writes; clients that come to it notice."""
        history = TreeHistory(wanted=True)
        history.remember(self._play.tree)
        self._play.frozen[_number(server)] = history.oldest(0, self._play.tree)

    async def children(self, path: str) -> list[str]:
        """The children of a node as the server has them now, without a frame."""
        return sorted(self._play.tree.nodes[path].children)


def _number(server: str) -> int:
    """The number of the server that is called S1, S2, ..."""
    return int(server.removeprefix("S")) - 1


# --- play -----------------------------------------------------------------------------------------
# The simulation that a lesson runs in: it chooses the steps and tells each thing that happens.
#
# The network takes a millisecond for what it carries, and carries one thing at a time; nothing else
# takes time, so the same lesson is the same to the byte.  A cut happens where a lesson has asked
# for it.  This module must not know how anything is shown.

LATENCY = 0.001  # seconds
LONGEST = 600.0  # seconds on the virtual clock
MOST_STEPS = 100_000
_TRAVELS = frozenset({"up", "down", "late", "dial", "eof"})
_ENDS = frozenset({"time", "expire"})  # a session may expire in these


class Cut(NamedTuple):
    """A connection that will be lost at this request: ``before`` it is sent, with the request
    (``lost``), or ``after`` the server has executed it."""

    client: Client
    when: str
    op: str


class Activity(Waitable):
    """A coroutine that runs beside the lesson; await it for its result."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._result: Any = None
        self._ended = False
        self.error: Exception | None = None

    @property
    def ready(self) -> bool:
        """Whether it has ended."""
        return self._ended

    async def run(self) -> None:
        """For the simulation: its steps."""
        try:
            self._result = await self._coroutine
        except Exception as error:
            self.error = error
        finally:
            self._ended = True
            for waker in self._take_wakers():
                waker()

    def __await__(self) -> Generator[Any, None, Any]:
        while not self._ended:
            yield self
        if self.error is not None:
            raise self.error
        return self._result


class Wire:
    """A connection without a client: bytes go to the server, frames come back."""

    def __init__(self, play: Play, client: Client, link: Link) -> None:
        self._play, self._client, self._link = play, client, link

    def send(self, data: bytes) -> list[bytes]:
        """Send bytes; returns the frames that the server answers."""
        play, link = self._play, self._link
        link.up.append([data])
        play.tell_frames(self._client, link, "up")
        play.pass_time(LATENCY)
        play.processor.receive(link.connection, link.take(), play.now)
        play.collect()
        play.pass_time(LATENCY)
        play.tell_frames(self._client, link, "down")
        answers = list(link.down)
        link.down.clear()
        return answers


class Play(Simulation):
    """See the module's docstring.  ``tell`` gets each event, ``between`` comes before each step.

    ``followed`` are locks, each with its client.  Connections to a ``frozen`` server find the nodes
    of its tree.  Other ``options`` are those of a simulation.
    """

    def __init__(
        self, tell: Callable[[Event], object], *, tick: float, servers: int, **options: Any
    ) -> None:
        super().__init__(tick=tick, servers=servers, frames=False, **options)
        self.tell = tell
        self.between: Callable[[], object] = lambda: None
        self.cuts: list[Cut] = []
        self._talks: dict[Connection, Conversation] = {}
        self.director = Client(self, "lesson", "")
        self.frozen: dict[int, DataTree] = {}
        self.followed: list[tuple[Client, Any]] = []
        self._known: dict[object, str] = {}  # what has been told of a client or a lock

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now - START

    def enter(
        self, name: str, server: int, auth: Sequence[tuple[str, bytes]], **options: Any
    ) -> Client:
        """A new client, which begins to connect to this server."""
        client = Client(self, name, "", **options)
        client.session.hosts.prefer(("server", server))
        for scheme, secret in auth:
            client.session.add_auth(scheme, secret)
        self.clients.append(client)
        self._by_name[name] = client
        client.session.start(self.now)
        return client

    async def leases(self, client: Client) -> None:
        """Have time make a stop at each moment at which the client's lease may end."""
        while True:
            await Suspend(max(client.session.lease_deadline, self.now + 1.0))

    def look(self) -> None:
        """Tell of what has changed without a frame: clients that stand still, and locks."""
        for client in self.clients:
            still = "network" if client.silent_until is not None else ""
            still = "process" if client.paused_until is not None else still
            before = self._known.get(client, "")
            if still != before:
                self._known[client] = still
                does = {"network": "is silent", "process": "stands still"}.get(still, "goes on")
                words = f"{client.name}'s {still or before} {does}"
                self._tell("stop" if still else "go", words, client, client.link)
        for client, lock in self.followed:
            held = f"fence {lock.fence:#x}" if lock.held else ""
            if held != self._known.get(lock, ""):
                self._known[lock] = held
                words = f"{client.name} {'holds' if held else 'no longer holds'} the lock"
                self._tell("held" if held else "free", words, client, client.link, held)

    def steps(self) -> list[Step]:
        """The possible steps, without the one in which a server that is behind catches up."""
        return [step for step in super().steps() if step.kind != "apply"]

    def play(self, lesson: Coroutine[Any, Any, object]) -> None:
        """Run a lesson to its end; raises what has ended it."""
        task = self.add_task(self.director, lesson, "lesson", background=False)
        turns = InTurn()
        try:
            while not task.done:
                self.between()
                self.look()
                step = turns.next(self)
                if step is None or self.elapsed > LONGEST or len(self.done) > MOST_STEPS:
                    raise ViolationError("LIVE", f"{self.elapsed:.0f} s have passed without an end")
                self.perform(step)
                self.look()
                for client in self.clients:
                    session = client.session
                    if (session.has_output or session.callbacks) and client.running:
                        client.call_due()
                        client.flush()
        finally:
            self.drop_tasks(self.tasks)
        if task.error is not None:
            raise task.error

    def perform(self, step: Step) -> None:
        """Perform one step, and tell what happens in it."""
        client = self._by_name.get(step.subject)
        if step.kind == "resume":
            super().perform(step)
            self.look()
            mine = [s for s in self.steps() if s.kind == "run" and self.client_of(s) is client]
            for first in mine[:1]:  # code that was stopped goes on before it hears of anything
                super().perform(first)
            return
        if step.kind in _TRAVELS:
            self.pass_time(LATENCY)
        link = client.link if client is not None else None
        if step.kind in _ENDS:
            self._telling_ends(lambda: super(Play, self).perform(step))
        elif client is None or link is None:
            super().perform(step)
            link = client.link if client is not None else None
            if link is not None and link.connection.member in self.frozen:  # it is behind
                stale = StaleServer(self.frozen[link.connection.member])
                self.stale_servers[link.connection] = stale
        else:
            self._carry(step, client, link)

    def _carry(self, step: Step, client: Client, link: Link) -> None:
        """A step on a connection."""
        cut = self._cut_at(client, link) if step.kind == "up" else None
        if cut is not None and cut.when != "after":
            self.cut(client, cut.when)
            return
        self.tell_frames(client, link, step.kind)
        before = self.tree.zxid
        super().perform(step)
        if cut is not None:
            if self.tree.zxid > before:
                words = "executed, and the answer will be lost"
                self._tell("server", words, client, link, f"zxid {self.tree.zxid:#x}")
            self.cut(client, "after")
        elif client.link is None and step.kind == "eof":
            self._tell("end", f"{client.name} sees the connection end, but not why", client, link)
        elif client.link is None:
            why = client.session.last_failure.partition(": ")[2]
            text = f"{client.name} ends the connection"
            text += f": {why}" if why and not client.session.ended else ""
            self._tell("cut", text, client, link)

    def cut(self, client: Client, when: str = "lost") -> None:
        """The connection of a client is lost now."""
        link = client.link
        if link is None:
            return
        words = {
            "before": "connection cut before the request is sent",
            "lost": "connection cut",
            "after": "connection cut before the answer arrives",
        }
        self._tell("cut", words[when], client, link)
        sent = link.written
        if when == "before":
            sent -= sum(len(frame) for frames in link.up for frame in frames)
        client.lose("connection cut", written=sent)
        client.conclude()

    # ----------------------------------------------------------------------------------------------

    def server_of(self, link: Link) -> str:
        """The name of the server at the other end."""
        return f"S{link.connection.member + 1}" if self.servers > 1 else "server"

    def _tell(
        self, kind: str, text: str, client: Client | None, link: Link | None, detail: str = ""
    ) -> None:
        name = client.name if client is not None else ""
        server = self.server_of(link) if link is not None else ""
        self.tell(Event(self.elapsed, kind, text, name, server, detail))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, as a step in which something else happens."""

        def advance() -> None:
            self.now += seconds
            self.processor.advance(self.now)
            self.collect()

        self._telling_ends(advance)
        for client in self.clients:
            if client.silent_until is not None and self.now >= client.silent_until:
                client.silent_until = None
            self._look_at_clock(client)

    def _telling_ends(self, happens: Callable[[], object]) -> None:
        """Let something happen, and tell of the sessions that the server ends in it."""
        living = {s.session_id: self.tree.ephemerals(s.session_id) for s in self.sessions}
        happens()
        server, zxid = "S1" if self.servers > 1 else "server", f"zxid {self.tree.zxid:#x}"
        for session_id in living.keys() - {s.session_id for s in self.sessions}:
            nodes = f"; deleted: {', '.join(living[session_id])}" if living[session_id] else ""
            owner = next((c for c in self.clients if c.session.session_id == session_id), None)
            called = f"{owner.name}'s session" if owner else f"session {session_name(session_id)}"
            name = owner.name if owner else ""
            text = f"{called} expires{nodes}"
            self.tell(Event(self.elapsed, "server", text, name, server, zxid))

    def _cut_at(self, client: Client, link: Link) -> Cut | None:
        """The cut that is due at what the client's next write asks for."""
        if not link.up:
            return None
        opcodes = {int.from_bytes(frame[8:12], "big", signed=True) for frame in link.up[0]}
        for cut in self.cuts:
            if cut.client is client and link.connection.greeted and OPCODES[cut.op] in opcodes:
                self.cuts.remove(cut)
                return cut
        return None

    def tell_frames(self, client: Client, link: Link, kind: str) -> None:
        """Tell of what the step ``kind`` carries."""
        direction: Direction = "c2s" if kind == "up" else "s2c"
        passing = list(link.down) if kind == "down" else link.up[0] if kind == "up" else ()
        talk = self._talks.setdefault(link.connection, Conversation(link.connection.number))
        server = self.server_of(link)
        for data in passing:
            for frame, _ in talk.receive(direction, data, self.elapsed):
                if direction == "c2s":
                    talk.expect(frame, data, None)
                text, detail = described(frame)
                self.tell(Event(self.elapsed, "frame", text, client.name, server, detail, frame))
