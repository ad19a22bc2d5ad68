"""What zkwire and a neighbour do together on one path; a session of each ends meanwhile.

A scenario raises AssertionError if anything is wrong; what it returns, if anything, stands in the
documents' tables in place of a yes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import zkwire
from tests.interop.neighbours.sides import KazooSide, Side
from tests.support.lock_helpers import PATIENCE, Running, end_session
from tests.support.server_control import poll

TIMES = 20
A_WHILE = 0.2
PAUSE = 0.002


@dataclass
class Scene:
    """One server, a path of the scenario's own, clients of zkwire."""

    hosts: str
    path: str
    observer: zkwire.Client
    stack: ExitStack

    def client(self) -> zkwire.Client:
        """Another one, connected."""
        client = self.stack.enter_context(zkwire.Client(self.hosts, session_timeout=20.0))
        client.connect()
        return client

    def end(self, session: tuple[int, bytes]) -> None:
        """End a session by a second connection, and see its nodes gone."""
        end_session(self.hosts, *session)

    def end_theirs(self, theirs: Side) -> int:
        """End the session that it has, and wait until it has another; the id of the old one."""
        session = theirs.session()
        self.end(session)
        poll("a new session", lambda: theirs.session()[0] not in (0, session[0]) or None, PATIENCE)
        return session[0]

    def end_ours(self, client: zkwire.Client) -> None:
        known = client.credentials
        self.end((known.session_id, known.passwd))

    def names(self) -> list[str]:
        try:
            return self.observer.get_children(self.path)
        except zkwire.NoNodeError:
            return []

    def wait_for(self, count: int) -> None:
        """Until so many nodes stand below the path."""
        poll(f"{count} nodes", lambda: len(self.names()) == count or None, PATIENCE)


Scenario = Callable[[Scene, Side], str | None]
NEVER = "**never**"


# --- counters -------------------------------------------------------------------------------------


def counted(format: Any) -> Scenario:
    def scenario(scene: Scene, theirs: Side) -> None:
        def ours(client: zkwire.Client, over: threading.Event) -> int:
            """Add as long as the other does, which has few chances without the pauses."""
            counter, times = zkwire.Counter(client, scene.path, format=format), 0
            while times == 0 or not over.wait(PAUSE):
                counter.add(1000, PATIENCE)
                times += 1
            return times

        added = 0
        for _ in range(2):
            client, over = scene.client(), threading.Event()
            adding = Running(partial(ours, client, over))
            try:
                theirs.add(scene.path, format, TIMES)
            finally:
                over.set()
            added += adding.result(2 * PATIENCE)
            scene.end_ours(client)
            scene.end_theirs(theirs)
        number = zkwire.Counter(scene.observer, scene.path, format=format).get()
        assert number == 1000 * added + 2 * TIMES

    return scenario


# --- barriers -------------------------------------------------------------------------------------


def opened_by_either(scene: Scene, theirs: Side) -> None:
    ours, path = zkwire.Barrier(scene.client(), scene.path), scene.path
    for _ in range(2):
        theirs.close(path)
    assert not ours.wait(0)
    ours.close()
    waiting = Running(lambda: ours.wait(PATIENCE))
    theirs.open(path)
    assert waiting.result(2 * PATIENCE)
    ours.close()
    assert not theirs.wait(path, 10)
    there = Running(lambda: theirs.wait(path))
    ours.open()
    assert there.result(2 * PATIENCE)
    theirs.open(path)


def closed_by_the_dead(scene: Scene, theirs: Side) -> None:
    """The barrier stays closed when the session that has closed it ends; a waiter's raises."""
    client = scene.client()
    theirs.close(scene.path)
    scene.end_theirs(theirs)
    waiting = Running(lambda: zkwire.Barrier(client, scene.path).wait(PATIENCE))
    assert not zkwire.Barrier(scene.observer, scene.path).wait(A_WHILE)
    scene.end_ours(client)
    with pytest.raises(zkwire.SessionExpiredError):
        waiting.result(2 * PATIENCE)
    there = Running(lambda: theirs.wait(scene.path))
    zkwire.Barrier(scene.observer, scene.path).open()
    assert there.result(2 * PATIENCE)


