"""What the scenarios of the simulation have in common, and how bugs are planted into the package.

A module has scenarios, their checks, and the bugs that show that these can fail.  One check of the
project makes a sixth of each sweep, by its seed: `ZKWIRE_SIMULATION=2` makes all of it at once,
`=10` ten times as many random runs.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any, Concatenate, NamedTuple, ParamSpec

import pytest

from tests.conftest import SEED
from zkwire.recipes.supervisor import SessionLoop
from zkwire.session.states import StateWait
from zkwire.session.waitable import Waitable
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.tree import DataTree, Event, NewNode
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, Task, ViolationError
from zkwire.testing.simulation.fault_choice import CLIENT_FAULTS, FAULTS
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import OPEN_ACL_UNSAFE

FACTOR = float(os.environ.get("ZKWIRE_SIMULATION", "1"))

A_SIXTH = {"first": SEED % 6, "every": 6} if FACTOR <= 1 else {}
"""The steps of a sweep: which sixth of them, `ZKWIRE_SEED` says."""

OUTSIDERS = ("delete", "touch", "uproot", "wrap", "refuse")
"""Faults under which some recipes promise nothing, or an error: others delete, servers refuse."""
NETWORK = tuple(fault for fault in FAULTS if fault not in OUTSIDERS)
PASSING = ("cut", "unsent", "linger", "pause", "partition", "blip", "slow", "lag")
"""Faults that a session may outlive."""


class World(NamedTuple):
    """A scenario, the faults that may happen in it, and a number.

    How many faults at most, if every schedule is followed; if it differs from seed to seed, how
    many runs a check makes.
    """

    scenario: Scenario
    faults: tuple[str, ...]
    number: int


P = ParamSpec("P")


def scenario(function: Callable[Concatenate[Simulation, P], None]) -> Callable[P, Scenario]:
    """The arguments behind the simulation make a scenario of a function."""

    def make(*arguments: P.args, **named: P.kwargs) -> Scenario:
        return lambda sim: function(sim, *arguments, **named)

    return make


class Judge:
    """A check of which no attribute has an effect on later verdicts; to be derived from.

    ``paths``: nodes that are there already.
    """

    reducible = True
    paths: tuple[str, ...] = ()

    async def live(self, client: Client, place: int) -> object:
        """What a client does in a scenario of `lives`; ``place`` is its number."""

    def step(self, sim: Simulation) -> None:
        """Called after every step."""

    def comparison_key(self) -> tuple[object, ...]:
        return ()

    def end(self, sim: Simulation) -> None:
        """Called at the end."""


class Broken(Judge):
    """What a task has seen to be wrong; if it raised that, it would be an ERROR."""

    def __init__(self, *violation: str) -> None:
        self._violation = violation

    def step(self, sim: Simulation) -> None:
        raise ViolationError(*self._violation)


def wrong(sim: Simulation, name: str, text: str) -> None:
    """To be called in a task: this is broken, and the run ends with the step."""
    sim.checks.append(Broken(name, text))


def make(sim: Simulation, *paths: str) -> None:
    """The nodes are there already."""
    for path in paths:
        sim.tree.begin(0)
        sim.tree.create(NewNode(path, b"", OPEN_ACL_UNSAFE), Credentials())


def clients(sim: Simulation, number: int, together: bool) -> Iterator[Client]:
    """One for each contender, or one for all."""
    first = sim.client()
    for place in range(number):
        yield first if together or place == 0 else sim.client()


@scenario
def lives(sim: Simulation, number: int, judge: Callable[[], Judge], together: bool = False) -> None:
    """So many lives under the eyes of one judge, on clients of their own or ``together`` on one."""
    made = judge()
    sim.checks.append(made)
    make(sim, *made.paths)
    for place, client in enumerate(clients(sim, number, together)):
        client.spawn(made.live(client, place))


def children(sim: Simulation, path: str) -> dict[str, int]:
    """The children of a path, with their czxids; none where somebody has deleted it."""
    node = sim.tree.nodes.get(path)
    names = (node and node.children) or ()
    return {name: sim.tree.nodes[f"{path}/{name}"].czxid for name in names}


def living(sim: Simulation) -> list[Client]:
    return [client for client in sim.clients if not (client.dead or client.session.ended)]


def has_faults(sim: Simulation) -> bool:
    return any(step.kind in FAULTS for step in sim.done)


def has_been_refused(sim: Simulation) -> bool:
    """Whether a server has been busy: perhaps for what removes a watch."""
    return any(step.kind == "refuse" for step in sim.done)


def nobody_failed(sim: Simulation) -> None:
    """ERROR: no task has ended with an error."""
    for task in sim.ended:
        if task.error is not None:
            raise ViolationError("ERROR", f"{task.name} ended with {task.error!r}")


def change(sim: Simulation, make: Callable[[DataTree, Credentials], list[Event]]) -> None:
    """An outsider changes a node; this tells of the events."""
    sim.tree_history.remember(sim.tree)
    sim.tree.begin(round(sim.now * 1000))
    sim.processor.state.send_events(make(sim.tree, Credentials()))
    sim.collect()


def nothing_left(sim: Simulation, below: str, *, watches: bool = True) -> None:
    """LEFT: no node of a living session stands below a path, and no living client has a watch."""
    ids = {client.session.session_id for client in living(sim)}
    for path, node in sim.tree.nodes.items():
        if path.startswith(below) and node.owner in ids:
            raise ViolationError("LEFT", f"{path} of {node.owner:#x} is left")
    for client in living(sim) if watches else ():
        if client.session.watch_count:
            raise ViolationError("LEFT", f"{client} has {client.session.watch_count} watches left")


def is_still(sim: Simulation, client: Client) -> bool:
    """Whether nothing is under way to or from this client, and nothing in it can go on."""
    link, session = client.link, client.session
    return (
        link is not None
        and client.running
        and session.usable
        and client.close_at is None
        and not (client.silent_until or client.stalled)
        and not (client.dead or client.due or client.ghosts or session.ended)
        and not (link.up or link.down or link.connection.ended)
        and link.connection not in sim.stale_servers
        and not any(task.client is client and task.ready for task in sim.tasks)
    )


class Sessions(SessionLoop):
    """The sessions of a process, which has what they need."""

    def __init__(self, process: Process) -> None:
        self.process = process
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.process, name)


class Process:
    """A process whose sessions follow one another.

    Its tasks stand still, and die, with its newest client.
    """

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name = sim, name
        self.mutex = nullcontext()
        self.rng = Random(f"{sim.seed} {name}")
        self.clients: list[Client] = []
        self.tasks: list[Task] = []
        self.ended = False
        self.sessions: Any = Sessions(self)

    @property
    def newest(self) -> Client:
        return self.clients[-1]

    def spawn(self, work: Coroutine[Any, Any, object], name: str, background: bool = False) -> None:
        self.tasks.append(
            self.sim.add_task(self.newest, work, f"{self.name}.{name}", background=background)
        )

    def end(self) -> None:
        """End the supervisor, but not its session: what a service has left in it shows."""
        if self.newest.world.services and not self.newest.session.ended:
            wrong(self.sim, "LEFT", f"a service still runs in {self.newest}")
        self.ended = True
        self.sessions._end(None)

    # --- what sessions need -----------------------------------------------------------------------

    def make_client(self) -> Any:
        client: Any = self.sim.client(f"{self.name}{len(self.clients) + 1}", connected=False)
        client._driver = client.world
        self.clients.append(client)
        for task in self.tasks:
            task.client = client
        return client

    async def close_client(self, client: Client) -> None:
        if client.session.ended or self.ended:
            return
        if client.close_at is None:
            client.world.closing = self.sim.timeout
            CLIENT_FAULTS["close"](self.sim, client)
        over = StateWait((), client.session.state)
        client.world.attach(over)
        try:
            await client.world.within(over)
        finally:
            client.world.detach(over)

    async def until_idle(self, client: Client) -> None:
        """What is dismissed ends at once."""

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.spawn(work(), name, background=True)

    start = begin

    async def within(self, waitable: Waitable, timeout: float | None) -> bool:
        return await self.newest.world.within(waitable, timeout)

    def dispatch(self, function: Callable[[], object]) -> None:
        self.newest.world.dispatch(function)


# --- bugs -----------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A function of a class or module, with edits of its source, or what it returns instead."""

    home: Any
    name: str
    edits: tuple[tuple[str, str], ...]
    result: str = ""
    helpers: Mapping[str, Any] = {}

    def made(self) -> object:
        """The changed function."""
        kinds = getattr(self.home, "__mro__", ())
        owner = next((kind for kind in kinds if self.name in vars(kind)), self.home)
        function = vars(owner)[self.name]
        names = dict(self.helpers)
        for each in (self.home, owner):
            names |= vars(each if inspect.ismodule(each) else sys.modules[each.__module__])
        if isinstance(function, type):
            return eval(self.result, names)
        if isinstance(function, property):
            function = function.fget
        source = textwrap.dedent(inspect.getsource(function))
        for text, instead in self.edits:
            count = source.count(text)
            assert count == 1, f"{self.name} has this {count} times instead of once: {text}"
            source = source.replace(text, instead)
        tree: Any = ast.parse(source).body[0]
        # Named anew, since the source may mean a builtin by its name, and in a function with the
        # argument that `super()` looks for.
        tree.name = "made"
        if self.result:
            tree.body = ast.parse(f"return {self.result}").body
        body = textwrap.indent(ast.unparse(tree), "    ")
        made: dict[str, Any] = {}
        code = f"from __future__ import annotations\ndef make(__class__):\n{body}\n    return made"
        exec(code, names, made)
        return made["make"](owner)


@contextmanager
def planted(*changes: Change) -> Iterator[None]:
    """The package has these changes meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for change in changes:
            patch.setattr(change.home, change.name, change.made())
        yield
