"""The rest of what the family promises: re-entrance, places in a queue, two equal faces, faults.

Each kind of lock has a file of its own; the fault sweep of all of them is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.real.test_lock_sweep import (
    PAIRS,
    SINGLES,
    Cycle,
    Fault,
    Place,
    Run,
    Sweep,
    closed,
    free,
    named,
    timed_out,
    tried,
    waited,
)
from tests.support.family_helpers import lease_of, soon, watches_children
from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    Client,
    MultiLock,
    ReadWriteLock,
    ReentrantLock,
    SequentialLock,
)
from zkwire.testing.proxy import Frame

# --- the re-entrant lock --------------------------------------------------------------------------


def test_thread_that_holds_may_acquire_again(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    assert not lock.held
    with lock as entered:
        assert entered is lock
        fence = lock.lock.fence
        assert lock.acquire(0)
        assert lock.try_acquire()
        assert lock.lease_remaining() > 0
        with lock:
            assert len(stage.nodes(fresh_path)) == 1
            assert lock.lock.fence == fence
        lock.release()
        lock.release()
        assert lock.held
        rival = ReentrantLock(stage.observer, fresh_path)
        assert not rival.try_acquire()
    assert not lock.held
    assert stage.nodes(fresh_path) == []
    assert rival.try_acquire()
    assert rival.lock.fence > fence
    rival.release()
    with lock:
        assert lock.lock.fence > fence


# --- places in the queue --------------------------------------------------------------------------


def test_contenders_that_go_while_they_are_listed(stage: Stage, fresh_path: str) -> None:
    """Listed, and gone before they were looked at."""
    with SequentialLock(stage.client(direct=True), fresh_path, "stays"):
        gone = [
            stage.observer.create(f"{fresh_path}/x-lock-", ephemeral=True, sequential=True)
            for _ in range(2)
        ]
        lock = SequentialLock(stage.client(), fresh_path)

        def delete(frame: Frame) -> None:
            if frame.op == "get_children" and frame.direction == "s2c":
                deleting.append(Running(lambda: list(map(stage.observer.delete, gone))))
                deleting[-1].result()

        deleting: list[Running[Any]] = []
        stage.proxy.rule(delete)
        assert [contender.text for contender in lock.contenders()] == ["stays"]
        assert deleting


# --- the sweep ------------------------------------------------------------------------------------


def read_lock(client: Client, path: str) -> Any:
    """The read lock."""
    return ReadWriteLock(client, path).read


def write_lock(client: Client, path: str) -> Any:
    """The write lock."""
    return ReadWriteLock(client, path).write


class Both(MultiLock):
    """A multi-lock of two."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(SequentialLock(client, f"{path}/b"), SequentialLock(client, f"{path}/a"))

    @property
    def fence(self) -> int:
        """The one of the lock that is acquired first."""
        return self.locks[1].fence


def lease(client: Client, path: str) -> Any:
    """The only lease of a semaphore."""
    return lease_of(client, path)


Make = Callable[[Client, str], Any]


class FamilyRun(Run):
    """A run with a lock of the family; the others use ``rival``, which excludes it."""

    def __init__(
        self, server: ZooKeeperServer, observer: Client, make: Make, rival: Make, path: str, at: int
    ) -> None:
        super().__init__(server, observer, rival, path, at)  # type: ignore[arg-type]
        self.make = make
        self.own = make(self.subject, path)

    def nodes(self, path: str) -> list[str]:
        if self.make is lease:
            return super().nodes(f"{path}/leases") + super().nodes(f"{path}/locks")
        if self.make is Both:
            return super().nodes(f"{path}/a") + super().nodes(f"{path}/b")
        return super().nodes(path)

    def wait_until_waiting(self) -> None:
        if self.make is not lease:
            return super().wait_until_waiting()
        leases = f"{self.path}/leases"

        def looks(frames: list[Frame]) -> bool:
            heard = [f for f in frames if f.request not in self._unanswered]
            return watches_children(heard, leases)

        self.proxy.wait_for(looks, PATIENCE)
        return None


class FamilySweep(Sweep):
    """All runs of one life cycle of a lock of the family."""

    def __init__(self, place: Place, faults: Mapping[str, tuple[Fault, ...]], make: Make) -> None:
        super().__init__(place, faults)
        self._make = make

    def _run(self, name: str, at: int) -> Run:
        path = f"{self._path}/{name}/lock"
        return FamilyRun(self._server, self._observer, self._make, self._kind, path, at)

    def _live(self, run: Run) -> None:
        super()._live(run)
        assert_sequential_creates_are_looked_up(run.proxy.frames())


def assert_sequential_creates_are_looked_up(frames: list[Frame]) -> None:
    """No lost sequential create was repeated before a sync and a listing had been answered."""
    answered = {id(f.request): f.error for f in frames if f.direction == "s2c"}
    creates: dict[str | None, Frame] = {}
    for place, create in enumerate(frames):
        if create.direction != "c2s" or create.op != "create2" or not create.raw[-1] & 2:
            continue
        first = creates.get(create.path)
        creates[create.path] = create
        if first is None or answered.get(id(first), 0) or first.connection == create.connection:
            continue
        looked = [
            f.op
            for f in frames[frames.index(first) : place]
            if f.connection == create.connection and id(f) in answered
        ]
        assert {"sync", "get_children"} <= set(looked), f"{create} repeats {first} after {looked}"


def downgraded(run: Run) -> None:
    """Write, become a reader while somebody waits to write, release both."""
    assert isinstance(run, FamilyRun)
    lock = ReadWriteLock(run.subject, run.path)
    run.own = lock.write  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as holder:
        assert holder.submit(lock.write.acquire, PATIENCE).result(GRACE + PATIENCE)
        waiting = Running(lambda: run.other.acquire(2 * PATIENCE))
        soon("somebody waits to write", lambda: len(run.nodes(run.path)) >= 2)
        assert holder.submit(lock.read.acquire, PATIENCE).result(GRACE + PATIENCE)
        assert lock.write.held
        holder.submit(lock.write.release).result(GRACE)
    run.own = lock.read  # type: ignore[assignment]
    assert lock.read.held
    assert not run.other.held
    assert not waiting.ended
    Running(lock.read.release).result()
    assert waiting.result(PATIENCE + GRACE)
    assert run.other.fence
    run.other.release()


LOCKS: dict[str, tuple[Make, Make]] = {
    "read": (read_lock, write_lock),
    "write": (write_lock, read_lock),
    "lease": (lease, lease),
    "both": (Both, Both),
}
CYCLES = [
    named(name, cycle, name, cycle, longest=cycle is waited)
    for name in LOCKS
    for cycle in (free, waited, tried, timed_out, closed)
]


@pytest.mark.parametrize(("name", "cycle"), CYCLES)
def test_every_fault_at_every_request(place: Place, name: str, cycle: Cycle) -> None:
    make, rival = LOCKS[name]
    sweep = FamilySweep(place, SINGLES, make)
    sweep.run_all(rival, cycle)  # type: ignore[arg-type]


def test_every_fault_at_every_request_of_a_downgrade(place: Place) -> None:
    """While a writer waits: all faults one by one, and two cuts in a row."""
    faults: dict[str, tuple[Fault, ...]] = {**SINGLES, **PAIRS}
    sweep = FamilySweep(place, faults, write_lock)
    sweep.run_all(write_lock, downgraded)  # type: ignore[arg-type]