def enter_together(scene: Scene, theirs: Side) -> None:
    """Round by round, each the last once."""
    ours, member = zkwire.DoubleBarrier(scene.client(), scene.path, 2), theirs.member(scene.path, 2)
    for first, second in ((ours, member), (member, ours)):
        entering = Running(first.enter)
        scene.wait_for(1)
        assert second.enter()
        assert entering.result(2 * PATIENCE)
        leaving = Running(first.leave)
        assert second.leave()
        assert leaving.result(2 * PATIENCE)
        scene.wait_for(0)


def the_dead_do_not_count(scene: Scene, theirs: Side) -> None:
    """A member whose session has ended is none of two; first theirs, then ours."""
    member = theirs.member(scene.path, 2)
    Running(member.enter)  # whatever becomes of it
    scene.wait_for(1)
    member.has_listed()
    scene.end_theirs(theirs)
    scene.wait_for(0)
    ours = zkwire.DoubleBarrier(scene.client(), scene.path, 2)
    assert not ours.enter(A_WHILE)
    client = scene.client()
    entering = Running(lambda: zkwire.DoubleBarrier(client, scene.path, 2).enter(PATIENCE))
    scene.wait_for(1)
    scene.end_ours(client)
    with pytest.raises(zkwire.SessionExpiredError):
        entering.result(2 * PATIENCE)
    scene.wait_for(0)
    member = theirs.member(scene.path, 2)
    there = Running(member.enter)
    scene.wait_for(1)
    assert not there.ended
    assert ours.enter(PATIENCE)
    assert there.result(2 * PATIENCE)
    leaving = Running(member.leave)
    assert ours.leave(PATIENCE)
    assert leaving.result(2 * PATIENCE)


# --- groups ---------------------------------------------------------------------------------------


def members_of_both(scene: Scene, theirs: Side) -> str:
    """Each sees the other come and, when its session ends, go."""
    with zkwire.Group(scene.observer, scene.path) as group:
        theirs.join(scene.path, "theirs")
        scene.stack.callback(theirs.leave)
        poll("theirs is seen", lambda: shown(group) == {"theirs"} or None, PATIENCE)
        client = scene.client()
        scene.stack.enter_context(zkwire.Group(client, scene.path)).join(b"ours")
        both = {"ours", "theirs"}
        poll("both are seen", lambda: theirs.members() == shown(group) == both or None, PATIENCE)
        session_id = scene.end_theirs(theirs)
        assert owned(scene, session_id) == 0
        after = both if theirs.comes_back else {"ours"}
        poll("that is seen", lambda: theirs.members() == shown(group) == after or None, PATIENCE)
        scene.end_ours(client)
        after = after - {"ours"}
        poll("ours is gone", lambda: theirs.members() == shown(group) == after or None, PATIENCE)
    return "yes; it comes back" if theirs.comes_back else "yes"


def shown(group: zkwire.Group) -> set[str]:
    return {member.data.decode() for member in group.members(PATIENCE)}


def owned(scene: Scene, session_id: int) -> int:
    """How many nodes a session has below the path."""
    stats = [scene.observer.exists(f"{scene.path}/{name}") for name in scene.names()]
    return sum(stat is not None and stat.ephemeral_owner == session_id for stat in stats)


# --- queues, which only kazoo shares --------------------------------------------------------------


