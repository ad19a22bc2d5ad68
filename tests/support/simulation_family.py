"""Scenarios of the rest of the family of locks: read-write lock, semaphore, multi-lock."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.simulation_locks import (
    PLAIN,
    Success,
    Usage,
    acquired,
    await_loss,
    conditions_of,
    contend,
    usage_of,
    waits,
)
from tests.support.simulation_parts import Judge, children, clients, make, scenario
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes.locks import AsyncMultiLock
from zkwire.recipes.read_write import AsyncReadLock, AsyncWriteLock, is_reader
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncQueueLock, AsyncSequentialLock, before
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.invariants import Claim, Claims, Grant, Herd, Orphans, at_most
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import EventType
from zkwire.wire.paths import sequence_number

READ_WRITE = "/rw"
SEMAPHORE = "/s"
FIRST, SECOND = "/m/a", "/m/b"

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


async def downgrade(client: Client, pair: Pair, usage: Usage, *, wait: bool) -> list[bool]:
    """Write, then read without letting anybody write between."""
    deadline = usage.deadline(client)
    if not await acquired(pair.write, deadline, wait):
        return [False]
    try:
        try:
            await client.turn()
            got = await acquired(pair.read, deadline, wait)
        finally:
            await pair.write.release()
        for _ in range(usage.stay):
            await client.turn()
        return [got]
    finally:
        if pair.read._node_name is not None:
            await pair.read.release()


async def hasty(client: Client, pair: Pair, usage: Usage, *, wait: bool) -> list[bool]:
    """Releases the write lock while another task of the same object acquires the read lock."""
    if not await acquired(pair.write, usage.deadline(client), wait):
        return [False]
    try:
        client.spawn(contend(client, pair.read, usage, wait=wait))
        for _ in range(usage.stay):
            await client.turn()
    finally:
        await pair.write.release()
    return [True]


@scenario
def read_write(
    sim: Simulation,
    roles: Sequence[str],
    usage: Usage = PLAIN,
    *,
    wait: bool = True,
    prepared: bool = True,
    together: bool = False,
) -> None:
    """A contender for each role: "read", "write", "downgrade" or "hasty"."""
    claims, patient = ReadWriteClaims(), wait and usage.patience is None
    sim.checks += [claims, Orphans(claims, READ_WRITE), Success(wait=patient)]
    if prepared:
        make(sim, READ_WRITE)
    for role, client in zip(roles, clients(sim, len(roles), together), strict=True):
        pair = Pair(client, claims)
        if role in ("read", "write"):
            lock: AsyncPathLock = pair.read if role == "read" else pair.write
            client.spawn(contend(client, lock, usage, wait=wait))
        else:
            act = downgrade if role == "downgrade" else hasty
            client.spawn(act(client, pair, usage, wait=wait))


@scenario
def meeting(sim: Simulation) -> None:
    """Two readers, each of whom keeps the lock until the other has it as well."""
    claims = ReadWriteClaims()
    sim.checks += [claims, Orphans(claims, READ_WRITE), Success(wait=True)]
    make(sim, READ_WRITE)
    met = 0

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
    """Contenders that differ from seed to seed."""
    choose = sim.rng.choice
    roles = [choose(("read", "read", "write", "downgrade", "hasty")) for _ in range(3)]
    read_write(roles[: choose((2, 3))], usage_of(sim), wait=waits(sim), **conditions_of(sim))(sim)


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
    sim: Simulation,
    count: int,
    number: int,
    usage: Usage = PLAIN,
    *,
    wait: bool = True,
    prepared: bool = True,
    agreed: bool = False,
    together: bool = False,
) -> None:
    """So many contenders for so many leases; ``agreed``: the number has been written down."""
    claims, patient = Claims(at_most(count)), wait and usage.patience is None
    sim.checks += [claims, Orphans(claims, SEMAPHORE), Success(wait=patient), LeaseOrder(claims)]
    sim.checks.append(Herd(f"{SEMAPHORE}/locks"))
    if prepared:
        make(sim, SEMAPHORE, f"{SEMAPHORE}/locks", f"{SEMAPHORE}/leases")
    if agreed:
        sim.tree.begin(0)
        sim.tree.set_data(SEMAPHORE, b"%d" % count, -1, Credentials())
    for client in clients(sim, number, together):
        lock = AsyncLease(client.world, SEMAPHORE, count)
        claims.add(lock, client)
        client.spawn(contend(client, lock, usage, wait=wait))


@scenario
def disagreement(sim: Simulation) -> None:
    """Two contenders, of whom one takes it for a semaphore of 2: who comes second is refused."""

    async def contend_or_not(client: Client, lock: AsyncLease) -> list[bool]:
        try:
            return await contend(client, lock, PLAIN, wait=True)
        except ValueError:
            return [False]

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
    """Contenders that differ from seed to seed."""
    choose = sim.rng.choice
    count = choose((1, 1, 2))
    number = count + choose((1, 1, 2))
    semaphore(count, number, usage_of(sim), wait=waits(sim), **conditions_of(sim))(sim)


# --- the multi-lock -------------------------------------------------------------------------------


async def contend_all(
    client: Client, lock: AsyncMultiLock, usage: Usage, *, wait: bool
) -> list[bool]:
    """As `contend`; all of them are held or none, and somebody waits for the loss."""
    won: list[bool] = []
    for _ in range(usage.rounds):
        got = False
        try:
            got = await acquired(lock, usage.deadline(client, wait), wait)
        finally:
            kept = [core.path for core in lock._parts if core._granted is not None]
            if lock.held != got or len(kept) != (len(lock._parts) if got else 0):
                raise AssertionError(f"acquired {got}, held {lock.held}, kept {kept}")
        won.append(got)
        if got:
            client.spawn(await_loss(lock.lost))
            await usage.hold_on(client, lock)
    return won


@scenario
def multi_lock(
    sim: Simulation,
    number: int,
    usage: Usage = PLAIN,
    *,
    single: bool = False,
    wait: bool = True,
    prepared: bool = True,
    together: bool = False,
) -> None:
    """Contenders for two paths, named in opposite orders; ``single``: and one for the second."""
    of = {path: Claims() for path in (FIRST, SECOND)}
    for path, claims in of.items():
        sim.checks += [claims, Orphans(claims, path), Herd(path)]
    sim.checks.append(Success(wait=wait and usage.patience is None))
    if prepared:
        make(sim, "/m", FIRST, SECOND)

    def lock(client: Client, path: str) -> AsyncSequentialLock:
        made = AsyncSequentialLock(client.world, path)
        of[path].add(made, client)
        return made

    for place, client in enumerate(clients(sim, number, together)):
        order = (FIRST, SECOND) if place % 2 else (SECOND, FIRST)
        both = AsyncMultiLock(*(lock(client, path) for path in order))
        client.spawn(contend_all(client, both, usage, wait=wait))
    if single:
        client = sim.client()
        client.spawn(contend(client, lock(client, SECOND), usage, wait=wait))


@scenario
def various_multi_lock(sim: Simulation) -> None:
    """Contenders that differ from seed to seed."""
    choose = sim.rng.choice
    number, usage, single = choose((2, 2, 3)), usage_of(sim), choose((False, True))
    multi_lock(number, usage, single=single, wait=waits(sim), **conditions_of(sim))(sim)
