"""A lock's path: other contenders on it, nodes that go, and what attempts leave there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

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
from zkwire import ClientClosedError, Lost, SequentialLock
from zkwire.recipes._recipe import LockInUseError, exclusive_call
from zkwire.testing.proxy import Gate, hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.recipes._recipe import Exclusive

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


@waiting_kinds
def test_waiter_whose_node_or_rival_goes_gets_the_lock(
    stage: Stage, kind: Kind, fresh_path: str
) -> None:
    """Somebody deletes the nodes of the waiter and the holder; the waiter queues anew."""
    lock, rival = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    for node in reversed(stage.nodes(fresh_path)):
        stage.observer.delete(node)
    assert waiter.result(GRACE)
    assert rival.lost.wait(PATIENCE)
    assert_exclusive(lock, rival)
    assert len(stage.nodes(fresh_path)) == 1
    assert lock.fence > rival.fence
    lock.release()


def test_who_writes_into_the_node_ahead_does_not_let_anybody_in(
    stage: Stage, fresh_path: str
) -> None:
    lock, rival = stage.lock(SequentialLock, fresh_path), stage.rival(SequentialLock, fresh_path)
    assert rival.acquire(GRACE)
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    stage.observer.set_data(stage.nodes(fresh_path)[0], b"not a release")
    wait_until_waiting(stage, nth=2)
    assert_exclusive(rival, lock)
    rival.release()
    assert waiter.result(GRACE)
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
def test_waiter_of_a_closed_client_is_told(stage: Stage, kind: Kind, fresh_path: str) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    with holding(stage.rival(kind, fresh_path)):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        client.close()
        with pytest.raises(ClientClosedError):
            waiter.result(GRACE)
        assert not lock.held
        soon("only the holder is left", lambda: len(stage.nodes(fresh_path)) == 1)


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


@all_kinds
def test_a_with_that_is_refused_releases_nothing(
    stage: Stage, kind: Kind, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread gets the lock between the refusal and what a ``with`` does about it."""
    shared, main = kind(stage.client(), fresh_path), threading.get_ident()

    async def refused(lock: Exclusive, attempt: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        if threading.get_ident() != main:
            return await exclusive_call(lock, attempt)
        assert Running(lambda: shared.acquire(GRACE)).result()
        raise LockInUseError("somebody else is at it")

    monkeypatch.setattr("zkwire.recipes._lock.exclusive_call", refused)
    with pytest.raises(RuntimeError, match="somebody else is at it"), shared:
        pass
    assert shared.held
    shared.release()


def test_the_loss_of_a_lock_for_threads_is_not_to_be_awaited(stage: Stage, fresh_path: str) -> None:
    """It would block the whole event loop."""
    lock = SequentialLock(stage.client(), fresh_path)

    async def wait() -> bool:
        return await lock.lost

    with pytest.raises(RuntimeError, match="await belongs to AsyncClient"):
        Running(lambda: asyncio.run(wait())).result()
