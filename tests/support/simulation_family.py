"""Scenarios for the simulation: the rest of the family of locks, and versions with planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.support.simulation_locks import PLAIN, Manners, Success, acquired, await_loss, contend
from zkwire.errors import (
    BadVersionError,
    ConnectionLossError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
)
from zkwire.operations.multi import Check, Create
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._node import Attempt
from zkwire.recipes.locks import AsyncMultiLock
from zkwire.recipes.read_write import AsyncReadLock, AsyncWriteLock, is_reader
from zkwire.recipes.runtime import retry
from zkwire.recipes.semaphore import AsyncLease
from zkwire.recipes.sequential import AsyncQueueLock, AsyncSequentialLock, before
from zkwire.session.watch import Watch
from zkwire.testing.server.acl import Credentials
from zkwire.testing.server.node import NewNode
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.invariants import Claim, Claims, Grant, Herd, Orphans, at_most
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType
from zkwire.wire.paths import sequence_number

READ_WRITE = "/rw"
SEMAPHORE = "/s"
FIRST, SECOND = "/m/a", "/m/b"

STRANGE = (MultiError, NodeExistsError, NoNodeError, BadVersionError, NotEmptyError)


class Sane(Success):
    """As `Success`; and nobody is told of nodes of which only the recipe knows."""

    def end(self, sim: Simulation) -> None:
        super().end(sim)
        for task in sim.ended:
            if isinstance(task.error, STRANGE):
                raise ViolationError("ERROR", f"{task.name} ended with {task.error!r}")


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


# --- the read-write lock --------------------------------------------------------------------------


class Pair:
    """One object of a read-write lock."""

    def __init__(self, client: Client, kind: ReadWrite) -> None:
        self.write = kind.write(client.world, READ_WRITE)
        self.read = kind.read(client.world, READ_WRITE, "", self.write)


class ReadWrite(NamedTuple):
    """The two cores of a read-write lock."""

    read: type[AsyncReadLock] = AsyncReadLock
    write: type[AsyncWriteLock] = AsyncWriteLock


def _object(claim: Claim) -> object:
    return claim.lock._write if isinstance(claim.lock, AsyncReadLock) else claim.lock


def readers_or_one_object(claims: Sequence[Claim]) -> bool:
    """Readers together, or a writer, who may be a reader of the same object as well."""
    return all(claim.role == "read" for claim in claims) or len(set(map(_object, claims))) == 1


def _children(sim: Simulation, path: str) -> list[str]:
    node = sim.tree.nodes.get(path)  # somebody may have deleted it
    return list((node and node.children) or ())


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
        for _, name in before(_children(sim, READ_WRITE), lock._node_name):
            if not (reader and is_reader(name)):
                raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")


class ReaderHerd:
    """HERD: the end of a reader wakes one client at most, for only one writer is next."""

    reducible = True

    def __init__(self) -> None:
        self._seen = 0

    def step(self, sim: Simulation) -> None:
        if self._seen == len(sim.events) or sim.stolen:
            return
        woken: dict[str, set[str]] = {}
        for event in sim.events[self._seen :]:
            own = f"{event.client.session.session_id:016x}" in event.path
            if event.type is EventType.NODE_DELETED and is_reader(event.path) and not own:
                woken.setdefault(event.path, set()).add(event.client.name)
        self._seen = len(sim.events)
        for path, names in woken.items():
            if len(names) > 1:
                raise ViolationError("HERD", f"{path} wakes {', '.join(sorted(names))}")

    def comparison_key(self) -> tuple[()]:
        return ()

    def end(self, sim: Simulation) -> None:
        pass


async def downgrade(client: Client, pair: Pair, manners: Manners, *, wait: bool) -> list[bool]:
    """Write, then read without letting anybody write between."""
    deadline = None if manners.patience is None else client.world.now() + manners.patience
    if not await acquired(pair.write, deadline, wait):
        return [False]
    try:
        try:
            await client.turn()
            got = await acquired(pair.read, deadline, wait)
        finally:
            await pair.write.release()
        for _ in range(manners.stay):
            await client.turn()
        return [got]
    finally:
        if pair.read._node_name is not None:
            await pair.read.release()


async def hasty(client: Client, pair: Pair, manners: Manners, *, wait: bool) -> list[bool]:
    """Releases the write lock while another task of the same object acquires the read lock."""
    deadline = None if manners.patience is None else client.world.now() + manners.patience
    if not await acquired(pair.write, deadline, wait):
        return [False]
    try:
        client.spawn(contend(client, pair.read, manners, wait=wait))
        for _ in range(manners.stay):
            await client.turn()
    finally:
        await pair.write.release()
    return [True]


def read_write(
    roles: Sequence[str],
    manners: Manners = PLAIN,
    *,
    kind: ReadWrite = ReadWrite(),  # noqa: B008
    wait: bool = True,
    prepared: bool = True,
    together: bool = False,
) -> Scenario:
    """A contender for each role: "read", "write", "downgrade" or "hasty"."""

    def scenario(sim: Simulation) -> None:
        claims = ReadWriteClaims()
        patient = wait and manners.patience is None
        sim.checks += [claims, Orphans(claims, READ_WRITE), Sane(wait=patient), ReaderHerd()]
        if prepared:
            make(sim, READ_WRITE)
        for role, client in zip(roles, clients(sim, len(roles), together), strict=True):
            pair = Pair(client, kind)
            claims.add(pair.read, client, "read")
            claims.add(pair.write, client, "write")
            if role in ("read", "write"):
                lock: AsyncPathLock = pair.read if role == "read" else pair.write
                client.spawn(contend(client, lock, manners, wait=wait))
            else:
                act = downgrade if role == "downgrade" else hasty
                client.spawn(act(client, pair, manners, wait=wait))

    return scenario


def meeting(kind: ReadWrite = ReadWrite()) -> Scenario:  # noqa: B008
    """Two readers, each of whom keeps the lock until the other has it as well."""

    def scenario(sim: Simulation) -> None:
        claims = ReadWriteClaims()
        sim.checks += [claims, Orphans(claims, READ_WRITE), Sane(wait=True)]
        make(sim, READ_WRITE)
        pairs = [(client, Pair(client, kind)) for client in clients(sim, 2, together=False)]
        met = 0

        async def meet(client: Client, lock: AsyncReadLock) -> list[bool]:
            nonlocal met
            await lock._acquire_by(None, True)
            met += 1
            try:
                latest = client.world.now() + 10 * sim.timeout
                while met < len(pairs) and client.world.now() < latest:
                    await client.sleep(1.0)
                return [met == len(pairs)]
            finally:
                await lock.release()

        for client, pair in pairs:
            claims.add(pair.read, client, "read")
            client.spawn(meet(client, pair.read))

    return scenario


def manners_of(sim: Simulation) -> Manners:
    """Different from seed to seed."""
    choose = sim.rng.choice
    return Manners(
        rounds=choose((1, 1, 2)),
        patience=choose((None, None, 3.0, 9.0)),
        stay=choose((1, 3)),
        hold=choose((0.0, 0.0, 0.0, 10.0)),  # not so long that it looks like a deadlock
    )


def various_read_write(kind: ReadWrite = ReadWrite()) -> Scenario:  # noqa: B008
    """Contenders that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        roles = [choose(("read", "read", "write", "downgrade", "hasty")) for _ in range(3)]
        read_write(
            roles[: choose((2, 3))],
            manners_of(sim),
            kind=kind,
            wait=choose((True, True, True, False)),
            prepared=choose((True, True, False)),
            together=choose((False, False, False, True)),
        )(sim)

    return scenario


