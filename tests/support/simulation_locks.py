"""Scenarios of the family of locks: contenders, and what must be true of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.support.simulation_parts import (
    Judge,
    children,
    clients,
    has_faults,
    make,
    scenario,
    wrong,
)
from zkwire.errors import (
    BadVersionError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
)
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._recipe import Lost
from zkwire.recipes.locks import GRANTS, AsyncBlockingLock, AsyncMultiLock
from zkwire.recipes.read_write import AsyncReadLock, AsyncWriteLock, is_reader
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncQueueLock, AsyncSequentialLock, before
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.invariants import Claim, Claims, Fifo, Grant, Herd, Orphans, at_most
from zkwire.testing.simulation.simulation import Check, Simulation
from zkwire.wire.model import EventType
from zkwire.wire.paths import sequence_number

PATH = "/lock"
READ_WRITE = "/rw"
SEMAPHORE = "/s"
FIRST, SECOND = "/m/a", "/m/b"
AnyLock: TypeAlias = AsyncPathLock | AsyncMultiLock


@dataclass(frozen=True)
class Kind:
    """A kind of lock: its core, whether its contenders wait and queue."""

    name: str
    core: type[AsyncPathLock]
    wait: bool = True
    queue: bool = False


NON_BLOCKING = Kind("non-blocking", AsyncBlockingLock, wait=False)
BLOCKING = Kind("blocking", AsyncBlockingLock)
SEQUENTIAL = Kind("sequential", AsyncSequentialLock, queue=True)
SEQUENTIAL_TRY = Kind("sequential, try", AsyncSequentialLock, wait=False, queue=True)
KINDS = (NON_BLOCKING, BLOCKING, SEQUENTIAL, SEQUENTIAL_TRY)


@dataclass(frozen=True)
class Usage:
    """What a contender does: how often, how long it waits, how many steps and seconds it holds.

    ``attend``: while it holds, another task waits for the loss.  ``give``: the limit to release.
    ``prepared``: the folders are there already.  ``together``: all contenders share one client.
    """

    rounds: int = 1
    patience: float | None = None
    stay: int = 2
    hold: float = 0.0
    attend: bool = False
    give: float | None = None
    wait: bool = True
    prepared: bool = True
    together: bool = False

    def deadline(self, client: Client) -> float | None:
        """When a contender gives up that begins now."""
        limit = self.patience
        if limit is None and not self.wait:
            limit = client.session.timeout
        return None if limit is None else client.world.now() + limit

    async def hold_on(self, client: Client, lock: AnyLock) -> None:
        """Hold for a while, and release."""
        try:
            for _ in range(self.stay):
                await client.turn()
            if self.hold:
                await client.sleep(self.hold)
        finally:
            await give_back(lock, self.give)

    def begin(self, sim: Simulation, paths: Sequence[str], *checks: Check) -> None:
        """Have these checks made; make the folders."""
        sim.checks += [*checks, Success(wait=self.wait and self.patience is None)]
        if self.prepared:
            make(sim, *paths)


PLAIN = Usage()


def usage_of(sim: Simulation, wait: bool | None = None) -> Usage:
    """Different from seed to seed; contenders wait, mostly, unless that is said."""
    choose = sim.rng.choice
    return Usage(
        rounds=choose((1, 1, 2)),
        patience=choose((None, None, 3.0, 9.0)),
        stay=choose((1, 3)),
        hold=choose((0.0, 0.0, 0.0, 10.0)),  # not so long that it looks like a deadlock
        attend=choose((False, True)),
        wait=choose((True, True, True, False)) if wait is None else wait,
        prepared=choose((True, True, False)),
        together=choose((False, False, False, True)),
    )


async def acquired(lock: AnyLock, deadline: float | None, usage: Usage) -> bool:
    """What a lock's `acquire(timeout)` says."""
    try:
        return await lock._acquire_by(deadline, usage.wait)
    except OperationTimeoutError:
        if usage.wait and deadline is not None:
            return False
        raise


