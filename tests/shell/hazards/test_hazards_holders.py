"""Hazards of those who hold or want the fair lock, and what they leave behind: rows B18 to B32."""

from __future__ import annotations

import pytest

from tests.shell.hazards.staging import EmbeddedStage, node_of, nothing_there
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Running,
    all_kinds,
    assert_no_blind_repeat,
    assert_strictly_rising,
    holding,
    make_path,
)
from zkwire import (
    BlockingLock,
    LockLostError,
    NonBlockingLock,
    SequentialLock,
    SessionExpiredError,
)
from zkwire.testing.proxy import cut_after, cut_before

# --- one object, used again -----------------------------------------------------------------------


@all_kinds
def test_hazard_B9_B18_B19_C9_D8_an_object_serves_again_whatever_has_been(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Also behind a lost create, a failed try, a refused call; each node is ephemeral."""
    make_path(stage.observer, fresh_path if kind is SequentialLock else f"{fresh_path}-")
    lock, rival, fences = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), list[int]()
    for cycle in range(30):
        with pytest.raises((RuntimeError, LockLostError)):
            lock.release()
        if cycle % 10 == 1:
            stage.proxy.on("create2", action=cut_after)
        elif cycle % 10 == 2:
            with holding(rival):
                assert not lock.try_acquire()
                assert not lock.acquire(0.01)
        assert lock.acquire(PATIENCE)
        fences.append(lock.fence)
        for again in (lock.acquire, lock.try_acquire):
            with pytest.raises(RuntimeError):
                again()
        assert lock.held
        node = node_of(stage, lock)
        stat = stage.observer.exists(node)
        assert stat is not None
        assert stat.ephemeral_owner
        if cycle % 10 == 5:
            stage.observer.delete(node)
            assert lock.lost.wait(PATIENCE)
        else:
            lock.release()
            assert stage.nodes(fresh_path) == []
    assert_strictly_rising(fences)


# --- what a holder is told ------------------------------------------------------------------------


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
