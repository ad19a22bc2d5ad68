"""Simulated runs as histories for `support.history`, of contenders that use what the lock guards.

Whoever holds the lock writes, by a request that the server refuses without the lock's node; and
everybody reads, before and after.  In the simulation steps take no time; in a history each takes a
microsecond.

Who stands in the queue is told by the server's tree, and not by the contenders, who may not know:
each node there waits under a name of its own, from the step in which it is made until it is gone,
granted or not.  So whoever is granted the lock while an older node stands has overtaken it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tests.support.history import Record, check
from tests.support.simulation_family import manners_of
from tests.support.simulation_locks import PATH, acquired
from tests.support.simulation_parts import children, living, make
from zkwire.errors import LockLostError, ZooKeeperError
from zkwire.operations.multi import SetData
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.invariants import Claims, Rule, exclusive
from zkwire.wire.model import EventType

if TYPE_CHECKING:
    from zkwire.testing.simulation import Scenario
    from zkwire.testing.simulation.client import Client
    from zkwire.testing.simulation.simulation import Simulation

REGISTER = "/register"
_STEP = 1e-6
_BELOW = PATH + "/"


class Recorder:
    """Writes the history of a run, and lets it be checked at the end."""

    def __init__(self, sim: Simulation, claims: Claims) -> None:
        self.records = [Record(0.0, "", "lock", PATH, ordered=True)]
        self._sim = sim
        self._claims = claims
        self._grants = 0
        self._holding: set[str] = set()
        self._places: dict[str, int] = {}  # the queue's nodes, with their czxids
        self._changed = 0  # the zxid of the last change of the queue
        self._events = 0
        self._slow: set[Client] = set()

    def now(self) -> float:
        """A moment of its own for each step."""
        return self._sim.now + _STEP * len(self._sim.done)

    def step(self, sim: Simulation) -> None:
        """After every step: who has come, gone, been woken; whose claim has begun or ended."""
        queue = sim.tree.nodes.get(PATH)
        changed = queue.pzxid if queue is not None else 0
        if changed != self._changed:
            self._changed = changed
            self._look_at_queue(children(sim, PATH))
        if len(sim.events) != self._events:
            self._look_at_events(sim)
        self._look_at_processes(sim)
        holding = {
            claim.client.name for claim in self._claims.held() if claim.lock.fence not in sim.stolen
        }
        for name in self._holding - holding:
            self.records.append(Record(self.now(), name, "lose", PATH))
        for grant in self._claims.grants[self._grants :]:
            who = grant.claim.client.name
            self.records.append(Record(self.now(), who, "grant", PATH, fence=grant.fence))
        self._grants, self._holding = len(self._claims.grants), holding

    def _look_at_processes(self, sim: Simulation) -> None:
        """Who stands still, or was slow, is not late."""
        kind, who = sim.done[-1]
        if kind in ("pause", "resume"):
            self.records.append(Record(self.now(), who, kind))
        slow = {client for client in sim.clients if client.stalled}
        for client in self._slow - slow:
            if not client.paused:
                self.records += [Record(self.now(), client.name, w) for w in ("pause", "resume")]
        self._slow = slow

    def _look_at_queue(self, names: dict[str, int]) -> None:
        for name in [name for name in self._places if name not in names]:
            self._place("give up", self._places.pop(name))
        for name in [name for name in names if name not in self._places]:
            self._places[name] = names[name]
            self._place("arrive", self._places[name])

    def _place(self, what: str, fence: int) -> None:
        self.records.append(Record(self.now(), f"place {fence:#x}", what, PATH, fence=fence))

    def _look_at_events(self, sim: Simulation) -> None:
        """Once an outsider has deleted nodes, whoever waits behind them may wake too soon.

        Who has left the queue is not woken, see `zkwire.testing.simulation.invariants.Herd`.
        """
        for _, kind, path, client in sim.events[self._events :] if not sim.stolen else ():
            session_id = client.session.session_id
            queued = any(node.startswith(_BELOW) for node in sim.tree.ephemerals(session_id))
            own = f"{session_id:016x}" in path
            deleted = kind is EventType.NODE_DELETED and path.startswith(_BELOW)
            if deleted and queued and not own:
                self.records.append(Record(self.now(), client.name, "wake", PATH, note=path))
        self._events = len(sim.events)

    def end(self, sim: Simulation) -> None:
        """Every client has closed or released: what the records say must be possible."""
        ids = {client.session.session_id for client in living(sim)}
        held = {claim.lock.fence for claim in self._claims.held()}
        for path, node in sim.tree.nodes.items():
            if path.startswith(PATH + "/") and node.owner in ids and node.czxid not in held:
                self.records.append(Record(self.now(), "", "left", PATH, note=path))
        for text in check(self.records):
            raise ViolationError(text.partition(":")[0], text.partition(": ")[2])


class _User:
    """A contender that writes and reads."""

    def __init__(self, client: Client, recorder: Recorder, lock: AsyncSequentialLock) -> None:
        self._client = client
        self._recorder = recorder
        self._lock = lock
        self._written = 0

    async def read(self, *, synced: bool = False) -> None:
        """See what is in the register."""
        world, at = self._client.world, self._recorder.now()
        with suppress(ZooKeeperError):
            sync = world.operations.sync(REGISTER) if synced else None
            reply = world.operations.get_data(REGISTER)
            if sync is not None:
                await world.until(sync, None)
            data, stat = await world.until(reply, None)
            self._note("read", at, (data or b"").decode(), stat.mzxid, stat.version, synced=synced)

    async def write(self) -> None:
        """Write something that nobody else writes, while the lock is held."""
        self._written += 1
        value = f"{self._client.name}{self._written}"
        at, fence = self._recorder.now(), self._lock.fence
        try:
            [stat] = await self._lock.guard([SetData(REGISTER, value.encode())])
        except LockLostError:
            return
        except BaseException:  # lost or interrupted: nobody knows
            self._recorder.records.append(
                Record(at, self._client.name, "write", REGISTER, fence=fence, ok=None, value=value)
            )
            raise
        self._note("write", at, value, stat.mzxid, stat.version, fence=fence)

    def _note(
        self, what: str, at: float, value: str, zxid: int, version: int, *,
        fence: int = 0, synced: bool = False,
    ) -> None:  # fmt: skip
        self._recorder.records.append(Record(
            at, self._client.name, what, REGISTER, fence=fence, end=self._recorder.now(),
            value=value, zxid=zxid, version=version, synced=synced,
        ))  # fmt: skip

    async def _acquire(self, deadline: float | None) -> bool:
        """A grant is noted by the recorder, which compares it with those of others."""
        world, records, now = self._client.world, self._recorder.records, self._recorder.now
        limit = None if deadline is None else max(0.0, deadline - world.now())
        records.append(Record(now(), self._client.name, "ask", PATH, limit=limit))
        note = "not in time"
        try:
            if await acquired(self._lock, deadline, True):
                return True
        except BaseException as error:
            note = type(error).__name__
            raise
        finally:
            if not self._lock.held:
                records.append(Record(now(), self._client.name, "give up", PATH, note=note))
        return False

    async def contend(self, deadline: float | None, rounds: int) -> list[bool]:
        """Acquire, write and read, release; and read outside."""
        for number in range(rounds):
            await self.read(synced=number % 2 == 1)
            if await self._acquire(deadline):
                try:
                    await self.write()
                    await self.read()
                finally:
                    await self._lock.release()
            await self.read(synced=True)
        return [True]


def users(*, rule: Rule = exclusive) -> Scenario:
    """Contenders that differ from seed to seed.

    By ``rule`` claims are judged as they come, by `tests.support.history` all that is recorded in
    the end.
    """

    def scenario(sim: Simulation) -> None:
        claims, manners = Claims(rule), manners_of(sim)
        recorder = Recorder(sim, claims)
        sim.checks += [claims, recorder]
        make(sim, PATH, REGISTER)
        for _ in range(sim.rng.choice((2, 3))):
            client = sim.client()
            lock = AsyncSequentialLock(client.world, PATH)
            claims.add(lock, client)
            user = _User(client, recorder, lock)
            client.spawn(user.contend(manners.deadline(client), manners.rounds + 1))

    return scenario
