"""The scenarios of the simulation by their names: for tests, and for `tests.interop.explore`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.support import simulation_cache as caches
from tests.support import simulation_family as family
from tests.support import simulation_following as watches
from tests.support import simulation_locks as locks
from tests.support import simulation_membership as members
from tests.support import simulation_partitioner as partitioners
from tests.support import simulation_queue as queues
from tests.support import simulation_shared as shared
from tests.support import simulation_supervisor as supervisors
from tests.support.simulation_locks import Usage
from tests.support.simulation_membership import Life
from tests.support.simulation_parts import NETWORK
from tests.support.simulation_queue import Plan
from zkwire.recipes.persistent_node import PersistentModeKeeper
from zkwire.recipes.watching import AsyncChildrenWatch, AsyncDataWatch
from zkwire.testing.simulation import FAULTS, Scenario

BRIEF = Usage(stay=1)
MODES = {
    "waiting": (BRIEF, True),
    "timed": (Usage(stay=1, patience=3.0), True),
    "trying": (BRIEF, False),
}
ROLES = ("read", "write", "read")


class Small(NamedTuple):
    """A scenario that is followed through, the faults that may happen, and how many at most."""

    scenario: Scenario
    faults: tuple[str, ...]
    most: int


class Various(NamedTuple):
    """A scenario that differs from seed to seed, its faults, and how many runs a check makes."""

    scenario: Scenario
    faults: tuple[str, ...]
    runs: int


def faults_for(kind: locks.Kind) -> tuple[str, ...]:
    """All; but when an outsider deletes the node of a lock of one node, two may hold for a moment.

    `AsyncBlockingLock` says why.
    """
    return tuple(fault for fault in FAULTS if fault != "delete" or kind.queue)


def _small() -> Iterator[tuple[str, Small]]:
    for number, most in ((2, 2), (3, 1)):
        for mode, (usage, wait) in MODES.items():
            for kind in (locks.BLOCKING, locks.SEQUENTIAL):
                core = locks.Kind(kind.name, kind.core, wait=wait, queue=kind.queue)
                scenario = locks.contenders(core, number, usage)
                yield f"{kind.name}, {mode}, {number}", Small(scenario, faults_for(kind), most)
            leases = number - 1, number, usage
            for name, scenario in {
                "read-write": family.read_write(ROLES[:number], usage, wait=wait),
                "semaphore": family.semaphore(*leases, wait=wait, agreed=True),
                "new semaphore": family.semaphore(*leases, wait=wait),
                "multi-lock": family.multi_lock(2, usage, single=number == 3, wait=wait),
            }.items():
                yield f"{name}, {mode}, {number}", Small(scenario, FAULTS, most)


SMALL = dict(_small())
READERS: dict[str, watches.Kind] = {"data": AsyncDataWatch, "children": AsyncChildrenWatch}
MIRRORS = {
    "recursive": caches.mirror(),
    "recursive, before 3.9": caches.mirror(version="3.8"),
    "one by one": caches.mirror(version="3.5"),
    "node and children": caches.mirror(depth=1),
    "node": caches.mirror(depth=0),
    "node and children, one by one": caches.mirror(version="3.4", depth=1),
    "one by one, 3.4": caches.mirror(version="3.4"),
}
RANDOM = {
    **{kind.name: Various(locks.various(kind), FAULTS, 1200) for kind in locks.KINDS if kind.queue},
    **{
        kind.name: Various(locks.various(kind), faults_for(kind), 1200)
        for kind in locks.KINDS
        if not kind.queue
    },
    "read-write": Various(family.various_read_write(), FAULTS, 400),
    "semaphore": Various(family.various_semaphore(), FAULTS, 400),
    "multi-lock": Various(family.various_multi_lock(), FAULTS, 400),
    "queue": Various(queues.various(), FAULTS, 250),
    "node": Various(members.various_keepers(), FAULTS, 300),
    "standing node": Various(members.various_keepers(PersistentModeKeeper), FAULTS, 300),
    "group": Various(members.various_group(), FAULTS, 300),
    "counter": Various(shared.adding(3, 2), NETWORK, 300),
    "crowded counter": Various(shared.adding(3, 2, crowded=True), NETWORK, 300),
    **{f"barrier of {n}": Various(shared.meeting(n, 2), NETWORK, 120) for n in (1, 2, 3)},
    "barrier of 2 of 3": Various(shared.meeting(2, 2, more=1), NETWORK, 120),
    "once per": Various(shared.asking(3, 2), NETWORK, 200),
    **{
        f"{name}, {n} sessions": Various(
            watches.following(kind, sessions=n, number=5), watches.FAULTS, 400
        )
        for name, kind in READERS.items()
        for n in (1, 3)
    },
    **{f"cache, {name}": Various(m, caches.FAULTS, 100) for name, m in MIRRORS.items()},
    **{
        f"{n} supervisors": Various(supervisors.supervised(n), supervisors.FAULTS, 150)
        for n in (1, 2, 3)
    },
    # A later session sees nothing older, although its server is behind.
    "supervisor, behind": Various(supervisors.supervised(1, lagging=True), supervisors.FAULTS, 150),
    "partitioner": Various(partitioners.shared_out(), partitioners.FAULTS, 40),
}

LOCKS: dict[str, Scenario] = {
    "reader, writer": family.read_write(["read", "write"], BRIEF),
    "writer, reader": family.read_write(["write", "read"], BRIEF),
    "downgrade, writer": family.read_write(["downgrade", "write"], BRIEF),
    "hasty downgrade, writer": family.read_write(["hasty", "write"], BRIEF),
    "semaphore of 1": family.semaphore(1, 2, BRIEF),
    "semaphore of 2": family.semaphore(2, 3, BRIEF),
    "multi-lock": family.multi_lock(2, BRIEF),
}
LARGER: dict[str, Scenario] = {
    "readers and writers": family.read_write(["read", "write", "read", "write"], BRIEF),
    "downgrade among others": family.read_write(["downgrade", "write", "read"], BRIEF),
    "readers that meet": family.meeting(),
    "semaphore that is not there": family.semaphore(1, 2, BRIEF, prepared=False),
    "semaphore, try": family.semaphore(1, 2, BRIEF, wait=False),
    "multi-lock and lock": family.multi_lock(2, BRIEF, single=True),
    "multi-lock, try": family.multi_lock(2, BRIEF, single=True, wait=False),
    "multi-lock, limited": family.multi_lock(2, Usage(stay=1, patience=3.0, hold=5.0)),
}
QUEUES: dict[str, Scenario] = {
    "put and get": queues.queues(Plan()),
    "put and take": queues.queues(Plan(consumers=("fail",))),
    "flat, get": queues.queues(Plan(flat=True)),
    "two consumers": queues.queues(Plan(consumers=("get", "take"), items=2, many=True)),
}
MEMBERS: dict[str, Scenario] = {
    "one node": members.keepers(1, Life(sets=2)),
    "two processes, one path": members.keepers(2),
    "two objects of one client": members.keepers(2, together=True),
    "no parent": members.keepers(1, prepared=False),
    "node of no session": members.keepers(1, Life(patience=9.0), kind=PersistentModeKeeper),
    "group": members.group(2),
    "group, one name": members.group(2, named=True),
}
SIMPLE: dict[str, Scenario] = {
    "counter": shared.adding(2, 2),
    "crowded counter": shared.adding(2, 2, crowded=True),
    "barrier": shared.meeting(2, 1),
    "barrier, twice": shared.meeting(2, 2),
    "once per": shared.asking(2, 2),
}
