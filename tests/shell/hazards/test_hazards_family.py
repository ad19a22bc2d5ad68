"""Hazards of single-node locks and of the rest of the family, on a server: rows C and D."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.shell.hazards.staging import EmbeddedStage
from tests.support.family_helpers import interrupted_when, leased, soon
from tests.support.lock_helpers import (
    GRACE,
    PATIENCE,
    Kind,
    Running,
    acquire_soon,
    answers,
    holding,
    make_path,
    single_kinds,
    wait_until_waiting,
)
from zkwire import (
    BlockingLock,
    Check,
    ClientClosedError,
    Election,
    LockLostError,
    NonBlockingLock,
    NoNodeError,
    NotEmptyError,
    Semaphore,
    SequentialLock,
    SessionExpiredError,
    Watch,
)
from zkwire.recipes.locks import GRANTS
from zkwire.testing.proxy import Gate, cut_before, hold

# --- one node -------------------------------------------------------------------------------------


@single_kinds
def test_hazard_C2_the_same_content_of_an_earlier_session(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither taken over, nor given up for good: who waits has the lock when that session ends."""
    earlier, client = stage.client(direct=True), stage.client()
    monkeypatch.setattr(client._driver, "unique", lambda: "unique")
    content = f"{client.session_id & 2**64 - 1:016x}-unique".encode()
    earlier.create(fresh_path, content, ephemeral=True)
    stage.proxy.on("create2", action=cut_before)  # so that the next answer is doubted
    lock = kind(client, fresh_path)
    assert not lock.try_acquire()
    waiter = Running(lambda: acquire_soon(lock, PATIENCE))
    stage.wait_sent("create2", 3)
    assert not lock.held
    assert stage.embedded.expire(earlier.session_id)
    waiter.result()
    assert lock.held
    stat = stage.observer.exists(fresh_path)
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id
    lock.release()


@single_kinds
@pytest.mark.parametrize("successor", ["a lock", "by hand"])
def test_hazard_C10_a_release_whose_node_somebody_has_deleted(
    stage: EmbeddedStage, kind: Kind, fresh_path: str, successor: str
) -> None:
    """The event is on its way still: only the server knows whose node it is."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert lock.acquire(GRACE)
    stage.proxy.wait_for(lambda frames: bool(answers(frames, "get_children2")), PATIENCE)
    stage.proxy.on("notification", action=hold(gate))
    stage.observer.delete(fresh_path)
    if successor == "a lock":
        assert rival.acquire(GRACE)
    else:
        stage.observer.create(fresh_path, ephemeral=True)
    node = stage.observer.exists(fresh_path)
    gate.wait_reached()
    releasing = Running(lock.release)
    stage.wait_sent("delete")
    gate.release()
    with pytest.raises(LockLostError):
        releasing.result()
    assert stage.observer.exists(fresh_path) == node
    soon("no token stays", lambda: len(stage.nodes(fresh_path + GRANTS)) == rival.held, PATIENCE)
    with pytest.raises(RuntimeError):
        lock.guard([])


@single_kinds
def test_hazard_C10_a_grant_beside_the_token_of_an_earlier_one(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Not before that token is gone, by which a late release would hit the node."""
    lock, rival, gate = stage.lock(kind, fresh_path), stage.rival(kind, fresh_path), Gate()
    assert rival.acquire(GRACE)
    stage.observer.delete(fresh_path)
    stage.proxy.on("get_children", action=hold(gate))
    acquiring = Running(lambda: lock.acquire(PATIENCE))
    gate.wait_reached()
    with suppress(LockLostError):
        rival.release()
    gate.release()
    assert acquiring.result()
    assert lock.held
    assert lock.guard([Check(fresh_path)]) == [None]
    lock.release()


