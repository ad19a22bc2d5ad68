"""The scenarios of the simulation by their names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tests.support import simulation_locks as locks
from tests.support import simulation_queue as queues
from tests.support import simulation_services as services
from tests.support import simulation_sessions as sessions
from tests.support import simulation_shared as shared
from tests.support.simulation_locks import Usage
from tests.support.simulation_parts import NETWORK, lives
from tests.support.simulation_queue import Plan
from tests.support.simulation_shared import Groups, KeptNodes, Life, Sums, Together, Turns
from zkwire.recipes.persistent_node import PersistentModeKeeper
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch
from zkwire.testing.simulation import FAULTS, Scenario

BRIEF = Usage(stay=1)
TRY = Usage(stay=1, wait=False)
MODES = {"waiting": BRIEF, "timed": Usage(stay=1, patience=3.0), "trying": TRY}
ROLES = ("read", "write", "read")


class World(NamedTuple):
    """A scenario, the faults that may happen in it, and a number.

    How many faults at most, if every schedule is followed; if it differs from seed to seed, how
    many runs a check makes.
    """

    scenario: Scenario
    faults: tuple[str, ...]
    number: int


def faults_for(kind: locks.Kind) -> tuple[str, ...]:
    """All; but when an outsider deletes the node of a lock of one node, two may hold for a moment.

    `AsyncBlockingLock` says why.
    """
    return tuple(fault for fault in FAULTS if fault != "delete" or kind.queue)


def _small() -> Iterator[tuple[str, World]]:
    for number, most in ((2, 2), (3, 1)):
        for mode, usage in MODES.items():
            for kind in (locks.BLOCKING, locks.SEQUENTIAL):
                scenario = locks.contenders(kind, number, usage)
                yield f"{kind.name}, {mode}, {number}", World(scenario, faults_for(kind), most)
            for name, scenario in {
                "read-write": locks.read_write(ROLES[:number], usage),
                "semaphore": locks.semaphore(number - 1, number, usage, agreed=True),
                "new semaphore": locks.semaphore(number - 1, number, usage),
                "multi-lock": locks.multi_lock(2, usage, single=number == 3),
            }.items():
                yield f"{name}, {mode}, {number}", World(scenario, FAULTS, most)


SMALL = dict(_small())
READERS: dict[str, sessions.Kind] = {"data": AsyncDataWatch, "children": AsyncChildrenWatch}
MIRRORS = {
    "recursive": services.mirror(),
    "recursive, before 3.9": services.mirror(version="3.8"),
    "one by one": services.mirror(version="3.5"),
    "node and children": services.mirror(depth=1),
    "node": services.mirror(depth=0),
    "node and children, one by one": services.mirror(version="3.4", depth=1),
    "one by one, 3.4": services.mirror(version="3.4"),
}
CROWDED = partial(Sums, crowded=True)
RANDOM = {
    **{kind.name: World(locks.various(kind), faults_for(kind), 1200) for kind in locks.KINDS},
    "read-write": World(locks.various_read_write(), FAULTS, 400),
    "semaphore": World(locks.various_semaphore(), FAULTS, 400),
    "multi-lock": World(locks.various_multi_lock(), FAULTS, 400),
    "queue": World(queues.various(), FAULTS, 250),
    "node": World(shared.various_keepers(), FAULTS, 300),
    "standing node": World(shared.various_keepers(PersistentModeKeeper), FAULTS, 300),
    "group": World(shared.various_group(), FAULTS, 300),
    "counter": World(lives(3, Sums), NETWORK, 300),
    "crowded counter": World(lives(3, CROWDED), NETWORK, 300),
    **{f"barrier of {n}": World(lives(n, partial(Together, n)), NETWORK, 120) for n in (1, 2, 3)},
    "barrier of 2 of 3": World(lives(3, partial(Together, 2, even=False)), NETWORK, 120),
    "once per": World(lives(3, Turns), NETWORK, 200),
    # In three sessions each later one begins on a server that is behind, and sees nothing older.
    **{
        f"{name}, {n} sessions": World(
            sessions.following(kind, sessions=n, number=5, lagging=n > 1), sessions.WATCHING, 400
        )
        for name, kind in READERS.items()
        for n in (1, 3)
    },
    **{f"cache, {name}": World(m, services.MIRRORING, 100) for name, m in MIRRORS.items()},
    **{f"{n} supervisors": World(sessions.supervised(n), sessions.LEADING, 150) for n in (1, 2, 3)},
    "partitioner": World(services.shared_out(), services.SHARING, 40),
}

LOCKS: dict[str, Scenario] = {
    "reader, writer": locks.read_write(["read", "write"], BRIEF),
    "writer, reader": locks.read_write(["write", "read"], BRIEF),
    "downgrade, writer": locks.read_write(["downgrade", "write"], BRIEF),
    "hasty downgrade, writer": locks.read_write(["hasty", "write"], BRIEF),
    "semaphore of 1": locks.semaphore(1, 2, BRIEF),
    "semaphore of 2": locks.semaphore(2, 3, BRIEF),
    "multi-lock": locks.multi_lock(2, BRIEF),
}
LARGER: dict[str, Scenario] = {
    "readers and writers": locks.read_write(["read", "write", "read", "write"], BRIEF),
    "downgrade among others": locks.read_write(["downgrade", "write", "read"], BRIEF),
    "readers that meet": locks.meeting(),
    "semaphore that is not there": locks.semaphore(1, 2, Usage(stay=1, prepared=False)),
    "semaphore, try": locks.semaphore(1, 2, TRY),
    "multi-lock and lock": locks.multi_lock(2, BRIEF, single=True),
    "multi-lock, try": locks.multi_lock(2, TRY, single=True),
    "multi-lock, limited": locks.multi_lock(2, Usage(stay=1, patience=3.0, hold=5.0)),
}
QUEUES: dict[str, Scenario] = {
    "put and get": queues.queues(Plan()),
    "put and take": queues.queues(Plan(consumers=("fail",))),
    "flat, get": queues.queues(Plan(flat=True)),
    "two consumers": queues.queues(Plan(consumers=("get", "take"), items=2, many=True)),
}
STANDING = partial(KeptNodes, Life(patience=9.0), PersistentModeKeeper)
MEMBERS: dict[str, Scenario] = {
    "one node": lives(1, partial(KeptNodes, Life(sets=2))),
    "two processes, one path": lives(2, KeptNodes),
    "two objects of one client": lives(2, KeptNodes, together=True),
    "no parent": lives(1, partial(KeptNodes, prepared=False)),
    "node of no session": lives(1, STANDING),
    "group": lives(2, Groups),
    "group, one name": lives(2, partial(Groups, name="me")),
}
SIMPLE: dict[str, Scenario] = {
    "counter": lives(2, Sums),
    "crowded counter": lives(2, CROWDED),
    "barrier": lives(2, partial(Together, 2, rounds=1)),
    "barrier, twice": lives(2, partial(Together, 2)),
    "once per": lives(2, Turns),
}
