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
    all_kinds,
    assert_exclusive,
    assert_no_blind_repeat,
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
    Watch,
    testing,
)
from zkwire.recipes.counter import LAST_VERSION
from zkwire.testing.proxy import Action, Gate, cut_after, cut_before, hold
from zkwire.wire.ops import NOTIFICATION_XID
from zkwire.wire.paths import LAST_SEQUENCE

# --- lost replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [cut_before, cut_after], ids=["before", "after"])
def test_hazard_B1_a_lost_listing_behind_the_create(
    stage: EmbeddedStage, fresh_path: str, cut: Action
) -> None:
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("get_children", action=cut)
    assert lock.acquire(PATIENCE)
    assert len(stage.nodes(fresh_path)) == 1
    lock.release()
    assert acquire_as_third_party(stage, SequentialLock, fresh_path) > lock.fence


def test_hazard_B2_a_waiter_that_reconnects_has_one_node(
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
    assert waiter.result(GRACE)
    lock.release()


@all_kinds
def test_hazard_B3_the_reply_to_the_create_of_a_free_lock_is_lost(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    make_path(stage.observer, fresh_path if kind is SequentialLock else f"{fresh_path}-")
    lock = stage.lock(kind, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    assert lock.acquire(PATIENCE)
    assert len(stage.nodes(fresh_path)) == 1
    assert_no_blind_repeat(stage.proxy.frames())
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


@pytest.mark.parametrize("cut", [cut_before, cut_after], ids=["before", "after"])
@pytest.mark.parametrize("timeout", [0, 0.2])
def test_hazard_B5_B6_the_delete_of_an_attempt_that_failed_is_lost(
    stage: EmbeddedStage, fresh_path: str, cut: Action, timeout: float
) -> None:
    lock, rival = stage.lock(SequentialLock, fresh_path), stage.rival(SequentialLock, fresh_path)
    with holding(rival):
        stage.proxy.on("delete", action=cut)
        assert not (lock.acquire(timeout) if timeout else lock.try_acquire())
    acquire_as_third_party(stage, SequentialLock, fresh_path)
    stage.wait_no_nodes(fresh_path, PATIENCE)


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


def test_hazard_B8_a_node_of_ones_own_name_and_anothers_session_is_left(
    stage: EmbeddedStage, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up after a lost create finds the very name, of somebody else's."""
    make_path(stage.observer, fresh_path)
    client = stage.client()
    monkeypatch.setattr(client._driver, "unique", lambda: "unique")
    name = f"{client.session_id & 2**64 - 1:016x}-unique-lock-"
    stage.observer.create(f"{fresh_path}/{name}", ephemeral=True, sequential=True)
    stage.proxy.on("create2", action=cut_before)
    lock = SequentialLock(client, fresh_path)
    assert lock.acquire(PATIENCE)
    stat = stage.observer.exists(node_of(stage, lock))
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id
    lock.release()


@all_kinds
def test_hazard_B9_a_node_that_was_found_again_is_released_like_any(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    make_path(stage.observer, fresh_path if kind is SequentialLock else f"{fresh_path}-")
    lock = stage.lock(kind, fresh_path)
    for cut in (cut_after, None):
        if cut:
            stage.proxy.on("create2", action=cut)
        assert lock.acquire(PATIENCE)
        assert node_of(stage, lock).startswith(fresh_path)
        assert lock.held
        lock.release()
        assert stage.nodes(fresh_path) == []
    deletes = [frame.raw for frame in stage.sent("delete")]
    assert len({len(raw) for raw in deletes}) == 1, "both are named in the same way"


@waiting_kinds
def test_hazard_B10_the_holder_goes_while_the_look_is_under_way(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    gate, lock, rival = Gate(), stage.lock(kind, fresh_path), stage.rival(kind, fresh_path)
    stage.proxy.on("get_data", action=hold(gate))
    with holding(rival):
        waiter = Running(lock.acquire)
        gate.wait_reached()
    gate.release()
    assert waiter.result(GRACE)
    lock.release()


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


def test_hazard_B13_a_watch_hears_what_stands_right_behind_its_reply(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The same for any read: change and reply are held together, and let go together."""
    make_path(stage.observer, fresh_path)
    client, watch, gate = stage.client(), Watch(), Gate()
    stage.proxy.on("get_data", action=hold(gate), reply=True)
    reading = Running(lambda: client.get_data(fresh_path, watch=watch))
    gate.wait_reached()
    stage.observer.set_data(fresh_path, b"new")
    stage.proxy.wait_for(lambda frames: any(f.xid == NOTIFICATION_XID for f in frames))
    gate.release()
    reading.result()
    assert watch.wait(PATIENCE)


# --- order and numbers ----------------------------------------------------------------------------


def test_hazard_B14_the_lower_session_comes_later(stage: EmbeddedStage, fresh_path: str) -> None:
    older, younger = sorted((stage.client(), stage.client()), key=lambda c: c.session_id)
    first, second = SequentialLock(younger, fresh_path), SequentialLock(older, fresh_path)
    with holding(first):
        assert not second.try_acquire()
        assert_exclusive(first, second)


def test_hazard_B15_the_counter_is_at_its_end(stage: EmbeddedStage, fresh_path: str) -> None:
    """The server gives everybody the last number; nobody gets the lock, and all are told why."""
    make_path(stage.observer, fresh_path)
    stage.embedded.tree.nodes[fresh_path].created = LAST_SEQUENCE
    locks = [stage.rival(SequentialLock, fresh_path) for _ in range(4)]
    attempts = [Running(partial(lock.acquire, PATIENCE)) for lock in locks]
    for attempt in attempts:
        with pytest.raises(SequenceExhaustedError):
            attempt.result()
    assert not any(lock.held for lock in locks)
    stage.wait_no_nodes(fresh_path)


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
def test_hazard_B17_contenders_of_other_libraries_count(
    stage: EmbeddedStage, fresh_path: str, name: str
) -> None:
    make_path(stage.observer, fresh_path)
    node = stage.observer.create(f"{fresh_path}/{name}", ephemeral=True, sequential=True)
    lock = stage.lock(SequentialLock, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lock.acquire)
    wait_until_waiting(stage)
    stage.observer.delete(node)
    assert waiter.result(GRACE)
    lock.release()
