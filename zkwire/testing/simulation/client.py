"""One client of a simulation: its process, its driver, its connection and its tasks.

It decides what a driver decides: when the state machine is called and what is on its way.  When
anything of this happens is the business of :mod:`zkwire.testing.simulation.simulation`.

A `SimulatedClient` is such a client as its users see it.  Coroutines of a simulation can use it as
any other AsyncClient, locks and services included, but for what needs asyncio itself (tasks,
``asyncio.timeout``, ``cancel_on_loss``).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from zkwire.aio.client import AsyncClient
from zkwire.aio.replies import StepReply
from zkwire.jute.frames import FrameSplitter
from zkwire.net.driver import Driver
from zkwire.net.pipeline import Pipeline
from zkwire.recipes._service import Background
from zkwire.session.hosts import HostList
from zkwire.session.request import Request
from zkwire.session.session import Session
from zkwire.session.waitable import Waitable, Watch
from zkwire.testing.server.sessions import Connection
from zkwire.wire.model import OPEN_ACL_UNSAFE

T = TypeVar("T")

_MANY: Final = 100  # deadlines at one moment


class Cancelled(BaseException):
    """What a cancelled task gets at its await, as asyncio.CancelledError."""


class ViolationError(AssertionError):
    """A run has broken an invariant; ``invariant`` is its short name."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Step(NamedTuple):
    """One thing that can happen; ``subject``: the client or the task that it happens to, or ""."""

    kind: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}".rstrip()


@dataclass(slots=True, eq=False)
class Task:
    """A coroutine that runs in a client's process, and how it has ended.

    ``awaits`` counts the awaits that have suspended it.
    """

    name: str
    client: Client
    coroutine: Coroutine[Any, Any, Any]
    background: bool
    ready: bool = True
    deadline: float | None = None
    awaits: int = 0
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Task {self.name} {'done' if self.done else self.awaits}>"

    def wake(self) -> None:
        """Let it run again."""
        self.ready = True


@dataclass(slots=True, eq=False)
class Suspend:
    """Awaited, it hands its deadline to the scheduler."""

    deadline: float | None

    def __await__(self) -> Generator[Any, None, None]:
        yield self


@dataclass(slots=True, eq=False)
class Link:
    """A connection: what is under way, up by the writes of the client, and what it has written."""

    connection: Connection
    up: deque[list[bytes]] = field(default_factory=deque[list[bytes]])
    down: deque[bytes] = field(default_factory=deque[bytes])
    written: int = 0

    def take(self) -> bytes:
        """The first frame on the way up; it arrives."""
        frame = self.up[0].pop(0)
        if not self.up[0]:
            self.up.popleft()
        return frame


Holder: TypeAlias = Any
"""A lock, as far as it is looked at from outside: ``held``, and the ``fence`` of its last grant."""


class Client:
    """One process with one client in it.

    ``world`` is the runtime that recipes get.  ``killed``: the fault ``expire`` has ended its
    session early, so its claims are not compared with others.  ``dead``: the process is gone.
    ``stalled``: until time passes, nothing happens in its process or on its network.  ``locks`` are
    the locks whose claims a check looks at.  ``options`` are those of the session.
    """

    def __init__(self, sim: Any, name: str, chroot: str, **options: Any) -> None:
        self.name = name
        self.sim: Any = sim  # the Simulation that it is in
        # Of its own, so that what one client draws does not depend on what others do meanwhile.
        self.rng: Random = Random(sim.rng.random())
        hosts = HostList([("server", n) for n in range(sim.servers)], self.rng)
        options.setdefault("timeout", sim.timeout)
        self.session: Session = Session(hosts, chroot=chroot, **options)
        self.world: SimulatedDriver = SimulatedDriver(self)
        self.link: Link | None = None
        self.ghosts: list[Link] = []  # connections that only the server still believes in
        self.paused_until: float | None = None
        self.silent_until: float | None = None
        self.close_at: float | None = None
        self.stalled = False
        self.locks: list[Holder] = []
        self.due = False  # a deadline has passed
        self.killed = False
        self.dead = False
        self.spawned: dict[str, int] = {}  # tasks by name, but for those in the background
        self.print = 0  # of its history

    def __repr__(self) -> str:
        return f"<Client {self.name} {self.session.state.name}>"

    @property
    def paused(self) -> bool:
        """Whether its process stands still."""
        return self.paused_until is not None

    @property
    def lives(self) -> bool:
        """Whether neither its process nor its session has ended."""
        return not (self.dead or self.session.ended)

    @property
    def running(self) -> bool:
        """Whether its tasks can go on."""
        return self.paused_until is None and not self.stalled

    def unsettled(self) -> bool:
        """Whether something that has happened to it has not ended yet."""
        return not self.dead and bool(
            self.stalled
            or self.paused_until
            or self.silent_until
            or (self.close_at and not self.session.ended)
        )

    def spawn(self, coroutine: Coroutine[Any, Any, object], name: str = "") -> Task:
        """Run a coroutine in this process; it may await the world's things and this client's."""
        return self.sim.add_task(self, coroutine, name, background=False)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await Suspend(self.sim.now + seconds)

    async def turn(self) -> None:
        """Let others do something, as ``asyncio.sleep(0)``."""
        await Suspend(self.sim.now)

    # --- the I/O layer ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Put what the session wants to send on its way."""
        link, session = self.link, self.session
        while link is not None and session.has_output:
            data = session.data_to_send(self.sim.now)
            link.written += len(data)
            link.up.append([data[at - 4 : end] for _, at, end in FrameSplitter().cut(data)])

    def call_due(self) -> None:
        """Call what the state machine wants called."""
        while callbacks := self.session.take_callbacks():
            for function in callbacks:
                function()

    def conclude(self) -> None:
        """Do what is due, as an I/O layer does after each thing that has happened."""
        session, now = self.session, self.sim.now
        for _ in range(_MANY):
            if self.link is not None and session.broken:
                self.lose(session.broken)
            due = session.next_deadline()
            if due is None or due > now:
                break
            session.on_deadline(now)
            if session.broken and self.link is None:
                session.connection_lost(now, 0, session.broken)
        else:
            raise ViolationError("ERROR", f"the deadlines of {self} do not move on")
        self.call_due()
        self.flush()

    def lose(self, why: str, *, written: int | None = None, server: bool = True) -> None:
        """The connection is gone; with ``server`` the server has noticed."""
        link, self.link = self.link, None
        if link is not None:
            taken = link.written if written is None else written
            self.session.connection_lost(self.sim.now, taken, why)
            if server:
                self.sim.processor.lost(link.connection)
            else:
                self.ghosts.append(link)


