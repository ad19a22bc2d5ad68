"""Invariants of locks in a simulation, which hold under all faults.

    claims = Claims(exclusive)
    sim.checks += [claims, Orphans(claims, "/lock")]
    claims.add(lock, client)

A claim is a lock whose ``held`` is True in a process that runs.  Two kinds of claims are not
compared with others: those of a session that the fault ``expire`` has ended, and those by a node
that an outsider has deleted.  In both cases the client cannot know it in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from zkwire.recipes.locks import GRANTS
from zkwire.testing.simulation.client import Client, Holder, ViolationError
from zkwire.testing.simulation.simulation import Simulation
from zkwire.wire.model import EventType


class Claim(NamedTuple):
    """A lock, its client, and its ``role``: "read", "write" or any other that the rule knows."""

    lock: Holder
    client: Client
    role: str = ""

    def __str__(self) -> str:
        return f"{self.client.name}{' ' * bool(self.role)}{self.role}"


class Grant(NamedTuple):
    """The beginning of a claim: the step, the claim and its fence."""

    step: int
    claim: Claim
    fence: int


Rule = Callable[[Sequence[Claim]], bool]
"""Whether these claims may hold at the same time."""


def exclusive(claims: Sequence[Claim]) -> bool:
    """One claim at a time."""
    return len(claims) <= 1


def readers_together(claims: Sequence[Claim]) -> bool:
    """One claim at a time, or any number of claims with the role "read"."""
    return len(claims) <= 1 or all(claim.role == "read" for claim in claims)


def at_most(number: int) -> Rule:
    """Up to ``number`` claims at a time."""
    return lambda claims: len(claims) <= number


def _is_token(path: str) -> bool:
    """Whether this is the token beside a lock's node, and not the node."""
    return f"{GRANTS}/" in path


class _LockCheck:
    """What checks of locks have in common: each looks at the server and at claims only."""

    reducible = True

    def step(self, sim: Simulation) -> None:
        """Nothing to check after a step."""

    def end(self, sim: Simulation) -> None:
        """Nothing to check at the end."""

    def comparison_key(self) -> tuple[object, ...]:
        """Empty: no attribute has an effect on later verdicts."""
        return ()


class Claims(_LockCheck):
    """Checks three invariants of claims; ``grants`` is the history of all claims.

    ME: claims that the rule forbids together are never held together.
    FENCE: of two such claims, the later one has the higher fence.
    STATE: no claim is held by a client whose session has ended or is being closed, by a node of
    another session, or by a node that is gone; if the fault ``delete`` has deleted the node, the
    claim may last for two session timeouts.
    """

    def __init__(self, rule: Rule = exclusive) -> None:
        self.grants: list[Grant] = []
        self._rule = rule
        self._claims: list[Claim] = []
        self._holding: dict[int, int] = {}  # fences, by the place in the list
        self._highest: dict[str, Grant] = {}  # by role

    def add(self, lock: Holder, client: Client, role: str = "") -> Claim:
        """Check the claims of this lock, too."""
        claim = Claim(lock, client, role)
        self._claims.append(claim)
        client.locks.append(lock)
        return claim

    def held(self) -> Iterator[Claim]:
        """The claims that are held now, without processes that stand still and expired sessions."""
        for claim in self._claims:
            client = claim.client
            if claim.lock.held and not (client.dead or client.killed or client.paused):
                yield claim

    def step(self, sim: Simulation) -> None:
        """Check all claims, and note those that begin and end."""
        holding: dict[int, int] = {}
        for place, claim in enumerate(self._claims):
            if not claim.lock.held:
                continue
            client = claim.client
            if client.session.ended:
                raise ViolationError("STATE", f"{claim} claims although its session has ended")
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
            names = ", ".join(str(self._claims[p]) for p in holding)
            sim.note(f"held by {names}" if names else "not held")
        paused = {
            place: fence
            for place, fence in self._holding.items()
            if self._claims[place].client.paused
        }
        self._holding = holding | paused

    def comparison_key(self) -> tuple[object, ...]:
        """The highest fences and the present holders; the history has no effect on verdicts."""
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
        """Raise for a claim by a node that is gone, and that no fault has deleted."""
        raise ViolationError("STATE", f"{claim} claims by a node that is gone")

    def _must_know(self, sim: Simulation, claim: Claim) -> None:
        """Raise if a claim outlasts its deleted node: an event or the end of the lease ends it."""
        seconds = sim.now - sim.stolen[claim.lock.fence]
        if seconds > 2 * sim.timeout:
            raise ViolationError(
                "STATE", f"{claim} claims {seconds:.0f} s after its node was deleted"
            )


class Orphans(_LockCheck):
    """Checks at the end that nothing is left behind.

    ORPHAN: at and below the path, each node of a living session belongs to a holder.
    WATCH: if no lock is held, no watch is left, in a client or on the server.
    """

    def __init__(self, claims: Claims, path: str) -> None:
        self._claims = claims
        self._path = path

    def end(self, sim: Simulation) -> None:
        """Check the nodes, then the watches."""
        held = {claim.lock.fence for claim in self._claims.held()}
        living = {client.session.session_id for client in sim.clients if client.lives}
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


class Fifo(_LockCheck):
    """FIFO: at a grant, no earlier node is left in the queue below ``path``."""

    def __init__(self, claims: Claims, path: str) -> None:
        self._claims = claims
        self._path = path
        self._seen = 0

    def step(self, sim: Simulation) -> None:
        """Check the queue if a claim has begun."""
        if self._seen == len(self._claims.grants):
            return
        self._seen = len(self._claims.grants)
        grant = self._claims.grants[-1]
        queue = sim.tree.nodes.get(self._path)
        for name in queue.children if queue is not None else ():
            if sim.tree.nodes[f"{self._path}/{name}"].czxid < grant.fence:
                raise ViolationError("FIFO", f"{grant.claim} has overtaken {name}")


class Herd(_LockCheck):
    """HERD: the deletion of one node below ``path`` wakes at most one other contender.

    The owner of the node does not count; its session id is in the node's name.  A client without a
    node there is no contender: it has timed out or was cancelled while its watch was being set.
    After the fault ``delete`` the check ends, since waiters behind a deleted node may wake early.
    """

    def __init__(self, path: str) -> None:
        self._below = path + "/"
        self._seen = 0

    def step(self, sim: Simulation) -> None:
        """Check the events of the step."""
        if self._seen == len(sim.events) or sim.stolen:
            return
        woken: dict[str, set[str]] = {}
        for event in sim.events[self._seen :]:
            client = event.client
            own = f"{client.session.session_id:016x}" in event.path
            if event.type is EventType.NODE_DELETED and not own and self._contends(sim, client):
                woken.setdefault(event.path, set()).add(client.name)
        self._seen = len(sim.events)
        for path, names in woken.items():
            if path.startswith(self._below) and len(names) > 1:
                raise ViolationError("HERD", f"{path} wakes {', '.join(sorted(names))}")

    def _contends(self, sim: Simulation, client: Client) -> bool:
        nodes = sim.tree.ephemerals(client.session.session_id)
        return any(node.startswith(self._below) for node in nodes)
