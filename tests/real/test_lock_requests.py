"""What a lock costs: round trips to get, try and release it, and who is woken by a release."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import zkwire.blocking.leader
from tests.support.both_clients import done
from tests.support.family_helpers import Member, lease_nodes
from tests.support.lock_frames import meaning
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Lock,
    Running,
    Stage,
    all_kinds,
    answers,
    make_path,
    requests,
    wait_until_waiting,
)
from zkwire import AsyncClient, BlockingLock, OperationTimeoutError, SequentialLock, Watch
from zkwire.testing.proxy import Frame, Gate, hold

WAITERS = 20
MOST = 6
"""Requests of one try on a lock that is held."""
LONG_ENOUGH = 0.2  # seconds, in which every request of a try is sent


def sent(stage: Stage) -> list[str]:
    """The operations asked for through the proxy."""
    return [meaning(frame) for frame in requests(stage.proxy.frames())]


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.since("3.5")
@all_kinds
def test_a_free_lock_takes_one_round_trip_and_its_release_another(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """Create and listing leave in one write, before any answer; nothing else is waited for.

    The guard of a lock that is kept leaves by itself.
    """
    if kind is SequentialLock:
        make_path(stage.observer, fresh_path)
    lock, answer, guard = stage.lock(kind, fresh_path), Gate(), Gate()
    enter = ["create2", "get_children"] if kind is SequentialLock else ["create2"]
    stage.proxy.on("create2", action=hold(answer), reply=True)
    stage.proxy.on("get_children2", action=hold(guard))
    acquiring = Running(lambda: lock.acquire(GRACE))
    answer.wait_reached()
    assert sent(stage) == enter
    assert len({frame.time for frame in requests(stage.proxy.frames())}) == 1, "in one piece"
    assert not acquiring.ended
    answer.release()
    assert acquiring.result(GRACE)
    assert lock.held
    guard.wait_reached()
    assert sent(stage) == [*enter, "get_children2"]
    guard.release()
    stage.proxy.reset()
    released = Gate()
    stage.proxy.on("delete", action=hold(released), reply=True)
    releasing = Running(lock.release)
    released.wait_reached()
    assert not releasing.ended
    released.release()
    releasing.result(GRACE)
    assert sent(stage) == ["delete"]


@pytest.mark.since("3.5")
def test_a_lock_held_for_a_moment_is_two_round_trips(
    stage: Stage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard has not left when it is released, and then need not leave at all.

    It leaves with the next request, so the answer to a `sync` says whether the lock is still held.
    """
    monkeypatch.setattr(zkwire.blocking.leader, "DEFER_SECONDS", PATIENCE)
    stage.observer.create(fresh_path)
    client = stage.client()
    lock = SequentialLock(client, fresh_path)
    for _ in range(3):
        assert lock.acquire(PATIENCE)
        assert lock.held
        lock.release()
    assert sent(stage) == ["create2", "get_children", "delete"] * 3
    assert lock.lost.reason is None
    stage.proxy.reset()
    assert lock.acquire(PATIENCE)
    client.sync("/")
    assert sent(stage) == ["create2", "get_children", "get_children2", "sync"]
    lock.release()


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


@pytest.mark.since("3.5")
@pytest.mark.parametrize("kind", ["SequentialLock", "Semaphore"])
@pytest.mark.parametrize("prefix", ["", "Async"], ids=["threads", "asyncio"])
def test_a_poll_costs_six_requests(stage: Stage, fresh_path: str, prefix: str, kind: str) -> None:
    def maker(client: Any, prefix: str) -> Any:
        make = getattr(zkwire, prefix + kind)
        return (
            make(client, fresh_path, 1).lease
            if kind == "Semaphore"
            else partial(make, client, fresh_path)
        )

    async def poll() -> list[str]:
        client: Any = AsyncClient(stage.proxy.hosts) if prefix else stage.client()
        await done(client.connect())
        make = maker(client, prefix)
        for _ in range(2):
            stage.proxy.reset()
            with suppress(OperationTimeoutError):
                assert await done(make().acquire(LONG_ENOUGH)) is False
            await done(client.exists("/"))  # behind all that the try has asked for
        asked = sent(stage)[:-1]
        await done(client.close())
        return asked

    holder = maker(stage.client(direct=True), "")()
    assert holder.acquire(GRACE)
    assert len(asked := asyncio.run(poll())) <= MOST, asked
    nodes = lease_nodes(stage, fresh_path) if kind == "Semaphore" else stage.nodes(fresh_path)
    assert len(nodes) == 1
    holder.release()


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
        for _ in range(WAITERS - 1):
            self._hand_over(self._next().leave)
        self._next().leave()
        stage.wait_no_nodes(path)
        print(f"{sum(self.woken)} wake-ups, {sum(map(len, self.asked))} requests by the woken")

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

    def _hand_over(self, release: Any) -> None:
        left = WAITERS - 1 - len(self.order)
        # Who was the next one when it looked has a guard already.
        guards = 0 if self._kind is SequentialLock and not self.order else 1
        self._stage.proxy.reset()
        release()

        def settled(frames: list[Frame]) -> bool:
            """The next one holds and watches its node; who has lost waits again."""
            looked = len(answers(frames, "get_data"))
            guarded = len(answers(frames, "get_children2"))
            return guarded == guards and looked == (left if self._kind is BlockingLock else 0)

        self._stage.proxy.wait_for(settled, PATIENCE)


def test_release_of_a_sequential_lock_wakes_one(stage: Stage, fresh_path: str) -> None:
    crowd = Crowd(stage, SequentialLock, fresh_path)
    assert crowd.woken == [1] * WAITERS
    # Who had one ahead needs no look; the others do not know what became of those before it.
    assert crowd.asked == [[], *[["get_children", "get_children2"]] * (WAITERS - 1)]
    assert crowd.order == list(range(WAITERS)), "in order of arrival"
    assert crowd.fences == sorted(crowd.fences)


def test_release_of_a_blocking_lock_wakes_the_herd(stage: Stage, fresh_path: str) -> None:
    crowd = Crowd(stage, BlockingLock, fresh_path)
    waiting = list(range(WAITERS, 0, -1))
    assert crowd.woken == waiting, "everybody, each time"
    assert [ops.count("create2") for ops in crowd.asked] == waiting
    assert sorted(crowd.order) == list(range(WAITERS))
    assert crowd.fences == sorted(crowd.fences)
