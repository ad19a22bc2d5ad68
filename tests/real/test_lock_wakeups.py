"""What a lock costs: round trips to get and release it, and who is woken by a release."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

import zkwire.blocking.leader
from tests.support.family_helpers import Member
from tests.support.lock_frames import meaning
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    SINGLE_KINDS,
    Kind,
    Lock,
    Running,
    Stage,
    answers,
    make_path,
    requests,
    wait_until_waiting,
)
from zkwire import BlockingLock, SequentialLock, Watch
from zkwire.testing.proxy import Frame, Gate, hold

WAITERS = 20


# --- round trips ----------------------------------------------------------------------------------


def sent(stage: Stage) -> list[str]:
    """The operations asked for through the proxy."""
    return [meaning(frame) for frame in requests(stage.proxy.frames())]


@pytest.mark.since("3.5")
def test_free_sequential_lock_takes_one_round_trip(stage: Stage, fresh_path: str) -> None:
    """Create and listing leave in one write, before any answer; nothing else is waited for."""
    make_path(stage.observer, fresh_path)
    lock, answer, guard = stage.lock(SequentialLock, fresh_path), Gate(), Gate()
    stage.proxy.on("create2", action=hold(answer), reply=True)
    stage.proxy.on("get_children2", action=hold(guard))
    acquiring = Running(lock.acquire)
    answer.wait_reached()
    create, listing = requests(stage.proxy.frames())
    assert [create.op, listing.op] == ["create2", "get_children"]
    assert create.time == listing.time, "they arrived in one piece"
    assert not acquiring.ended
    answer.release()
    assert acquiring.result(GRACE)
    assert lock.held
    guard.wait_reached()
    assert sent(stage) == ["create2", "get_children", "get_children2"]
    guard.release()
    lock.release()


@pytest.mark.parametrize("kind", SINGLE_KINDS)
def test_free_single_node_lock_takes_one_round_trip(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    lock, guard = stage.lock(kind, fresh_path), Gate()
    stage.proxy.on("get_children2", action=hold(guard))
    assert lock.acquire(GRACE)
    guard.wait_reached()
    assert sent(stage) == ["create2", "get_children2"]
    guard.release()
    lock.release()


@pytest.mark.parametrize("kind", [SequentialLock, *SINGLE_KINDS])
def test_release_takes_one_round_trip(stage: Stage, kind: Kind, fresh_path: str) -> None:
    lock, answer = stage.lock(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.reset()
    stage.proxy.on("delete", action=hold(answer), reply=True)
    releasing = Running(lock.release)
    answer.wait_reached()
    assert not releasing.ended
    answer.release()
    releasing.result(GRACE)
    assert [op for op in sent(stage) if op != "get_children2"] == ["delete"]


@pytest.mark.since("3.5")
def test_a_lock_held_for_a_moment_is_two_round_trips(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard has not left when it is released, and then need not leave at all."""
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    stage.observer.create(fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    for _ in range(3):
        assert lock.acquire(PATIENCE)
        assert lock.held
        lock.release()
    assert sent(stage) == ["create2", "get_children", "delete"] * 3
    assert lock.lost.reason is None


@pytest.mark.since("3.5")
def test_a_wait_in_vain_is_six_requests(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that follows, too: none waits behind the node of the one before."""

    async def no_event_in_time(watch: Watch, deadline: float | None) -> None:
        return None

    client, times = stage.client(), 5
    lock = SequentialLock(client, fresh_path)
    monkeypatch.setattr(client._driver, "event", no_event_in_time)
    with SequentialLock(stage.observer, fresh_path):
        for _ in range(times):
            assert not lock.acquire(PATIENCE)
        client.get_acl("/")
    operations = sent(stage)
    assert operations.pop() == "get_acl"
    each = ["create2", "delete", "get_children", "get_children2", "get_data", "remove_watches"]
    assert sorted(operations) == sorted(each * times)


def test_the_guard_of_a_lock_that_is_kept_leaves_by_itself(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    assert lock.acquire(PATIENCE)
    stage.proxy.wait_for(lambda frames: [f.op for f in requests(frames)][-1:] == ["get_children2"])
    lock.release()


@pytest.mark.since("3.5")
def test_the_guard_leaves_with_the_next_request(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the answer to a `sync` says whether the lock is still held."""
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    stage.observer.create(fresh_path)
    client = stage.client()
    lock = SequentialLock(client, fresh_path)
    assert lock.acquire(PATIENCE)
    client.sync("/")
    assert sent(stage) == ["create2", "get_children", "get_children2", "sync"]
    lock.release()


# --- wake-ups -------------------------------------------------------------------------------------


class Crowd:
    """Twenty who wait, in order of arrival, and what each release does to them."""

    def __init__(self, stage: Stage, kind: Kind, path: str) -> None:
        self._stage = stage
        self._kind = kind
        self._granted: SimpleQueue[str] = SimpleQueue()
        self._waiting: list[tuple[Member, Lock]] = []
        self.order: list[int] = []
        self.fences: list[int] = []
        self.woken: list[int] = []
        self.asked: list[list[str]] = []
        first = stage.rival(kind, path)
        assert first.acquire(GRACE)
        for number in range(WAITERS):
            lock = stage.lock(kind, path)
            self._waiting.append((Member(str(number), lock, self._granted), lock))
            wait_until_waiting(stage, nth=number + 1)
        self._hand_over(first.release)

    def disperse(self) -> None:
        """Release after release, until everybody has had the lock."""
        holder = self._next()
        for _ in range(WAITERS - 1):
            self._hand_over(holder.leave)
            holder = self._next()
        holder.leave()

    def _next(self) -> Member:
        number = int(self._granted.get(timeout=PATIENCE))
        waiter, lock = self._waiting[number]
        self.order.append(number)
        self.fences.append(lock.fence)
        frames = self._stage.proxy.frames()
        releasers = {frame.connection for frame in frames if meaning(frame) == "delete"}
        others = [frame for frame in frames if frame.connection not in releasers]
        self.woken.append(len([f for f in others if f.kind == "notification"]))
        self.asked.append([meaning(frame) for frame in requests(others)])
        return waiter

    def _hand_over(self, release: object) -> None:
        assert callable(release)
        proxy, left = self._stage.proxy, WAITERS - 1 - len(self.order)
        # Who was the next one when it looked has a guard already.
        guards = 0 if self._kind is SequentialLock and not self.order else 1
        proxy.reset()
        release()

        def settled(frames: list[Frame]) -> bool:
            """The next one holds and watches its node; who has lost waits again."""
            looked = len(answers(frames, "get_data"))
            guarded = len(answers(frames, "get_children2"))
            return guarded == guards and looked == (left if self._kind is BlockingLock else 0)

        proxy.wait_for(settled, PATIENCE)


def test_release_of_a_sequential_lock_wakes_one(
    stage: Stage, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = Crowd(stage, SequentialLock, fresh_path)
    crowd.disperse()
    show(capsys, crowd, "sequential")
    assert crowd.woken == [1] * WAITERS
    # Who had one ahead needs no look; the others do not know what became of those before it.
    assert crowd.asked == [[], *[["get_children", "get_children2"]] * (WAITERS - 1)]
    assert crowd.order == list(range(WAITERS)), "in order of arrival"
    assert crowd.fences == sorted(crowd.fences)
    stage.wait_no_nodes(fresh_path)


def test_release_of_a_blocking_lock_wakes_the_herd(
    stage: Stage, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = Crowd(stage, BlockingLock, fresh_path)
    crowd.disperse()
    show(capsys, crowd, "blocking")
    waiting = list(range(WAITERS, 0, -1))
    assert crowd.woken == waiting, "everybody, each time"
    assert [ops.count("create2") for ops in crowd.asked] == waiting
    assert sorted(crowd.order) == list(range(WAITERS))
    assert crowd.fences == sorted(crowd.fences)
    stage.wait_no_nodes(fresh_path)


def show(capsys: pytest.CaptureFixture[str], crowd: Crowd, name: str) -> None:
    """Print the figures."""
    with capsys.disabled():
        print(
            f"\n{name} lock, {WAITERS} waiters, {len(crowd.woken)} releases: "
            f"{sum(crowd.woken)} wake-ups, {sum(map(len, crowd.asked))} requests by the woken"
        )
