"""Scenarios for the simulation: kept nodes and groups, and versions with planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.simulation_family import make
from zkwire.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    ServerError,
)
from zkwire.jute.records import Stat
from zkwire.operations import Operations
from zkwire.recipes._service import Background
from zkwire.recipes.membership import AsyncGroup, Member
from zkwire.recipes.persistent_node import AsyncPersistentNode, PersistentModeKeeper, Wish
from zkwire.recipes.runtime import SESSION_OVER
from zkwire.session.watch import Watch
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.client import Client, ViolationError
from zkwire.testing.simulation.simulation import Simulation

NODE = "/app/node"
GROUP = "/app"


def is_still(sim: Simulation, client: Client) -> bool:
    """Whether nothing is under way to or from this client, and nothing in it can go on."""
    link, session = client.link, client.session
    return (
        link is not None
        and client.running
        and session.usable
        and client.close_at is None
        and client.silent_until is None
        and not (client.dead or client.due or client.ghosts or session.ended)
        and not (link.up or link.down or link.connection.ended)
        and link.connection not in sim.stale_servers
        and not any(task.client is client and task.ready for task in sim.tasks)
    )


@dataclass(eq=False)
class Kept:
    """A keeper, its client, and the data that it was given last."""

    keeper: AsyncPersistentNode
    client: Client
    data: bytes = b"0"


class KeptNodes:
    """What holds of kept nodes.

    TRUTH: in a client that is still each keeper knows what stands at its path, and if that is
    nothing, or is its own, it is present with the data that was set last.
    ONE: no node is two keepers' own.
    FOREIGN: no client changes or deletes a node of another living session.
    LEFT: at the end no node of a keeper is left, no watch, and no claim on a path.
    """

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self._before: dict[str, tuple[int, int, int]] = {}  # czxid, mzxid and owner

    def add(self, keeper: AsyncPersistentNode, client: Client) -> Kept:
        self.kept.append(Kept(keeper, client))
        return self.kept[-1]

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

    def comparison_key(self) -> tuple[object, ...]:
        """What the verdicts depend on, and nothing that they do not."""
        kept = [(k.client.name, k.data, k.keeper._czxid, k.keeper._leaving) for k in self.kept]
        return (*kept, *sorted(self._before.items()))

    def _look_at_changes(self, sim: Simulation) -> None:
        paths = {kept.keeper._path for kept in self.kept}
        there = {
            path: (node.czxid, node.mzxid, node.owner)
            for path, node in sim.tree.nodes.items()
            if path in paths
        }
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
        living = {c.session.session_id for c in sim.clients if not (c.dead or c.session.ended)}
        for path, node in sim.tree.nodes.items():
            if path.startswith(NODE) and node.owner in living:
                raise ViolationError("LEFT", f"{path} of {node.owner:#x} is left")
        standing = [k for k in self.kept if not k.keeper._ephemeral]
        # Without its token, which an outsider may delete, a lost create is no longer known.
        known = not sim.stolen and all(map(_quiet, standing))
        if standing and known and NODE in sim.tree.nodes:
            raise ViolationError("LEFT", f"{NODE} is left")
        for client in sim.clients:
            over = client.dead or client.session.ended
            if not over and (client.session.watch_count or client.world.active_locks):
                raise ViolationError("LEFT", f"{client} has a watch or a claim left")


def _quiet(kept: Kept) -> bool:
    return not (kept.client.dead or kept.client.session.ended or kept.client.killed)


@dataclass(frozen=True)
class Life:
    """What an owner does: how often it sets data, how many steps and seconds it stays."""

    sets: int = 1
    stay: int = 1
    hold: float = 0.0
    patience: float | None = None
    look: bool = False


BRIEF = Life()


async def keep(
    nodes: KeptNodes, client: Client, kind: type[AsyncPersistentNode], life: Life
) -> None:
    """Keep the node for a while."""
    with suppress(NodeExistsError, OperationTimeoutError, *SESSION_OVER):
        keeper = kind(client.world, NODE, b"0")
        kept = nodes.add(keeper, client)
        try:
            if not await keeper.wait_present(life.patience):
                return
            for number in range(1, life.sets + 1):
                kept.data = b"%d" % number
                await keeper.set_data(kept.data, life.patience)
            for _ in range(life.stay):
                await client.turn()
            if life.hold:
                await client.sleep(life.hold)
            await keeper.wait_present(life.patience)
        finally:
            await keeper.close(None)


def keepers(
    number: int = 2,
    life: Life = BRIEF,
    *,
    kind: type[AsyncPersistentNode] = AsyncPersistentNode,
    prepared: bool = True,
    together: bool = False,
) -> Scenario:
    """So many owners of one path, on clients of their own or ``together`` on one."""

    def scenario(sim: Simulation) -> None:
        nodes = KeptNodes()
        sim.checks.append(nodes)
        if prepared:
            make(sim, "/app")
        client = sim.client()
        for place in range(number):
            if place and not together:
                client = sim.client()
            client.spawn(keep(nodes, client, kind, life))

    return scenario


def various_keepers(kind: type[AsyncPersistentNode] = AsyncPersistentNode) -> Scenario:
    """Owners that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        # A node that no session owns stays if its process dies, and is then waited for in vain.
        patience = None if kind._ephemeral else 9.0
        life = Life(choose((0, 1, 2)), choose((1, 3)), choose((0.0, 0.0, 10.0)), patience)
        keepers(
            choose((1, 2, 3)),
            life,
            kind=kind,
            prepared=choose((True, True, False)),
            together=choose((False, False, False, True)),
        )(sim)

    return scenario


