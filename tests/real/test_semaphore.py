"""The semaphore on a real server: never a lease too many, nobody overtakes, one count for all."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.support.family_helpers import (
    LeaseQueue,
    lease_nodes,
    lease_of,
    leased,
    lose,
    soon,
    watches_children,
)
from tests.support.lock_helpers import (
    A_WHILE,
    GRACE,
    LONG,
    PATIENCE,
    SHORT,
    Running,
    Stage,
    Workers,
    answers,
    assert_strictly_rising,
    make_path,
)
from zkwire import (
    Lease,
    LockLostError,
    LockTimeoutError,
    Semaphore,
    SessionExpiredError,
    SetData,
)
from zkwire.testing.proxy import Frame

# Seconds in which even a busy machine sees that all leases are taken; else the error is another.
LOOKED = 2.0


def far(stage: Stage, path: str, count: int, text: str = "") -> Semaphore:
    """A semaphore on a client of its own, out of the proxy's reach."""
    return Semaphore(stage.client(direct=True), path, count, text)


def near(stage: Stage, path: str, count: int) -> Semaphore:
    """A semaphore on a client of its own, behind the proxy."""
    return Semaphore(stage.client(), path, count)


def wait_no_nodes(stage: Stage, path: str) -> None:
    """Wait until no contender is left; what goes in the background may take a moment."""
    soon("no node is left", lambda: not lease_nodes(stage, path))


# --- so many, in order ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_as_there_are(stage: Stage, fresh_path: str, count: int) -> None:
    semaphores = [far(stage, fresh_path, count) for _ in range(count + 1)]
    assert {semaphore.count for semaphore in semaphores} == {count}
    leases = [leased(semaphore, GRACE) for semaphore in semaphores[:-1]]
    assert all(lease.held for lease in leases)
    assert stage.observer.get_data(fresh_path)[0] == str(count).encode()
    for timeout in (0, A_WHILE):
        assert not semaphores[-1].lease().acquire(timeout)
    for timeout in (0, LOOKED):
        said = f"none of {count} leases was free in time$"
        entering = semaphores[-1].lease().within(timeout)
        with pytest.raises(LockTimeoutError, match=said), entering:
            pytest.fail("the body runs")
    leases.pop(0).release()
    with semaphores[-1].lease().within(GRACE) as lease:
        assert lease.held
        assert all(other.held for other in leases)
    for other in leases:
        other.release()
    wait_no_nodes(stage, fresh_path)


def test_order_of_arrival(stage: Stage, fresh_path: str) -> None:
    queue, count = LeaseQueue(stage, fresh_path), 2
    names = list("abcdefgh")
    for name in names:
        queue.join(name, lease_of(stage.client(direct=True), fresh_path, count))
        if name in "ab":  # one after the other, for two may tell of their leases in any order
            queue.expect(name)
    assert queue.granted == ["a", "b"]
    for leaving, coming in zip("badcfe", "cdefgh", strict=True):
        queue.expect_nobody()
        queue.leave(leaving)
        queue.expect(coming)
        assert sum(member.lock.held for member in queue.members.values()) == count
        ranks = [node.rpartition("/")[2][:16] for node in stage.nodes(f"{fresh_path}/leases")]
        assert len(set(ranks)) == len(ranks), "one lease for each contender"
    queue.leave("g", "h")
    assert queue.granted == names
    wait_no_nodes(stage, fresh_path)


def test_contender_whose_lease_node_was_deleted_queues_anew(stage: Stage, fresh_path: str) -> None:
    holder = leased(far(stage, fresh_path, 1), GRACE)
    lease = lease_of(stage.client(), fresh_path)
    waiting = Running(lambda: lease.acquire(PATIENCE))
    stage.proxy.wait_for(lambda frames: watches_children(frames, f"{fresh_path}/leases"), PATIENCE)
    stage.proxy.reset()
    stage.observer.delete(stage.nodes(f"{fresh_path}/leases")[1])
    stage.proxy.wait_for(lambda frames: watches_children(frames, f"{fresh_path}/leases"), PATIENCE)
    assert not lease.held
    assert holder.held
    holder.release()
    assert waiting.result()
    assert len(stage.nodes(f"{fresh_path}/leases")) == 1
    lease.release()


