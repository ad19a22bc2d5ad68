"""Hazards of the fair lock that need bytes, threads or a server's fault: rows B1 to B17."""

from __future__ import annotations

from functools import partial

import pytest

from tests.shell.hazards.staging import EmbeddedStage, node_of, nothing_there
from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Running,
    acquire_as_third_party,
    assert_exclusive,
    assert_strictly_rising,
    holding,
    make_path,
    wait_until_waiting,
    waiting_kinds,
)
from zkwire import (
    ClientClosedError,
    Counter,
    SequenceExhaustedError,
    SequentialLock,
    SessionExpiredError,
    testing,
)
from zkwire.recipes.counter import LAST_VERSION
from zkwire.testing.proxy import Gate, cut_after, hold
from zkwire.wire.ops import NOTIFICATION_XID

# --- lost replies ---------------------------------------------------------------------------------


def test_hazard_A6_B2_a_waiter_that_reconnects_has_one_node_and_is_woken(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    lock, rival = stage.lock(SequentialLock, fresh_path), stage.rival(SequentialLock, fresh_path)
    with holding(rival):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        nodes = stage.nodes(fresh_path)
        for count in (1, 2, 3):
            stage.proxy.cut_all()
            wait_until_waiting(stage, nth=count, op="set_watches")
            assert stage.nodes(fresh_path) == nodes
        assert not waiter.ended
    assert waiter.result(GRACE)
    lock.release()


def test_hazard_B4_of_several_nodes_of_one_attempt_one_stays(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """Two creates are carried out and never answered, and both look-ups show nothing."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    for nth in (1, 2):
        stage.proxy.on("create2", nth=nth, action=cut_after)
    for nth in (2, 4):
        stage.proxy.on("get_children", nth=nth, action=nothing_there, reply=True)
    assert lock.acquire(PATIENCE)
    assert len(stage.sent("create2")) == 3
    assert len(stage.nodes(fresh_path)) == 1
    stat = stage.observer.exists(node_of(stage, lock))
    assert stat is not None
    assert stat.czxid == lock.fence
    lock.release()
    acquire_as_third_party(stage, SequentialLock, fresh_path)


def test_hazard_B8_a_node_of_an_earlier_session_is_not_ones_own(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The program starts again while its first session's node still stands in the queue."""
    first, rival = stage.client(), stage.rival(SequentialLock, fresh_path)
    with holding(rival):
        waiter = Running(SequentialLock(first, fresh_path).acquire)
        wait_until_waiting(stage)
        abandoned = first.session_id
        stage.proxy.black_hole()
        first.close()
        with pytest.raises(ClientClosedError):
            waiter.result()
        again = stage.rival(SequentialLock, fresh_path)
        second = Running(lambda: again.acquire(PATIENCE))
        stage.wait_queued(fresh_path, 3)
    # The abandoned node is first now: nobody holds.
    assert not stage.rival(SequentialLock, fresh_path).try_acquire()
    assert not again.held
    assert stage.embedded.expire(abandoned)
    assert second.result()
    stat = stage.observer.exists(node_of(stage, again))
    assert stat is not None
    assert stat.czxid == again.fence
    again.release()


@waiting_kinds
def test_hazard_B11_the_server_goes_and_comes_while_all_wait(kind: Kind) -> None:
    with testing.Server(timeouts=(0.1, 60.0)) as server, EmbeddedStage(server) as stage:
        locks = [stage.lock(kind, "/lock"), stage.rival(kind, "/lock")]
        with holding(stage.rival(kind, "/lock")):
            waiters = [Running(partial(lock.acquire, 4 * PATIENCE)) for lock in locks]
            wait_until_waiting(stage)
            for count in range(1, 6):
                server.stop()
                server.start()
                wait_until_waiting(stage, nth=count, op="set_watches")
        soon("one is granted the lock", lambda: any(lock.held for lock in locks), PATIENCE)
        holder, other = sorted(locks, key=lambda lock: not lock.held)
        assert_exclusive(holder, other)
        holder.release()
        assert all(waiter.result() for waiter in waiters)
        assert_exclusive(other, holder)
        other.release()


@waiting_kinds
def test_hazard_B12_a_waiter_whose_session_expires_is_told(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    with holding(stage.rival(kind, fresh_path)):
        waiter = Running(lock.acquire)
        wait_until_waiting(stage)
        stage.end(client)
        with pytest.raises(SessionExpiredError):
            waiter.result()
        assert not lock.held


@waiting_kinds
def test_hazard_B13_the_event_comes_in_one_piece_with_the_reply(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    gate, lock, rival = Gate(), stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    stage.proxy.on("get_data", action=hold(gate), reply=True)
    with holding(rival):
        waiter = Running(lock.acquire)
        gate.wait_reached()
    # Behind the delete's answer the event stands in line behind the reply that is held.
    stage.proxy.wait_for(lambda frames: any(f.xid == NOTIFICATION_XID for f in frames))
    gate.release()
    assert waiter.result(GRACE)
    lock.release()


# --- order and numbers ----------------------------------------------------------------------------


def test_a_counter_that_has_used_up_its_versions_says_so(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """Its own client knows the version, another one reads it; both would try without an end."""
    ours, others = Counter(stage.observer, fresh_path), Counter(stage.client(), fresh_path)
    ours.add(1)
    node = stage.embedded.tree.nodes[fresh_path]
    node.version = LAST_VERSION - 1
    assert others.add(1) == 2
    for counter in (ours, others):
        with pytest.raises(SequenceExhaustedError, match="used up its versions"):
            counter.add(1, PATIENCE)
    node.version = -LAST_VERSION - 1  # by a client of another kind
    with pytest.raises(SequenceExhaustedError):
        ours.add(1, PATIENCE)
    assert ours.get() == 2


def test_hazard_B16_the_parent_is_deleted_between_and_during_acquisitions(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    path, fences = f"{fresh_path}/lock", []
    lock = stage.lock(SequentialLock, path)
    for _ in range(3):
        with holding(lock):
            fences.append(lock.fence)
        stage.observer.delete(path)
        stage.observer.delete(fresh_path)
    gate = Gate()
    stage.proxy.on("create2", nth=2, action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    stage.observer.delete(path)
    gate.release()
    assert acquiring.result()
    assert_strictly_rising([*fences, lock.fence])
    lock.release()


@pytest.mark.parametrize("name", ["_c_3f25-lock-", "3f25__lock__", "x-72057594037927936-", "n"])
def test_hazard_A45_B17_whose_node_stands_ahead_is_waited_for(
    stage: EmbeddedStage, fresh_path: str, name: str
) -> None:
    """Contenders of other libraries count, and a node that outlives its session, whatever of it."""
    make_path(stage.observer, fresh_path)
    node = stage.observer.create(f"{fresh_path}/{name}", ephemeral=True, sequential=True)
    if name == "n":  # of a session that there is not any more
        tree = stage.embedded.tree
        tree._of_session[0x123456789] = {node: tree._of_session[tree.nodes[node].owner].pop(node)}
        tree.nodes[node].owner = 0x123456789
    lock = stage.lock(SequentialLock, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    assert not lock.held
    stage.observer.delete(node)
    assert waiter.result(GRACE)
    lock.release()
