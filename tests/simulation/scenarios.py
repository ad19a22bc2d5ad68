"""The scenarios of the simulation by their names.

A module `tests/support/simulation_….py` may have its own: `SIMPLE`, of which every order of events
is run, `RANDOM`, and `BUGS` that these must find, written as in `planted/simulated.txt`; and the
`CALLS` of the same recipe for `tests/connection_loss`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from tests import support
from tests.support import simulation_locks as locks
from tests.support import simulation_queue as queues
from tests.support import simulation_services as services
from tests.support import simulation_sessions as sessions
from tests.support.simulation_locks import Usage
from tests.support.simulation_parts import World, lives
from tests.support.simulation_queue import Plan
from tests.support.simulation_shared import Groups, KeptNodes, Life
from zkwire.recipes.persistent_node import PersistentModeKeeper
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch
from zkwire.testing.simulation import FAULTS, Scenario

PARTS = [
    import_module(f"tests.support.{module.name}")
    for module in iter_modules(support.__path__)
    if module.name.startswith("simulation_")
]
BRIEF = Usage(stay=1)
TRY = Usage(stay=1, wait=False)
MODES = {"waiting": BRIEF, "timed": Usage(stay=1, patience=3.0), "trying": TRY}
ROLES = ("read", "write", "read")


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
RANDOM: dict[str, World] = {
    **{kind.name: World(locks.various(kind), faults_for(kind), 1200) for kind in locks.KINDS},
    "read-write": World(locks.various_read_write(), FAULTS, 400),
    "semaphore": World(locks.various_semaphore(), FAULTS, 400),
    "multi-lock": World(locks.various_multi_lock(), FAULTS, 400),
    "queue": World(queues.various(), FAULTS, 250),
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
    **{name: world for part in PARTS for name, world in getattr(part, "RANDOM", {}).items()},
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
    name: world for part in PARTS for name, world in getattr(part, "SIMPLE", {}).items()
}
