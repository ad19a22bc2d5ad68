"""Bugs that are planted into locks and the state machine, and the list of all.

Those of other recipes are beside their scenarios.  Numbers are rows of docs/hazards.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.support import (
    simulation_barrier,
    simulation_cache,
    simulation_counter,
    simulation_family,
    simulation_following,
    simulation_membership,
    simulation_once_per,
    simulation_partitioner,
    simulation_queue,
    simulation_supervisor,
)
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    SEQUENTIAL_TRY,
    Usage,
    contenders,
    various,
)
from tests.support.simulation_parts import Bug, Change, nothing
from zkwire.errors import NoNodeError
from zkwire.operations import Operations
from zkwire.recipes._node import Attempt, OwnNodeWatch
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.session import outcomes
from zkwire.session.handshake import Identity
from zkwire.session.liveness import Liveness
from zkwire.session.session import Session
from zkwire.session.watch_table import WatchTable
from zkwire.testing.simulation.invariants import Claims

BESIDE = Change(Claims, "_is_gone", nothing)
"""For bugs that must be found by who holds beside whom, and not by the end of their nodes."""

EXISTS = "operations.get_data", "operations.exists"
PENDING = "self._clean_up_after(self._pending_cleanup)", "self._pending_cleanup = None"

# --- locks ----------------------------------------------------------------------------------------


def _of_any(home: type) -> dict[str, tuple[Change, ...]]:
    """Bugs for a lock of one node and for one with a queue."""
    return {
        # An attempt that ends badly leaves what it has left (B5, B6, B7).
        "no cleaning": (Change(home, "_clean_up_pending", *PENDING),),
        # A clean-up is tried once (B5, B25).
        "one cleaning": (Change(home, "_delete_until_gone", "while True:", "for _ in range(1):"),),
        # A clean-up that is refused for the moment is given up.
        "busy is never": (
            Change(
                home, "_delete_until_gone", "BUSY:\n            pass", "BUSY:\n            return"
            ),
        ),
        # Holds until somebody says otherwise (A29, B20).
        "no lease": (
            Change(home, "_lasts", "self._runtime.now() < self._runtime.lease_deadline", "True"),
        ),
        # Claims until the answer to the delete has come (B21).
        "late end": (
            Change(
                home,
                "_delete",
                "self._end_claim()",
                "self._granted = attempt",
                "self._pending_cleanup = None",
                "self._end_claim(); self._pending_cleanup = None",
            ),
        ),
    }


def _sequential(name: str, *what: object) -> tuple[Change, ...]:
    return (Change(AsyncSequentialLock, name, *what),)


def _blocking(name: str, *what: object) -> tuple[Change, ...]:
    return (Change(AsyncBlockingLock, name, *what),)


QUEUE = {
    # Does not watch its own node (B22).
    "no guard": _sequential("_watch_own_node", nothing),
    # Contenders are ordered by their names, which begin with the session's id (B14).
    "by name": _sequential(
        "_ahead",
        lambda _, names, own: [(at, name) for at, name in enumerate(sorted(names)) if name < own],
    ),
    # Everybody watches the holder: of two before it, so that the event alone does not decide.
    "lowest watched": _sequential(
        "_ahead",
        "return before(names, own)",
        "return [min(ahead)] * 2 if (ahead := before(names, own)) else []",
    ),
    # A create that was not answered is repeated (B1, B2, B3).
    "blind repeat": (
        *_sequential("_join", "names = await self._find(attempt, deadline)", "continue"),
        *_sequential("_contend", "await self._prune(attempt, names, deadline)", "pass"),
    ),
    # Whoever is woken believes that it is its turn.
    "no second look": _sequential(
        "_look_again", "return await self._list(deadline)", "return [own]"
    ),
    # Waits by ``exists``, which says nothing when the node is gone already (B10).
    "exists": _sequential("_wait_for", *EXISTS, "seen.stat.ephemeral_owner == 0", "False"),
    # Does not take its watch back when it gives up (B27).
    "watch kept": _sequential("_wait_for", "watch.close()", "pass"),
    # Finds the node of another attempt of the same client, and takes it (B31).
    "session is name": _sequential(
        "_find",
        "attempt.node is None and name.startswith(attempt.id)",
        "True",
        "attempt.node, attempt.stat = path, stat",
        "attempt.node, attempt.stat, attempt.id = path, stat, name.rpartition('-lock-')[0]",
    ),
    # A try that fails deletes its node as well as it can (B5).
    "step back once": _sequential("_leave_queue", "self._clean_up_after(attempt)", "pass"),
    # Whatever happens to the node ahead, it has gone.
    "any event": _sequential(
        "_wait_for", "return event.type is EventType.NODE_DELETED", "return True"
    ),
    # Makes the parent once, and does not expect it to go.
    "needs its parent": _sequential(
        "_join", "await self._provide(self._path, deadline)", "raise KeyError(self._path)"
    ),
    # Does not look whether the numbers are at their end (B16).
    "counts on": _sequential("_check_sequence", nothing),
    # Does not look whether its own node still stands in the queue.
    "not itself": _sequential("_contend", "own not in names", "False"),
    # Looks for what it has left on a server that may not know of it yet (B5).
    "no sync before cleaning": _sequential(
        "_leave",
        "await newest(operations, operations.get_children, self._path)",
        "await operations.get_children(self._path)",
    ),
    # Nobody is told of a loss.
    "not told": (Change(OwnNodeWatch, "_deliver", "self.lost is not None", "False"),),
    # Waits for as long as it takes.
    "no deadline": _sequential(
        "_look_again", "self._wait_for(last, deadline)", "self._wait_for(last, None)"
    ),
    # Whoever has waited long enough holds, whatever became of its session meanwhile (B23).
    "hopeful": (
        *_sequential("_lasts", "return (", "return True or ("),
        *_sequential(
            "_acquire",
            "won = await self._contend(attempt, deadline, wait)",
            "try:\n            won = await self._contend(attempt, deadline, wait)\n"
            "        except SessionExpiredError:\n            won = attempt.stat is not None",
        ),
        *_sequential(
            "_grant",
            "self._runtime.hold(self._lost)",
            "pass",
            "self._runtime.check_open()",
            "pass",
        ),
    ),
    **_of_any(AsyncSequentialLock),
}


async def _looks_without_sync(lock: Any, operations: Operations, attempt: Attempt) -> None:
    with suppress(NoNodeError):
        seen = await operations.get_data(lock.path)
        if lock._is_own(attempt, seen):
            await operations.delete(lock.path, seen.stat.version)
    await operations.delete(lock._token(attempt))


SINGLE = {
    # A node that exists is somebody else's, even after a lost reply (C1).
    "exists means taken": (
        *_blocking("_create", "if not doubt:", "if True:"),
        *_blocking("_adopt", lambda *_: False),
    ),
    # A node of this session is this lock's (B31).
    "session is owner": _blocking(
        "_is_own", lambda lock, _, seen: seen.stat.ephemeral_owner == lock._runtime.session_id
    ),
    # Waits by ``exists``, which says nothing when the node is gone already (C6).
    "exists": _blocking("_contend", *EXISTS, "self._adopt(attempt, seen)", "False"),
    # Cleans up whatever stands there, be it somebody else's (C4).
    "deletes anything": _blocking(
        "_leave", "or not self._is_own(attempt, seen)", "", "self._path, version", "self._path"
    ),
    # Does not wait until no earlier holder can delete the node that stands there by now.
    "beside tokens": _blocking(
        "_outlast", "runtime, operations = self._runtime, self._runtime.operations", "return True"
    ),
    # Deletes its path although it knows that the node there is another's by now (C4).
    "releases what is lost": _blocking("_refuse_if_lost", nothing),
    # Looks for what it has left on a server that still shows it where another's is by now (B5).
    "no sync before looking": _blocking("_leave", _looks_without_sync),
    # A node of the same content is one's own (C3).
    "content is owner": _blocking(
        "_is_own", lambda _, attempt, seen: seen.data == attempt.id.encode()
    ),
    **_of_any(AsyncBlockingLock),
}

# --- the state machine ----------------------------------------------------------------------------

SESSION = {
    "watches are not restored": (Change(WatchTable, "frames", lambda *_: iter(())),),
    "the lease is too long": (
        Change(Liveness, "lease_deadline", "+ self.timeout", "+ 1.5 * self.timeout"),
    ),
    "the lease counts from the receipt": (
        Change(
            Liveness,
            "received",
            "self._trickle += size",
            "self._trickle += size\n    self._contact = now if whole else self._contact",
        ),
    ),
    "what was lost counts as not sent": (
        Change(outcomes, "broken", "if not (request.sent and request.end <= written):", "if True:"),
    ),
    "the end of a lease is not noticed": (Change(Session, "_lapse", nothing),),
    "any session will do": (
        Change(
            Identity,
            "recognised",
            "answer.time_out <= 0 or answer.session_id == 0",
            "answer.session_id == 0",
            "known not in {0, answer.session_id}",
            "False",
        ),
    ),
    "a close does not end claims": (
        Change(Session, "close", "self._lose_all(outcomes.CLOSING)", "pass"),
    ),
}

# --- where each is looked for ---------------------------------------------------------------------


def _locks() -> Iterator[tuple[str, Bug]]:
    rows = {
        (SEQUENTIAL, BLOCKING): (
            ("no cleaning", "cancel", "ORPHAN LIVE WATCH"),
            ("one cleaning", "cut cancel", "ORPHAN LIVE"),
            ("busy is never", "cancel refuse", "ORPHAN LIVE"),
            ("no lease", "pause", "ME FENCE"),
            ("late end", "", "ME"),
        ),
        (SEQUENTIAL,): (
            ("no guard", "delete", "STATE"),
            ("by name", "", "ME FIFO FENCE LIVE"),
            ("lowest watched", "", "HERD"),
            ("blind repeat", "cut linger", "LIVE ORPHAN"),
            ("no second look", "", "ME FIFO FENCE"),
            ("exists", "", "LIVE"),
            ("watch kept", "", "WATCH HERD"),
            ("session is name", "linger cut", "ME FENCE ERROR LIVE FIFO ORPHAN"),
            ("any event", "touch", "ME FIFO FENCE"),
            ("needs its parent", "", "ERROR ORPHAN LIVE"),
            ("counts on", "wrap", "ME FIFO FENCE"),
            ("not itself", "delete", "ME FIFO FENCE STATE LIVE ERROR"),
            ("no deadline", "", "TIME"),
        ),
        (SEQUENTIAL_TRY,): (("step back once", "linger cut", "ORPHAN"),),
        (BLOCKING,): (
            ("exists means taken", "linger cut", "ORPHAN LIVE"),
            ("session is owner", "", "ME FENCE ORPHAN LIVE"),
            ("exists", "", "LIVE"),
            ("deletes anything", "cancel", "ME FENCE"),
        ),
    }
    for kinds, bugs in rows.items():
        for kind in kinds:
            of = QUEUE if kind.queue else SINGLE
            for name, faults, invariants in bugs:
                bug = Bug(various(kind), faults, invariants, (*of[name], BESIDE))
                yield f"{kind.name}: {name}", bug
    yield "not told", Bug(various(SEQUENTIAL), "delete", "TOLD", QUEUE["not told"])
    # When an outsider deletes nodes, two may hold for a moment; see `scenarios.faults_for`.
    for name, invariants in (
        ("beside tokens", "STATE ME FENCE ERROR"),
        ("releases what is lost", "ERROR"),
    ):
        yield name, Bug(various(BLOCKING), "delete", invariants, SINGLE[name])
    # Three faults in the right order, the last of them before the new connection has answered.
    world, name = contenders(SEQUENTIAL, 1, Usage(stay=0)), "no sync before cleaning"
    yield name, Bug(world, "cut cancel lag", "ORPHAN", QUEUE[name], every=True)
    # A run that shows it is in test_schedules.
    world, name = contenders(BLOCKING, 2, Usage(stay=1)), "no sync before looking"
    yield name, Bug(world, "cut lag", "STATE ME", SINGLE[name], every=True, minutes=True)


def _session() -> Iterator[tuple[str, Bug]]:
    for name, faults, invariants in (
        ("watches are not restored", "cut", "LIVE"),
        ("the lease is too long", "partition", "ME FENCE"),
        ("the lease counts from the receipt", "slow partition", "ME FENCE ERROR"),
        ("what was lost counts as not sent", "linger cancel", "LIVE ORPHAN"),
        ("the end of a lease is not noticed", "partition", "ERROR ME"),
        ("any session will do", "cut swap", "ME STATE LIVE HERD"),
        ("a close does not end claims", "close", "STATE"),
    ):
        for kind in (BLOCKING, SEQUENTIAL):
            world, minutes = various(kind), False
            if "receipt" in name:  # shows only if a lock is held for longer than a session lives
                world = contenders(kind, 2, Usage(stay=1, hold=30.0))
                minutes = kind is SEQUENTIAL  # with a blocking lock it takes seconds
            changes = (*SESSION[name], BESIDE)
            bug = Bug(world, faults, invariants, changes, tick=0.25, minutes=minutes)
            yield f"{name} ({kind.name})", bug


BUGS: dict[str, Bug] = {
    **dict([*_locks(), *_session()]),
    **{
        f"{world.__name__.partition('simulation_')[2]}: {name}": bug
        for world in (
            simulation_barrier,
            simulation_cache,
            simulation_counter,
            simulation_family,
            simulation_following,
            simulation_membership,
            simulation_once_per,
            simulation_partitioner,
            simulation_queue,
            simulation_supervisor,
        )
        for name, bug in world.BUGS.items()
    },
}
