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

A step is one of: a task runs to its next await (``run``); frames reach the server (``up``: those of
one write, ``up1``: one) or the client (``down``: all, ``down1``); a client sees the end of its
connection (``eof``), connects (``dial``), keeps its deadlines (``turn``), goes on after a pause
(``resume``); a server gets what was under way when the client had lost the connection (``late``);
nothing else can happen and time passes to the next deadline (``time``).

Faults are described in :mod:`zkwire.testing.trouble`; after ``lag`` there is the step ``apply``:
the client's server has caught up.

What must be true of a run is said by checks, see :mod:`zkwire.testing.claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from zkwire import ops
from zkwire.errors import ZooKeeperError
from zkwire.model import EventType
from zkwire.testing import trouble
from zkwire.testing.behind import Behind, Past
from zkwire.testing.connection import Connection
from zkwire.testing.narration import event_in, told
from zkwire.testing.processor import Processor
from zkwire.testing.reads import READS
from zkwire.testing.sessions import Sessions
from zkwire.testing.simulated_client import (
    Cancelled,
    Client,
    Link,
    Step,
    Suspend,
    Task,
    ViolationError,
)
from zkwire.testing.tree import DataTree
from zkwire.testing.trouble import FAULTS
from zkwire.testing.writes import WRITES

START: Final = 100.0  # seconds; 0 would look like "never"
_MUTATING: Final = frozenset({*WRITES, ops.MULTI.opcode, ops.CLOSE_SESSION.opcode, 0})
_UP_TO_DATE: Final = frozenset(op.opcode for op in (ops.SYNC, ops.ADD_WATCH, ops.SET_WATCHES2))
_BEHIND: Final = (frozenset(READS) - _UP_TO_DATE) | {0, ops.PING.opcode}
"""What a server answers that is behind; 0 is the handshake."""


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
    """Something that must be true; both raise :class:`ViolationError`.

    For `exhaust` it may have two things more.  ``reducible = True`` says that `step` looks at
    nothing but the server and claims of locks (``client.locks``), and `end` at whatever it likes:
    then orders that make no difference to that are left out, which saves most of the time.
    ``memory()`` returns what it remembers that decides about what it will say: states are equal
    only if that is.  Without it, all that can be reached from the check counts: a counter of
    events makes every state a new one.
    """

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
        self.tick = tick
        self.servers = servers
        self.seed = seed
        self.rng = Random(seed)
        self.now = START
        self.clients: list[Client] = []
        self.checks: list[Check] = []
        self.current: Task | None = None
        self.done: list[Step] = []
        self.events: list[Delivered] = []
        self.history: list[str] = []
        self.trace = trace
        self.last_fault_at = START
        self._frames = frames
        self._allowed = frozenset(faults)
        self.stolen: dict[int, float] = {}  # czxids of nodes that somebody has deleted, and when
        self.long = 2 * (timeout + tick)  # longer than any session lives
        self._tasks: dict[str, Task] = {}
        self.ended: list[Task] = []
        self._by_name: dict[str, Client] = {}
        self._of_connection: dict[Connection, Client] = {}
        self.behind: dict[Connection, Behind] = {}  # whose server is
        self.past = Past(wanted="lag" in self._allowed)
        self.processor = Processor(rng=self.rng, tick=tick, members=servers)
        self.processor.advance(START)

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

    def client_of(self, step: Step) -> Client | None:
        """Whom it happens to; None if to nobody, or to nodes."""
        if step.kind in ("run", "cancel"):
            return self._tasks[step.who].client
        return self._by_name.get(step.who)

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
            if client.stalled:
                continue
            if client.paused_until is not None:
                if now >= client.paused_until:
                    found.append(Step("resume", client.name))
            elif client.due and not client.dead:
                found.append(Step("turn", client.name))
        for task in self._tasks.values():
            if (
                task.ready or (task.deadline is not None and now >= task.deadline)
            ) and task.client.running:
                found.append(Step("run", task.name))
        for client in self.clients:
            if not client.stalled:
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
        if link.connection in self.behind:
            found.append(Step("apply", name))
        if link.connection.ended:
            if running and not link.down:
                found.append(Step("eof", name))
        elif link.up:
            found.append(Step("up", name))
            if self._frames and len(link.up[0]) > 1:
                found.append(Step("up1", name))

    def faults(self) -> list[Step]:
        """What can go wrong now."""
        return [step for step in trouble.possible(self) if step.kind in self._allowed]

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
            self.abandon(list(self._tasks.values()))

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
            self.history.append(f"{len(self.done):4} {self.now - START:9.3f} s  {told(self, step)}")
        if kind in self._allowed:
            self.last_fault_at = self.now
        if kind == "run":
            self._run(self._tasks[who])
        elif kind == "cancel":
            self._run(self._tasks[who], Cancelled())
        elif kind == "time":
            self._time()
        elif not who:
            trouble.ANYWHERE[kind](self)
        else:
            client = self._by_name[who]
            client.print = hash((client.print, kind, self.now))
            _STEPS[kind](self, client)
        for check in self.checks:
            check.step(self)

    def abandon(self, tasks: list[Task]) -> None:
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
        """For clients: one more task, under a name that no other has.

        In the background a name is used again as soon as it is free: how many have ended before is
        no part of a state.
        """
        stem = name or (f"{client.name}.background" if background else client.name)
        number = client.spawned.get(stem, 0) + 1
        if background:
            number = 1
            while (stem if number == 1 else f"{stem}{number}") in self._tasks:
                number += 1
        else:
            client.spawned[stem] = number
        task = Task(stem if number == 1 else f"{stem}{number}", client, coroutine, background)
        self._tasks[task.name] = task
        return task

    def step_within(self, task: Task) -> None:
        """For clients: have a task take a step within the step of another."""
        outer = self.current
        self._run(task)
        self.current = outer

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
        if client.link is not None:
            self._up_write(client, client.link)
        self.collect()

    def _up1(self, client: Client) -> None:
        if client.link is not None:
            self._up_one(client, client.link)
        self.collect()

    def _up_write(self, client: Client, link: Link) -> None:
        for _ in range(len(link.up[0])):
            self._up_one(client, link)

    def _up_one(self, client: Client, link: Link) -> None:
        frame = link.take()
        greeted = link.connection.greeted
        opcode = int.from_bytes(frame[8:12], "big", signed=True) if greeted else 0
        if link.connection in self.behind and opcode not in _BEHIND:
            self._catch_up(link)  # it has to have what came before, to have this
        if opcode in _MUTATING:
            self.past.remember(self.tree)
        with self.past.seen_by(self.processor.world, self.behind.get(link.connection)):
            self.processor.receive(link.connection, frame, self.now)

    def collect(self) -> None:
        """Put what the server has to say on its way."""
        for connection in self.processor.take_ready():
            frames, connection.output, connection.waiting = connection.output, [], 0
            client = self._of_connection[connection]
            for frame in frames:
                event = event_in(frame)
                if event is not None:
                    self.events.append(Delivered(len(self.done), *event, client))
            if client.link is not None and client.link.connection is connection:
                behind = self.behind.get(connection)
                client.link.down.extend(frames if behind is None else behind.hold_back(frames))

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

    def _apply(self, client: Client) -> None:
        if client.link is not None:
            self._catch_up(client.link)

    def _catch_up(self, link: Link) -> None:
        """The follower that was behind has caught up."""
        behind = self.behind.pop(link.connection, None)
        if behind is not None:
            link.down.extend(behind.held)
            behind.catch_up(self.processor.world, link.connection)
            self.collect()

    def _late(self, client: Client) -> None:
        link = client.ghosts.pop(0)
        while link.up:
            self._up_write(client, link)
        self.processor.lost(link.connection)
        self.collect()

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
        before = self.now
        self.now = min([moment for moment in due if moment > before], default=before)
        if not self.tree._reapable:  # or else the clock would stop for a round that finds nothing
            self.processor._reap_at += self.now - before
        if self.now >= self.processor.next_deadline:
            self.past.remember(self.tree)
        self.processor.advance(self.now)
        self.collect()
        for client in self.clients:
            if client.silent_until is not None and self.now >= client.silent_until:
                client.silent_until = None
            client.stalled = False
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


_STEPS: Final[dict[str, Callable[[Simulation, Client], None]]] = {
    "turn": Simulation._turn,
    "up": Simulation._up,
    "up1": Simulation._up1,
    "down": Simulation._down,
    "down1": Simulation._down1,
    "eof": Simulation._eof,
    "dial": Simulation._dial,
    "late": Simulation._late,
    "resume": Simulation._resume,
    "apply": Simulation._apply,
    **trouble.TROUBLE,
}
