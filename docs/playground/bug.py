"""Find the bug: a recipe with a mistake, a resource that notices, and the explorer that looks.

The explorer runs the recipe under schedules of steps and faults until the resource is used wrongly
or nothing goes on; :class:`Replay` then plays the run that it has found.  The recipe is a reader's
own code: put right, it passes all schedules.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from zkwire.cli.lessons.stage import LATENCY, Event, Play
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.tree import NewNode
from zkwire.testing.simulation import Scripted, Simulation, Step, ViolationError, explore
from zkwire.testing.simulation.client import SimulatedClient, Suspend
from zkwire.testing.simulation.runs import FailedRunError, sweep
from zkwire.wire.model import OPEN_ACL_UNSAFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

NAMES = ("bug-retry", "bug-herd", "bug-fence")
SEEDS = 400
MOST_FAULTS = 2


class Bug(NamedTuple):
    """A recipe with a mistake.

    ``run`` is what each of the clients does, whose names are the letters of ``clients``.
    ``faults`` may happen to them.  The rest is as in a lesson.
    """

    title: str
    cast: str
    run: Callable[[SimulatedClient, Resource], Coroutine[Any, Any, None]]
    remember: str
    in_code: str
    clients: str
    faults: tuple[str, ...]
    servers: int = 1


class Resource:
    """What the lock protects; a check of the simulation, which sees what is wrong."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._users: list[SimulatedClient] = []
        self._largest = 0
        self._wrong: tuple[str, str] | None = None

    def enter(self, client: SimulatedClient) -> None:
        """A client begins to use it; two at once are wrong, while the sessions of both live."""
        sessions = self._sim.sessions
        for user in self._users:
            if None not in (sessions.get(user.session_id), sessions.get(client.session_id)):
                words = f"{user.name} and {client.name} hold the lock at the same time"
                self._wrong = ("TWO", words)
        self._users.append(client)

    def leave(self, client: SimulatedClient) -> None:
        """A client has used it."""
        self._users.remove(client)

    async def prepare(self) -> None:
        """What takes half a second before a write."""
        await Suspend(self._sim.now + 0.5)

    def write(self, client: SimulatedClient, fence: int, *, checked: bool) -> bool:
        """Write; whether it was taken.  If ``checked`` it refuses a fence below the largest."""
        if fence < self._largest:
            if checked:
                return False
            self._wrong = ("FENCE", f"{client.name} has written over what a later holder wrote")
        self._largest = max(self._largest, fence)
        return True

    def step(self, sim: Simulation) -> None:
        """For the simulation, behind each step."""
        if self._wrong is not None:
            raise ViolationError(*self._wrong)

    def end(self, sim: Simulation) -> None:
        """For the simulation, at the end of a run."""


def scenario(bug: Bug, sim: Simulation) -> None:
    """All its clients, at work."""
    resource = Resource(sim)
    sim.checks.append(resource)
    sim.tree.begin(0)
    sim.tree.create(NewNode("/lock", b"", OPEN_ACL_UNSAFE), Credentials())
    for name in bug.clients:
        client = SimulatedClient(sim.client(name, connected=False))
        client.actor.spawn(bug.run(client, resource), name)


class Found(NamedTuple):
    """What the explorer says, and the run that it has found: steps and seed, or no steps."""

    words: str
    steps: Sequence[Step] = ()
    seed: int = 0


def explored(bug: Bug) -> Found:
    """Look for a run that goes wrong: with each single fault, then by chance with several.

    Of what it finds, the steps and faults that the failure does not need are left out.
    """
    options: dict[str, Any] = {"faults": bug.faults, "frames": False}
    tried = 0
    try:
        tried = sweep(partial(scenario, bug), **options).runs
        explore(partial(scenario, bug), range(SEEDS), most=MOST_FAULTS, **options)
    except FailedRunError as error:
        faults = f"{len(error.faults)} fault{'s' * (len(error.faults) != 1)}"
        words = f"The explorer has found this in run {tried + error.runs}: it takes {faults}."
        return Found(words, error.steps, error.seed)
    return Found(f"The explorer has tried {tried + SEEDS} runs, and found nothing wrong.")


class Replay(Play):
    """A play of given steps, or of none, where each client has its turn."""

    def __init__(self, bug: Bug, found: Found, tell: Callable[[Event], object]) -> None:
        self._messages = 0

        def timed(event: Event) -> None:
            self._messages += event.frame is not None
            tell(event._replace(time=event.time + self._messages * LATENCY))

        super().__init__(timed, tick=2.0, servers=bug.servers, seed=found.seed, faults=bug.faults)
        self._given = found.steps
        scenario(bug, self)

    def pass_time(self, seconds: float) -> None:
        """Nothing: the network takes no time in the explorer.  What is told has a time for it."""

    def perform(self, step: Step) -> None:
        """Perform one step, and nothing else, as the explorer does."""
        if step.kind == "resume":
            Simulation.perform(self, step)
        else:
            super().perform(step)
        self.look()

    def show(self) -> None:
        """Play them, and say at the end what has gone wrong."""
        words, passed = "nothing has gone wrong in this run", True
        try:
            self.run(Scripted(self._given))
        except ViolationError as error:
            words, passed = str(error).partition(": ")[2], False
            if error.invariant == "LIVE":
                words = "nothing goes on any more: the clients would wait forever"
        self.tell(Event(self.elapsed, "expect", words, passed=passed))