# --- groups ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Reader:
    """A group object and its client; ``seen``: the newest state of each name in its lists."""

    group: AsyncGroup
    client: Client
    seen: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    last: object = None


class Groups:
    """What holds of groups.

    TRUTH: in a client that is still each group that is read has the list that is on the server.
    SEEN: a list that is asked for has no older state of a member than the server had at the call.
    BACK: no list has an older state of a member than one before it.
    LEFT: at the end no member is left, and no watch.
    """

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.unseen = ""  # what a list should have shown

    def add(self, group: AsyncGroup, client: Client) -> None:
        self.readers.append(Reader(group, client))

    def step(self, sim: Simulation) -> None:
        if self.unseen:
            raise ViolationError("SEEN", self.unseen)
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

    def end(self, sim: Simulation) -> None:
        living = {c.session.session_id for c in sim.clients if not (c.dead or c.session.ended)}
        for member in members_in(sim):
            if member.session_id in living:
                raise ViolationError("LEFT", f"{member} is left")
        for client in sim.clients:
            if not (client.dead or client.session.ended) and client.session.watch_count:
                raise ViolationError("LEFT", f"{client} has a watch left")


def members_in(sim: Simulation) -> tuple[Member, ...]:
    """The members that are on the server."""
    found = [
        Member(path.rpartition("/")[2], node.data or b"", node.owner, node.czxid)
        for path, node in sim.tree.nodes.items()
        if path.startswith(f"{GROUP}/")
    ]
    return tuple(sorted(found, key=lambda member: (member.fence, member.name)))


async def take_part(
    sim: Simulation,
    groups: Groups,
    client: Client,
    kind: type[AsyncGroup],
    life: Life,
    name: str | None,
) -> None:
    """Join, look, change the data, look again, leave."""
    with suppress(NodeExistsError, *SESSION_OVER):
        group = kind(client.world, GROUP)
        groups.add(group, client)
        try:
            if life.look:
                await look(sim, groups, group)
            membership = await group.join(b"0", name, life.patience)
            for number in range(1, life.sets + 1):
                await membership.set_data(b"%d" % number)
                await look(sim, groups, group)
            for _ in range(life.stay):
                await client.turn()
            if life.hold:
                await client.sleep(life.hold)
        finally:
            await group.close(None)


async def look(sim: Simulation, groups: Groups, group: AsyncGroup) -> None:
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
            groups.unseen = f"{member} is missing in {listed}"


def group(
    number: int = 2,
    life: Life = BRIEF,
    *,
    kind: type[AsyncGroup] = AsyncGroup,
    named: bool = False,
) -> Scenario:
    """So many members of one group; ``named``: they want one name."""

    def scenario(sim: Simulation) -> None:
        groups = Groups()
        sim.checks.append(groups)
        for _ in range(number):
            client = sim.client()
            client.spawn(take_part(sim, groups, client, kind, life, "me" if named else None))

    return scenario


def various_group(kind: type[AsyncGroup] = AsyncGroup) -> Scenario:
    """Members that differ from seed to seed."""

    def scenario(sim: Simulation) -> None:
        choose = sim.rng.choice
        life = Life(choose((1, 2)), choose((1, 3)), choose((0.0, 10.0)), look=choose((False, True)))
        group(choose((1, 2, 3)), life, kind=kind, named=choose((False, False, True)))(sim)

    return scenario


# --- planted bugs ---------------------------------------------------------------------------------


class ForgetsDoubt(AsyncPersistentNode):
    """A lost create is not looked for: the node is a foreign one then."""

    async def _create(self, runtime: Any, data: bytes, watch: Watch) -> Any:
        self._doubt = False
        return await super()._create(runtime, data, watch)


class TakesAnything(AsyncPersistentNode):
    """Whatever stands there is its own."""

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        self._czxid, self._doubt = stat.czxid if stat else 0, False
        return stat is not None


class SessionIsOwner(AsyncPersistentNode):
    """Does not mind other objects of its client, and takes their nodes for its own."""

    async def _serve(self, runtime: Any) -> None:
        while not self._leaving:
            await self._keep(runtime)
        while self._czxid or self._doubt:
            await self._delete(runtime)
        self._end()

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        self._doubt = True
        return await super()._is_own(runtime, stat)


class DeletesOnce(AsyncPersistentNode):
    """Does not repeat a lost delete."""

    async def _delete(self, runtime: Any) -> None:
        await super()._delete(runtime)
        self._czxid, self._doubt = 0, False


