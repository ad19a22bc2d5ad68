"""Scenarios for the simulation: contenders for the three locks, and locks with planted bugs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from zkwire.errors import (
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ZooKeeperError,
)
from zkwire.operations import Operations
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._node import Attempt, OwnNodeWatch
from zkwire.recipes._recipe import Loss
from zkwire.recipes.locks import GRANTS, AsyncBlockingLock, AsyncMultiLock
from zkwire.recipes.runtime import retry
from zkwire.recipes.sequential import AsyncQueueLock, AsyncSequentialLock, before
from zkwire.session.watch import Watch
from zkwire.testing.server.acl import Credentials
from zkwire.testing.server.node import NewNode
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.fault_choice import FAULTS
from zkwire.testing.simulation.invariants import Claim, Claims, Fifo, Herd, Orphans
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import OPEN_ACL_UNSAFE, DataAndStat

PATH = "/lock"


@dataclass(frozen=True)
class Kind:
    """A kind of lock: its core, whether its contenders wait and queue, who judges its claims."""

    name: str
    core: type[AsyncPathLock]
    wait: bool
    queue: bool = False
    judge: type[Claims] = Claims


NON_BLOCKING = Kind("non-blocking", AsyncBlockingLock, wait=False)
BLOCKING = Kind("blocking", AsyncBlockingLock, wait=True)
SEQUENTIAL = Kind("sequential", AsyncSequentialLock, wait=True, queue=True)
SEQUENTIAL_TRY = Kind("sequential, try", AsyncSequentialLock, wait=False, queue=True)
KINDS = (NON_BLOCKING, BLOCKING, SEQUENTIAL, SEQUENTIAL_TRY)


@dataclass(frozen=True)
class Manners:
    """What a contender does: how often, how long it waits, how many steps and seconds it holds.

    ``attend``: while it holds, another task waits for the loss.  ``give``: the limit to release.
    """

    rounds: int = 1
    patience: float | None = None
    stay: int = 2
    hold: float = 0.0
    attend: bool = False
    give: float | None = None


async def acquired(
    lock: AsyncPathLock | AsyncMultiLock, deadline: float | None, wait: bool
) -> bool:
    """What a lock's `acquire(timeout)` says."""
    try:
        return await lock._acquire_by(deadline, wait)
    except OperationTimeoutError:
        if wait and deadline is not None:
            return False
        raise


async def contend(
    client: Client, lock: AsyncPathLock, manners: Manners, *, wait: bool
) -> list[bool]:
    """Acquire, stay a while, release; what acquire said each time."""
    won: list[bool] = []
    for _ in range(manners.rounds):
        limit = manners.patience
        if limit is None and not wait:
            limit = client.world.session_timeout
        deadline = None if limit is None else client.world.now() + limit
        won.append(await acquired(lock, deadline, wait))
        if won[-1]:
            if manners.attend:
                client.spawn(await_loss(lock.lost))
            try:
                for _ in range(manners.stay):
                    await client.turn()
                if manners.hold:
                    await client.sleep(manners.hold)
            finally:
                await give_back(lock, manners.give)
    return won


async def await_loss(lost: Loss) -> list[bool]:
    """Wait until a lock is lost or released."""
    await lost
    return [lost.ready]


async def give_back(lock: AsyncPathLock, limit: float | None = None) -> None:
    """Release; whose lock is known to be lost must be told so, for nothing of it is left to end."""
    lost = not lock.held
    try:
        await lock._release_by(None if limit is None else lock._runtime.now() + limit)
    except OperationTimeoutError as error:
        if limit is None or not error.maybe_applied or lock.held:
            raise AssertionError(f"{lock.path} is not in doubt") from error
    if lost:
        raise AssertionError(f"{lock.path} was lost, and its release has not said so")


PLAIN = Manners()


class Success:
    """Without a fault nobody fails, and whoever waits gets it."""

    reducible = True

    def __init__(self, *, wait: bool) -> None:
        self._wait = wait

    def step(self, sim: Simulation) -> None:
        pass

    def comparison_key(self) -> tuple[()]:
        return ()

    def end(self, sim: Simulation) -> None:
        if any(step.kind in FAULTS for step in sim.done):
            return
        for task in sim.ended:
            if task.error is not None:
                raise ViolationError("ONCE", f"{task.name} failed: {task.error!r}")
            if not task.background and self._wait and not all(task.result):
                raise ViolationError("ONCE", f"{task.name} was refused")


