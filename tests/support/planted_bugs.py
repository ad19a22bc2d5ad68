"""Bugs that are planted into recipes and state machine: the suite must find each of them.

Most are in `simulation_locks` and `simulation_family`, beside the scenarios that they are for.
Here are those of the state machine, a few more of the recipes, and the list of all, each with the
faults that reveal it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tests.support import simulation_family as family
from tests.support import simulation_locks as locks
from tests.support.simulation_locks import (
    BLOCKING,
    SEQUENTIAL,
    Kind,
    Manners,
    contenders,
    planted,
    various,
)
from zkwire.errors import NoNodeError, NotSentError
from zkwire.jute.records import ConnectResponse
from zkwire.operations import Operations
from zkwire.recipes._lock import AsyncPathLock
from zkwire.recipes._node import Attempt, OwnNodeWatch
from zkwire.recipes.locks import AsyncBlockingLock
from zkwire.recipes.sequential import AsyncSequentialLock
from zkwire.session import outcomes
from zkwire.session.handshake import Identity
from zkwire.session.liveness import LeaseHolders, Liveness
from zkwire.session.request import Failed, Request
from zkwire.session.session import Session
from zkwire.session.watch_table import WatchTable
from zkwire.testing.simulation import Scenario
from zkwire.testing.simulation.invariants import Claims
from zkwire.wire.model import Event

# --- recipes --------------------------------------------------------------------------------------


class NeedsItsParent(AsyncSequentialLock):
    """Makes the parent once, and does not expect it to go."""

    async def _join(self, attempt: Attempt, deadline: float | None) -> list[str]:
        attempt.entered = True
        create = self._runtime.operations.create_with_stat(
            f"{self.path}/{attempt.id}-{self._label}", b"", ephemeral=True, sequential=True
        )
        try:
            attempt.node, attempt.stat = await self._runtime.until(create, deadline)
        except NoNodeError:
            raise KeyError(self.path) from None
        return await self._list(deadline)


class CountsOn(AsyncSequentialLock):
    """Does not look whether the numbers are at their end (B16)."""

    def _check_sequence(self, attempt: Attempt) -> None:
        pass


class NotItself(AsyncSequentialLock):
    """Does not look whether its own node still stands in the queue."""

    async def _list(self, deadline: float | None, *, sync: bool = False) -> list[str]:
        names = await super()._list(deadline, sync=sync)
        if self._pending_cleanup is not None and self._pending_cleanup.node is not None:
            names = list({*names, self._name(self._pending_cleanup)})
        return names


class NoSyncBeforeCleaning(AsyncSequentialLock):
    """Looks for what it has left on a server that may not know of it yet (B5)."""

    async def _leave(self, operations: Operations, attempt: Attempt) -> None:
        if attempt.node is not None:
            await super()._leave(operations, attempt)
            return
        with suppress(NoNodeError):
            for name in await operations.get_children(self.path):
                if name.startswith(attempt.id):
                    await operations.delete(f"{self.path}/{name}")


class ReleasesWhatIsLost(AsyncBlockingLock):
    """Deletes its path although it knows that the node there is another's by now (C4)."""

    def _refuse_if_lost(self) -> None:
        pass


# --- the state machine ----------------------------------------------------------------------------

_received = Liveness.received
_close = Session.close


def _from_receipt(live: Liveness, size: int, whole: bool, now: float) -> None:
    _received(live, size, whole, now)
    if whole:
        live._contact = now


def _any_session(identity: Identity, answer: ConnectResponse) -> bool:
    if answer.session_id:
        identity.session_id, identity.passwd = answer.session_id, answer.passwd or b""
    return answer.session_id != 0


def _too_long(live: Liveness) -> float:
    return max(0.0, live._contact + 1.5 * live.timeout)


def _close_and_claim(session: Session, now: float) -> Request | None:
    leases, session._lease_holders = session._lease_holders, LeaseHolders([])
    try:
        return _close(session, now)
    finally:
        session._lease_holders = leases


def _notes_only(own: OwnNodeWatch, event: Event, spent: bool = True) -> None:
    own._disarm()
    own.gone = True


def _blind(call: Request, _written: int, why: str, _garbled: bool) -> Failed:
    return Failed(NotSentError, why, False)


class Patch(NamedTuple):
    """What is replaced, and by what."""

    home: object
    attribute: str
    new: object


class Bug(NamedTuple):
    """Where it is looked for, which faults reveal it, and what it may break.

    ``patch`` is what is replaced, if it is not a recipe of its own.  ``tick`` is the server's
    unit of time: the longer it is, the more a session outlives its promise, which hides mistakes.
    With ``every`` chance is too slow, and every schedule is followed.  ``minutes``: even so it
    takes some, so that only a longer search looks for it; the run that shows it is replayed.
    """

    scenario: Callable[[], Scenario]
    faults: tuple[str, ...]
    invariants: set[str]
    patch: Patch | None = None
    tick: float = 2.0
    every: bool = False
    minutes: bool = False


ORDER: tuple[str, ...] = ()
"""No fault is needed: the order of events does it."""

