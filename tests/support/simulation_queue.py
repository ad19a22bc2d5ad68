"""A scenario for the simulation: producers and consumers of a queue; and planted bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zkwire.errors import (
    ConnectionLossError,
    LockLostError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    ServerError,
    ZooKeeperError,
)
from zkwire.jute.records import Stat
from zkwire.operations import Operations
from zkwire.operations.multi import Appended, Delete, Operation
from zkwire.recipes._node import Attempt, TemporaryTokens, Token
from zkwire.recipes.queue import (
    AsyncQueue,
    ItemSelector,
    QueueEmptyError,
    QueueItem,
    Search,
    Taking,
    item,
)
from zkwire.recipes.runtime import in_time, retry
from zkwire.session.waitable import Watch
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
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


class Ledger:
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
        self.puts: dict[bytes, str] = {}  # "open", "done", "none"
        self.names: dict[bytes, set[str]] = {}
        self.zxids: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self.order: list[str] = []
        self.working: dict[str, tuple[Client, QueueItem]] = {}
        self.doubts = 0
        self.putting: dict[str, list[bytes]] = {}  # by the name of the task
        self.doubt: set[bytes] = set()  # no answer has told whether it was put
        self.violation: ViolationError | None = None  # seen in a task
        self._zxid = self._events = 0

    def comparison_key(self) -> tuple[object, ...]:
        return (
            str(self.puts),
            str(self.names),
            str(self.done),
            str(self.working),
            self.doubts,
            *sorted(self.doubt),
        )

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        appeared = {name for names in self.names.values() for name in names}
        begun = len(self.puts) == self.plan.producers * self.plan.items
        return begun and "open" not in self.puts.values() and set(self.done) >= appeared

    def finish(self, taken: QueueItem) -> None:
        # With the zxid: where an outsider has deleted the folder, the numbers begin again.
        key = f"{taken.name}@{taken.zxid}"
        self.done[key] += 1
        self.order.append(key)
        if self.done[key] > 1:
            self.violation = ViolationError("TWICE", f"{taken.name} was removed by two consumers")

    def begin(self, sim: Simulation, client: Client, taken: QueueItem) -> None:
        other = self.worker(taken)
        if other is not None and not sim.stolen and _has_its_items(sim, other):
            self.violation = ViolationError("CLAIM", f"{client} and {other} work on {taken.name}")
        self.working[taken.name] = client, taken

    def worker(self, taken: QueueItem) -> Client | None:
        """Who works on it; of several the last one."""
        client, _ = self.working.get(taken.name, (None, None))
        return client

    def step(self, sim: Simulation) -> None:
        if self.violation is not None:
            raise self.violation
        for client, taken in self.working.values():
            knows = taken.lost is None or taken.lost.is_set() or client.due or not client.running
            if not knows and _lease_is_over(sim, client):
                raise ViolationError("TOLD", f"{client} works on {taken.name}, and is not told")
        if sim.tree.zxid != self._zxid:
            self._zxid = sim.tree.zxid
            folder = sim.tree.nodes.get(ITEMS)
            for name in (folder and folder.children) or ():
                node = sim.tree.nodes[f"{ITEMS}/{name}"]
                key = f"{name}@{node.czxid}"
                self.zxids[key] = node.czxid
                names = self.names.setdefault(node.data or b"", set())
                names.add(key)
                if len(self.copies(sim, node.data or b"")) > 1:
                    raise ViolationError("ONCE", f"{node.data!r} was put twice")
        woken = [
            event.client.name
            for event in sim.events[self._events :]
            if event.type is EventType.NODE_CHILDREN_CHANGED and event.path == ITEMS
        ]
        self._events = len(sim.events)
        if len(set(woken)) > 1 and not self._faults(sim):
            raise ViolationError("HERD", f"an item wakes {', '.join(woken)}")

    def copies(self, sim: Simulation, data: bytes) -> list[int]:
        """The zxids of the copies of ``data``, without those that ONCE leaves out."""
        zxids = (self.zxids[key] for key in self.names.get(data, ()))
        return [zxid for zxid in zxids if zxid not in sim.stolen or data not in self.doubt]

    @staticmethod
    def _faults(sim: Simulation) -> set[str]:
        return {step.kind for step in sim.done if step.kind in FAULTS}

    def end(self, sim: Simulation) -> None:
        faults = self._faults(sim)
        folder = sim.tree.nodes.get(ITEMS)
        names = (folder and folder.children) or ()
        left = {f"{name}@{sim.tree.nodes[f'{ITEMS}/{name}'].czxid}" for name in names}
        if "uproot" not in faults:
            for data, put in self.puts.items():
                if (put == "done" and data not in self.names) or (
                    put == "none" and self.copies(sim, data)
                ):
                    raise ViolationError("ONCE", f"the put of {data!r} has said {put}")
            lost = {n for names in self.names.values() for n in names} - left - set(self.done)
            if len(lost) > self.doubts:
                raise ViolationError("LOST", f"{', '.join(sorted(lost))}: {self.doubts} in doubt")
        for task in sim.ended:
            if task.error is not None and not self._expected(task.error, bool(faults)):
                raise ViolationError("ERROR", f"{task.name} ended with {task.error!r}")
        if not faults:
            self._end_well(left)
        self._nothing_left(sim)

    def _expected(self, error: BaseException, faults: bool) -> bool:
        if isinstance(error, (NoNodeError, NodeExistsError, MultiError, AssertionError)):
            return False
        return faults

    def _end_well(self, left: set[str]) -> None:
        if left:
            raise ViolationError("STARVED", f"{', '.join(sorted(left))} was not taken")
        one = len(self.plan.consumers) == 1 and "fail" not in self.plan.consumers
        if one and self.order != sorted(self.order):
            raise ViolationError("ORDER", " ".join(self.order))

    def _nothing_left(self, sim: Simulation) -> None:
        living = [c for c in sim.clients if not (c.dead or c.session.ended)]
        ids = {client.session.session_id for client in living}
        for path, node in sim.tree.nodes.items():
            if node.owner in ids and path.startswith(f"{PATH}/"):
                raise ViolationError("LEFT", f"{path} is left")
        for client in living:
            if client.session.watch_count:
                raise ViolationError("LEFT", f"{client} has {client.session.watch_count} watches")


def _has_its_items(sim: Simulation, client: Client) -> bool:
    """Whether no other consumer may have what it has claimed."""
    if client.killed:  # no lease tells of that
        return False
    living = sim.sessions.get(client.session.session_id) is not None
    return living or not _lease_is_over(sim, client)


def _lease_is_over(sim: Simulation, client: Client) -> bool:
    return sim.now >= client.session.lease_deadline


async def produce(queue: AsyncQueue, ledger: Ledger, sim: Simulation, name: str) -> list[bool]:
    items = [f"{name}{n}".encode() for n in range(ledger.plan.items)]
    groups = [items] if ledger.plan.many else [[data] for data in items]
    for data in items:
        ledger.puts[data] = "open"
    for group in groups:
        assert sim.current is not None
        ledger.putting[sim.current.name] = group
        try:
            zxids = await queue.put_many(group)
        except ZooKeeperError as error:
            for data in group:
                ledger.puts[data] = "doubt" if error.maybe_applied else "none"
            continue
        except BaseException:
            ledger.puts.update(dict.fromkeys(items, "doubt"))
            raise
        for data, zxid in zip(group, zxids, strict=True):
            ledger.puts[data] = "done"
            latest = max((ledger.zxids[n] for n in ledger.names.get(data, ())), default=zxid)
            if zxid not in (0, latest):
                raise AssertionError(f"{zxid} is not the zxid of {data!r}, put at {latest}")
    return [True]


async def consume(
    client: Client, queue: AsyncQueue, how: str, ledger: Ledger, sim: Simulation, kind: Queues
) -> list[bool]:
    fails = how == "fail"
    while not ledger.complete:
        try:
            if how == "get":
                ledger.doubts += 1  # a caller that is cancelled or crashes cannot say
                try:
                    taken = await queue.get(ledger.plan.patience)
                    ledger.begin(sim, client, taken)  # no other may be at work on it
                    del ledger.working[taken.name]
                    ledger.finish(taken)
                except ZooKeeperError as error:
                    ledger.doubts -= not error.maybe_applied
                    raise
                ledger.doubts -= 1
            else:
                await take(client, queue, ledger, sim, kind, fails)
        except QueueEmptyError:
            break
        except BodyError:
            fails = False
        except LockLostError:
            pass
    return [True]


async def take(
    client: Client, queue: AsyncQueue, ledger: Ledger, sim: Simulation, kind: Queues, fails: bool
) -> None:
    taking = kind.taking(queue, ledger.plan.patience)
    taken = await taking.__aenter__()
    ledger.begin(sim, client, taken)
    error: BaseException | None = None
    try:
        for _ in range(ledger.plan.stay):
            await client.turn()
        if fails:
            raise BodyError
    except BaseException as raised:
        error = raised
    if ledger.worker(taken) is client:
        del ledger.working[taken.name]
    ledger.doubts += error is None
    try:
        await taking.__aexit__(type(error) if error else None, error, None)
    except ZooKeeperError as failure:
        ledger.doubts -= not failure.maybe_applied
        raise
    if error is not None:
        raise error
    ledger.doubts -= 1
    if (other := ledger.worker(taken)) is not None:
        ledger.violation = ViolationError("TWICE", f"{client} removes what {other} works on")
    ledger.finish(taken)


@dataclass(frozen=True)
class Queues:
    """The parts of a queue, of which any may have a bug."""

    queue: type[AsyncQueue] = AsyncQueue
    taking: type[Taking] = Taking
    tokens: type[TemporaryTokens] | None = None
    selector: type[ItemSelector] | None = None

    def make(self, client: Client, sim: Simulation, ledger: Ledger) -> AsyncQueue:
        flat = ledger.plan.flat
        queue = self.queue(client.world, ITEMS if flat else PATH, flat=flat)

        class Noting(self.tokens or TemporaryTokens):  # type: ignore[misc]
            async def _look(
                self, token: Token, value: bytes, deadline: float | None
            ) -> Stat | None:
                assert sim.current is not None
                ledger.doubt.update(ledger.putting.get(sim.current.name, ()))
                return await super()._look(token, value, deadline)

        queue._tokens = Noting(client.world, queue._layout.tokens, queue._layout.path)
        if self.selector is not None:
            queue._selector = self.selector(queue._layout)
        return queue


def queues(plan: Plan, kind: Queues = Queues()) -> Scenario:
    """So many producers and consumers, on clients of their own or ``together`` on one."""

    def scenario(sim: Simulation) -> None:
        ledger = Ledger(plan)
        sim.checks.append(ledger)
        client, queue = sim.client(), None
        for place in range(plan.producers + len(plan.consumers)):
            if place and not plan.together:
                client = sim.client()
            if queue is None or not plan.together:
                queue = kind.make(client, sim, ledger)
            if place < plan.producers:
                client.spawn(produce(queue, ledger, sim, f"p{place}-"))
            else:
                how = plan.consumers[place - plan.producers]
                client.spawn(consume(client, queue, how, ledger, sim, kind))

    return scenario


def various(kind: Queues = Queues()) -> Scenario:
    """Producers and consumers that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
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
        queues(plan, kind)(sim)

    return scenario