class Told:
    """TOLD: who has lost a lock is told so, without asking and as soon as its client knows.

    And so is whoever waits for that.
    """

    reducible = True

    def step(self, sim: Simulation) -> None:
        for client in sim.clients:
            if client.running and not (client.dead or client.due):
                for lock in client.locks:
                    assert isinstance(lock, AsyncPathLock)
                    untold = lock._owned and not (lock.held or lock.lost.ready)
                    if untold or (lock.lost.ready and lock.lost._wakers):
                        raise ViolationError("TOLD", f"{client} has not been told of its loss")

    def comparison_key(self) -> tuple[()]:
        return ()

    def end(self, sim: Simulation) -> None:
        pass


class Beside(Claims):
    """For bugs that must be found by who holds beside whom, and not by the end of their nodes."""

    def _is_gone(self, sim: Simulation, claim: Claim) -> None:
        pass


def contenders(
    kind: Kind,
    number: int = 2,
    manners: Manners = PLAIN,
    *,
    prepared: bool = True,
    together: bool = False,
) -> Scenario:
    """So many contenders for one lock, on clients of their own or ``together`` on one.

    ``prepared``: the parent of the queue, or of the tokens, is there already.
    """

    def scenario(sim: Simulation) -> None:
        claims = kind.judge()
        sim.checks += [
            claims,
            Orphans(claims, PATH),
            Told(),
            Success(wait=kind.wait and manners.patience is None),
        ]
        if kind.queue:
            sim.checks += [Fifo(claims, PATH), Herd(PATH)]
        if prepared:
            sim.tree.begin(0)
            path = PATH if kind.queue else PATH + GRANTS
            sim.tree.create(NewNode(path, b"", OPEN_ACL_UNSAFE), Credentials())
        client = None
        for _ in range(number):
            if client is None or not together:
                client = sim.client()
            lock = kind.core(client.world, PATH)
            claims.add(lock, client)
            client.spawn(contend(client, lock, manners, wait=kind.wait))

    return scenario


def various(kind: Kind) -> Scenario:
    """Contenders that differ from seed to seed in number, patience, rounds and so on."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        contenders(
            kind,
            choose((2, 3)),
            Manners(
                rounds=choose((1, 1, 2)),
                patience=choose((None, None, 3.0, 9.0)),
                stay=choose((1, 3)),
                hold=choose(
                    (0.0, 0.0, 0.0, 0.0, 15.0)
                ),  # not so long that it looks like a deadlock
                attend=choose((False, True)),
            ),
            prepared=choose((True, True, False)),
            together=choose((False, False, False, True)),
        )(sim)

    return scenario


# --- locks with planted bugs ----------------------------------------------------------------------


class NoCleaning(AsyncPathLock):
    """An attempt that ends badly leaves what it has left (B5, B6, B7)."""

    def _clean_up_pending(self) -> None:
        self._pending_cleanup = None


class OneCleaning(AsyncPathLock):
    """A clean-up is tried once (B5, B25)."""

    async def _delete_until_gone(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(ZooKeeperError):
            await self._leave(operations, attempt)


class NoLease(AsyncPathLock):
    """Holds until somebody says otherwise (A29, B20)."""

    @property
    def _lasts(self) -> bool:
        return not self.lost.is_set()


class LateEnd(AsyncPathLock):
    """Claims until the answer to the delete has come (B21)."""

    async def _delete(self, attempt: Attempt, version: int, deadline: float | None) -> None:
        self._refuse_if_lost()
        await self._reconnected(deadline)
        self._granted = attempt
        try:
            await self._free(attempt, version, deadline)
            self._pending_cleanup = None
        finally:
            self._end_claim()


class NoGuard(AsyncPathLock):
    """Does not watch its own node (B22)."""

    def _watch_own_node(self, attempt: Attempt, guard: OwnNodeWatch) -> None:
        """Do nothing."""


class SequentialNoCleaning(NoCleaning, AsyncSequentialLock):
    """See its base."""


class SequentialOneCleaning(OneCleaning, AsyncSequentialLock):
    """See its base."""


class SequentialNoLease(NoLease, AsyncSequentialLock):
    """See its base."""


class SequentialLateEnd(LateEnd, AsyncSequentialLock):
    """See its base."""


class SequentialNoGuard(NoGuard, AsyncSequentialLock):
    """See its base."""


class SingleNoCleaning(NoCleaning, AsyncBlockingLock):
    """See its base."""


class SingleOneCleaning(OneCleaning, AsyncBlockingLock):
    """See its base."""


class SingleNoLease(NoLease, AsyncBlockingLock):
    """See its base."""


class SingleLateEnd(LateEnd, AsyncBlockingLock):
    """See its base."""


class ByName(AsyncSequentialLock):
    """Contenders are ordered by their names, which begin with the session's id (B14)."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        return [(place, name) for place, name in enumerate(sorted(names)) if name < own]


