"""Many clients, one server and one clock in one thread, where a schedule decides what happens next.

    def two_contenders(sim: Simulation) -> None:
        claims = Claims(exclusive)                      # zkwire.testing.claims
        sim.checks += [claims, Orphans(claims, "/lock")]
        for name in ("a", "b"):
            client = sim.client(name)
            lock = SequentialLockCore(client.world, "/lock")
            claims.add(lock, client)
            client.spawn(acquire_and_release(lock))     # any coroutine

    explore(two_contenders, seeds=range(1000))          # zkwire.testing.schedule

A client is the real automaton with the real verbs, on the real ``World`` for recipes; the server is
the embedded one's `Processor`.  Between them are two queues of frames for each client.  There is no
socket, no thread, no event loop and no real time: :meth:`Simulation.steps` says what could happen
next, :meth:`Simulation.faults` what could go wrong, and a schedule chooses.  The same choices give
the same run.

A step is one of: a task runs to its next await (``run``); frames reach the server (``up``: all,
``up1``: one) or the client (``down``, ``down1``); a client sees the end of its connection
(``eof``), connects (``dial``), keeps its deadlines (``turn``), goes on after a pause (``resume``);
a server gets what was under way when the client had lost the connection (``late``); nothing else
can happen and time passes to the next deadline (``time``).

A fault is one of: the connection breaks and all that is under way is lost (``cut``), or the same
before the kernel had taken the requests (``unsent``), or what is under way still arrives
(``linger``); a server ends the session out of turn (``expire``); somebody deletes the client's
ephemeral nodes (``delete``); the process stands still for longer than its session lives
(``pause``); its network is silent for that long (``partition``), or only until it gives the
connection up (``blip``); a task is cancelled at its await (``cancel``); the client is closed
(``close``), or its process dies (``crash``); time passes although something else could happen
(``slow``).

What must be true of a run is said by checks, see :mod:`zkwire.testing.claims`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from zkwire import ops
from zkwire.errors import ZooKeeperError
from zkwire.model import EventType
from zkwire.testing.connection import Connection
from zkwire.testing.processor import Processor
from zkwire.testing.sessions import Sessions
from zkwire.testing.simulated_client import (
    Cancelled,
    Client,
    Link,
    Suspend,
    Task,
    ViolationError,
)
from zkwire.testing.tree import DataTree
from zkwire.testing.writes import WRITES

FAULTS: Final = (
    "cut", "unsent", "linger", "expire", "delete", "pause", "partition", "blip", "cancel", "close",
    "crash", "slow",
)  # fmt: skip
"""All faults there are; those of a run are given to `Simulation`."""

_START: Final = 100.0  # seconds; 0 would look like "never"
_HEADER: Final = struct.Struct(">iii")  # length, xid, and opcode or the zxid's upper half
_EVENT: Final = struct.Struct(">iii")  # behind a reply's header: type, state, length of the path
_EVENT_AT: Final = 20
_NOTIFICATION: Final = struct.pack(">i", ops.NOTIFICATION_XID)
_MUTATING: Final = frozenset({*WRITES, ops.MULTI.opcode, ops.CLOSE_SESSION.opcode, 0})


class Step(NamedTuple):
    """One thing that can happen, and to whom: the name of a client or of a task, or ""."""

    kind: str
    who: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.who}".rstrip()


_TIME: Final = Step("time")


class Delivered(NamedTuple):
    """A watch event that the server has sent: in which step, of which type, to whom."""

    step: int
    type: EventType
    path: str
    client: Client


class Schedule(Protocol):
    """Decides what happens next."""

    def next(self, sim: Simulation) -> Step | None:
        """One of ``sim.steps()`` or ``sim.faults()``; None ends the run, unchecked."""
        ...


class Check(Protocol):
    """Something that must be true; both raise :class:`ViolationError`."""

    def step(self, sim: Simulation) -> None:
        """Called after every step."""

    def end(self, sim: Simulation) -> None:
        """Called when every task has ended and nothing is under way any more."""


class Simulation:
    """See the module's docstring.

    ``timeout`` is the session timeout in seconds and ``tick`` the server's unit of time;
    ``servers`` is the number of members, which share one tree.  ``faults`` says which of `FAULTS`
    may happen.  With ``frames`` the frames of one write may arrive one by one.  ``seed`` is for
    ids, pauses and passwords.  With ``trace`` the ``history`` is written; without, it costs
    nothing.
    """

    def __init__(
        self,
        *,
        timeout: float = 6.0,
        tick: float = 2.0,
        servers: int = 1,
        faults: Iterable[str] = FAULTS,
        frames: bool = True,
        seed: int = 0,
        trace: bool = False,
    ) -> None:
        self.timeout = timeout
        self.servers = servers
        self.rng = Random(seed)
        self.now = _START
        self.clients: list[Client] = []
        self.checks: list[Check] = []
        self.current: Task | None = None
        self.done: list[Step] = []
        self.events: list[Delivered] = []
        self.history: list[str] = []
        self.trace = trace
        self.last_fault_at = _START
        self._frames = frames
        self._allowed = frozenset(faults)
        self.stolen: dict[int, float] = {}  # czxids of nodes that somebody has deleted, and when
        self._long = 2 * (timeout + tick)  # longer than any session lives
        self._tasks: dict[str, Task] = {}
        self.ended: list[Task] = []
        self._by_name: dict[str, Client] = {}
        self._of_connection: dict[Connection, Client] = {}
        self._numbers: dict[str, int] = {}
        self._write_print = 0
        self.processor = Processor(rng=self.rng, tick=tick, members=servers)
        self.processor.advance(_START)

    @property
    def tree(self) -> DataTree:
        """The server's nodes."""
        return self.processor.world.tree

    @property
    def sessions(self) -> Sessions:
        """The server's living sessions."""
        return self.processor.world.sessions

    @property
    def watches_on_server(self) -> int:
        """How many watches the server has."""
        return len(self.processor.world.watchers)

    @property
    def tasks(self) -> list[Task]:
        """The tasks that have not ended."""
        return list(self._tasks.values())

    def client(self, name: str = "", *, chroot: str = "", connected: bool = True) -> Client:
        """A new client; unless told otherwise it is connected, without a step of the schedule."""
        client = Client(self, name or chr(ord("a") + len(self.clients)), chroot)
        self.clients.append(client)
        self._by_name[client.name] = client
        client.session.start(self.now)
        if connected:
            for step in (self._dial, self._up, self._down):
                step(client)
            assert client.session.usable
        return client

    def spawn(self, coroutine: Coroutine[Any, Any, object], client: Client | None = None) -> Task:
        """Run a coroutine in the process of ``client``; of the last one made if there is none."""
        return (client or self.clients[-1]).spawn(coroutine)

    def note(self, text: str) -> None:
        """Write something into the history."""
        if self.trace:
            self.history.append(f"{'':18}{text}")

    # --- what can happen --------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """What can happen next; nothing for the run is over."""
        found: list[Step] = []
        now = self.now
        for client in self.clients:
            if client.paused_until is not None:
                if now >= client.paused_until:
                    found.append(Step("resume", client.name))
            elif client.due and not client.dead:
                found.append(Step("turn", client.name))
        for task in self._tasks.values():
            if (
                task.ready or (task.deadline is not None and now >= task.deadline)
            ) and task.client.paused_until is None:
                found.append(Step("run", task.name))
        for client in self.clients:
            self._deliveries(client, found)
        if not found and (self._tasks or any(map(Client.unsettled, self.clients))):
            found.append(_TIME)
        return found

    def _deliveries(self, client: Client, found: list[Step]) -> None:
        name, link = client.name, client.link
        if client.ghosts:
            found.append(Step("late", name))
        if client.silent_until is not None:
            return
        running = client.paused_until is None
        if link is None:
            if running and client.session.target is not None:
                found.append(Step("dial", name))
            return
        if running and link.down:
            found.append(Step("down", name))
            if self._frames and len(link.down) > 1:
                found.append(Step("down1", name))
        if link.connection.ended:
            if running and not link.down:
                found.append(Step("eof", name))
        elif link.up:
            found.append(Step("up", name))
            if self._frames and len(link.up) > 1:
                found.append(Step("up1", name))

    def faults(self) -> list[Step]:
        """What can go wrong now."""
        found: list[Step] = []
        for client in self.clients:
            if not (client.dead or client.session.over):
                found += [Step(kind, client.name) for kind in self._faults_of(client)]
        for task in self._tasks.values():
            if not task.background and task.awaits and not task.client.paused:
                found.append(Step("cancel", task.name))
        found.append(Step("slow"))
        return [step for step in found if step.kind in self._allowed]

    def _faults_of(self, client: Client) -> list[str]:
        found: list[str] = []
        link = client.link
        if link is not None and not client.paused:  # else it would only find out later
            found.append("cut")
            if link.up:
                found += ["unsent", "linger"]
        if self.sessions.get(client.session.session_id) is not None:
            found.append("expire")
            if self.tree.ephemerals(client.session.session_id):
                found.append("delete")
        if client.silent_until is None:
            found += ["partition", "blip"]
        if not client.paused:
            found += ["pause", "crash"]
            if client.close_at is None:
                found.append("close")
        return found

    def fingerprint(self) -> int:
        """Equal for runs that have led to the same state, up to accidents of one in 2**60.

        A client is a function of what it has been given; the server of the order of its writes,
        and of which of them each client's reads have seen.
        """
        clients = [(c.print, c.server_print, c.paused_until, c.silent_until) for c in self.clients]
        return hash((self._write_print, self.now, *clients))

    # --- a run ------------------------------------------------------------------------------------

    def run(
        self, schedule: Schedule, *, patience: float | None = None, limit: int = 20_000
    ) -> bool:
        """Let everything happen as ``schedule`` says; False if it has ended the run early.

        LIVE is violated when tasks are left ``patience`` seconds (20 session timeouts) after the
        last fault, or after ``limit`` steps.
        """
        latest = 20 * self.timeout if patience is None else patience
        try:
            while (step := schedule.next(self)) is not None:
                self.perform(step)
                if self.now > self.last_fault_at + latest or len(self.done) > limit:
                    self._stuck()
            if self.steps():
                return False
            for check in self.checks:
                check.end(self)
            return True
        finally:
            self._abandon(list(self._tasks.values()))

    def _stuck(self) -> None:
        waiting = ", ".join(task.name for task in self._tasks.values()) or "nobody"
        seconds = self.now - self.last_fault_at
        raise ViolationError(
            "LIVE",
            f"{seconds:.0f} s after the last fault, after {len(self.done)} steps: {waiting} waits",
        )

    def perform(self, step: Step) -> None:
        """Let this happen, and look whether everything is still as it must be."""
        kind, who = step
        self.done.append(step)
        if self.trace:
            self.history.append(self._describe(step))
        if kind in self._allowed:
            self.last_fault_at = self.now
        if kind == "run":
            self._run(self._tasks[who])
        elif kind == "cancel":
            self._run(self._tasks[who], Cancelled())
        elif kind in ("time", "slow"):
            self._time()
        else:
            client = self._by_name[who]
            client.print = hash((client.print, kind, self.now))
            _STEPS[kind](self, client)
        for check in self.checks:
            check.step(self)

    def _abandon(self, tasks: list[Task]) -> None:
        """Drop tasks; what they do about it must have no effect."""
        for task in tasks:
            self._tasks.pop(task.name, None)
            task.client.session.closed()
            with suppress(RuntimeError, ZooKeeperError):
                task.coroutine.close()

    # --- tasks ------------------------------------------------------------------------------------

    def add_task(
        self, client: Client, coroutine: Coroutine[Any, Any, Any], name: str, *, background: bool
    ) -> Task:
        """For clients: one more task, under a name that no other has."""
        stem = name or (f"{client.name}.background" if background else client.name)
        number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        task = Task(stem if number == 1 else f"{stem}{number}", client, coroutine, background)
        self._tasks[task.name] = task
        return task

    def _run(self, task: Task, interrupt: BaseException | None = None) -> None:
        client = task.client
        client.print = hash((client.print, task.name, interrupt is None, self.now))
        task.ready, task.deadline = False, None
        self.current = task
        try:
            if interrupt is None:
                asked = task.coroutine.send(None)
            else:
                asked = task.coroutine.throw(interrupt)
        except StopIteration as stop:
            task.result = stop.value
            self._finish(task)
        except (ZooKeeperError, Cancelled) as error:
            task.error = error
            self._finish(task)
            if task.background:
                raise ViolationError("ERROR", f"{task.name} ended with {error!r}") from error
        except Exception as error:
            self._finish(task)
            raise ViolationError("ERROR", f"{task.name} ended with {error!r}") from error
        else:
            task.awaits += 1
            if isinstance(asked, Suspend):
                task.deadline = asked.deadline
            elif asked.ready:
                task.ready = True
            else:
                asked.add_waker(task.wake)
        finally:
            self.current = None
        client.call_due()
        client.flush()

    def _finish(self, task: Task) -> None:
        task.done = True
        del self._tasks[task.name]
        self.ended.append(task)
        if self.trace:
            self.note(f"{task.name} ends: {task.result if task.error is None else task.error!r}")

    # --- the network ------------------------------------------------------------------------------

    def _dial(self, client: Client) -> None:
        target = client.session.target
        if target is None or client.link is not None:
            return
        connection = self.processor.connect(member=target[1], now=self.now)
        self._of_connection[connection] = client
        client.link = Link(connection)
        client.session.connection_made(self.now)
        client.flush()

    def _up(self, client: Client) -> None:
        link = client.link
        while link is not None and link.up:
            self._up_one(client, link)
        self._collect()

    def _up1(self, client: Client) -> None:
        if client.link is not None:
            self._up_one(client, client.link)
        self._collect()

    def _up_one(self, client: Client, link: Link) -> None:
        frame = link.up.popleft()
        opcode = int.from_bytes(frame[8:12], "big") if link.connection.greeted else 0
        if opcode in _MUTATING:
            self._write_print = hash((self._write_print, client.name, frame, self.now))
        client.server_print = hash((client.server_print, frame, self._write_print, self.now))
        self.processor.receive(link.connection, frame, self.now)

    def _collect(self) -> None:
        """Put what the server has to say on its way."""
        for connection in self.processor.take_ready():
            frames, connection.output, connection.waiting = connection.output, [], 0
            client = self._of_connection[connection]
            for frame in frames:
                if frame[4:8] == _NOTIFICATION:
                    kind, _, length = _EVENT.unpack_from(frame, _EVENT_AT)
                    at = _EVENT_AT + _EVENT.size
                    path = frame[at : at + length].decode()
                    self.events.append(Delivered(len(self.done), EventType(kind), path, client))
            if client.link is not None and client.link.connection is connection:
                client.link.down.extend(frames)

    def _down(self, client: Client) -> None:
        self._receive(client, len(client.link.down) if client.link else 0)

    def _down1(self, client: Client) -> None:
        self._receive(client, 1)

    def _receive(self, client: Client, count: int) -> None:
        link = client.link
        if link is None or not link.down:
            return
        data = b"".join(link.down.popleft() for _ in range(count))
        client.print = hash((client.print, data))
        client.session.receive_data(data, self.now)
        client.conclude()

    def _eof(self, client: Client) -> None:
        client.lose("closed by the server")
        client.conclude()

    def _late(self, client: Client) -> None:
        link = client.ghosts.pop(0)
        while link.up:
            self._up_one(client, link)
        self.processor.lost(link.connection)
        self._collect()

    # --- time -------------------------------------------------------------------------------------

    def _time(self) -> None:
        due = [self.processor.next_deadline]
        for client in self.clients:
            moments = [client.paused_until, client.silent_until]
            if not client.paused and not client.dead:
                moments += [client.session.next_deadline(), client.close_at]
            due += [moment for moment in moments if moment is not None]
        due += [
            task.deadline
            for task in self._tasks.values()
            if task.deadline is not None and not task.client.paused
        ]
        self.now = min([moment for moment in due if moment > self.now], default=self.now)
        self.processor.advance(self.now)
        self._collect()
        for client in self.clients:
            if client.silent_until is not None and self.now >= client.silent_until:
                client.silent_until = None
            self._look_at_clock(client)

    def _look_at_clock(self, client: Client) -> None:
        deadlines = (client.session.next_deadline(), client.close_at)
        client.due = any(d is not None and self.now >= d for d in deadlines)

    def _turn(self, client: Client) -> None:
        client.due = False
        if client.close_at is not None and self.now >= client.close_at:
            client.close_at = None
            client.session.closed()
        client.conclude()

    def _resume(self, client: Client) -> None:
        client.paused_until = None
        self._look_at_clock(client)

    # --- faults -----------------------------------------------------------------------------------

    def _cut(self, client: Client) -> None:
        client.lose("cut")
        client.conclude()

    def _unsent(self, client: Client) -> None:
        if client.link is not None:
            client.lose("cut", written=client.link.written - sum(map(len, client.link.up)))
        client.conclude()

    def _linger(self, client: Client) -> None:
        client.lose("cut", server=False)
        client.conclude()

    def _expire(self, client: Client) -> None:
        self.processor.expire(client.session.session_id, self.now)
        client.killed = True
        self._write_print = hash((self._write_print, "expire", client.name, self.now))
        self._collect()

    def _delete(self, client: Client) -> None:
        world = self.processor.world
        for path in world.tree.ephemerals(client.session.session_id):
            self.stolen[world.tree.nodes[path].czxid] = self.now
            world.tree.begin(round(self.now * 1000))
            world.tell(world.tree.remove(path))
        self._write_print = hash((self._write_print, "delete", client.name, self.now))
        self._collect()

    def _pause(self, client: Client) -> None:
        client.paused_until = self.now + self._long

    def _partition(self, client: Client) -> None:
        client.silent_until = self.now + self._long

    def _blip(self, client: Client) -> None:
        client.silent_until = self.now + self.timeout * 3 / 4

    def _close(self, client: Client) -> None:
        client.session.close(self.now)
        client.close_at = self.now + self.timeout
        client.call_due()
        client.flush()

    def _crash(self, client: Client) -> None:
        client.dead = True
        client.lose("crash")
        self._abandon([task for task in self._tasks.values() if task.client is client])

    # --- history ----------------------------------------------------------------------------------

    def _describe(self, step: Step) -> str:
        text = f"{len(self.done):4} {self.now - _START:9.3f} s  {step}"
        client = self._by_name.get(step.who)
        if client is None or client.link is None:
            return text
        if step.kind in ("up", "up1"):
            frames = list(client.link.up)[: 1 if step.kind == "up1" else None]
            return f"{text}: {', '.join(_request(f, client.link) for f in frames)}"
        if step.kind in ("down", "down1"):
            frames = list(client.link.down)[: 1 if step.kind == "down1" else None]
            replies = map(_reply, frames) if client.session.usable else ("handshake",)
            return f"{text}: {', '.join(replies)}"
        return text