class SimulatedDriver(Driver):
    """The driver of a simulated client.  What a step wants to send leaves at its end."""

    now: Callable[[], float]
    _kind = StepReply

    def __init__(self, client: Client) -> None:
        made_with = SimpleNamespace(_session=client.session, _rng=client.rng, _name="zkwire")
        made_with._acl, made_with._hooks = OPEN_ACL_UNSAFE, {}
        made_with._operation_timeout = made_with._tls = made_with._sasl = None
        super().__init__(made_with)
        self.mutex: Any = nullcontext()
        self._client = client
        self._sim = client.sim
        self.now = lambda: client.sim.now

    def start(self) -> None:
        """There is one loop only, and it runs."""

    check = start

    def caller(self) -> object:
        """All tasks of a client count as one caller, so that they can share a lock object."""
        return None

    def waiter(self) -> object:
        """The task that runs."""
        return self._sim.current

    def _rouse(self, waiter: object) -> None:
        assert isinstance(waiter, Task)
        waiter.wake()

    def local(self, make: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the value of the task that calls it."""
        values: defaultdict[Task | None, T] = defaultdict(make)
        return lambda: values[self._sim.current]

    def when_caller_ends(self, lock: Any) -> None:
        """A task that ends keeps what it holds: its process goes on."""

    def submit(self, request: Request, eager: bool = True) -> None:
        self.session.submit(request, self._sim.now)

    def wake(self) -> None:
        """Do at once what a lock leaves to its client."""
        self.finish_clean_up()

    def flush(self) -> None:
        self._client.flush()

    def _schedule_callbacks(self) -> None:
        self._client.call_due()

    async def within(self, waitable: Waitable, timeout: float | None = None) -> bool:
        task, sim = self._sim.current, self._sim
        latest = None if timeout is None else sim.now + timeout
        while not (waitable.ready or (latest is not None and sim.now >= latest)):
            assert task is not None
            if self.interrupted:
                self._refuse_interrupted()
            wake = task.wake  # one object for both uses
            waitable._add_waker(wake)
            try:
                await Suspend(latest)
            finally:
                waitable._drop_waker(wake)
        return waitable.ready

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        if waitable.ready or timeout == 0:
            return waitable.ready
        raise RuntimeError("this would block the simulation: use await")

    def defer(self, function: Callable[[], object]) -> None:
        """Call it at once, or, if the seed is odd, in a step of its own: drivers may do either.

        Scenarios of which every state is visited have the seed 0, since a step of its own would
        make three times as many states.
        """
        if self._sim.seed % 2 == 0:
            function()
        else:
            self.dispatch(function)

    def close_watch(self, watch: Watch, *, tell: bool = True) -> None:
        self.session.forget_watch(watch, tell=tell)
        self._client.call_due()
        self.flush()

    def spawn(self, work: Callable[[Pipeline], Coroutine[Any, Any, object]]) -> None:
        if self.session.ended:
            raise self.session.ending()
        coroutine = work(self.background)
        self._sim.step_within(self._sim.add_task(self._client, coroutine, "", background=True))

    def serve(self, service: Any) -> None:
        self.check_open()
        if service in self.services:
            return
        work = service._run(Background(self, self.background))
        self.services[service] = self._sim.add_task(self._client, work, "", background=True)

    def dismiss(self, service: Any) -> None:
        task: Any = self.services.pop(service, None)
        if task is not None and not (task.done or task.coroutine.cr_running):
            self._sim.drop_task(task)

    def dispatch(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            result = function()
            if isinstance(result, Awaitable):
                await result

        self._sim.add_task(self._client, call(), "", background=True)


class SimulatedClient(AsyncClient):
    """The client of users; ``actor`` is the client as the simulation has it."""

    _driver: Any

    def __init__(self, actor: Client) -> None:
        Pipeline.__init__(self, actor.world, StepReply)
        self.actor: Any = actor
        self.name: str = actor.name
        self._session = actor.session
        self._hosts = "server"
        self._operation_timeout = None

    def __del__(self) -> None:
        """A client of users closes its connection here; a simulated one has none."""

    async def close(self) -> None:
        """End the session."""
        actor = self.actor
        request = actor.session.close(actor.sim.now)
        if request is not None:
            await self._driver.within(request)
        actor.session.closed()
        if actor in actor.sim.clients:
            actor.sim.clients.remove(actor)
