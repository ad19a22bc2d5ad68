"""Scenarios of what clients share in a node or two: kept nodes, groups, barriers, counters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tests.support.simulation_parts import (
    NETWORK,
    Judge,
    World,
    children,
    has_faults,
    is_still,
    lives,
    living,
    nothing_left,
    scenario,
    wrong,
)
from zkwire.errors import NodeExistsError, OperationTimeoutError, ZooKeeperError
from zkwire.recipes.barrier import READY, AsyncDoubleBarrier
from zkwire.recipes.counter import AsyncCounter
from zkwire.recipes.membership import AsyncGroup, Member
from zkwire.recipes.persistent_node import AsyncPersistentNode, PersistentModeKeeper
from zkwire.recipes.runtime import SESSION_OVER
from zkwire.testing.simulation import FAULTS, Scenario
from zkwire.testing.simulation.client import Cancelled, Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

NODE = "/app/node"
GROUP = "/app"


@dataclass(frozen=True)
class Life:
    """What an owner does: how often it sets data, how many steps and seconds it stays."""

    sets: int = 1
    stay: int = 1
    hold: float = 0.0
    patience: float | None = None
    look: bool = False

    async def go_on(self, client: Client) -> None:
        for _ in range(self.stay):
            await client.turn()
        if self.hold:
            await client.sleep(self.hold)


BRIEF = Life()

# --- nodes ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Kept:
    """A keeper, its client, and the data that it was given last."""

    keeper: AsyncPersistentNode
    client: Client
    data: bytes = b"0"


class KeptNodes(Judge):
    """What holds of kept nodes.

    TRUTH: in a client that is still each keeper knows what stands at its path, and if that is
    nothing, or is its own, it is present with the data that was set last.
    ONE: no node is two keepers' own.
    FOREIGN: no client changes or deletes a node of another living session.
    LEFT: at the end no node of a keeper is left, no watch, and no claim on a path.
    """

    reducible = False

    def __init__(
        self,
        life: Life = BRIEF,
        kind: type[AsyncPersistentNode] = AsyncPersistentNode,
        prepared: bool = True,
    ) -> None:
        self.life, self.kind = life, kind
        self.paths = ("/app",) if prepared else ()
        self.kept: list[Kept] = []
        self._before: dict[str, tuple[int, int, int]] = {}  # czxid, mzxid and owner

    def step(self, sim: Simulation) -> None:
        self._look_at_changes(sim)
        own = [k.keeper._czxid for k in self.kept if k.keeper._stat and not k.keeper._over]
        if len(own) != len(set(own)):
            raise ViolationError("ONE", "two keepers have one node")
        for kept in self.kept:
            keeper = kept.keeper
            if keeper._leaving or keeper._over or not is_still(sim, kept.client):
                continue
            node = sim.tree.nodes.get(keeper._path)
            shown = keeper._stat or keeper._conflict
            if node is None or shown is None or node.czxid != shown.czxid:
                raise ViolationError("TRUTH", f"{kept.client} sees {shown}, there is {node}")
            if keeper._stat is not None and (keeper._wishes or node.data != kept.data):
                raise ViolationError("TRUTH", f"{node.data!r} is there, not {kept.data!r}")

    def _look_at_changes(self, sim: Simulation) -> None:
        nodes = {k.keeper._path: sim.tree.nodes.get(k.keeper._path) for k in self.kept}
        there = {path: (n.czxid, n.mzxid, n.owner) for path, n in nodes.items() if n is not None}
        kind, subject = sim.done[-1]
        for path, before in self._before.items():
            owner = before[2]
            if before == there.get(path) or kind in ("delete", "touch", "uproot") or sim.stolen:
                continue
            owners = {k.client.name for k in self.kept if k.client.session.session_id == owner}
            if sim.sessions.get(owner) is not None and subject not in owners:
                raise ViolationError("FOREIGN", f"{kind} {subject} has changed {path}")
        self._before = there

    def end(self, sim: Simulation) -> None:
        nothing_left(sim, NODE)
        standing = [k.client for k in self.kept if not k.keeper._ephemeral]
        # Without its token, which an outsider may delete, a lost create is no longer known.
        known = not sim.stolen and all(c in living(sim) and not c.killed for c in standing)
        if standing and known and NODE in sim.tree.nodes:
            raise ViolationError("LEFT", f"{NODE} is left")
        if any(client.world.active_locks for client in living(sim)):
            raise ViolationError("LEFT", "a client has a claim left")

    async def live(self, client: Client, _: int) -> None:
        """Keep the node for a while."""
        life = self.life
        with suppress(NodeExistsError, OperationTimeoutError, *SESSION_OVER):
            keeper = self.kind(client.world, NODE, b"0")
            kept = Kept(keeper, client)
            self.kept.append(kept)
            try:
                if not await keeper.wait_present(life.patience):
                    return
                for number in range(1, life.sets + 1):
                    kept.data = b"%d" % number
                    await keeper.set_data(kept.data, life.patience)
                await life.go_on(client)
                await keeper.wait_present(life.patience)
            finally:
                await keeper.close(None)


@scenario
def various_keepers(sim: Simulation, kind: type[AsyncPersistentNode] = AsyncPersistentNode) -> None:
    """Owners that differ from seed to seed."""
    choose = sim.rng.choice
    # A node that no session owns stays if its process dies, and is then waited for in vain.
    patience = None if kind._ephemeral else 9.0
    life = Life(choose((0, 1, 2)), choose((1, 3)), choose((0.0, 0.0, 10.0)), patience)
    number, nodes = choose((1, 2, 3)), partial(KeptNodes, life, kind, choose((True, True, False)))
    lives(number, nodes, choose((False, False, False, True)))(sim)


# --- groups ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Reader:
    """A group object and its client; ``seen``: the newest state of each name in its lists."""

    group: AsyncGroup
    client: Client
    seen: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    last: object = None


class Groups(Judge):
    """What holds of groups.

    TRUTH: in a client that is still each group that is read has the list that is on the server.
    SEEN: a list that is asked for has no older state of a member than the server had at the call.
    BACK: no list has an older state of a member than one before it.
    LEFT: at the end no member is left, and no watch.
    """

    reducible = False

    def __init__(self, life: Life = BRIEF, name: str | None = None) -> None:
        self.life, self.name = life, name  # one for all
        self.readers: list[Reader] = []

    async def live(self, client: Client, _: int) -> None:
        """Join, look, change the data, look again, leave."""
        life = self.life
        with suppress(NodeExistsError, *SESSION_OVER):
            group = AsyncGroup(client.world, GROUP)
            self.readers.append(Reader(group, client))
            try:
                if life.look:
                    await self.list(client.sim, group)
                membership = await group.join(b"0", self.name, life.patience)
                for number in range(1, life.sets + 1):
                    await membership.set_data(b"%d" % number)
                    await self.list(client.sim, group)
                await life.go_on(client)
            finally:
                await group.close(None)

    def step(self, sim: Simulation) -> None:
        for reader in self.readers:
            group = reader.group
            if group._members is not reader.last:
                reader.last = group._members
                self._look(reader, group._members or ())
            watched = group._started and not group._leaving and not group._over
            if watched and is_still(sim, reader.client) and group._members != members_in(sim):
                raise ViolationError("TRUTH", f"{reader.client} has {group._members}")

    def _look(self, reader: Reader, members: Sequence[Member]) -> None:
        for member in members:
            state = (member.fence, member.data)
            if reader.seen.get(member.name, state) > state:
                raise ViolationError("BACK", f"{reader.client} has {member} again")
            reader.seen[member.name] = state

    async def list(self, sim: Simulation, group: AsyncGroup) -> None:
        """List the members; see SEEN."""
        before = members_in(sim)
        listed = {member.name: member for member in await group.members()}
        lagged = any(step.kind == "lag" for step in sim.done)
        there = {(member.name, member.fence) for member in members_in(sim)}
        for member in before:
            seen = listed.get(member.name)
            gone = (member.name, member.fence) not in there
            older = seen is None or (seen.fence, seen.data) < (member.fence, member.data)
            if older and not (lagged or gone):
                wrong(sim, "SEEN", f"{member} is missing in {listed}")

    def end(self, sim: Simulation) -> None:
        nothing_left(sim, f"{GROUP}/")


def members_in(sim: Simulation) -> tuple[Member, ...]:
    """The members that are on the server."""
    found = [
        Member(path.rpartition("/")[2], node.data or b"", node.owner, node.czxid)
        for path, node in sim.tree.nodes.items()
        if path.startswith(f"{GROUP}/")
    ]
    return tuple(sorted(found, key=lambda member: (member.fence, member.name)))


@scenario
def various_group(sim: Simulation) -> None:
    """Members that differ from seed to seed."""
    choose = sim.rng.choice
    life = Life(choose((1, 2)), choose((1, 3)), choose((0.0, 10.0)), look=choose((False, True)))
    number, name = choose((1, 2, 3)), choose((None, None, "me"))
    lives(number, partial(Groups, life, name))(sim)


# --- double barriers: members that enter and leave -----------------------------------------------


BARRIER = "/barriers/one"
BARRIER_SECONDS = 40.0


class Together(Judge):
    """EARLY: a round begins only while so many members are there, and only theirs is entered.

    LATE: what has left sees no member of its round.  ORPHAN: nothing is left of those that live.
    STUCK: without a fault there is a round for all, if it is ``even``.
    """

    def __init__(self, count: int, even: bool = True, rounds: int = 2) -> None:
        self._count, self._even, self._rounds = count, even, rounds
        self._generations: dict[int, set[str]] = {}  # the members, by zxid
        self.refused = 0

    def step(self, sim: Simulation) -> None:
        there = children(sim, BARRIER)
        round = there.pop(READY, 0)
        if round and round not in self._generations:
            members = {name for name, czxid in there.items() if czxid < round}
            self._generations[round] = members
            if len(members) < self._count:
                raise ViolationError("EARLY", f"{len(members)} began the round {round}")

    def has_entered(self, sim: Simulation, member: AsyncDoubleBarrier) -> None:
        assert member._granted is not None
        if member._granted.id not in self._generations.get(member._round, ()):
            wrong(sim, "EARLY", f"{member._granted.id}: {member._round}")

    def has_left(self, sim: Simulation, member: AsyncDoubleBarrier) -> None:
        there = children(sim, BARRIER)
        left = [name for name, age in there.items() if age < member._round and name != READY]
        if left:
            wrong(sim, "LATE", f"{left} are still in {member._round}")

    def end(self, sim: Simulation) -> None:
        there, alive = children(sim, BARRIER), living(sim)
        ours = tuple(f"{client.session.session_id:016x}" for client in alive)
        left = [name for name in there if name.startswith(ours)]
        if left or (READY in there and len(alive) == len(sim.clients)):
            raise ViolationError("ORPHAN", f"left: {sorted(there)}")
        if self.refused and self._even and not has_faults(sim):
            raise ViolationError("STUCK", f"{self.refused} were refused though nothing happened")

    async def live(self, client: Client, _: int) -> None:
        """Enter and leave, again and again."""
        member, sim = AsyncDoubleBarrier(client.world, BARRIER, self._count), client.sim
        for _ in range(self._rounds):
            with suppress(ZooKeeperError, Cancelled):
                if not await member.enter(BARRIER_SECONDS):
                    self.refused += 1
                    continue
                self.has_entered(sim, member)
                try:
                    await client.turn()
                except Cancelled:
                    member._abandon()
                    continue
                if await member.leave():
                    self.has_left(sim, member)


# --- counters: each addition has two binary digits of the number to itself -----------------------


COUNTER = "/counters/one"
COUNTER_SECONDS = 30.0


class Sums(Judge):
    """ONCE: what has succeeded was made once, what may have been at most once, the rest never.

    VALUE: what is returned has been the number.  ORPHAN: no queue is left, nor a token too many.
    """

    def __init__(self, times: int = 2, crowded: bool = False) -> None:
        self._times, self._crowded = times, crowded  # from the beginning
        self.ended: list[int | BaseException | None] = []  # of each addition, None: it is under way
        self._seen: dict[int, int] = {}  # numbers, with their zxids

    def step(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(COUNTER)
        if node is not None and node.data:
            self._seen[int(node.data)] = node.mzxid

    async def live(self, client: Client, _: int) -> None:
        """Add, again and again; what has failed is told and not repeated."""
        counter = AsyncCounter(client.world, COUNTER)
        counter._crowded = self._crowded
        for _ in range(self._times):
            digit = len(self.ended)
            self.ended.append(None)
            try:
                value = self.ended[digit] = await counter.add(4**digit, COUNTER_SECONDS)
            except BaseException as error:
                self.ended[digit] = error
                if not isinstance(error, (ZooKeeperError, Cancelled)):
                    raise
            else:
                if self._seen.get(value) != counter.version or value >> 2 * digit & 3 != 1:
                    wrong(client.sim, "VALUE", f"{value:b} at {counter.version}, of {self._seen}")

    def end(self, sim: Simulation) -> None:
        node = sim.tree.nodes.get(COUNTER)
        number = int(node.data or b"0") if node is not None else 0
        for digit, end in enumerate(self.ended):
            made, allowed = number >> 2 * digit & 3, {1} if isinstance(end, int) else {0, 1}
            if isinstance(end, ZooKeeperError) and not end.maybe_applied:
                allowed = {0}
            if made not in allowed:
                raise ViolationError("ONCE", f"addition {digit} made {made} times: {end}")
        ours = tuple(f"{client.session.session_id:016x}" for client in living(sim))
        left = [name for name in children(sim, COUNTER) if name.startswith(ours)]
        sessions = [name[:16] for name in left]
        if any("lock" in name for name in left) or len(sessions) > len(set(sessions)):
            raise ViolationError("ORPHAN", f"left: {left}")


# --- what is run ----------------------------------------------------------------------------------

CROWDED = partial(Sums, crowded=True)
SIMPLE: dict[str, Scenario] = {
    "counter": lives(2, Sums),
    "crowded counter": lives(2, CROWDED),
    "barrier": lives(2, partial(Together, 2, rounds=1)),
    "barrier, twice": lives(2, partial(Together, 2)),
}
RANDOM = {
    "node": World(various_keepers(), FAULTS, 300),
    "standing node": World(various_keepers(PersistentModeKeeper), FAULTS, 300),
    "group": World(various_group(), FAULTS, 300),
    "counter": World(lives(3, Sums), NETWORK, 300),
    "crowded counter": World(lives(3, CROWDED), NETWORK, 300),
    **{f"barrier of {n}": World(lives(n, partial(Together, n)), NETWORK, 120) for n in (1, 2, 3)},
    "barrier of 2 of 3": World(lives(3, partial(Together, 2, even=False)), NETWORK, 120),
}