# --- the semaphore --------------------------------------------------------------------------------


class LeaseOrder:
    """FIFO: at a grant nobody is left in the queue who has come earlier.

    HERD: a change among the leases wakes one contender at most.
    """

    reducible = True

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
            queue = sim.tree.nodes.get(f"{SEMAPHORE}/locks")
            for name in (queue and queue.children) or ():
                if sim.tree.nodes[f"{SEMAPHORE}/locks/{name}"].czxid < lock._queue.fence:
                    raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")
        woken = [
            event.client.name
            for event in sim.events[self._events :]
            if event.type is EventType.NODE_CHILDREN_CHANGED
        ]
        if len(woken) > 1 and len(sim.events) == self._events + len(woken):
            raise ViolationError("HERD", f"a lease wakes {', '.join(woken)}")

    def comparison_key(self) -> tuple[()]:
        return ()

    def end(self, sim: Simulation) -> None:
        pass


def semaphore(
    count: int,
    number: int,
    manners: Manners = PLAIN,
    *,
    core: type[AsyncLease] = AsyncLease,
    wait: bool = True,
    prepared: bool = True,
    agreed: bool = False,
    together: bool = False,
) -> Scenario:
    """So many contenders for so many leases; ``agreed``: the number has been written down."""

    def scenario(sim: Simulation) -> None:
        claims = Claims(at_most(count))
        sim.checks += [
            claims,
            Orphans(claims, SEMAPHORE),
            Sane(wait=wait and manners.patience is None),
            LeaseOrder(claims),
            Herd(f"{SEMAPHORE}/locks"),
        ]
        if prepared:
            make(sim, SEMAPHORE, f"{SEMAPHORE}/locks", f"{SEMAPHORE}/leases")
        if agreed:
            sim.tree.begin(0)
            sim.tree.set_data(SEMAPHORE, b"%d" % count, -1, Credentials())
        for client in clients(sim, number, together):
            lock = core(client.world, SEMAPHORE, count)
            claims.add(lock, client)
            client.spawn(contend(client, lock, manners, wait=wait))

    return scenario