class LowestWatched(AsyncSequentialLock):
    """Everybody watches the holder."""

    def _ahead(self, names: list[str], own: str) -> list[tuple[int, str]]:
        ahead = before(names, own)
        return [min(ahead)] * 2 if ahead else []  # the event alone does not decide


class BlindRepeat(AsyncSequentialLock):
    """A create that was not answered is repeated (B1, B2, B3)."""

    async def _find(self, attempt: Attempt, deadline: float | None) -> list[str]:
        return []

    async def _prune(self, attempt: Attempt, names: list[str], deadline: float | None) -> None:
        pass


class NoSecondLook(AsyncSequentialLock):
    """Whoever is woken believes that it is its turn."""

    async def _list(self, deadline: float | None, *, sync: bool = False) -> list[str]:
        names = await super()._list(deadline, sync=sync)
        if sync or self._pending_cleanup is None or self._pending_cleanup.node is None:
            return names
        return [self._name(self._pending_cleanup)]


class Exists(AsyncSequentialLock):
    """Waits by ``exists``, which says nothing when the node is gone already (B10)."""

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        path, watch = f"{self.path}/{ahead}", Watch()
        try:
            await retry(self._runtime, deadline, self._runtime.operations.exists, path, watch=watch)
            if await self._runtime.event(watch, deadline) is None:
                raise OperationTimeoutError("not free in time")
            return False
        finally:
            watch.close()


class WatchKept(AsyncSequentialLock):
    """Does not take its watch back when it gives up (B27)."""

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        path, watch = f"{self.path}/{ahead}", Watch()
        try:
            await retry(
                self._runtime, deadline, self._runtime.operations.get_data, path, watch=watch
            )
            if await self._runtime.event(watch, deadline) is None:
                raise OperationTimeoutError("not free in time")
        except NoNodeError:
            pass
        return False


class SessionIsName(AsyncSequentialLock):
    """Finds the node of another attempt of the same client, and takes it (B31)."""

    async def _find(self, attempt: Attempt, deadline: float | None) -> list[str]:
        names = await self._list(deadline, sync=True)
        for name in names:
            path = f"{self.path}/{name}"
            stat = await retry(self._runtime, deadline, self._runtime.operations.exists, path)
            if stat is not None and stat.ephemeral_owner == self._runtime.session_id:
                attempt.node, attempt.stat = path, stat
                attempt.id = name.rpartition("-lock-")[0]
        return names


class StepBackOnce(AsyncSequentialLock):
    """A try that fails deletes its node as well as it can (B5)."""

    async def _leave_queue(self, attempt: Attempt, deadline: float | None) -> None:
        assert attempt.node is not None
        with suppress(NoNodeError, ConnectionLossError, OperationTimeoutError):
            await self._runtime.until(self._runtime.operations.delete(attempt.node), deadline)
        attempt.entered = False


class ExistsMeansTaken(AsyncBlockingLock):
    """A node that exists is somebody else's, even after a lost reply (C1)."""

    async def _create(self, attempt: Attempt, deadline: float | None) -> bool:
        while True:
            attempt.entered = True
            try:
                return await self._claim(attempt, deadline)
            except NodeExistsError:
                attempt.entered = False
                return False
            except NoNodeError:
                await self._provide(self._grants, deadline)
            except (NotSentError, OutcomeUnknownError):
                pass

    def _adopt(self, attempt: Attempt, seen: DataAndStat) -> bool:
        return False


class SessionIsOwner(AsyncBlockingLock):
    """A node of this session is this lock's (B31)."""

    def _is_own(self, attempt: Attempt, seen: DataAndStat) -> bool:
        return seen.stat.ephemeral_owner == self._runtime.session_id