_STEPS: Final[dict[str, Callable[[Simulation, Client], None]]] = {
    name: getattr(Simulation, f"_{name}")
    for name in (
        *("turn", "up", "up1", "down", "down1", "eof", "dial", "late", "resume"),
        *("cut", "unsent", "linger", "expire", "delete", "pause", "partition", "blip", "close"),
        "crash",
    )
}


def _request(frame: bytes, link: Link) -> str:
    if not link.connection.greeted:
        return "connect"
    _, xid, opcode = _HEADER.unpack_from(frame)
    op = ops.OPS.get(opcode)
    length = int.from_bytes(frame[12:16], "big")
    path = frame[16 : 16 + length].decode("utf-8", "replace") if length < len(frame) else ""
    return f"{op.name if op else opcode}#{xid} {path}".rstrip()


def _reply(frame: bytes) -> str:
    _, xid, _ = _HEADER.unpack_from(frame)
    if frame[4:8] == _NOTIFICATION:
        kind, _, length = _EVENT.unpack_from(frame, _EVENT_AT)
        at = _EVENT_AT + _EVENT.size
        return f"{EventType(kind).name} {frame[at : at + length].decode('utf-8', 'replace')}"
    code = int.from_bytes(frame[16:20], "big", signed=True)
    return f"#{xid}" + (f" error {code}" if code else "")