def test_hazard_C5_a_release_wakes_all_here_and_one_there(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """Waiters of the blocking lock try once more each; of the fair one, the next one just holds."""
    number = 5
    for kind, op, woken in ((BlockingLock, "create2", number), (SequentialLock, "get_children", 0)):
        path = f"{fresh_path}-{kind.__name__}"
        rival = stage.rival(kind, path)
        assert rival.acquire(GRACE)
        locks = [stage.lock(kind, path) for _ in range(number)]
        stage.proxy.reset()
        waiters = [Running(lock.acquire) for lock in locks]
        wait_until_waiting(stage, nth=number)
        before = len(stage.sent(op))
        rival.release()
        soon("one is granted the lock", lambda: any(lock.held for lock in locks), PATIENCE)  # noqa: B023
        if woken:
            stage.wait_sent(op, before + woken)
        stage.observer.sync()
        assert len(stage.sent(op)) == before + woken
        for _ in waiters:
            soon("the next one", lambda: any(lock.held for lock in locks), PATIENCE)  # noqa: B023
            next(lock for lock in locks if lock.held).release()
        assert all(waiter.result() for waiter in waiters)


# --- the family -----------------------------------------------------------------------------------


def test_hazard_D7_the_lease_of_a_dead_session_is_not_ones_own(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """A client is cut off while it has the lease, and the program begins anew."""
    first = stage.client()
    leased(Semaphore(first, fresh_path, 1), GRACE)
    abandoned = first.session_id
    stage.proxy.black_hole()
    first.close()
    again = Semaphore(stage.client(direct=True), fresh_path, 1)
    assert not again.lease().acquire(0.1)
    waiter = Running(lambda: leased(again, PATIENCE))
    stage.wait_queued(f"{fresh_path}/locks", 1)
    assert stage.embedded.expire(abandoned)
    waiter.result().release()


@pytest.mark.parametrize("content", [b"2", b"a$", b"1.0", b"-1", b" 1"])
def test_hazard_D9_limits_that_differ_are_refused(
    stage: EmbeddedStage, fresh_path: str, content: bytes
) -> None:
    stage.observer.create(fresh_path, content)
    with pytest.raises(ValueError, match="semaphore"):
        leased(Semaphore(stage.client(), fresh_path, 1), GRACE)
    assert stage.observer.get_children(fresh_path) == []


def test_hazard_D12_E3_an_interrupted_leader_or_candidate_steps_down(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The interrupt comes out once, and the node is gone."""
    election = Election(stage.client(), fresh_path)
    lead = election.lead()
    with pytest.raises(KeyboardInterrupt), lead:
        raise KeyboardInterrupt
    assert not lead.held
    assert stage.nodes(fresh_path) == []
    with holding(Election(stage.observer, fresh_path).lead()):
        with interrupted_when(stage, lambda frames: any(f.op == "get_data" for f in frames)):
            election.lead().acquire()
        stage.wait_queued(fresh_path, 1)
    assert lead.acquire(PATIENCE), "and the object is as new"
    lead.release()


def test_hazard_D13_a_cleaner_beside_a_lock_in_use(stage: EmbeddedStage, fresh_path: str) -> None:
    """The path of a lock that nobody wants can be deleted; of one in use it cannot."""
    lock = stage.lock(SequentialLock, fresh_path)
    with holding(lock), pytest.raises(NotEmptyError):
        stage.observer.delete(fresh_path)
    stage.observer.delete(fresh_path)

    def clean() -> None:
        for _ in range(100):
            with suppress(NotEmptyError, NoNodeError):
                stage.observer.delete(fresh_path)

    cleaner, fences = Running(clean), list[int]()
    while not cleaner.ended:
        with holding(lock):
            assert lock.held
            fences.append(lock.fence)
    cleaner.result()
    assert fences == sorted(set(fences))


# --- processes, signals, ends ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NonBlockingLock, BlockingLock, SequentialLock])
def test_hazard_E5_a_holder_that_was_killed_is_followed(
    stage: EmbeddedStage, kind: Kind, fresh_path: str
) -> None:
    """Nothing of it is left that could renew its lease, so its session ends in time."""
    holder = stage.client()
    assert kind(holder, fresh_path).acquire(GRACE)
    stage.proxy.black_hole()  # as the kernel of a machine that is gone
    rival = stage.rival(kind, fresh_path)
    waiter = Running(lambda: acquire_soon(rival, PATIENCE))
    stage.end(holder)
    waiter.result()
    rival.release()


@pytest.mark.parametrize("where", ["listener", "callback", "finalizer", "during an expiry"])
def test_hazard_E8_close_from_wherever_it_comes(
    stage: EmbeddedStage, fresh_path: str, where: str
) -> None:
    make_path(stage.observer, fresh_path)
    client = stage.client()

    class Owner:
        def __del__(self) -> None:
            client.close()

    if where == "callback":
        client.get_data(fresh_path, watch=lambda _: client.close())
        stage.observer.set_data(fresh_path, b"go")
    elif where == "finalizer":
        Running(Owner).result()
    else:
        client.add_state_listener(lambda _: client.close())
        if where == "listener":
            stage.proxy.cut_all()
        else:
            stage.end(client)
    soon("it is over", lambda: client.state.terminal, PATIENCE)
    Running(client.close).result()
    with pytest.raises((ClientClosedError, SessionExpiredError)):
        client.exists(fresh_path, watch=Watch())
