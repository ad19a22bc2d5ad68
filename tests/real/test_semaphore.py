"""The semaphore on a real server: never a lease too many, nobody overtakes, one count for all."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.family_helpers import (
    LeaseQueue,
    lease_nodes,
    lease_of,
    leased,
    soon,
)
from tests.support.lock_helpers import (
    A_WHILE,
    GRACE,
    PATIENCE,
    SHORT,
    Stage,
    Workers,
    answers,
)
from zkwire import LockTimeoutError, Semaphore
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


def looks(frames: list[Frame], path: str) -> list[Frame]:
    """The looks of those who wait: at the one ahead, or at the leases."""
    return [
        frame
        for frame in answers(frames, "get_data") + answers(frames, "get_children")
        if frame.request is not None
        and frame.request.raw[-1] == 1
        and (frame.request.path or "").startswith(f"{path}/l")
    ]


def text(frame: Frame) -> str:
    """A frame's bytes, to look for a path in them."""
    return frame.raw.decode("latin-1")


# --- one count ------------------------------------------------------------------------------------


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


# --- how it ends ----------------------------------------------------------------------------------


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
