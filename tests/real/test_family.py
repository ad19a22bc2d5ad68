"""The rest of what the family promises: re-entrance, places in a queue, two equal faces, faults.

Each kind of lock has a file of its own; the fault sweep of all of them is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from tests.real.test_lock_sweep import (
    PAIRS,
    SILENCES,
    SINGLES,
    Cycle,
    Fault,
    Place,
    Run,
    Sweep,
    closed,
    free,
    free_in_time,
    named,
    taken_in_time,
    timed_out,
    tried,
    waited,
)
from tests.support.family_helpers import Queue, lease_of, lose, soon, watches_children
from tests.support.lock_helpers import GRACE, PATIENCE, Running, Stage, wait_until_waiting
from tests.support.server_control import ZooKeeperServer
from zkwire import (
    Client,
    Contender,
    LockLostError,
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


def test_other_threads_wait_for_the_last_release(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    order: SimpleQueue[str] = SimpleQueue()

    def other() -> None:
        assert not lock.held
        assert not lock.acquire(0)
        with lock:
            order.put("other")

    assert lock.acquire(GRACE)
    assert lock.acquire(GRACE)
    running = Running(other)
    wait_until_waiting(stage)
    lock.release()
    assert lock.held
    assert not SequentialLock(stage.observer, fresh_path).try_acquire()
    assert not running.ended
    order.put("first")
    lock.release()
    running.result()
    assert [order.get_nowait(), order.get_nowait()] == ["first", "other"]
    assert stage.nodes(fresh_path) == []


def test_threads_count_with_one_object(stage: Stage, fresh_path: str) -> None:
    lock, counter = ReentrantLock(stage.client(), fresh_path), [0]

    def work() -> None:
        for _ in range(20):
            with lock:
                number = counter[0]
                with lock:
                    assert lock.held
                counter[0] = number + 1

    for running in [Running(work) for _ in range(3)]:
        running.result(2 * PATIENCE)
    assert counter == [60]
    assert stage.nodes(fresh_path) == []


def test_release_by_a_stranger_is_refused(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    with pytest.raises(RuntimeError, match="this thread or task does not hold"):
        lock.release()
    with lock:
        with pytest.raises(RuntimeError, match="this thread or task does not hold"):
            Running(lock.release).result()
        assert lock.held
    with pytest.raises(RuntimeError, match="this thread or task does not hold"):
        lock.release()


def test_failed_attempts_do_not_count(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    with SequentialLock(stage.observer, fresh_path):
        for timeout in (0, 0.02):
            assert not lock.acquire(timeout)
        with pytest.raises(ValueError, match="timeout"):
            lock.acquire(-1)
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    with lock:
        assert lock.held


def test_loss_while_nested(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    assert lock.acquire(GRACE)
    assert lock.acquire(GRACE)
    lose(stage, lock.lock, stage.nodes(fresh_path)[0])
    assert not lock.held
    for again in (lock.acquire, lock.__enter__):
        with pytest.raises(LockLostError):
            again()
    assert SequentialLock(stage.observer, fresh_path).try_acquire()
    lock.release()
    with pytest.raises(LockLostError):
        lock.acquire()
    with pytest.raises(LockLostError):
        lock.release()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    assert not lock.acquire(0), "the object is as new, and somebody else holds"


def test_with_tells_of_a_loss_once(stage: Stage, fresh_path: str) -> None:
    lock = ReentrantLock(stage.client(), fresh_path)
    assert lock.acquire(GRACE)
    with lock:
        lose(stage, lock.lock, stage.nodes(fresh_path)[0])
    with pytest.raises(LockLostError):  # the outermost tells
        lock.__exit__(None, None, None)
    with lock:
        assert lock.held


# --- places in the queue --------------------------------------------------------------------------


def test_place_is_told_at_the_entry_and_when_it_moves_up(stage: Stage, fresh_path: str) -> None:
    places: SimpleQueue[int] = SimpleQueue()
    queue = Queue(stage, fresh_path)
    for number in range(3):
        queue.join(str(number), SequentialLock(stage.client(direct=True), fresh_path))
    lock = SequentialLock(stage.client(), fresh_path)
    acquiring = Running(lambda: lock.acquire(PATIENCE, on_position=places.put))
    assert places.get(timeout=PATIENCE) == 3
    queue.expect("0")
    wait_until_waiting(stage)
    # The one right ahead gives up: two are left.
    stage.observer.delete(stage.nodes(fresh_path)[2])
    assert places.get(timeout=PATIENCE) == 2
    queue.leave("0")
    queue.expect("1")
    queue.leave("1")
    # The one whose node was deleted has queued anew, behind.
    assert places.get(timeout=PATIENCE) == 0
    assert acquiring.result()
    queue.expect_nobody()
    lock.release()
    queue.expect("2")
    queue.leave("2")
    assert places.empty()


def test_place_of_a_free_lock_is_the_first(stage: Stage, fresh_path: str) -> None:
    places: SimpleQueue[int] = SimpleQueue()
    lock = SequentialLock(stage.client(), fresh_path)
    for _ in range(2):
        assert lock.acquire(GRACE, on_position=places.put)
        assert places.get(timeout=PATIENCE) == 0
        lock.release()
    assert lock.acquire(GRACE), "who does not ask is not told"
    lock.release()
    # The next callback would come behind anything that was told.
    assert lock.acquire(GRACE, on_position=places.put)
    lock.release()
    assert places.get(timeout=PATIENCE) == 0
    assert places.empty()


def test_contenders_show_session_and_text(stage: Stage, fresh_path: str) -> None:
    texts = ["the holder", "", "caf\u00e9"]
    clients = [stage.client(direct=True) for _ in texts]
    locks = [SequentialLock(c, fresh_path, text) for c, text in zip(clients, texts, strict=True)]
    assert locks[0].contenders() == []
    queue = Queue(stage, fresh_path)
    for number, lock in enumerate(locks):
        queue.join(str(number), lock)
    stage.observer.create(f"{fresh_path}/no-contender")
    stage.observer.create(f"{fresh_path}/foreign-", b"\xff\xfe", sequential=True)
    found = locks[2].contenders()
    assert all(isinstance(contender, Contender) for contender in found)
    assert [contender.text for contender in found] == [*texts, "\ufffd\ufffd"]
    assert [contender.session_id for contender in found] == [*(c.session_id for c in clients), 0]
    assert [contender.path for contender in found[:3]] == [
        node for node in stage.nodes(fresh_path) if "-lock-" in node
    ]
    assert found[0].sequence < found[1].sequence < found[2].sequence
    for number in range(3):
        queue.expect(str(number))
        queue.leave(str(number))


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


@pytest.mark.own_server
@pytest.mark.parametrize("cycle", [free_in_time, taken_in_time], ids=lambda cycle: cycle.__name__)
@pytest.mark.parametrize("name", LOCKS)
def test_deadline_is_kept_wherever_the_network_falls_silent(
    place: Place, name: str, cycle: Cycle
) -> None:
    make, rival = LOCKS[name]
    faults = {name: SILENCES[name] for name in list(SILENCES)[:2]}
    sweep = FamilySweep(place, faults, make)
    sweep.run_all(rival, cycle)  # type: ignore[arg-type]