def disagreement(core: type[AsyncLease] = AsyncLease) -> Scenario:
    """Two contenders, of whom one takes it for a semaphore of 2: who comes second is refused."""

    async def contend_or_not(client: Client, lock: AsyncLease) -> list[bool]:
        try:
            return await contend(client, lock, PLAIN, wait=True)
        except ValueError:
            return [False]

    def scenario(sim: Simulation) -> None:
        claims = Claims(at_most(1))
        sim.checks += [claims, Orphans(claims, SEMAPHORE)]
        make(sim, SEMAPHORE, f"{SEMAPHORE}/locks", f"{SEMAPHORE}/leases")
        for count in (1, 2):
            client = sim.client()
            lock = core(client.world, SEMAPHORE, count)
            claims.add(lock, client)
            client.spawn(contend_or_not(client, lock))

    return scenario


def various_semaphore(core: type[AsyncLease] = AsyncLease) -> Scenario:
    """Contenders that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        count = choose((1, 1, 2))
        semaphore(
            count,
            count + choose((1, 1, 2)),
            manners_of(sim),
            core=core,
            wait=choose((True, True, True, False)),
            prepared=choose((True, True, False)),
            together=choose((False, False, False, True)),
        )(sim)

    return scenario


# --- the multi-lock -------------------------------------------------------------------------------


async def contend_all(
    client: Client, lock: AsyncMultiLock, manners: Manners, *, wait: bool
) -> list[bool]:
    """As `contend`; all of them are held or none, and somebody waits for the loss."""
    won: list[bool] = []
    for _ in range(manners.rounds):
        limit = manners.patience
        if limit is None and not wait:
            limit = client.world.session_timeout
        deadline = None if limit is None else client.world.now() + limit
        got = False
        try:
            got = await acquired(lock, deadline, wait)
        finally:
            kept = [core.path for core in lock._parts if core._granted is not None]
            if lock.held != got or len(kept) != (len(lock._parts) if got else 0):
                raise AssertionError(f"acquired {got}, held {lock.held}, kept {kept}")
        won.append(got)
        if got:
            client.spawn(await_loss(lock.lost))
            try:
                for _ in range(manners.stay):
                    await client.turn()
                if manners.hold:
                    await client.sleep(manners.hold)
            finally:
                await lock.release()
    return won


def multi_lock(
    number: int,
    manners: Manners = PLAIN,
    *,
    core: type[AsyncMultiLock] = AsyncMultiLock,
    single: bool = False,
    wait: bool = True,
    prepared: bool = True,
    together: bool = False,
) -> Scenario:
    """Contenders for two paths, named in opposite orders; ``single``: and one for the second."""

    def scenario(sim: Simulation) -> None:
        of = {path: Claims() for path in (FIRST, SECOND)}
        for path, claims in of.items():
            sim.checks += [claims, Orphans(claims, path), Herd(path)]
        sim.checks.append(Sane(wait=wait and manners.patience is None))
        if prepared:
            make(sim, "/m", FIRST, SECOND)
        for place, client in enumerate(clients(sim, number, together)):
            order = (FIRST, SECOND) if place % 2 else (SECOND, FIRST)
            locks = [AsyncSequentialLock(client.world, path) for path in order]
            for lock in locks:
                of[lock.path].add(lock, client)
            client.spawn(contend_all(client, core(*locks), manners, wait=wait))
        if single:
            client = sim.client()
            lock = AsyncSequentialLock(client.world, SECOND)
            of[SECOND].add(lock, client)
            client.spawn(contend(client, lock, manners, wait=wait))

    return scenario


def various_multi_lock(core: type[AsyncMultiLock] = AsyncMultiLock) -> Scenario:
    """Contenders that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        multi_lock(
            choose((2, 2, 3)),
            manners_of(sim),
            core=core,
            single=choose((False, True)),
            wait=choose((True, True, True, False)),
            prepared=choose((True, True, False)),
            together=choose((False, False, False, True)),
        )(sim)

    return scenario


