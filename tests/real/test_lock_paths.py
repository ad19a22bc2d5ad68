"""A lock's path: other contenders on it, nodes that go, and what attempts leave there."""

from __future__ import annotations

import os
import signal
from queue import SimpleQueue

import pytest

from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Running,
    Stage,
    Worker,
    acquire_as_third_party,
    all_kinds,
    assert_exclusive,
    holding,
    wait_until_waiting,
    waiters,
    waiting_kinds,
    watch_table_size,
)
from tests.support.server_control import poll
from zkwire import Lost, SequentialLock
from zkwire.testing.proxy import Gate, hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

# --- nodes that go --------------------------------------------------------------------------------


@pytest.mark.since("3.5")
@all_kinds
def test_parent_deleted_right_after_it_was_made(stage: Stage, kind: Kind, fresh_path: str) -> None:
    path = f"{fresh_path}/lock"
    lock, gate = kind(stage.client(), path), Gate()
    stage.proxy.on("create2", nth=2, action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    stage.observer.delete_tree(fresh_path)
    gate.release()
    assert acquiring.result()
    lock.release()


def test_waiter_whose_node_was_deleted_goes_to_the_end(stage: Stage, fresh_path: str) -> None:
    lock = stage.lock(SequentialLock, fresh_path)
    rivals = [stage.rival(SequentialLock, fresh_path) for _ in range(2)]
    lost, told = lock.lost, SimpleQueue[Lost]()
    lost.add_callback(told.put)
    assert rivals[0].acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    own = stage.nodes(fresh_path)[1]
    second = Running(lambda: rivals[1].acquire(PATIENCE))
    poll("three queue", lambda: len(stage.nodes(fresh_path)) == 3 or None, PATIENCE)
    stage.observer.delete(own)
    rivals[0].release()
    assert second.result()
    wait_until_waiting(stage, nth=2)
    assert_exclusive(rivals[1], lock)
    rivals[1].release()
    assert waiter.result(GRACE)
    assert lock.fence > rivals[1].fence
    assert lock.lost is lost, "only a holder loses"
    assert told.empty()
    stage.observer.delete(stage.nodes(fresh_path)[0])
    assert told.get(timeout=PATIENCE) is lost


# --- what attempts leave behind -------------------------------------------------------------------


@pytest.mark.since("3.5")
@waiting_kinds
def test_look_that_is_answered_after_the_timeout_leaves_no_watch(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    client, gate = stage.client(), Gate()
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        stage.proxy.on("get_data", action=hold(gate), reply=True)
        assert not lock.acquire(0.1)
        gate.release()
        client.sync()
        soon("the client forgets", lambda: watch_table_size(client) == 0)
        soon("the server forgets", lambda: not waiters(stage.server, fresh_path))


@waiting_kinds
def test_interrupted_waiter_leaves_no_node(stage: Stage, kind: Kind, fresh_path: str) -> None:
    """The first interrupt ends the wait; the second comes while there is cleaning up behind it."""
    rival = stage.rival(kind, fresh_path)
    microseconds = [*range(1, 400, 25), *range(400, 3000, 200)]
    arguments = (stage.proxy.hosts, kind.__name__, fresh_path)
    with holding(rival), Worker("interrupted", *arguments) as worker:
        (held,) = stage.nodes(fresh_path)
        worker.expect("interrupts 0")
        for count, delay in enumerate(microseconds, 1):
            worker.say(str(delay))
            wait_until_waiting(stage, nth=count)
            os.kill(worker.pid, signal.SIGINT)
            # It may be back before the second interrupt.
            while (line := worker.hear()) != f"interrupts {2 * count}":
                assert line is not None
            poll("it is gone", lambda: stage.nodes(fresh_path) == [held] or None, GRACE)
    assert acquire_as_third_party(stage, kind, fresh_path) > rival.fence
