"""Hazards of those who hold or want the fair lock, and what they leave behind: rows B18 to B32."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.shell.hazards.staging import EmbeddedStage, node_of, nothing_there
from tests.support.family_helpers import soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    WAITING_KINDS,
    Kind,
    Running,
    acquire_as_third_party,
    all_kinds,
    answers,
    assert_exclusive,
    assert_no_blind_repeat,
    assert_strictly_rising,
    holding,
    make_path,
    waiting_kinds,
    watch_table_size,
)
from zkwire import (
    BlockingLock,
    LockLostError,
    NonBlockingLock,
    ReentrantLock,
    SequentialLock,
    SessionExpiredError,
)
from zkwire.operations.multi import SetData
from zkwire.testing.proxy import Frame, Gate, cut_after, cut_before, hold
from zkwire.testing.proxy.faults import Hold, Send, Step

# --- one object, used again -----------------------------------------------------------------------


@all_kinds
def test_hazard_B18_an_object_serves_again_whatever_has_been(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    lock, fences = stage.lock(kind, fresh_path), []
    for cycle in range(60):
        assert lock.acquire(GRACE)
        fences.append(lock.fence)
        if cycle % 10 == 5:
            stage.observer.delete(node_of(stage, lock))
            assert lock.lost.wait(PATIENCE)
        else:
            lock.release()
    assert_strictly_rising(fences)


@all_kinds
def test_hazard_B19_a_lock_is_reentrant_or_refuses_at_once(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    lock = stage.lock(kind, fresh_path)
    with holding(lock):
        for again in (lock.acquire, lock.try_acquire):
            with pytest.raises(RuntimeError):
                again()
        assert lock.held
    with pytest.raises(RuntimeError):
        lock.release()
    counting = ReentrantLock(stage.client(), f"{fresh_path}-r")
    assert counting.acquire(GRACE)
    assert counting.acquire(0)
    counting.release()
    assert counting.held
    assert not stage.rival(SequentialLock, f"{fresh_path}-r").try_acquire()
    counting.release()
    assert stage.rival(SequentialLock, f"{fresh_path}-r").try_acquire()


# --- what a holder is told ------------------------------------------------------------------------


@all_kinds
def test_hazard_B20_a_holder_is_told_of_its_expiry(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    lock = kind(client, fresh_path)
    assert lock.acquire(GRACE)
    stage.end(client)
    assert lock.lost.wait(PATIENCE)
    assert not lock.held
    acquire_as_third_party(stage, kind, fresh_path)


@all_kinds
def test_hazard_B21_nothing_is_claimed_while_the_delete_is_under_way(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    before, behind, lock = Gate(), Gate(), stage.lock(kind, fresh_path)
    assert lock.acquire(GRACE)

    def hold_both(frame: Frame) -> Iterable[Step]:
        return (Hold(before, frame), Send(frame.raw, reply=hold(behind)))

    stage.proxy.on("delete", action=hold_both)
    releasing = Running(lock.release)
    before.wait_reached()
    assert not lock.held, "although the server has not heard of it yet"
    before.release()
    behind.wait_reached()
    acquire_as_third_party(stage, kind, fresh_path)
    assert not releasing.ended
    assert not lock.held
    behind.release()
    releasing.result()


@all_kinds
def test_hazard_B22_a_holder_learns_that_its_node_is_gone(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Its own watch tells it: there is no other contact, and no answer, after the delete."""
    lock = stage.lock(kind, fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")))
    stage.observer.delete(node_of(stage, lock))
    assert lock.lost.wait(PATIENCE)
    assert not lock.held
    with pytest.raises(LockLostError):
        lock.release()


def test_hazard_B24_a_stale_write_is_refused_by_the_server(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The holder has looked, then it is held up, and others go on; then its write arrives."""
    make_path(stage.observer, f"{fresh_path}-data")
    gate, lock = Gate(), SequentialLock(stage.client(), fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.on("multi", action=hold(gate))
    writing = Running(lambda: lock.guard([SetData(f"{fresh_path}-data", b"stale")]))
    gate.wait_reached()
    stage.observer.delete(node_of(stage, lock))
    with holding(stage.rival(SequentialLock, fresh_path)):
        stage.observer.set_data(f"{fresh_path}-data", b"fresh")
        gate.release()
        with pytest.raises(LockLostError):
            writing.result()
        assert stage.observer.get_data(f"{fresh_path}-data").data == b"fresh"


@waiting_kinds
def test_hazard_B25_a_clean_up_ends_with_its_session(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """The release is lost, its session expires, another one holds: no delete is sent any more."""
    client, rival = stage.client(), stage.rival(kind, fresh_path)
    lock = kind(client, fresh_path)
    assert lock.acquire(GRACE)
    stage.proxy.refuse()
    stage.proxy.on("delete", action=cut_before)
    lock.release()  # what the cut leaves undone is owed
    stage.end(client)
    with holding(rival):
        stage.proxy.refuse(False)
        soon("the client learns of its expiry", lambda: client.state.terminal, PATIENCE)
        assert len(stage.sent("delete")) == 1
        assert rival.held
        assert len(stage.nodes(fresh_path)) == 1


# --- time limits and what is left -----------------------------------------------------------------


@all_kinds
@pytest.mark.parametrize("outage", ["black hole", "refused", "silent"])
def test_hazard_B26_a_time_limit_is_for_the_whole_attempt(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, outage: str
) -> None:
    """A connection counts as dead after 10 s here, so whoever waits for that is too late."""
    lock = stage.lock(kind, fresh_path)
    if outage != "black hole":
        stage.proxy.refuse(outage == "refused")
        stage.proxy.cut_all()
    if outage != "refused":
        stage.proxy.black_hole()

    assert not Running(lambda: lock.acquire(0.1)).result(8.0)


@pytest.mark.parametrize("kind", WAITING_KINDS, ids=lambda kind: kind.__name__)
def test_hazard_B27_attempts_that_time_out_leave_no_watch(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    lock, rival = kind(client, fresh_path), stage.rival(kind, fresh_path)
    with holding(rival):
        stage.observer.sync()
        for _ in range(25):
            assert not lock.acquire(0.005)
        soon("the client forgets", lambda: watch_table_size(client) == 0)
        soon("only the holder's own is left", lambda: stage.watches == 1)


def test_hazard_B28_the_name_of_a_node_does_not_grow(stage: EmbeddedStage, fresh_path: str) -> None:
    """The create is lost not at all, once and several times, on one connection after the other."""
    make_path(stage.observer, fresh_path)
    lock, lengths = stage.lock(SequentialLock, fresh_path), set()
    for losses in (0, 1, 4):
        stage.proxy.reset()
        for nth in range(1, losses + 1):
            stage.proxy.on("create2", nth=nth, action=cut_before)
        assert lock.acquire(PATIENCE)
        assert len(stage.sent("create2")) == losses + 1
        lengths.add(len(node_of(stage, lock)))
        lock.release()
    assert len(lengths) == 1


def test_hazard_B29_children_that_are_no_contenders(stage: EmbeddedStage, fresh_path: str) -> None:
    make_path(stage.observer, fresh_path)
    junk = ["hello", "x-12", "__lock__", "\u0660" * 10, "lock--000000001"]
    for name in junk:
        stage.observer.create(f"{fresh_path}/{name}")
    lock = stage.lock(SequentialLock, fresh_path)
    assert lock.try_acquire()
    lock.release()
    assert len(stage.nodes(fresh_path)) == len(junk)


def test_hazard_B30_the_look_up_syncs_and_a_late_node_is_pruned(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """A server is behind in spite of the sync; the next listing shows the first node."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    stage.proxy.on("get_children", nth=2, action=nothing_there, reply=True)
    assert lock.acquire(PATIENCE)
    assert_no_blind_repeat(stage.proxy.frames())
    assert len(stage.sent("sync")) == 1
    assert len(stage.nodes(fresh_path)) == 1
    lock.release()


@all_kinds
def test_hazard_B31_two_objects_on_one_client(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    first, second = kind(client, fresh_path), kind(client, fresh_path)
    with holding(first):
        stage.proxy.on("create2", action=cut_after)  # so that the second one looks for its own
        assert not second.try_acquire()
        assert_exclusive(first, second)
    assert second.acquire(PATIENCE)
    second.release()


@pytest.mark.parametrize("kind", [NonBlockingLock, BlockingLock], ids=lambda kind: kind.__name__)
def test_hazard_B32_two_objects_do_not_fight_after_an_expiry(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    client = stage.client()
    first, second = kind(client, fresh_path), kind(client, fresh_path)
    assert first.acquire(GRACE)
    assert not second.try_acquire()
    stage.proxy.reset()
    stage.end(client)
    assert first.lost.wait(PATIENCE)
    for lock in (first, second):
        with pytest.raises(SessionExpiredError):
            lock.try_acquire()
    assert len(stage.sent("create2")) <= 2, "one by each, before the client had heard of it"
    assert len(stage.proxy.frames()) <= 20