# --- planted bugs ---------------------------------------------------------------------------------


class IgnoresWriters(AsyncReadLock):
    """Nobody is before a reader."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        return []


class WaitsForLaterWriters(AsyncReadLock):
    """A reader lets every writer go first."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        mine = self._write._node_name
        writers = sorted(n for n in names if not is_reader(n) and n != mine)
        return list(enumerate(writers))


class WaitsForReaders(AsyncReadLock):
    """A reader waits for everybody."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        return before(names, own)


class QueuesAgain(AsyncReadLock):
    """Who holds the write lock goes to the end of the queue for the read lock."""

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        return await AsyncSequentialLock._join(self, attempt, deadline)


class BesideOnce(AsyncReadLock):
    """Does not expect its own node from a try whose answer was lost."""

    async def _stand_beside(
        self, writer: str, attempt: Attempt, deadline: float | None
    ) -> list[str] | None:
        world, operations = self._runtime, self._runtime.operations
        node = f"{self.path}/{attempt.id}-{self._label}{writer[-10:]}"
        attempt.entered = True
        create = Create(node, b"", ephemeral=True)
        await world.until(operations.multi([Check(f"{self.path}/{writer}"), create]), deadline)
        attempt.node, attempt.stat = node, await retry(world, deadline, operations.exists, node)
        return await self._list(deadline)


class ForgetsFirstTry(AsyncReadLock):
    """Queues anew, after a try to stand beside the writer that may have worked."""

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        while (mine := self._write._node_name) is not None:
            try:
                names = await self._stand_beside(mine, attempt, deadline)
            except ConnectionLossError:
                continue
            if names is None:
                break
            return names
        return await AsyncSequentialLock._join(self, attempt, deadline)


class IgnoresReaders(AsyncWriteLock):
    """A writer waits for writers only."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        return before([name for name in names if not is_reader(name)], own)


class BelievesTheEvent(AsyncWriteLock):
    """A writer does not look whether a reader has come in where the writer before it stood."""

    def _leaves_its_place(self, ahead: str) -> bool:
        return True