def flat_queue(scene: Scene, theirs: Side) -> None:
    """Two consumers of each kind, one after the other by threads: each item comes once."""
    assert isinstance(theirs, KazooSide)
    queue = theirs.client.Queue(scene.path)
    client = scene.client()
    for number in range(TIMES):
        zkwire.Queue(scene.observer, scene.path, flat=True).put(b"ours-%d" % number)
        queue.put(b"theirs-%d" % number)
    taken: list[bytes] = []

    def ours(client: zkwire.Client) -> None:
        mine = zkwire.Queue(client, scene.path, flat=True)
        taken.extend(mine.get(PATIENCE).data for _ in range(TIMES // 2))

    taking = [Running(lambda: ours(client)), Running(lambda: ours(scene.observer))]
    taken.extend(queue.get() for _ in range(TIMES // 2))
    for running in taking:
        running.result(2 * PATIENCE)
    scene.end_theirs(theirs)
    scene.end_ours(client)
    taken.extend(queue.get() for _ in range(TIMES // 2))
    put = [b"%s-%d" % (name, n) for name in (b"ours", b"theirs") for n in range(TIMES)]
    assert sorted(taken) == sorted(put)
    assert queue.get() is None


def claims_come_back(scene: Scene, theirs: Side) -> None:
    """What a consumer has claimed whose session ends goes to the other kind."""
    assert isinstance(theirs, KazooSide)
    ours, queue = zkwire.Queue(scene.observer, scene.path), theirs.client.LockingQueue(scene.path)
    ours.put(b"first")
    assert queue.get(PATIENCE) == b"first"
    scene.end_theirs(theirs)
    with ours.take(PATIENCE) as item:
        assert item.data == b"first"
    queue.put(b"second")
    client = scene.client()
    claim = zkwire.Queue(client, scene.path).take(PATIENCE)
    assert claim.__enter__().data == b"second"
    scene.end_ours(client)
    with pytest.raises(zkwire.LockLostError):
        claim.__exit__(None, None, None)
    queue = theirs.client.LockingQueue(scene.path)
    assert queue.get(PATIENCE) == b"second"
    assert queue.consume()
    assert len(ours) == 0


# --- what has nothing in common -------------------------------------------------------------------


def more_leases_than_there_are(scene: Scene, theirs: Side) -> str:
    """kazoo's counts the two folders of ours as leases, and none of the leases in them."""
    assert isinstance(theirs, KazooSide)
    semaphore = zkwire.Semaphore(scene.client(), scene.path, 3)
    with semaphore.lease(), semaphore.lease(), semaphore.lease():
        lease = theirs.client.Semaphore(scene.path, max_leases=3)
        if not lease.acquire(timeout=PATIENCE):
            return "yes"
        lease.release()
    return NEVER


def items_of_two(scene: Scene, theirs: Side) -> str:
    assert isinstance(theirs, KazooSide)
    partition = theirs.client.SetPartitioner(scene.path, ("a", "b"), time_boundary=A_WHILE)
    try:
        partition.wait_for_acquire(PATIENCE)
        assert partition.acquired
        with zkwire.Partitioner(scene.client(), scene.path, ["a", "b"], name="ours") as ours:
            share = ours.next(PATIENCE)
            return NEVER if set(share or ()) & set(partition) else "yes"
    finally:
        partition.finish()


KAZOO, CURATOR = "kazoo 2.11", "Curator 5.9"
EITHER = (KAZOO, CURATOR)
SCENARIOS: dict[str, dict[str, tuple[Scenario, tuple[str, ...]]]] = {
    "locks": {
        "`Semaphore` and kazoo's `Semaphore`": (more_leases_than_there_are, (KAZOO,)),
    },
    "counter": {
        'no change is lost, with the format `"text"`': (counted("text"), (KAZOO,)),
        'the same with `"int32"`; Curator\'s `SharedCount`': (counted("int32"), EITHER),
        'the same with `"int64"`; Curator\'s `DistributedAtomicLong`': (
            counted("int64"), (CURATOR,),
        ),
    },
    "barriers": {
        "a `Barrier` is closed and opened by either, and both wait": (opened_by_either, EITHER),
        "it stays closed when the session ends that has closed it": (closed_by_the_dead, EITHER),
        "members of a `DoubleBarrier` enter and leave together": (enter_together, EITHER),
        "a member whose session has ended does not count": (the_dead_do_not_count, EITHER),
    },
    "membership": {
        "members see each other, and the end of each other's sessions": (members_of_both, EITHER),
    },
    "queue": {
        "`flat=True` and kazoo's `Queue`: each item comes once": (flat_queue, (KAZOO,)),
        "kazoo's `LockingQueue`: what a lost session has claimed comes to the other": (
            claims_come_back, (KAZOO,),
        ),
    },
    "partitioner": {
        "`Partitioner` and `SetPartitioner`": (items_of_two, (KAZOO,)),
    },
}  # fmt: skip
"""By the page in docs: what is tried, and with which libraries."""


def outcome(scenario: Scenario, scene: Scene, theirs: Side) -> str:
    """What stands in the table."""
    return scenario(scene, theirs) or "yes"


def rows_with(library: str) -> list[tuple[str, str]]:
    """Page and title of each scenario that this library takes part in."""
    return [
        (page, title)
        for page, rows in SCENARIOS.items()
        for title, (_, libraries) in rows.items()
        if library in libraries
    ]