# --- planted bugs ---------------------------------------------------------------------------------


class RepeatsBlindly(TemporaryTokens):
    """Sends a multi again without anything that tells whether it was executed."""

    async def _look(self, token: Token, value: bytes, deadline: float | None) -> Stat | None:
        return None


class RepeatsForItsMark(TemporaryTokens):
    """Takes a change for not made when an outsider has deleted the token that it has made."""

    _made = False  # before the multi

    async def make(self, token: Token, deadline: float | None) -> None:
        self._made = True
        await super().make(token, deadline)

    async def execute(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> tuple[list[Any], int]:
        fresh, self._made = token.version < 0, False
        done = await super().execute(token, operations, deadline)
        look = self._runtime.operations.exists
        gone = await retry(self._runtime, deadline, look, token.node or "") is None
        if fresh and gone and not self._made:
            token.version = -1
            return await super().execute(token, operations, deadline)
        return done


class LooksForTheItem(AsyncQueue):
    """After a lost reply the queue is searched: a consumer may have the item already."""

    async def _add(self, token: Token, beginning: str, items: list[bytes], deadline: float) -> int:
        runtime, operations = self._runtime, self._runtime.operations
        creates = [Appended(beginning, items, self._acl)]
        while True:
            try:
                await runtime.until(operations.multi(creates), deadline)
                return 0
            except MultiError:
                await self._layout.provide(deadline)
            except OutcomeUnknownError:
                await retry(runtime, deadline, operations.sync, PATH)
                for name in await self._selector.list(deadline):
                    try:
                        seen = await retry(
                            runtime, deadline, operations.get_data, f"{ITEMS}/{name}"
                        )
                    except NoNodeError:
                        continue
                    if seen.data in items:
                        return 0
            except ConnectionLossError:
                pass


class ForgetsItsRemoval(AsyncQueue):
    """Takes the removal that it has made, and whose reply was lost, for another consumer's."""

    async def _claimed(
        self, token: Token, operations: list[Operation], deadline: float | None
    ) -> bool:
        limit = in_time(self._runtime, deadline)
        try:
            await retry(self._runtime, limit, self._runtime.operations.multi, operations)
            return True
        except MultiError as error:
            if isinstance(error.results[error.index], NoNodeError) and error.index == 0:
                await self._layout.provide(deadline)
            return False


class IgnoresClaims(AsyncQueue):
    """Removes whatever is first, also what a consumer works on."""

    async def get(self, timeout: float | None = None) -> QueueItem:
        search = Search(self._selector, self._runtime.now() + (timeout or 0.0), True)
        token = await self._tokens.acquire(search._deadline)
        try:
            while True:
                name, (data, stat) = await search.next()
                with suppress(MultiError):
                    removal = [Delete(f"{ITEMS}/{name}")]
                    await self._tokens.execute(token, removal, search._deadline)
                    return item(name, data, stat)
                self._selector.missed()
        finally:
            search.end()
            self._tokens.release(token)


class ReadsNoClaims(ItemSelector):
    """Does not look which items are taken, and removes these too."""

    async def list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        read = self._runtime.operations.get_children
        while True:
            try:
                return await retry(
                    self._runtime, in_time(self._runtime, deadline), read, ITEMS, watch=watch
                )
            except NoNodeError:
                await self._layout.provide(deadline)


class RemovesAnything(Taking):
    """Removes the item without a proof that it is still claimed by this consumer."""

    async def _remove(self, token: Token, attempt: Attempt, taken: QueueItem) -> None:
        try:
            assert attempt.node is not None
            removal = [Delete(attempt.node), Delete(f"{ITEMS}/{taken.name}")]
            await self._queue._tokens.execute(token, removal, None)
        except (MultiError, ServerError):
            raise LockLostError("lost") from None


class KeepsItsClaim(Taking):
    """Leaves the claim where a block has failed."""

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        pass


class TellsNothing(Taking):
    """The item's ``lost`` is not set when the session's lease ends."""

    async def _enter_body(self) -> QueueItem:
        taken = await super()._enter_body()
        self._runtime.unhold(self._lost)
        return taken


class AllWatch(ItemSelector):
    """Consumers that find nothing watch all at once."""

    async def list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        while True:
            own = watch or Watch()
            try:
                names = await super().list(deadline, own)
                if names or await self._runtime.event(own, deadline) is None:
                    return names
            finally:
                own.close()


class TrustsTheVersion(AsyncQueue):
    """In the flat layout removes what it has read, also if it was claimed before that."""

    def _removal(self, name: str, version: int) -> list[Operation]:
        return super()._removal(name, version)[-1:]


class SeesNoReturn(ItemSelector):
    """Waits for new items only, and not for those that are given back."""

    async def list(self, deadline: float | None, watch: Watch | None = None) -> list[str]:
        names = await super().list(deadline)
        if watch is not None:
            read = self._runtime.operations.get_children
            await retry(self._runtime, in_time(self._runtime, deadline), read, ITEMS, watch=watch)
        return names


class LeavesMarks(TemporaryTokens):
    """A token is not deleted."""

    def release(self, token: Token) -> None:
        pass


@dataclass(frozen=True)
class Planted:
    """A bug, the faults that reveal it, what it may break, and the plan in which it shows."""

    kind: Queues
    faults: tuple[str, ...]
    invariants: frozenset[str]
    plan: Plan | None = None


def _planted(
    kind: Queues, faults: Iterable[str], invariants: str, plan: Plan | None = None
) -> Planted:
    return Planted(kind, tuple(faults), frozenset(invariants.split()), plan)


PLANTED: dict[str, Planted] = {
    "repeats blindly": _planted(
        Queues(tokens=RepeatsBlindly), ("linger", "cut"), "ONCE LOST TWICE", Plan(items=2)
    ),
    "repeats for its mark": _planted(
        Queues(tokens=RepeatsForItsMark), ("delete",), "ONCE", Plan(items=3)
    ),
    "looks for the item": _planted(Queues(LooksForTheItem), ("linger", "cut"), "ONCE"),
    "forgets its removal": _planted(Queues(ForgetsItsRemoval), ("linger", "cut"), "LOST", Plan()),
    "ignores claims": _planted(
        Queues(IgnoresClaims, selector=ReadsNoClaims), (), "CLAIM TWICE",
        Plan(consumers=("take", "get"), items=2),
    ),
    "removes anything": _planted(
        Queues(taking=RemovesAnything), ("delete",), "TWICE",
        Plan(consumers=("take", "take"), items=3, stay=12),
    ),
    "keeps its claim": _planted(Queues(taking=KeepsItsClaim), (), "LEFT STARVED LIVE"),
    "tells nothing": _planted(
        Queues(taking=TellsNothing), ("pause",), "TOLD", Plan(consumers=("take",), stay=12)
    ),
    "all watch": _planted(Queues(selector=AllWatch), (), "HERD"),
    "trusts the version": _planted(
        Queues(TrustsTheVersion), (), "CLAIM TWICE",
        Plan(consumers=("take", "get"), items=2, flat=True),
    ),
    "sees no return": _planted(
        Queues(selector=SeesNoReturn), (), "STARVED LIVE",
        Plan(consumers=("fail", "get"), patience=30.0),
    ),
    "leaves marks": _planted(Queues(tokens=LeavesMarks), (), "LEFT"),
}  # fmt: skip