async def contend(client: Client, lock: AnyLock, usage: Usage) -> list[bool]:
    """Acquire, stay a while, release; what acquire said each time.

    Of several locks all are held or none.
    """
    won: list[bool] = []
    parts = lock._parts if isinstance(lock, AsyncMultiLock) else ()
    for _ in range(usage.rounds):
        got, deadline = False, usage.deadline(client)
        try:
            got = await acquired(lock, deadline, usage)
        finally:
            kept = [core.path for core in parts if core._granted is not None]
            if parts and (lock.held != got or len(kept) != (len(parts) if got else 0)):
                raise AssertionError(f"acquired {got}, held {lock.held}, kept {kept}")
        must_be_in_time(client, deadline)
        won.append(got)
        if got:
            if usage.attend or parts:
                client.spawn(await_loss(lock.lost))
            await usage.hold_on(client, lock)
    return won


def must_be_in_time(client: Client, deadline: float | None) -> None:
    """TIME: a contender gives up in time, unless its process has stood still or was slow."""
    late = deadline is not None and client.world.now() > deadline + 0.25
    excused = [s for s in client.sim.done if s.kind in ("pause", "slow")]
    if late and client.name not in [step.subject for step in excused]:
        text = f"{client} is told at {client.world.now()}, not {deadline}"
        wrong(client.sim, "TIME", text)


async def await_loss(lost: Lost) -> list[bool]:
    """Wait until a lock is lost or released."""
    await lost
    return [lost.ready]


async def give_back(lock: AnyLock, limit: float | None) -> None:
    """Release; whose lock is known to be lost must be told so, for nothing of it is left to end."""
    lost = not lock.held
    try:
        await lock._release_by(None if limit is None else lock._runtime.now() + limit)
    except OperationTimeoutError as error:
        if limit is None or not error.maybe_applied or lock.held:
            raise AssertionError(f"{lock._called} is not in doubt") from error
    if lost:
        raise AssertionError(f"{lock._called} was lost, and its release has not said so")


STRANGE = (MultiError, NodeExistsError, NoNodeError, BadVersionError, NotEmptyError)


class Success(Judge):
    """ONCE: without a fault nobody fails, and whoever waits gets it.

    ERROR: nobody is told of nodes of which only the recipe knows.
    """

    def __init__(self, *, wait: bool) -> None:
        self._wait = wait

    def end(self, sim: Simulation) -> None:
        for task in () if has_faults(sim) else sim.ended:
            if task.error is not None:
                raise ViolationError("ONCE", f"{task.name} failed: {task.error!r}")
            if not task.background and self._wait and not all(task.result):
                raise ViolationError("ONCE", f"{task.name} was refused")
        for task in sim.ended:
            if isinstance(task.error, STRANGE):
                raise ViolationError("ERROR", f"{task.name} ended with {task.error!r}")


class Told(Judge):
    """TOLD: who has lost a lock is told so, without asking and as soon as its client knows.

    And so is whoever waits for that.
    """

    def step(self, sim: Simulation) -> None:
        for client in sim.clients:
            if client.running and not (client.dead or client.due):
                for lock in client.locks:
                    assert isinstance(lock, AsyncPathLock)
                    untold = lock._owned and not (lock.held or lock.lost.ready)
                    if untold or (lock.lost.ready and lock.lost._wakers):
                        raise ViolationError("TOLD", f"{client} has not been told of its loss")


@scenario
def contenders(sim: Simulation, kind: Kind, number: int = 2, usage: Usage = PLAIN) -> None:
    """So many contenders for one lock."""
    claims, usage = Claims(), replace(usage, wait=kind.wait and usage.wait)
    queue = (Fifo(claims, PATH), Herd(PATH)) if kind.queue else ()
    paths = [PATH if kind.queue else PATH + GRANTS]
    usage.begin(sim, paths, claims, Orphans(claims, PATH), Told(), *queue)
    for client in clients(sim, number, usage.together):
        lock = kind.core(client.world, PATH)
        claims.add(lock, client)
        client.spawn(contend(client, lock, usage))


@scenario
def various(sim: Simulation, kind: Kind) -> None:
    """Contenders that differ from seed to seed in number, patience, rounds and so on."""
    contenders(kind, sim.rng.choice((2, 3)), usage_of(sim, kind.wait))(sim)


# --- the read-write lock --------------------------------------------------------------------------