class DeletesBlindly(AsyncPersistentNode):
    """Repeats a lost delete without a look."""

    async def _delete(self, runtime: Any) -> None:
        with suppress(NoNodeError):
            try:
                await runtime.operations.delete(self._path)
            except ConnectionLossError:
                return
        self._czxid, self._doubt = 0, False


class NoSyncBeforeDelete(AsyncPersistentNode):
    """Looks on a server that may not know of the node yet."""

    async def _delete(self, runtime: Any) -> None:
        with suppress(NoNodeError):
            try:
                stat = await runtime.operations.exists(self._path)
                if await self._is_own(runtime, stat) and stat is not None:
                    await runtime.operations.delete(self._path, stat.version)
            except (BadVersionError, ConnectionLossError):
                return
        self._czxid, self._doubt = 0, False


class OldestWins(AsyncPersistentNode):
    """A put back node has the data that it was made with."""

    def _settle(self, wishes: tuple[Wish, ...], error: ServerError | None = None) -> None:
        first = self._data
        super()._settle(wishes, error)
        self._data = first


class LooksWithoutWatch(AsyncPersistentNode):
    """Makes the node, and does not watch the one that it finds."""

    async def _create(self, runtime: Any, data: bytes, watch: Watch) -> Any:
        other = Watch()
        try:
            return await super()._create(runtime, data, other)
        finally:
            other.close()
            await runtime.operations.exists(self._path + "-", watch=watch)


class NoToken(PersistentModeKeeper):
    """Takes a node for its own if it belongs to no session."""

    async def _is_own(self, runtime: Any, stat: Stat | None) -> bool:
        if self._doubt and stat is not None:
            self._czxid = stat.czxid
        return await super()._is_own(runtime, stat)


class LeavesToken(PersistentModeKeeper):
    """Does not repeat the lost delete of its token."""

    async def _drop_token(self, runtime: Any) -> None:
        token, self._token = self._token, ""
        with suppress(NoNodeError):
            await runtime.operations.delete(token)


class CreatedMeanwhile(AsyncGroup):
    """Does not read the group that was created between two looks."""

    async def _list(self, operations: Operations, watch: Watch) -> list[str] | None:
        return await super()._list(operations, watch) or []


class KnowsNames(AsyncGroup):
    """Does not read the data of a name that it has read."""

    def _note(self, watch: Watch) -> None:
        known = dict(self._known)
        super()._note(watch)
        self._known = known


class NotesLate(AsyncGroup):
    """Answers with data that changed before the list was read."""

    async def _read(self, runtime: Background, watch: Watch) -> None:
        note, self._note = self._note, lambda watch: None  # type: ignore[method-assign]
        try:
            await super()._read(runtime, watch)
        finally:
            self._note = note  # type: ignore[method-assign]


class AnswersFromMemory(AsyncGroup):
    """Answers a request with the list that it has."""

    async def members(self, timeout: float | None = None) -> list[Member]:
        return list(self._members) if self._members is not None else await super().members(timeout)


class Planted(NamedTuple):
    """A bug's scenario, the faults that reveal it, and what it breaks."""

    scenario: Callable[[], Scenario]
    faults: tuple[str, ...]
    invariants: set[str]


PLANTED: dict[str, Planted] = {
    "ForgetsDoubt": Planted(
        lambda: various_keepers(ForgetsDoubt), ("linger", "cut"), {"LIVE", "TRUTH"}
    ),
    "TakesAnything": Planted(lambda: various_keepers(TakesAnything), (), {"ONE", "FOREIGN"}),
    "SessionIsOwner": Planted(lambda: keepers(kind=SessionIsOwner, together=True), (), {"ONE"}),
    "DeletesOnce": Planted(lambda: various_keepers(DeletesOnce), ("cut",), {"LEFT", "LIVE"}),
    "DeletesBlindly": Planted(
        lambda: various_keepers(DeletesBlindly), ("cut", "linger"), {"FOREIGN"}
    ),
    "OldestWins": Planted(lambda: various_keepers(OldestWins), ("delete",), {"TRUTH"}),
    "LooksWithoutWatch": Planted(lambda: various_keepers(LooksWithoutWatch), (), {"TRUTH"}),
    "NoToken": Planted(
        lambda: various_keepers(NoToken), ("cut", "linger"), {"ONE", "FOREIGN", "TRUTH"}
    ),
    "LeavesToken": Planted(lambda: various_keepers(LeavesToken), ("cut",), {"LEFT"}),
    "CreatedMeanwhile": Planted(lambda: various_group(CreatedMeanwhile), (), {"TRUTH"}),
    "KnowsNames": Planted(lambda: various_group(KnowsNames), (), {"TRUTH", "SEEN"}),
    "NotesLate": Planted(lambda: various_group(NotesLate), (), {"SEEN"}),
    "AnswersFromMemory": Planted(lambda: various_group(AnswersFromMemory), (), {"SEEN"}),
}