STATE_MACHINE: dict[str, tuple[Patch, tuple[str, ...], set[str]]] = {
    "watches are not restored": (
        Patch(WatchTable, "frames", lambda *_: iter(())), ("cut",), {"LIVE"},
    ),
    "the lease is too long": (
        Patch(Liveness, "lease_deadline", property(_too_long)), ("partition",), {"ME", "FENCE"},
    ),
    "the lease counts from the receipt": (
        Patch(Liveness, "received", _from_receipt), ("slow", "partition"), {"ME", "FENCE", "ERROR"},
    ),
    "what was lost counts as not sent": (
        Patch(outcomes, "broken", _blind), ("linger", "cancel"), {"LIVE", "ORPHAN"},
    ),
    "the end of a lease is not noticed": (
        Patch(Session, "_lapse", lambda session, now: None), ("partition",), {"ERROR", "ME"},
    ),
    "any session will do": (
        Patch(Identity, "recognised", _any_session), ("cut", "swap"),
        {"ME", "STATE", "LIVE", "HERD"},
    ),
    "a close does not end claims": (
        Patch(Session, "close", _close_and_claim), ("close",), {"STATE"},
    ),
}  # fmt: skip
"""Bugs of the state machine, each for a lock of one node and for one with a queue."""

LOCKS: dict[type[AsyncPathLock], tuple[str, ...]] = {
    locks.SequentialNoCleaning: ("cancel",),
    locks.SequentialOneCleaning: ("cut", "cancel"),
    locks.SequentialNoLease: ("pause",),
    locks.SequentialLateEnd: ORDER,
    locks.SequentialNoGuard: ("delete",),
    locks.ByName: ORDER,
    locks.LowestWatched: ORDER,
    locks.BlindRepeat: ("cut", "linger"),
    locks.NoSecondLook: ORDER,
    locks.Exists: ORDER,
    locks.WatchKept: ORDER,
    locks.SessionIsName: ("linger", "cut"),
    locks.StepBackOnce: ("linger", "cut"),
    locks.SingleNoCleaning: ("cancel",),
    locks.SingleOneCleaning: ("cut", "cancel"),
    locks.SingleNoLease: ("pause",),
    locks.SingleLateEnd: ORDER,
    locks.ExistsMeansTaken: ("linger", "cut"),
    locks.SessionIsOwner: ORDER,
    locks.SingleExists: ORDER,
    locks.DeletesAnything: ("cancel",),
    locks.GrantedBesideTokens: ("delete",),
    locks.BelievesAnyEvent: ("touch",),
    locks.SequentialBusyIsNever: ("cancel", "refuse"),
    locks.SingleBusyIsNever: ("cancel", "refuse"),
}
FAMILY: dict[str, tuple[str, ...]] = {
    "a downgrade is tried once": ("linger", "cut"),
    "the first is kept": ("cancel",),
    "no last look": ("delete", "pause"),
    "one release": ("delete", "cancel"),
    "the queue is kept": ("cancel",),
    "no queue": ("partition",),
}
"""What reveals those that the order of events alone does not."""

RECIPES: dict[type[AsyncPathLock], tuple[tuple[str, ...], set[str]]] = {
    NeedsItsParent: (ORDER, {"ERROR", "ORPHAN", "LIVE"}),
    CountsOn: (("wrap",), {"ME", "FIFO", "FENCE"}),
    NotItself: (("delete",), {"ME", "FIFO", "FENCE", "STATE", "LIVE", "ERROR"}),
}


def _of_kind(kind: Kind) -> Callable[[], Scenario]:
    return lambda: various(kind)


LASTING = ("the lease counts from the receipt",)


def _keepers(kind: Kind, name: str) -> Callable[[], Scenario]:
    """For bugs that show only if a lock is held for longer than a session lives."""
    kind = replace(kind, judge=locks.Beside)
    if name in LASTING:
        return lambda: contenders(kind, 2, Manners(stay=1, hold=30.0))
    return _of_kind(kind)


BUGS: dict[str, Bug] = {
    **{
        kind.name: Bug(_of_kind(kind), LOCKS[kind.core], invariants)
        for kind, invariants in locks.PLANTED.items()
    },
    **{
        core.__name__: Bug(_of_kind(planted(core)), faults, invariants)
        for core, (faults, invariants) in RECIPES.items()
    },
    # Three faults in the right order, the last of them before the new connection has answered.
    "NoSyncBeforeCleaning": Bug(
        lambda: contenders(planted(NoSyncBeforeCleaning), 1, Manners(stay=0)),
        ("cut", "cancel", "lag"),
        {"ORPHAN"},
        every=True,
    ),
    "NoSyncBeforeLooking": Bug(
        lambda: contenders(planted(locks.NoSyncBeforeLooking, judge=Claims), 2, Manners(stay=1)),
        ("cut", "lag"),
        {"STATE", "ME"},
        every=True,
        minutes=True,  # test_simulation.test_a_claim_by_a_node_that_is_gone_is_found
    ),
    "nobody is told": Bug(
        _of_kind(SEQUENTIAL), ("delete",), {"TOLD"}, Patch(OwnNodeWatch, "_deliver", _notes_only)
    ),
    # When an outsider deletes nodes, two may hold for a moment; see
    # `tests.simulation.test_simulation`.
    "ReleasesWhatIsLost": Bug(
        lambda: various(planted(ReleasesWhatIsLost, judge=Claims)), ("delete",), {"ERROR"}
    ),
    **{
        name: Bug(scenario, FAMILY.get(name, ORDER), invariants)
        for name, (scenario, invariants) in family.PLANTED.items()
    },
    **{
        f"{name} ({kind.name})": Bug(
            _keepers(kind, name),
            faults,
            invariants,
            patch,
            0.25,
            minutes=name in LASTING and kind is SEQUENTIAL,  # with a blocking lock it takes seconds
        )
        for name, (patch, faults, invariants) in STATE_MACHINE.items()
        for kind in (BLOCKING, SEQUENTIAL)
    },
}