class Pair:
    """One object of a read-write lock."""

    def __init__(self, client: Client, claims: Claims) -> None:
        self.write = AsyncWriteLock(client.world, READ_WRITE)
        self.read = AsyncReadLock(client.world, READ_WRITE)
        self.write._read, self.read._write = self.read, self.write
        claims.add(self.read, client, "read")
        claims.add(self.write, client, "write")


def _object(claim: Claim) -> object:
    return claim.lock._write if isinstance(claim.lock, AsyncReadLock) else claim.lock


def readers_or_one_object(claims: Sequence[Claim]) -> bool:
    """Readers together, or a writer, who may be a reader of the same object as well."""
    return all(claim.role == "read" for claim in claims) or len(set(map(_object, claims))) == 1


class ReadWriteClaims(Claims):
    """As its base; and FIFO: nobody whom a contender has to wait for stands before it at its grant.

    A reader that took its own writer's place has a later fence than its place says, so writers that
    had queued meanwhile have an earlier one.
    """

    def __init__(self) -> None:
        super().__init__(readers_or_one_object)
        self._writers: set[int | None] = set()  # numbers

    def comparison_key(self) -> tuple[object, ...]:
        return (*super().comparison_key(), "|", *sorted(map(str, self._writers)))

    def _grant(self, sim: Simulation, grant: Grant) -> None:
        highest = self._highest.copy()
        super()._grant(sim, grant)
        lock = grant.claim.lock
        assert isinstance(lock, AsyncQueueLock)
        assert lock._node_name is not None
        number, reader = sequence_number(lock._node_name), is_reader(lock._node_name)
        if not reader:
            self._writers.add(number)
        elif number in self._writers:
            self._highest = highest
        for _, name in before(list(children(sim, READ_WRITE)), lock._node_name):
            if not (reader and is_reader(name)):
                raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")


async def downgrade(client: Client, pair: Pair, usage: Usage) -> list[bool]:
    """Write, then read without letting anybody write between."""
    deadline = usage.deadline(client)
    if not await acquired(pair.write, deadline, usage):
        return [False]
    try:
        try:
            await client.turn()
            got = await acquired(pair.read, deadline, usage)
        finally:
            await pair.write.release()
        for _ in range(usage.stay):
            await client.turn()
        return [got]
    finally:
        if pair.read._node_name is not None:
            await pair.read.release()


async def hasty(client: Client, pair: Pair, usage: Usage) -> list[bool]:
    """Releases the write lock while another task of the same object acquires the read lock."""
    if not await acquired(pair.write, usage.deadline(client), usage):
        return [False]
    try:
        client.spawn(contend(client, pair.read, usage))
        for _ in range(usage.stay):
            await client.turn()
    finally:
        await pair.write.release()
    return [True]


@scenario
def read_write(sim: Simulation, roles: Sequence[str], usage: Usage = PLAIN) -> None:
    """A contender for each role: "read", "write", "downgrade" or "hasty"."""
    claims = ReadWriteClaims()
    usage.begin(sim, [READ_WRITE], claims, Orphans(claims, READ_WRITE))
    for role, client in zip(roles, clients(sim, len(roles), usage.together), strict=True):
        pair = Pair(client, claims)
        if role in ("read", "write"):
            client.spawn(contend(client, pair.read if role == "read" else pair.write, usage))
        else:
            client.spawn((downgrade if role == "downgrade" else hasty)(client, pair, usage))


@scenario
def meeting(sim: Simulation) -> None:
    """Two readers, each of whom keeps the lock until the other has it as well."""
    claims, met = ReadWriteClaims(), 0
    PLAIN.begin(sim, [READ_WRITE], claims, Orphans(claims, READ_WRITE))

    async def meet(client: Client, lock: AsyncReadLock) -> list[bool]:
        nonlocal met
        await lock._acquire_by(None, True)
        met += 1
        try:
            latest = client.world.now() + 10 * sim.timeout
            while met < 2 and client.world.now() < latest:
                await client.sleep(1.0)
            return [met == 2]
        finally:
            await lock.release()

    for client in list(clients(sim, 2, together=False)):
        client.spawn(meet(client, Pair(client, claims).read))


@scenario
def various_read_write(sim: Simulation) -> None:
    choose = sim.rng.choice
    roles = [choose(("read", "read", "write", "downgrade", "hasty")) for _ in range(3)]
    read_write(roles[: choose((2, 3))], usage_of(sim))(sim)


