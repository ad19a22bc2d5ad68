"""Scenarios of kept nodes and groups, and bugs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.simulation_parts import (
    Bug,
    Change,
    Judge,
    clients,
    is_still,
    living,
    make,
    nothing_left,
    scenario,
    wrong,
)
from zkwire.errors import NodeExistsError, OperationTimeoutError
from zkwire.recipes.membership import AsyncGroup, Member
from zkwire.recipes.persistent_node import AsyncPersistentNode, PersistentModeKeeper
from zkwire.recipes.runtime import SESSION_OVER
from zkwire.testing.simulation.client import Client, ViolationError
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

    def __init__(self) -> None:
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


async def keep(
    nodes: KeptNodes, client: Client, kind: type[AsyncPersistentNode], life: Life
) -> None:
    """Keep the node for a while."""
    with suppress(NodeExistsError, OperationTimeoutError, *SESSION_OVER):
        keeper = kind(client.world, NODE, b"0")
        kept = Kept(keeper, client)
        nodes.kept.append(kept)
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
def keepers(
    sim: Simulation,
    number: int = 2,
    life: Life = BRIEF,
    *,
    kind: type[AsyncPersistentNode] = AsyncPersistentNode,
    prepared: bool = True,
    together: bool = False,
) -> None:
    """So many owners of one path, on clients of their own or ``together`` on one."""
    nodes = KeptNodes()
    sim.checks.append(nodes)
    if prepared:
        make(sim, "/app")
    for client in clients(sim, number, together):
        client.spawn(keep(nodes, client, kind, life))


@scenario
def various_keepers(sim: Simulation, kind: type[AsyncPersistentNode] = AsyncPersistentNode) -> None:
    """Owners that differ from seed to seed."""
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

    def __init__(self) -> None:
        self.readers: list[Reader] = []

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


async def take_part(
    sim: Simulation, groups: Groups, client: Client, life: Life, name: str | None
) -> None:
    """Join, look, change the data, look again, leave."""
    with suppress(NodeExistsError, *SESSION_OVER):
        group = AsyncGroup(client.world, GROUP)
        groups.readers.append(Reader(group, client))
        try:
            if life.look:
                await groups.list(sim, group)
            membership = await group.join(b"0", name, life.patience)
            for number in range(1, life.sets + 1):
                await membership.set_data(b"%d" % number)
                await groups.list(sim, group)
            await life.go_on(client)
        finally:
            await group.close(None)


@scenario
def group(sim: Simulation, number: int = 2, life: Life = BRIEF, *, named: bool = False) -> None:
    """So many members of one group; ``named``: they want one name."""
    groups = Groups()
    sim.checks.append(groups)
    for _ in range(number):
        client = sim.client()
        client.spawn(take_part(sim, groups, client, life, "me" if named else None))


@scenario
def various_group(sim: Simulation) -> None:
    """Members that differ from seed to seed."""
    choose = sim.rng.choice
    life = Life(choose((1, 2)), choose((1, 3)), choose((0.0, 10.0)), look=choose((False, True)))
    group(choose((1, 2, 3)), life, named=choose((False, False, True)))(sim)


# --- bugs -----------------------------------------------------------------------------------------

_NODE, _STANDING, _GROUP = AsyncPersistentNode, PersistentModeKeeper, AsyncGroup


def _bug(faults: str, invariants: str, home: type, name: str, *what: object) -> Bug:
    world = various_group() if home is AsyncGroup else various_keepers(home)
    return Bug(world, faults, invariants, (Change(home, name, *what),))


NO_SYNC_BEFORE_DELETE = Change(
    *(_NODE, "_delete", "newest(operations, operations.exists, self._path)"),
    "operations.exists(self._path)",
)
"""Looks on a server that may not know of the node yet."""

BUGS = {
    # A lost create is not looked for: the node is a foreign one then.
    "forgets doubt": _bug(
        "linger cut", "LIVE TRUTH", _NODE, "_create", "self._doubt or error.maybe_applied", "False"
    ),
    # Whatever stands there is its own.
    "takes anything": _bug(
        "", "ONE FOREIGN", _NODE, "_is_own", "stat.czxid != self._czxid and not doubted", "False"
    ),
    # Does not mind other objects of its client, and takes their nodes for its own.
    "session is owner": Bug(
        keepers(together=True),
        "",
        "ONE",
        (
            Change(_NODE, "_is_own", "self._doubt and ", ""),
            Change(_NODE, "_serve", "other._path == self._path for other in others", "()"),
        ),
    ),
    # Does not repeat a lost delete.
    "deletes once": _bug(
        "cut",
        "LEFT LIVE",
        _NODE,
        "_delete",
        "except BadVersionError:\n        return",
        "except (BadVersionError, *REPEATABLE):\n        pass",
    ),
    # Repeats a lost delete without a look.
    "deletes blindly": _bug(
        "cut linger",
        "FOREIGN",
        *(_NODE, "_delete", "await self._is_own(runtime, stat) and ", "", ", stat.version", ""),
    ),
    # A node that is put back has the data that it was made with.
    "oldest wins": _bug(
        "delete", "TRUTH", _NODE, "_settle", "self._data = wishes[-1].data", "pass"
    ),
    # Makes the node, and does not watch the one that it finds.
    "looks without watch": _bug(
        "",
        "TRUTH",
        *(_NODE, "_create", "exists(self._path, watch=watch)", "exists(self._path)"),
        *(
            "return made, await look",
            "await runtime.operations.exists(self._path + '-', watch=watch)\n"
            "    return made, await look",
        ),
    ),
    # Takes a node for its own if it belongs to no session.
    "no token": _bug(
        "cut linger",
        "ONE FOREIGN TRUTH",
        *(_STANDING, "_is_own", "if self._token:"),
        "self._czxid = stat.czxid if self._doubt and stat else self._czxid\n    if self._token:",
    ),
    # Does not repeat the lost delete of its token.
    "leaves token": _bug(
        "cut",
        "LEFT",
        *(
            _STANDING,
            "_drop_token",
            "with suppress",
            "token, self._token = self._token, ''\n    with suppress",
        ),
        *("delete(self._token)", "delete(token)"),
    ),
    # Does not read the group that was created between two looks.
    "created meanwhile": _bug("", "TRUTH", _GROUP, "_list", "[] if there is None else None", "[]"),
    # Does not read the data of a name that it has read.
    "knows names": _bug(
        "",
        "TRUTH SEEN",
        _GROUP,
        "_note",
        'self._known.pop(event.path.rpartition("/")[2], None)',
        "pass",
    ),
    # Answers with data that changed before the list was read.
    "notes late": _bug("", "SEEN", _GROUP, "_read", "self._note(watch)", "pass"),
    # Answers a request with the list that it has.
    "answers from memory": _bug(
        "",
        "SEEN",
        *(_GROUP, "members", "answer: list[tuple[Member, ...]] = []"),
        "if self._members is not None:\n        return list(self._members)\n"
        "    answer: list[tuple[Member, ...]] = []",
    ),
}
