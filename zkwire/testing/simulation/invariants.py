"""What must be true of locks in a simulation, whatever has gone wrong.

    claims = Claims(exclusive)
    sim.checks += [claims, Orphans(claims, "/lock")]
    claims.add(lock, client)

A claim is what a lock says of itself: ``held`` is True while its process runs.  A session that a
server has ended out of turn, which no server does by itself, makes no claim worth looking at, and
neither does a lock whose node an outsider has deleted: nobody can have told its client in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from zkwire.recipes.single import GRANTS
from zkwire.testing.simulation.client import Client, Holder, ViolationError
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import EventType


class Claim(NamedTuple):
    """A lock, whose it is, and what for: ``role`` is "read", "write" or whatever a rule knows."""

    lock: Holder
    client: Client
    role: str = ""

    def __str__(self) -> str:
        return f"{self.client.name}{' ' * bool(self.role)}{self.role}"


class Grant(NamedTuple):
    """A claim that has begun: in which step, and with which fence."""

    step: int
    claim: Claim
    fence: int


Rule = Callable[[Sequence[Claim]], bool]
"""Whether these may hold at the same time."""


def exclusive(claims: Sequence[Claim]) -> bool:
    """One at a time."""
    return len(claims) <= 1


def readers_together(claims: Sequence[Claim]) -> bool:
    """One at a time, or any number whose role is "read"."""
    return len(claims) <= 1 or all(claim.role == "read" for claim in claims)


def at_most(number: int) -> Rule:
    """So many at a time."""
    return lambda claims: len(claims) <= number


def _is_token(path: str) -> bool:
    """Whether it stands beside the node of a lock, and is none itself."""
    return f"{GRANTS}/" in path


class Claims:
    """ME: no two claim that may not.  FENCE: of two that may not, the later has the higher fence.

    STATE: nobody claims whose session is over or being closed, nor by a node of another session or
    one that is gone, but for a while if the fault ``delete`` has taken it.  ``grants`` is the
    history.
    """

    reducible = True

    def __init__(self, rule: Rule = exclusive) -> None:
        self.grants: list[Grant] = []
        self._rule = rule
        self._claims: list[Claim] = []
        self._holding: dict[int, int] = {}  # fences, by the place in the list
        self._highest: dict[str, Grant] = {}  # by role

    def add(self, lock: Holder, client: Client, role: str = "") -> Claim:
        """Look at this lock, too."""
        claim = Claim(lock, client, role)
        self._claims.append(claim)
        client.locks.append(lock)
        return claim

    def held(self) -> Iterator[Claim]:
        """Who claims now, as far as its process runs and its session was not ended out of turn."""
        for claim in self._claims:
            client = claim.client
            if claim.lock.held and not (client.dead or client.killed or client.paused):
                yield claim

    def step(self, sim: Simulation) -> None:
        """After every step."""
        holding: dict[int, int] = {}
        for place, claim in enumerate(self._claims):
            if not claim.lock.held:
                continue
            client = claim.client
            if client.session.ended:
                raise ViolationError("STATE", f"{claim} claims although its session is over")
            if client.close_at is not None:
                raise ViolationError("STATE", f"{claim} claims although its client is being closed")
            if client.dead or client.killed or client.paused_until is not None:
                continue
            fence = claim.lock.fence
            if fence in sim.stolen:
                self._must_know(sim, claim)
                continue
            self._must_be_own(sim, claim)
            holding[place] = fence
            if self._holding.get(place) != fence:
                self._grant(sim, Grant(len(sim.done), claim, fence))
        if len(holding) > 1 and not self._rule([self._claims[place] for place in holding]):
            raise ViolationError("ME", " and ".join(str(self._claims[p]) for p in holding))
        if sim.trace and holding.keys() != self._holding.keys():
            sim.note(f"held by {', '.join(str(self._claims[p]) for p in holding) or 'nobody'}")
        paused = {
            place: fence
            for place, fence in self._holding.items()
            if self._claims[place].client.paused
        }
        self._holding = holding | paused

    def comparison_key(self) -> tuple[object, ...]:
        """What it remembers that decides about what comes; part of the state of the world."""
        highest = [(role, grant.fence) for role, grant in self._highest.items()]
        return (*sorted(highest), *sorted(self._holding.items()))

    def _grant(self, sim: Simulation, grant: Grant) -> None:
        self.grants.append(grant)
        for earlier in self._highest.values():
            if not self._rule([earlier.claim, grant.claim]) and grant.fence <= earlier.fence:
                raise ViolationError(
                    "FENCE",
                    f"{grant.claim} has {grant.fence}, before it {earlier.claim} "
                    f"had {earlier.fence}",
                )
        highest = self._highest.get(grant.claim.role)
        if highest is None or grant.fence > highest.fence:
            self._highest[grant.claim.role] = grant

    def _must_be_own(self, sim: Simulation, claim: Claim) -> None:
        session_id = claim.client.session.session_id
        for path, node in sim.tree.nodes.items():
            if node.czxid == claim.lock.fence and not _is_token(path):
                if node.owner != session_id:
                    raise ViolationError("STATE", f"{claim} claims by {path}, of another session")
                return
        self._is_gone(sim, claim)

    def _is_gone(self, sim: Simulation, claim: Claim) -> None:
        """There is no such node, and no fault has taken it."""
        raise ViolationError("STATE", f"{claim} claims by a node that is gone")

    def _must_know(self, sim: Simulation, claim: Claim) -> None:
        """Either the event reaches a holder whose node was deleted, or its lease ends."""
        seconds = sim.now - sim.stolen[claim.lock.fence]
        if seconds > 2 * sim.timeout:
            raise ViolationError(
                "STATE", f"{claim} claims {seconds:.0f} s after its node was deleted"
            )

    def end(self, sim: Simulation) -> None:
        """At the end."""


class Orphans:
    """ORPHAN: in the end every node at or below a path whose session lives is a holder's.

    WATCH: and no watch is left without a holder, neither here nor on the server.
    """

    reducible = True

    def __init__(self, claims: Claims, path: str) -> None:
        self._claims = claims
        self._path = path

    def step(self, sim: Simulation) -> None:
        """After every step."""

    def comparison_key(self) -> tuple[()]:
        """Nothing that decides about what comes."""
        return ()

    def end(self, sim: Simulation) -> None:
        """At the end."""
        held = {claim.lock.fence for claim in self._claims.held()}
        living = {
            client.session.session_id
            for client in sim.clients
            if not (client.dead or client.session.ended)
        }
        for path, node in sim.tree.nodes.items():
            below = path.startswith((self._path + "/", f"{self._path}{GRANTS}/"))
            inside = path == self._path or below
            if inside and node.owner in living and node.czxid not in held:
                raise ViolationError("ORPHAN", f"{path} of {node.owner:#x} is left")
        if held:
            return
        for client in sim.clients:
            if client.session.watch_count and not client.session.ended:
                raise ViolationError("WATCH", f"{client} has {client.session.watch_count} left")
        if sim.watches_on_server and not any(client.link is None for client in sim.clients):
            raise ViolationError("WATCH", f"the server has {sim.watches_on_server} left")


class Fifo:
    """FIFO: at a grant nobody is left in the queue below ``path`` who has come earlier."""

    reducible = True

    def __init__(self, claims: Claims, path: str) -> None:
        self._claims = claims
        self._path = path
        self._seen = 0

    def step(self, sim: Simulation) -> None:
        """After every step."""
        if self._seen == len(self._claims.grants):
            return
        self._seen = len(self._claims.grants)
        grant = self._claims.grants[-1]
        queue = sim.tree.nodes.get(self._path)
        for name in queue.children if queue is not None else ():
            if sim.tree.nodes[f"{self._path}/{name}"].czxid < grant.fence:
                raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")

    def comparison_key(self) -> tuple[()]:
        """Nothing that decides about what comes."""
        return ()

    def end(self, sim: Simulation) -> None:
        """At the end."""


class Herd:
    """HERD: the end of one node below ``path`` wakes at most one contender but its owner.

    Whose a node is, is told by the session's id in its name.  Who has no node there is none: the
    answer that set its watch was on its way when it gave up, and wakes nobody.  Once an outsider
    has deleted nodes, whoever waits behind them may wake too soon, and this says nothing any more.
    """

    reducible = True

    def __init__(self, path: str, limit: int = 1) -> None:
        self._below = path + "/"
        self._limit = limit
        self._seen = 0

    def step(self, sim: Simulation) -> None:
        """After every step."""
        if self._seen == len(sim.events) or sim.stolen:
            return
        woken: dict[str, set[str]] = {}
        for event in sim.events[self._seen :]:
            own = f"{event.client.session.session_id:016x}" in event.path
            if (
                event.type is EventType.NODE_DELETED
                and not own
                and self._contends(sim, event.client)
            ):
                woken.setdefault(event.path, set()).add(event.client.name)
        self._seen = len(sim.events)
        for path, names in woken.items():
            if path.startswith(self._below) and len(names) > self._limit:
                raise ViolationError("HERD", f"{path} wakes {', '.join(sorted(names))}")

    def _contends(self, sim: Simulation, client: Client) -> bool:
        nodes = sim.tree.ephemerals(client.session.session_id)
        return any(node.startswith(self._below) for node in nodes)

    def comparison_key(self) -> tuple[()]:
        """Nothing that decides about what comes."""
        return ()

    def end(self, sim: Simulation) -> None:
        """At the end."""