def test_lease_given_back_wakes_one(
    stage: Stage, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first in the queue hears of the lease, the second that it is the first now."""
    waiters, count = 8, 2
    first = [leased(far(stage, fresh_path, count), GRACE) for _ in range(count)]
    holders: list[Callable[[], None]] = [lease.release for lease in first]
    queue = LeaseQueue(stage, fresh_path)
    for number in range(waiters):
        queue.join(str(number), lease_of(stage.client(), fresh_path, count))
        waiting = lambda frames, n=number: len(looks(frames, fresh_path)) == n + 1  # noqa: E731
        stage.proxy.wait_for(waiting, PATIENCE)
    figures = []
    for number in range(waiters):
        stage.proxy.reset()
        holders.pop(0)()
        queue.expect(str(number))
        holders.append(queue.members[str(number)].leave)
        last = number == waiters - 1
        # The winner leaves the queue and begins to watch its own lease; the one that gives back is
        # behind the proxy later on.
        expected = Counter(delete=1 + (number >= count), get_children2=1, looks=0 if last else 1)

        def settled(frames: list[Frame], expected: Counter[str] = expected) -> bool:
            seen = Counter(
                delete=len(answers(frames, "delete")),
                get_children2=len(answers(frames, "get_children2")),
                looks=len(looks(frames, fresh_path)),
            )
            return seen >= expected

        frames = stage.proxy.wait_for(settled, PATIENCE)
        figures.append(woken(frames))
    for release in holders:
        release()
    with capsys.disabled():
        print(
            f"\nsemaphore of {count}, {waiters} waiters: woken by each lease given back: {figures}"
        )
    assert figures == [["leases", "locks"]] * (waiters - 1) + [["leases"]]
    wait_no_nodes(stage, fresh_path)


def looks(frames: list[Frame], path: str) -> list[Frame]:
    """The looks of those who wait: at the one ahead, or at the leases."""
    return [
        frame
        for frame in answers(frames, "get_data") + answers(frames, "get_children")
        if frame.request is not None
        and frame.request.raw[-1] == 1
        and (frame.request.path or "").startswith(f"{path}/l")
    ]


def woken(frames: list[Frame]) -> list[str]:
    """Below which node somebody was told of a change; the end of one's own node is no news."""
    own = {(f.connection, f.path) for f in frames if f.direction == "c2s" and f.op == "delete"}
    return sorted(
        "leases" if "/leases" in text(frame) else "locks"
        for frame in frames
        if frame.kind == "notification"
        and not any(c == frame.connection and (path or "") in text(frame) for c, path in own)
    )


def text(frame: Frame) -> str:
    """A frame's bytes, to look for a path in them."""
    return frame.raw.decode("latin-1")


# --- one count ------------------------------------------------------------------------------------


def test_first_one_writes_the_count_down(stage: Stage, fresh_path: str) -> None:
    make_path(stage.observer, fresh_path)
    leased(far(stage, fresh_path, 2), GRACE).release()
    data, stat = stage.observer.get_data(fresh_path)
    assert (data, stat.version) == (b"2", 1)
    leased(far(stage, fresh_path, 2), GRACE).release()
    assert stage.observer.get_data(fresh_path)[1].version == 1
    with pytest.raises(ValueError, match="a semaphore of 2, not of 3"):
        leased(far(stage, fresh_path, 3), GRACE)
    wait_no_nodes(stage, fresh_path)


def test_something_else_in_the_node_is_no_count(stage: Stage, fresh_path: str) -> None:
    stage.observer.create(fresh_path, b"2\nFORGED " + b"x" * 100_000)
    with pytest.raises(ValueError, match=r"semaphore of b'2\\nFORGED x+', not of 1") as caught:
        leased(far(stage, fresh_path, 1), GRACE)
    assert len(str(caught.value)) < 300
    assert lease_nodes(stage, fresh_path) == []


@pytest.mark.own_server
@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2", None])
def test_count_is_a_positive_number(stage: Stage, fresh_path: str, count: object) -> None:
    with pytest.raises(ValueError, match="at least one lease"):
        Semaphore(stage.observer, fresh_path, count)  # type: ignore[arg-type]


@pytest.mark.own_server
@pytest.mark.parametrize(
    ("path", "what"), [("/", "root"), ("relative", "path"), ("/a//b", "path"), ("/a/", "path")]
)
def test_path_is_checked_early(stage: Stage, path: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Semaphore(stage.observer, path, 1)


# --- the lease ------------------------------------------------------------------------------------


def test_lease_has_what_a_lock_has(stage: Stage, fresh_path: str) -> None:
    semaphore = far(stage, fresh_path, 1, "who")
    stage.observer.create(f"{fresh_path}-target")
    fences = []
    for _ in range(3):
        lease = leased(semaphore, GRACE)
        assert isinstance(lease, Lease)
        assert lease.held
        lease.check()
        assert 0 < lease.lease_remaining() <= LONG
        assert not lease.lost.is_set()
        fences.append(lease.fence)
        (node,) = stage.nodes(f"{fresh_path}/leases")
        stat = stage.observer.exists(node)
        assert stat is not None
        assert lease.fence == stat.czxid
        assert [holder.text for holder in semaphore.holders()] == ["who"]
        assert lease.guard([SetData(f"{fresh_path}-target", b"x")])
        lease.release()
        assert not lease.held
        assert lease.lease_remaining() == 0.0
        with pytest.raises(LockLostError):
            lease.check()
        with pytest.raises(RuntimeError):
            lease.release()
        assert semaphore.holders() == []
    assert_strictly_rising(fences)


def test_two_leases_of_one_object(stage: Stage, fresh_path: str) -> None:
    semaphore = Semaphore(stage.client(), fresh_path, 2)
    with semaphore.lease().within(GRACE) as first, semaphore.lease().within(GRACE) as second:
        assert first is not second
        assert first.held
        assert second.held
        assert first.fence < second.fence
        assert not semaphore.lease().acquire(0)
        first_node, second_node = stage.nodes(f"{fresh_path}/leases")
        lose(stage, first, first_node)
        assert not first.held
        assert second.held, "each is lost by itself"
        with semaphore.lease().within(GRACE) as third:
            assert third.held
        with pytest.raises(LockLostError):
            first.release()
        assert first.acquire(GRACE), "the object is as new"
        assert stage.nodes(f"{fresh_path}/leases")[0] == second_node
    wait_no_nodes(stage, fresh_path)


def test_holders_come_first(stage: Stage, fresh_path: str) -> None:
    semaphores = [far(stage, fresh_path, 2, f"number {n}") for n in range(3)]
    assert semaphores[0].holders() == []
    with semaphores[0].lease().within(GRACE), semaphores[1].lease().within(GRACE):
        waiting = Running(lambda: leased(semaphores[2], PATIENCE))
        soon("the third looks", lambda: len(semaphores[0].holders()) == 3)
        assert [h.text for h in semaphores[0].holders()] == ["number 0", "number 1", "number 2"]
        assert not waiting.ended
    waiting.result().release()


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_for", ["queue", "lease"])
def test_expired_waiter_makes_way(stage: Stage, fresh_path: str, waits_for: str) -> None:
    """Behind it is somebody who waits; it is woken when the lease is free, not before."""
    holder, queue = leased(far(stage, fresh_path, 1), GRACE), LeaseQueue(stage, fresh_path)
    client = stage.client()
    if waits_for == "queue":
        queue.join("first", lease_of(stage.client(direct=True), fresh_path))
    waiting = Running(lambda: lease_of(client, fresh_path).acquire(PATIENCE))
    nodes = 4 if waits_for == "queue" else 3
    soon("it waits", lambda: len(lease_nodes(stage, fresh_path)) == nodes)
    queue.join("last", lease_of(stage.client(direct=True), fresh_path))
    stage.expire(client)
    stage.proxy.cut_all()
    with pytest.raises(SessionExpiredError):
        waiting.result()
    queue.expect_nobody()
    holder.release()
    if waits_for == "queue":
        queue.expect("first")
        queue.leave("first")
    queue.expect("last")
    queue.leave("last")
    wait_no_nodes(stage, fresh_path)


def test_timeout_in_the_queue_leaves_no_node(stage: Stage, fresh_path: str) -> None:
    queue = LeaseQueue(stage, fresh_path)
    with far(stage, fresh_path, 1).lease().within(GRACE):
        queue.join("waiter", lease_of(stage.client(direct=True), fresh_path))
        soon("the first looks", lambda: len(stage.nodes(f"{fresh_path}/leases")) == 2)
        for timeout in (0, A_WHILE):
            assert not far(stage, fresh_path, 1).lease().acquire(timeout)
        soon("they are gone", lambda: len(lease_nodes(stage, fresh_path)) == 3)
    queue.expect("waiter")
    queue.leave("waiter")


# --- processes ------------------------------------------------------------------------------------


def test_processes_are_never_too_many(stage: Stage, fresh_path: str, tmp_path: Path) -> None:
    processes, count, times = 5, 2, 15
    holding = tmp_path / "holding"
    holding.write_text("0")
    with Workers() as workers:
        arguments = (stage.hosts, fresh_path, count, times, holding)
        crew = [workers.start("leasing", *arguments) for _ in range(processes)]
        for worker in crew:
            worker.expect("ready")
        for worker in crew:
            worker.say("go")
        highest = [int(line) for worker in crew for line in worker.end(4 * PATIENCE)]
    assert max(highest) == count, "all leases were used at some time, and never more"
    assert holding.read_text() == "0"
    assert lease_nodes(stage, fresh_path) == []


def test_killed_holders_make_way(stage: Stage, fresh_path: str) -> None:
    count = 2
    with Workers() as workers:
        crew = [
            workers.start("holding_lease", stage.hosts, fresh_path, count, SHORT)
            for _ in range(count)
        ]
        for worker in crew:
            worker.expect("held")
        semaphore = far(stage, fresh_path, count)
        assert not semaphore.lease().acquire(0)
        for worker in crew:
            os.kill(worker.pid, signal.SIGKILL)
        with semaphore.lease().within(PATIENCE), semaphore.lease().within(PATIENCE):
            pass
    wait_no_nodes(stage, fresh_path)


def test_with_acquires_a_lease_as_it_does_any_lock(stage: Stage, fresh_path: str) -> None:
    lease = Semaphore(stage.client(), fresh_path, 1).lease()
    for _ in range(2):
        with lease:
            assert lease.held
            with pytest.raises(RuntimeError, match="holds the lock already"), lease:
                pytest.fail("the body runs")
            assert lease.held
        assert not lease.held


def test_a_lease_tells_how_many_are_ahead(stage: Stage, fresh_path: str) -> None:
    first, second = (lease_of(stage.client(), fresh_path) for _ in range(2))
    places: SimpleQueue[int] = SimpleQueue()
    assert first.acquire(GRACE)
    acquiring = Running(lambda: second.acquire(PATIENCE, on_position=places.put))
    assert places.get(timeout=PATIENCE) == 1
    first.release()
    assert acquiring.result()
    assert places.get(timeout=PATIENCE) == 0
    second.release()