class SingleExists(AsyncBlockingLock):
    """Waits by ``exists``, which says nothing when the node is gone already (C6)."""

    async def _contend(self, attempt: Attempt, deadline: float | None, wait: bool) -> bool:
        while not await self._create(attempt, deadline):
            if not wait:
                return False
            watch = Watch()
            try:
                await retry(
                    self._runtime, deadline, self._runtime.operations.exists, self.path, watch=watch
                )
                if await self._runtime.event(watch, deadline) is None:
                    raise OperationTimeoutError("not free in time")
            finally:
                watch.close()
        return True


class DeletesAnything(AsyncBlockingLock):
    """Cleans up whatever stands there, be it somebody else's (C4)."""

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        for path in (self._token(attempt), self.path):
            with suppress(NoNodeError):
                await operations.delete(path)


class GrantedBesideTokens(AsyncBlockingLock):
    """Does not wait until no earlier holder can delete the node that stands there by now."""

    async def _outlast(self, attempt: Attempt, deadline: float | None) -> bool:
        return True


class BelievesAnyEvent(AsyncSequentialLock):
    """Whatever happens to the node ahead, it has gone."""

    async def _wait_for(self, ahead: str, deadline: float | None) -> bool:
        await super()._wait_for(ahead, deadline)
        return True


class BusyIsNever(AsyncPathLock):
    """A clean-up that is refused for the moment is given up."""

    async def _delete_until_gone(self, operations: Operations, attempt: Attempt) -> None:
        while True:
            try:
                await self._leave(operations, attempt)
                return
            except ConnectionLossError:
                pass
            except ZooKeeperError:
                return


class SequentialBusyIsNever(BusyIsNever, AsyncSequentialLock):
    """See its base."""


class SingleBusyIsNever(BusyIsNever, AsyncBlockingLock):
    """See its base."""


class NoSyncBeforeLooking(AsyncBlockingLock):
    """Looks for what it has left on a server that still shows it where another's is by now (B5)."""

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        with suppress(NoNodeError):
            seen = await operations.get_data(self.path)
            if self._is_own(attempt, seen):
                await operations.delete(self.path, seen.stat.version)
        await operations.delete(self._token(attempt))


def planted(core: type[AsyncPathLock], *, wait: bool = True, judge: type[Claims] = Beside) -> Kind:
    """The kind of a planted bug."""
    queue = issubclass(core, AsyncQueueLock)
    return Kind(core.__name__, core, wait=wait, queue=queue, judge=judge)


PLANTED: dict[Kind, set[str]] = {
    planted(SequentialNoCleaning): {"ORPHAN", "LIVE", "WATCH"},
    planted(SequentialOneCleaning): {"ORPHAN", "LIVE"},
    planted(SequentialNoLease): {"ME", "FENCE"},
    planted(SequentialLateEnd): {"ME"},
    planted(SequentialNoGuard): {"STATE"},
    planted(ByName): {"ME", "FIFO", "FENCE", "LIVE"},
    planted(LowestWatched): {"HERD"},
    planted(BlindRepeat): {"LIVE", "ORPHAN"},
    planted(NoSecondLook): {"ME", "FIFO", "FENCE"},
    planted(Exists): {"LIVE"},
    planted(WatchKept): {"WATCH", "HERD"},
    planted(SessionIsName): {"ME", "FENCE", "ERROR", "LIVE", "FIFO", "ORPHAN"},
    planted(StepBackOnce, wait=False): {"ORPHAN"},
    planted(SingleNoCleaning): {"ORPHAN", "LIVE", "WATCH"},
    planted(SingleOneCleaning): {"ORPHAN", "LIVE"},
    planted(SingleNoLease): {"ME", "FENCE"},
    planted(SingleLateEnd): {"ME"},
    planted(ExistsMeansTaken): {"ORPHAN", "LIVE"},
    planted(SessionIsOwner): {"ME", "FENCE", "ORPHAN", "LIVE"},
    planted(SingleExists): {"LIVE"},
    planted(DeletesAnything): {"ME", "FENCE"},
    planted(GrantedBesideTokens, judge=Claims): {"STATE", "ME", "FENCE", "ERROR"},
    planted(BelievesAnyEvent): {"ME", "FIFO", "FENCE"},
    planted(SequentialBusyIsNever): {"ORPHAN", "LIVE"},
    planted(SingleBusyIsNever): {"ORPHAN", "LIVE"},
}
"""Each with the invariants that it may break."""