class OneTooMany(AsyncLease):
    """So many leases may stand before it, and one more."""

    async def _take_lease(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        self._places += 1
        try:
            return await super()._take_lease(attempt, deadline, wait)
        finally:
            self._places -= 1


class NoWatch(AsyncLease):
    """Waits for a change of another node."""

    async def _await_change(self, names: list[str], deadline: float | None) -> list[str]:
        watch = Watch()
        try:
            world, read = self._runtime, self._runtime.operations.get_data
            await retry(world, deadline, read, self._base, watch=watch)
            now = await self._list(deadline)
            if sorted(now) == sorted(names) and not await world.event(watch, deadline):
                raise OperationTimeoutError("no lease in time")
        finally:
            watch.close()
        return now


class NoComparison(AsyncLease):
    """Waits for a change that may have come before the watch."""

    async def _await_change(self, names: list[str], deadline: float | None) -> list[str]:
        watch = Watch()
        try:
            read = self._runtime.operations.get_children
            await retry(self._runtime, deadline, read, self.path, watch=watch)
            if not await self._runtime.event(watch, deadline):
                raise OperationTimeoutError("no lease in time")
        finally:
            watch.close()
        return await self._list(deadline)


class QueueKept(AsyncLease):
    """Is still the first of the queue when it does not get a lease."""

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        await self._agree(deadline)
        if not await self._queue._acquire_by(deadline, wait):
            return False
        won = await self._take_lease(attempt, deadline, wait)
        await self._queue._step_out(deadline)
        self._queue._release_in_background()
        return won

    def _clean_up_pending(self) -> None:
        AsyncSequentialLock._clean_up_pending(self)


class AgreesBlindly(AsyncLease):
    """Writes its number whatever has been written meanwhile."""

    async def _agree(self, deadline: float | None) -> None:
        data, _ = await retry(
            self._runtime, deadline, self._runtime.operations.get_data, self._base
        )
        if not data:
            count = b"%d" % self._places
            await retry(
                self._runtime, deadline, self._runtime.operations.set_data, self._base, count
            )
            return
        await super()._agree(deadline)


class NoQueue(AsyncLease):
    """Everybody looks at the leases."""

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        await self._agree(deadline)
        if not await self._queue._acquire_by(deadline, wait):
            return False
        try:
            await self._queue._step_out(deadline)
        finally:
            self._queue._release_in_background()
        return await self._take_lease(attempt, deadline, wait)


class ArgumentOrder(AsyncMultiLock):
    """Takes the locks in the order in which they were named."""

    def __init__(self, *locks: AsyncPathLock) -> None:
        super().__init__(*locks)
        self._parts = list(locks)


class FirstKept(AsyncMultiLock):
    """Does not give back what it had before it failed."""

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        self._forget_loss()
        for core in self._parts:
            if core._granted is None and not await core._acquire_by(deadline, wait):
                return False
        self._lost.watch([core.lost for core in self._parts])
        self._taken, self._acquired = list(self._parts), True
        return self.held


class NoLastLook(AsyncMultiLock):
    """Believes that the first is still held when it has the last."""

    async def _acquire_by(self, deadline: float | None, wait: bool) -> bool:
        self._forget_loss()
        taken: list[AsyncPathLock] = []
        try:
            for core in self._parts:
                taken.append(core)
                if not await core._acquire_by(deadline, wait):
                    return False
            self._lost.watch([core.lost for core in taken])
            self._taken, self._acquired = list(taken), True
            taken.clear()
            return True
        finally:
            for core in taken:
                core._release_in_background()


class OneRelease(AsyncMultiLock):
    """Gives the others up only if nothing happens to the first."""

    async def _release_by(self, deadline: float | None = None) -> None:
        self._taken, self._acquired = [], False
        for core in self._parts:
            await core._release_by(deadline)


PLANTED: dict[str, tuple[Callable[[], Scenario], set[str]]] = {
    "a reader ignores writers": (
        lambda: various_read_write(ReadWrite(IgnoresWriters)), {"ME", "FIFO", "FENCE"},
    ),
    "a reader waits for later writers": (
        lambda: various_read_write(ReadWrite(WaitsForLaterWriters)), {"LIVE", "FIFO", "ONCE"},
    ),
    "a reader waits for readers": (lambda: meeting(ReadWrite(WaitsForReaders)), {"ONCE", "LIVE"}),
    "a downgrade goes to the end": (
        lambda: various_read_write(ReadWrite(QueuesAgain)), {"LIVE", "ONCE"},
    ),
    "a downgrade is tried once": (lambda: various_read_write(ReadWrite(BesideOnce)), {"ERROR"}),
    "a writer ignores readers": (
        lambda: various_read_write(ReadWrite(write=IgnoresReaders)), {"ME", "FIFO", "FENCE"},
    ),
    "a writer believes the event": (
        lambda: various_read_write(ReadWrite(write=BelievesTheEvent)), {"ME", "FIFO", "FENCE"},
    ),
    "one lease too many": (lambda: various_semaphore(OneTooMany), {"ME", "FENCE"}),
    "no watch on the leases": (lambda: various_semaphore(NoWatch), {"LIVE"}),
    "no look behind the watch": (lambda: various_semaphore(NoComparison), {"LIVE"}),
    "the queue is kept": (lambda: various_semaphore(QueueKept), {"ORPHAN", "LIVE"}),
    "the last number counts": (lambda: disagreement(AgreesBlindly), {"ME", "FENCE"}),
    "no queue": (lambda: semaphore(1, 3, Manners(stay=12), core=NoQueue), {"HERD", "FIFO"}),
    "in the order of the arguments": (lambda: various_multi_lock(ArgumentOrder), {"LIVE"}),
    "the first is kept": (lambda: various_multi_lock(FirstKept), {"ERROR", "LIVE", "ORPHAN"}),
    "no last look": (lambda: various_multi_lock(NoLastLook), {"ERROR"}),
    "one release": (lambda: various_multi_lock(OneRelease), {"ORPHAN", "LIVE", "WATCH"}),
}  # fmt: skip
"""Scenarios with a bug, and the invariants that it may break."""