# --- the semaphore --------------------------------------------------------------------------------


class LeaseOrder(Judge):
    """FIFO: at a grant nobody is left in the queue who has come earlier.

    HERD: a change among the leases wakes one contender at most.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._grants = self._events = 0

    def step(self, sim: Simulation) -> None:
        if not sim.stolen:
            self._look(sim)
        self._grants, self._events = len(self._claims.grants), len(sim.events)

    def _look(self, sim: Simulation) -> None:
        for grant in self._claims.grants[self._grants :]:
            lock = grant.claim.lock
            assert isinstance(lock, AsyncLease)
            for name, czxid in children(sim, f"{SEMAPHORE}/locks").items():
                if czxid < lock._queue.fence:
                    raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")
        events = sim.events[self._events :]
        changed = [event for event in events if event.type is EventType.NODE_CHILDREN_CHANGED]
        woken = [event.client.name for event in changed]
        if len(events) == len(woken) > 1:
            raise ViolationError("HERD", f"a lease wakes {', '.join(woken)}")


@scenario
def semaphore(
    sim: Simulation, count: int, number: int, usage: Usage = PLAIN, *, agreed: bool = False
) -> None:
    """So many contenders for so many leases; ``agreed``: the number has been written down."""
    claims, locks = Claims(at_most(count)), f"{SEMAPHORE}/locks"
    paths = [SEMAPHORE, locks, f"{SEMAPHORE}/leases"]
    checks = Orphans(claims, SEMAPHORE), LeaseOrder(claims), Herd(locks)
    usage.begin(sim, paths, claims, *checks)
    if agreed:
        sim.tree.begin(0)
        sim.tree.set_data(SEMAPHORE, b"%d" % count, -1, Credentials())
    for client in clients(sim, number, usage.together):
        lock = AsyncLease(client.world, SEMAPHORE, count)
        claims.add(lock, client)
        client.spawn(contend(client, lock, usage))


@scenario
def disagreement(sim: Simulation) -> None:
    """Two contenders, of whom one takes it for a semaphore of 2: who comes second is refused."""

    async def contend_or_not(client: Client, lock: AsyncLease) -> None:
        with suppress(ValueError):
            await contend(client, lock, PLAIN)

    claims = Claims(at_most(1))
    sim.checks += [claims, Orphans(claims, SEMAPHORE)]
    make(sim, SEMAPHORE, f"{SEMAPHORE}/locks", f"{SEMAPHORE}/leases")
    for count in (1, 2):
        client = sim.client()
        lock = AsyncLease(client.world, SEMAPHORE, count)
        claims.add(lock, client)
        client.spawn(contend_or_not(client, lock))


@scenario
def various_semaphore(sim: Simulation) -> None:
    choose = sim.rng.choice
    count = choose((1, 1, 2))
    semaphore(count, count + choose((1, 1, 2)), usage_of(sim))(sim)


# --- the multi-lock -------------------------------------------------------------------------------


@scenario
def multi_lock(sim: Simulation, number: int, usage: Usage = PLAIN, *, single: bool = False) -> None:
    """Contenders for two paths, named in opposite orders; ``single``: and one for the second."""
    of = {path: Claims() for path in (FIRST, SECOND)}
    checks = [[claims, Orphans(claims, path), Herd(path)] for path, claims in of.items()]
    usage.begin(sim, ["/m", FIRST, SECOND], *checks[0], *checks[1])

    def lock(client: Client, path: str) -> AsyncSequentialLock:
        made = AsyncSequentialLock(client.world, path)
        of[path].add(made, client)
        return made

    for place, client in enumerate(clients(sim, number, usage.together)):
        order = (FIRST, SECOND) if place % 2 else (SECOND, FIRST)
        both = AsyncMultiLock(*(lock(client, path) for path in order))
        client.spawn(contend(client, both, usage))
    if single:
        client = sim.client()
        client.spawn(contend(client, lock(client, SECOND), usage))


@scenario
def various_multi_lock(sim: Simulation) -> None:
    choose = sim.rng.choice
    number, usage, single = choose((2, 2, 3)), usage_of(sim), choose((False, True))
    multi_lock(number, usage, single=single)(sim)
