"""Many clients, one server and one clock in one thread, where a schedule decides what happens next.

    def two_contenders(sim: Simulation) -> None:
        claims = Claims(exclusive)                      # zkwire.testing.simulation.invariants
        sim.checks += [claims, Orphans(claims, "/lock")]
        for name in ("a", "b"):
            client = sim.client(name)
            lock = AsyncSequentialLock(client.world, "/lock")
            claims.add(lock, client)
            client.spawn(acquire_and_release(lock))     # any coroutine

    explore(two_contenders, seeds=range(1000))          # zkwire.testing.simulation.runs

A client is the real state machine with the real operations, on the real ``Runtime`` for recipes;
the server is the embedded one's `Processor`.  Between them are two queues of frames for each
client.  There is no socket, no thread, no event loop and no real time: :meth:`Simulation.steps`
lists the steps that are possible now, :meth:`Simulation.faults` the faults, and a schedule chooses
one.  The same choices give the same run.

The steps are: a task runs to its next await (``run``); frames reach the server (``up``: those of
one write, ``up1``: one) or the client (``down``: all, ``down1``: one); a client sees the end of its
connection (``eof``), connects (``dial``), acts on a deadline (``turn``), goes on after a pause
(``resume``); the server gets the frames of a connection that the client has lost (``late``); time
passes to the next deadline, if nothing else is possible (``time``).

:mod:`zkwire.testing.simulation.fault_choice` describes the faults; after ``lag`` there is the step
``apply``, in which the client's server catches up.

Checks decide whether a run is correct, see :mod:`zkwire.testing.simulation.invariants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from zkwire.testing.proxy.frames import reply_frame, request_frame
from zkwire.testing.simulation import fault_choice
from zkwire.testing.simulation.client import Cancelled, Client, Link, Step, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.stage import START, System, event_in


def describe(step: Step, client: Client | None) -> str:
    """The line of a history: the step with the frames that it moves; ``client`` is its client.

    It must not change anything: a run with a history and a run without one have the same steps.
    """
    link = None if client is None else client.link
    if client is None or link is None or step.kind not in ("up", "up1", "down", "down1"):
        return str(step)
    if step.kind.startswith("up"):
        frames = [_request(frame, link) for frame in link.up[0]]
    else:
        frames = list(map(_reply, link.down)) if client.session.usable else ["handshake"]
    return f"{step}: {', '.join(frames[:1] if step.kind.endswith('1') else frames)}"


def _request(data: bytes, link: Link) -> str:
    if not link.connection.greeted:
        return "connect"
    frame = request_frame(0, data, 0.0)
    return f"{frame.op}#{frame.xid} {frame.path or ''}".rstrip()


def _reply(data: bytes) -> str:
    event, frame = event_in(data), reply_frame(0, data, 0.0, None)
    if event is not None:
        return f"{event[0].name} {event[1]}"
    return f"#{frame.xid}" + (f" error {frame.error}" if frame.error else "")


_TIME: Final = Step("time")


class Schedule(Protocol):
    """Decides which step happens next."""

    def next(self, sim: Simulation) -> Step | None:
        """One of ``sim.steps()`` or ``sim.faults()``; None ends the run, without `Check.end`."""
        ...


class Check(Protocol):
    """A condition that must be true; both methods raise :class:`ViolationError` when it is not.

    `exhaust` uses two optional members.  ``reducible = True`` promises that `step` looks only at
    the server and at the claims of locks (``client.locks``); `end` may look at anything.
    If all checks promise it, `exhaust` skips orders that make no difference to them, which saves
    most of the time.
    ``comparison_key()`` returns the part of the check's attributes that its later verdicts depend
    on.  Two states of a simulation count as equal only if this key is equal.  For a check without
    this method, everything that can be reached from the check is compared: one that counts events
    then makes every state a new one.
    """

    def step(self, sim: Simulation) -> None:
        """Called after every step."""

    def end(self, sim: Simulation) -> None:
        """Called when every task has ended and nothing is under way."""


class Simulation(System):
    """See the module's docstring.

    ``timeout`` is the session timeout in seconds and ``tick`` the server's unit of time;
    ``servers`` is the number of members, which share one tree.  ``faults`` names those of `FAULTS`
    that may happen.  With ``frames`` the frames of one write may arrive one by one.  ``seed`` is
    for ids, pauses and passwords.  With ``trace`` the run writes its ``history``, which takes time.
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
        allowed = frozenset(faults)
        super().__init__(timeout, tick, servers, seed, trace, "lag" in allowed)
        self.checks: list[Check] = []
        self.last_fault_at: float = START
        self._frames = frames
        self._allowed = allowed

    # --- possible steps ---------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """The steps that are possible now; an empty list means that the run has ended."""
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
        if link.connection in self.stale_servers:
            found.append(Step("apply", name))
        if link.connection.ended:
            if running and not link.down:
                found.append(Step("eof", name))
        elif link.up:
            found.append(Step("up", name))
            if self._frames and len(link.up[0]) > 1:
                found.append(Step("up1", name))

    def faults(self) -> list[Step]:
        """The faults that are possible now."""
        return [step for step in fault_choice.possible(self) if step.kind in self._allowed]

    # --- a run ------------------------------------------------------------------------------------

    def run(
        self, schedule: Schedule, *, patience: float | None = None, limit: int = 20_000
    ) -> bool:
        """Perform the steps that ``schedule`` chooses; False if it has ended the run early.

        The run violates LIVE if tasks are left ``patience`` seconds (by default 20 session
        timeouts) after the last fault, or after ``limit`` steps.
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
            while self._tasks:  # the end of one may begin another
                self.drop_tasks(list(self._tasks.values()))

    def _stuck(self) -> None:
        waiting = ", ".join(task.name for task in self._tasks.values()) or "no task"
        seconds = self.now - self.last_fault_at
        raise ViolationError(
            "LIVE",
            f"{seconds:.0f} s after the last fault, after {len(self.done)} steps: {waiting} waits",
        )

    def perform(self, step: Step) -> None:
        """Perform one step, then call the checks."""
        kind, name = step
        self.done.append(step)
        if self.trace:
            story = describe(step, self._by_name.get(step.subject))
            self.history.append(f"{len(self.done):4} {self.now - START:9.3f} s  {story}")
        if kind in self._allowed:
            self.last_fault_at = self.now
        if kind == "run":
            self._run(self._tasks[name])
        elif kind == "cancel":
            self._run(self._tasks[name], Cancelled())
        elif kind == "time":
            self._time()
        elif not name:
            fault_choice.NODE_FAULTS[kind](self)
        else:
            client = self._by_name[name]
            client.print = hash((client.print, kind, self.now))
            _STEPS[kind](self, client)
        for check in self.checks:
            check.step(self)

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
        self.now: float = min([moment for moment in due if moment > before], default=before)
        if not self.tree._reapable:  # otherwise time would stop for a check that deletes nothing
            self.processor._reap_at += self.now - before
        if self.now >= self.processor.next_deadline:
            self.tree_history.remember(self.tree)
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
    "up1": partial(Simulation._up, one=True),
    "down": Simulation._down,
    "down1": partial(Simulation._down, one=True),
    "eof": Simulation._eof,
    "dial": Simulation._dial,
    "late": Simulation._late,
    "resume": Simulation._resume,
    "apply": Simulation._apply,
    **fault_choice.CLIENT_FAULTS,
}
