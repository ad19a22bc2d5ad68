"""Which of the possible steps have to be followed, so that nothing that could fail is missed.

Most orders of steps make no difference: what a client does by itself, and what reaches it, changes
nothing that others look at.  :func:`enough` chooses a *persistent* set of steps (Godefroid,
Partial-Order Methods for the Verification of Concurrent Systems, 1996, chapter 4): whatever happens
outside of it, as long as nothing in it does, commutes with everything in it.  What is put off by
that comes again behind each step of the set.

It relies on this:

* The two queues between a client and the server are first in, first out: to put something in at one
  end commutes with taking something out at the other.  Frames that arrive together are the same as
  one after the other.  The exception is a step that ends the connection, and with it what was sent
  and has not arrived: a cut, a deadline.
* What keeps a client from its steps puts off what its server does for it as well: what was under
  way on a lost connection, and that it catches up.
* Time passes only when nothing else is possible.
* Tasks of different clients share nothing but the server, and checks look after a step at nothing
  but the server and the claims of locks (``client.locks``).  Every check has to say so of itself
  (``reducible``), or else nothing is left out.
* Two that claim at the same time are found as well when one of them claims earlier, but not when it
  ends its claim earlier.  So a step that turns out to end a claim puts nothing off.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkwire.testing.simulation.client import Client, Holder, Step
from zkwire.testing.simulation.simulation import Simulation

_BY_ITSELF: Final = frozenset({"run", "turn", "down", "down1", "eof", "dial", "resume"})
_AT_THE_SERVER: Final = frozenset({"expire", "delete", "touch", "lag", "uproot", "wrap", "refuse"})
"""What goes wrong there commutes with what a client does."""


class PutOff(NamedTuple):
    """Steps that must be followed after all if one of these claims has ended by the one chosen."""

    steps: list[Step]
    claims: list[Holder]

    @property
    def was_wrong(self) -> bool:
        """To be asked after that step."""
        return not all(lock.held for lock in self.claims)


def may_leave_out(sim: Simulation) -> bool:
    """Whether no check looks at what this knows nothing of."""
    return all(getattr(check, "reducible", False) for check in sim.checks)


def enough(sim: Simulation, *, faults: bool) -> tuple[list[Step], PutOff | None]:
    """The fewest of the steps, and of the ``faults`` if there may be any, that are enough.

    If there is any step, the first one is one.
    """
    steps = fewest = sim.steps()
    chosen: Client | None = None
    for client in sim.clients if len(steps) > 1 or faults else ():
        own = [s for s in steps if s.kind in _BY_ITSELF and sim.client_of(s) is client]
        if 0 < len(own) < len(fewest) + faults and _is_alone(sim, client, own, faults=faults):
            fewest, chosen = own, client
    if faults:
        return [*fewest, *_faults(sim, chosen)], None
    claims = [lock for lock in chosen.locks if lock.held] if chosen is not None else []
    return fewest, PutOff([s for s in steps if s not in fewest], claims) if claims else None


def _faults(sim: Simulation, chosen: Client | None) -> list[Step]:
    possible = sim.faults()
    if chosen is None:
        return possible
    return [s for s in possible if s.kind not in _AT_THE_SERVER and sim.client_of(s) is chosen]


def _is_alone(sim: Simulation, client: Client, own: list[Step], *, faults: bool) -> bool:
    """Nothing that others do can make a difference to its ``own`` steps, nor they to others."""
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
    return bool(link.down) or not (faults or _can_hear(sim, client))


def _can_hear(sim: Simulation, client: Client) -> bool:
    """Something could reach it before it sends anything: an answer, an event, the end."""
    link, watchers = client.link, sim.processor.state.watchers
    assert link is not None
    return bool(
        link.up
        or client.ghosts
        or link.connection in sim.stale_servers
        or watchers._data.paths.get(link.connection)
        or watchers._child.paths.get(link.connection)
    )
