"""Scenarios of the queue: producers and consumers, and bugs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from tests.support.simulation_parts import (
    Judge,
    children,
    has_faults,
    lives,
    nothing_left,
    scenario,
    wrong,
)
from zkwire.errors import LockLostError, MultiError, NodeExistsError, NoNodeError, ZooKeeperError
from zkwire.jute.records import Stat
from zkwire.recipes._node import TemporaryTokens, Token
from zkwire.recipes.queue import AsyncQueue, QueueEmptyError, QueueItem, Taking
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import EventType

PATH = "/q"
ITEMS = f"{PATH}/entries"


class BodyError(Exception):
    """What a block ends with whose work has failed."""


@dataclass(frozen=True)
class Plan:
    """What producers and consumers do.

    ``consumers``: "get", "take", or "fail", which takes once, fails, and then takes.  ``items``:
    how many each producer puts; ``patience``: how long a consumer waits for each.  Without one the
    consumers stop when all items are done.
    """

    producers: int = 1
    consumers: tuple[str, ...] = ("get",)
    items: int = 1
    patience: float | None = 4.0
    together: bool = False
    many: bool = False
    stay: int = 1  # turns in a block
    flat: bool = False  # the items are where those of the other layout are


class Ledger(Judge):
    """What has become of each item.

    ONCE: what is put appears at most once, exactly once if the put says so, never if that is not in
    doubt.  LOST: each item that has appeared is in the queue, or a consumer has it, or had to say
    that it is in doubt.  TWICE: one consumer has it.  CLAIM: one consumer works on it, until both
    the server has ended its session and its lease is over.  TOLD: when the lease is over,
    ``item.lost`` is set as soon as the process has run.  STARVED: without a fault nothing is left.
    ORDER: without a fault, one consumer gets the items in order.  HERD: an item wakes one client.
    LEFT: no node of a living session is left, and no watch.

    CLAIM does not ask what the client has noticed: a process that stands still while the server
    ends its session is at work on what another consumer has by then, and nothing can tell it before
    it runs again.

    ONCE leaves out the copies that were put in one transaction with a token that an outsider has
    deleted since, if the put was in ``doubt``: a client whose first reply is lost then cannot tell
    that from a put that was not executed.  A removal can, since its token is made before.
    """

    reducible = False

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.queues: dict[Client, AsyncQueue] = {}
        self.puts: dict[bytes, str] = {}  # "open", "done", "doubt", "none"
        self.names: dict[bytes, set[str]] = {}  # with the zxid, as all names here: where an
        self.zxids: dict[str, int] = {}  # outsider has deleted the folder, numbers begin again
        self.done: Counter[str] = Counter()
        self.order: list[str] = []
        self.working: dict[str, tuple[Client, QueueItem]] = {}
        self.doubts = 0
        self.putting: dict[str, list[bytes]] = {}  # by the name of the task
        self.doubt: set[bytes] = set()  # no answer has told whether it was put
        self._zxid = self._events = 0

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        appeared = {name for names in self.names.values() for name in names}
        begun = len(self.puts) == self.plan.producers * self.plan.items
        return begun and "open" not in self.puts.values() and set(self.done) >= appeared

    def finish(self, sim: Simulation, taken: QueueItem) -> None:
        key = f"{taken.name}@{taken.zxid}"
        self.done[key] += 1
        self.order.append(key)
        if self.done[key] > 1:
            wrong(sim, "TWICE", f"{taken.name} was removed by two consumers")

    def begin(self, sim: Simulation, client: Client, taken: QueueItem) -> None:
        other = self.worker(taken)
        if other is not None and not sim.stolen and _has_its_items(sim, other):
            wrong(sim, "CLAIM", f"{client} and {other} work on {taken.name}")
        self.working[taken.name] = client, taken

    def worker(self, taken: QueueItem) -> Client | None:
        """Who works on it; of several the last one."""
        return self.working.get(taken.name, (None, None))[0]

    def step(self, sim: Simulation) -> None:
        for client, taken in self.working.values():
            knows = taken.lost is None or taken.lost.is_set() or client.due or not client.running
            if not knows and sim.now >= client.session.lease_deadline:
                raise ViolationError("TOLD", f"{client} works on {taken.name}, and is not told")
        if sim.tree.zxid != self._zxid:
            self._zxid = sim.tree.zxid
            self._look_at_items(sim)
        woken = {
            event.client.name
            for event in sim.events[self._events :]
            if event.type is EventType.NODE_CHILDREN_CHANGED and event.path == ITEMS
        }
        self._events = len(sim.events)
        if len(woken) > 1 and not has_faults(sim):
            raise ViolationError("HERD", f"an item wakes {', '.join(sorted(woken))}")

    def _look_at_items(self, sim: Simulation) -> None:
        for name, czxid in children(sim, ITEMS).items():
            data = sim.tree.nodes[f"{ITEMS}/{name}"].data or b""
            self.zxids[f"{name}@{czxid}"] = czxid
            self.names.setdefault(data, set()).add(f"{name}@{czxid}")
            if len(self.copies(sim, data)) > 1:
                raise ViolationError("ONCE", f"{data!r} was put twice")

    def copies(self, sim: Simulation, data: bytes) -> list[int]:
        """The zxids of the copies of ``data``, without those that ONCE leaves out."""
        zxids = (self.zxids[key] for key in self.names.get(data, ()))
        return [zxid for zxid in zxids if zxid not in sim.stolen or data not in self.doubt]

    def end(self, sim: Simulation) -> None:
        left = {f"{name}@{czxid}" for name, czxid in children(sim, ITEMS).items()}
        if not any(step.kind == "uproot" for step in sim.done):
            for data, put in self.puts.items():
                lost = put == "done" and data not in self.names
                if lost or (put == "none" and self.copies(sim, data)):
                    raise ViolationError("ONCE", f"the put of {data!r} has said {put}")
            gone = {n for names in self.names.values() for n in names} - left - set(self.done)
            if len(gone) > self.doubts:
                raise ViolationError("LOST", f"{', '.join(sorted(gone))}: {self.doubts} in doubt")
        strange = (NoNodeError, NodeExistsError, MultiError, AssertionError)
        for task in sim.ended:
            if isinstance(task.error, strange) or (task.error and not has_faults(sim)):
                raise ViolationError("ERROR", f"{task.name} ended with {task.error!r}")
        if not has_faults(sim):
            if left:
                raise ViolationError("STARVED", f"{', '.join(sorted(left))} was not taken")
            one = len(self.plan.consumers) == 1 and "fail" not in self.plan.consumers
            if one and self.order != sorted(self.order):
                raise ViolationError("ORDER", " ".join(self.order))
        nothing_left(sim, f"{PATH}/")

    async def live(self, client: Client, place: int) -> list[bool]:
        if client not in self.queues:
            self.queues[client] = _made(client, self)
        queue, number = self.queues[client], place - self.plan.producers
        if number < 0:
            return await self.produce(queue, client.sim, f"p{place}-")
        return await self.consume(client, queue, self.plan.consumers[number])

    async def produce(self, queue: AsyncQueue, sim: Simulation, name: str) -> list[bool]:
        items = [f"{name}{n}".encode() for n in range(self.plan.items)]
        self.puts.update(dict.fromkeys(items, "open"))
        for group in [items] if self.plan.many else [[data] for data in items]:
            assert sim.current is not None
            self.putting[sim.current.name] = group
            try:
                zxids = await queue.put_many(group)
            except ZooKeeperError as error:
                outcome = "doubt" if error.maybe_applied else "none"
                self.puts.update(dict.fromkeys(group, outcome))
                continue
            except BaseException:
                self.puts.update(dict.fromkeys(items, "doubt"))
                raise
            for data, zxid in zip(group, zxids, strict=True):
                self.puts[data] = "done"
                latest = max((self.zxids[n] for n in self.names.get(data, ())), default=zxid)
                if zxid not in (0, latest):
                    raise AssertionError(f"{zxid} is not the zxid of {data!r}, put at {latest}")
        return [True]

    async def consume(self, client: Client, queue: AsyncQueue, how: str) -> list[bool]:
        """Get or take items until there is none."""
        fails = how == "fail"
        while not self.complete:
            try:
                await (self.get(client, queue) if how == "get" else self.take(client, queue, fails))
            except QueueEmptyError:
                break
            except BodyError:
                fails = False
            except LockLostError:
                pass
        return [True]

    async def get(self, client: Client, queue: AsyncQueue) -> None:
        self.doubts += 1  # a caller that is cancelled or crashes cannot say
        try:
            taken = await queue.get(self.plan.patience)
            self.begin(client.sim, client, taken)  # no other may be at work on it
            del self.working[taken.name]
            self.finish(client.sim, taken)
        except ZooKeeperError as error:
            self.doubts -= not error.maybe_applied
            raise
        self.doubts -= 1

    async def take(self, client: Client, queue: AsyncQueue, fails: bool) -> None:
        taking = Taking(queue, self.plan.patience)
        taken = await taking.__aenter__()
        self.begin(client.sim, client, taken)
        error: BaseException | None = None
        try:
            for _ in range(self.plan.stay):
                await client.turn()
            if fails:
                raise BodyError
        except BaseException as raised:
            error = raised
        if self.worker(taken) is client:
            del self.working[taken.name]
        self.doubts += error is None
        try:
            await taking.__aexit__(type(error) if error else None, error, None)
        except ZooKeeperError as failure:
            self.doubts -= not failure.maybe_applied
            raise
        if error is not None:
            raise error
        self.doubts -= 1
        if (other := self.worker(taken)) is not None:
            wrong(client.sim, "TWICE", f"{client} removes what {other} works on")
        self.finish(client.sim, taken)


def _has_its_items(sim: Simulation, client: Client) -> bool:
    """Whether no other consumer may have what it has claimed."""
    if client.killed:  # no lease tells of that
        return False
    lives = sim.sessions.get(client.session.session_id) is not None
    return lives or sim.now < client.session.lease_deadline


def _made(client: Client, ledger: Ledger) -> AsyncQueue:
    """A queue that tells the ledger of each put that is in doubt."""
    flat = ledger.plan.flat
    queue = AsyncQueue(client.world, ITEMS if flat else PATH, flat=flat)

    class Noting(TemporaryTokens):
        async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
            ledger.doubt.update(ledger.putting.get(client.sim.current.name, ()))
            return await super()._look(token, value, deadline)

    queue._tokens = Noting(client.world, queue._tokens._path)
    queue._tokens._kept = queue._path
    return queue


def queues(plan: Plan) -> Scenario:
    """So many producers and consumers, on clients of their own or ``together`` on one."""
    number = plan.producers + len(plan.consumers)
    return lives(number, partial(Ledger, plan), plan.together)


@scenario
def various(sim: Simulation) -> None:
    """Producers and consumers that differ from seed to seed."""
    choose = sim.rng.choice
    consumers = [choose(("get", "take", "take", "fail")) for _ in range(3)]
    plan = Plan(
        producers=choose((1, 1, 2)),
        consumers=tuple(consumers[: choose((1, 2, 2, 3))]),
        items=choose((1, 2, 3)),
        patience=choose((3.0, 6.0, 15.0)),
        together=choose((False, False, False, True)),
        many=choose((False, True)),
        flat=choose((False, False, True)),
    )
    queues(plan)(sim)
