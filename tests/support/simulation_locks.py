"""Scenarios of the locks: contenders for the three locks, and what must be true of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.simulation_parts import Judge, clients, has_faults, make, scenario, wrong
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
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.invariants import Claims, Fifo, Herd, Orphans
from zkwire.testing.simulation.simulation import Simulation

PATH = "/lock"


@dataclass(frozen=True)
class Kind:
    """A kind of lock: its core, whether its contenders wait and queue."""

    name: str
    core: type[AsyncPathLock]
    wait: bool
    queue: bool = False


NON_BLOCKING = Kind("non-blocking", AsyncBlockingLock, wait=False)
BLOCKING = Kind("blocking", AsyncBlockingLock, wait=True)
SEQUENTIAL = Kind("sequential", AsyncSequentialLock, wait=True, queue=True)
SEQUENTIAL_TRY = Kind("sequential, try", AsyncSequentialLock, wait=False, queue=True)
KINDS = (NON_BLOCKING, BLOCKING, SEQUENTIAL, SEQUENTIAL_TRY)


@dataclass(frozen=True)
class Usage:
    """What a contender does: how often, how long it waits, how many steps and seconds it holds.

    ``attend``: while it holds, another task waits for the loss.  ``give``: the limit to release.
    """

    rounds: int = 1
    patience: float | None = None
    stay: int = 2
    hold: float = 0.0
    attend: bool = False
    give: float | None = None

    def deadline(self, client: Client, wait: bool = True) -> float | None:
        """When a contender gives up that begins now."""
        limit = self.patience
        if limit is None and not wait:
            limit = client.world.session_timeout
        return None if limit is None else client.world.now() + limit

    async def hold_on(self, client: Client, lock: AsyncPathLock | AsyncMultiLock) -> None:
        """Hold for a while, and release."""
        try:
            for _ in range(self.stay):
                await client.turn()
            if self.hold:
                await client.sleep(self.hold)
        finally:
            await give_back(lock, self.give)


PLAIN = Usage()


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


async def contend(client: Client, lock: AsyncPathLock, usage: Usage, *, wait: bool) -> list[bool]:
    """Acquire, stay a while, release; what acquire said each time."""
    won: list[bool] = []
    for _ in range(usage.rounds):
        deadline = usage.deadline(client, wait)
        won.append(await acquired(lock, deadline, wait))
        must_be_in_time(client, deadline)
        if won[-1]:
            if usage.attend:
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


async def give_back(lock: AsyncPathLock | AsyncMultiLock, limit: float | None) -> None:
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


def usage_of(sim: Simulation) -> Usage:
    """Different from seed to seed."""
    choose = sim.rng.choice
    return Usage(
        rounds=choose((1, 1, 2)),
        patience=choose((None, None, 3.0, 9.0)),
        stay=choose((1, 3)),
        hold=choose((0.0, 0.0, 0.0, 10.0)),  # not so long that it looks like a deadlock
        attend=choose((False, True)),
    )


def waits(sim: Simulation) -> bool:
    """Whether contenders wait, mostly."""
    return sim.rng.choice((True, True, True, False))


def conditions_of(sim: Simulation) -> dict[str, Any]:
    """Different from seed to seed, too."""
    choose = sim.rng.choice
    return {
        "prepared": choose((True, True, False)),
        "together": choose((False, False, False, True)),
    }


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
def contenders(
    sim: Simulation,
    kind: Kind,
    number: int = 2,
    usage: Usage = PLAIN,
    *,
    prepared: bool = True,
    together: bool = False,
) -> None:
    """So many contenders for one lock, on clients of their own or ``together`` on one.

    ``prepared``: the parent of the queue, or of the tokens, is there already.
    """
    claims, patient = Claims(), kind.wait and usage.patience is None
    sim.checks += [claims, Orphans(claims, PATH), Told(), Success(wait=patient)]
    if kind.queue:
        sim.checks += [Fifo(claims, PATH), Herd(PATH)]
    if prepared:
        make(sim, PATH if kind.queue else PATH + GRANTS)
    for client in clients(sim, number, together):
        lock = kind.core(client.world, PATH)
        claims.add(lock, client)
        client.spawn(contend(client, lock, usage, wait=kind.wait))


@scenario
def various(sim: Simulation, kind: Kind) -> None:
    """Contenders that differ from seed to seed in number, patience, rounds and so on."""
    contenders(kind, sim.rng.choice((2, 3)), usage_of(sim), **conditions_of(sim))(sim)
