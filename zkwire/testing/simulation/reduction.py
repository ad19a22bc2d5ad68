"""Which of the possible steps must be followed so that every possible failure is found.

Most orders of steps make no difference: the steps of a client and the frames that reach it change
nothing that other clients see.  :func:`sufficient_steps` chooses a *persistent* set of steps
(Godefroid, Partial-Order Methods for the Verification of Concurrent Systems, 1996, chapter 4): all
steps outside the set, as long as no step of the set happens, commute with all steps in it.  The
steps outside are postponed: they are possible again after each step of the set.

It relies on this:

* The two queues between a client and the server are first in, first out: adding a frame at one end
  commutes with removing one at the other.  Frames that arrive together have the same effect as
  frames that arrive one by one.  The exception is a step that ends the connection (a cut, a
  deadline), since frames that have not arrived are then lost.
* A fault that stops a client's steps also postpones what its server does for it: processing the
  frames of a lost connection, and catching up.
* Time passes only when nothing else is possible.
* Tasks of different clients share only the server, and checks look after a step only at the server
  and at the claims of locks (``client.locks``).  Every check must promise this (``reducible``);
  otherwise all steps are followed.
* Two claims that overlap still overlap if one begins earlier, but perhaps not if one ends earlier.
  So if the chosen step ends a claim, the postponed steps must be followed as well.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkwire.testing.simulation.client import Client, Holder, Step
from zkwire.testing.simulation.simulation import Simulation

_CLIENT_STEPS: Final = frozenset({"run", "turn", "down", "down1", "eof", "dial", "resume"})
_SERVER_FAULTS: Final = frozenset({"expire", "delete", "touch", "lag", "uproot", "wrap", "refuse"})
"""These faults happen at the server and commute with the steps of a client."""


class Postponed(NamedTuple):
    """Steps outside the chosen set, and the claims that were held before the chosen step."""

    steps: list[Step]
    claims: list[Holder]

    @property
    def must_be_followed(self) -> bool:
        """Whether the chosen step has ended a claim; only known after that step."""
        return not all(lock.held for lock in self.claims)


def all_reducible(sim: Simulation) -> bool:
    """Whether every check promises to look only at the server and at claims of locks."""
    return all(getattr(check, "reducible", False) for check in sim.checks)


def sufficient_steps(sim: Simulation, *, faults: bool) -> tuple[list[Step], Postponed | None]:
    """The smallest sufficient set of steps, and of faults if ``faults``; steps come first."""
    steps = fewest = sim.steps()
    chosen: Client | None = None
    for client in sim.clients if len(steps) > 1 or faults else ():
        own = [s for s in steps if s.kind in _CLIENT_STEPS and sim.client_of(s) is client]
        if 0 < len(own) < len(fewest) + faults and _is_independent(sim, client, own, faults=faults):
            fewest, chosen = own, client
    if faults:
        return [*fewest, *_faults(sim, chosen)], None
    claims = [lock for lock in chosen.locks if lock.held] if chosen is not None else []
    return fewest, Postponed([s for s in steps if s not in fewest], claims) if claims else None


def _faults(sim: Simulation, chosen: Client | None) -> list[Step]:
    possible = sim.faults()
    if chosen is None:
        return possible
    return [s for s in possible if s.kind not in _SERVER_FAULTS and sim.client_of(s) is chosen]


def _is_independent(sim: Simulation, client: Client, own: list[Step], *, faults: bool) -> bool:
    """Whether the client's ``own`` steps commute with all steps of others."""
    claims = any(lock.held for lock in client.locks)
    if claims and (faults or len(own) > 1):
        return False
    link = client.link
    if faults and (client.ghosts or (link is not None and link.connection in sim.stale_servers)):
        return False
    if link is None:
        return True
    if link.up and (faults or client.due):  # both may end the connection
        return False
    return bool(link.down) or not (faults or _may_receive(sim, client))


def _may_receive(sim: Simulation, client: Client) -> bool:
    """Whether an answer, an event or an end can reach the client before it sends anything."""
    link, watchers = client.link, sim.processor.state.watchers
    assert link is not None
    return bool(
        link.up
        or client.ghosts
        or link.connection in sim.stale_servers
        or watchers._data.paths.get(link.connection)
        or watchers._child.paths.get(link.connection)
    )
