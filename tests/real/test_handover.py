"""A session that one client leaves and another goes on with."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.family_helpers import Lockable, lease_of, looked, soon, watches_children
from tests.support.lock_helpers import Running, Stage
from tests.support.server_control import Ensemble
from zkwire import (
    BlockingLock,
    Client,
    ClientClosedError,
    ConnectionLossError,
    Credentials,
    EventType,
    LockLostError,
    NodeExistsError,
    ReadWriteLock,
    SequentialLock,
    SessionExpiredError,
    State,
    Watch,
)
from zkwire.blocking.sync import run
from zkwire.jute.frames import SEND_LIMIT
from zkwire.testing.proxy import cut_before

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0


@pytest.fixture
def stage(tidy: Stage) -> Stage:
    return tidy


def owner(client: Client, path: str) -> int | None:
    """Whose ephemeral node it is; None if there is none."""
    stat = client.exists(path)
    return None if stat is None else stat.ephemeral_owner


def sent(stage: Stage, op: str) -> int:
    return sum(f.op == op and f.direction == "c2s" for f in stage.proxy.frames())


# --- leaving and going on -------------------------------------------------------------------------


@pytest.mark.since("3.6")
def test_ephemeral_nodes_live_on(stage: Stage, fresh_path: str) -> None:
    observer, first = stage.observer, stage.client()
    session = first.session_id
    first.create(fresh_path, ephemeral=True)
    gone = Watch()
    observer.get_data(fresh_path, watch=gone)
    kept = first.detach()
    assert kept.session_id == session
    assert first.state is State.CLOSED
    assert sent(stage, "close_session") == 0
    assert owner(observer, fresh_path) == session
    with Client(stage.proxy.hosts, resume=kept) as second:
        assert second.session_id == session
        assert owner(second, fresh_path) == session
        assert second.get_ephemerals(fresh_path) == [fresh_path]
        second.set_data(fresh_path, b"x")
        event = gone.wait(PATIENCE)
        assert event is not None
        assert event.type is EventType.NODE_DATA_CHANGED
        assert second.credentials == kept
    assert sent(stage, "close_session") == 1
    # This one ended it. A close waits for its answer, but not for long.
    soon("it is gone", lambda: owner(observer, fresh_path) is None)


def test_what_belongs_to_the_client_ends_with_it(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path)
    first.create(f"{fresh_path}/node", ephemeral=True)
    watch = Watch()
    first.get_data(fresh_path, watch=watch)
    pending = [first.pipeline.exists(fresh_path) for _ in range(5)]
    for reply in pending:
        reply.result(PATIENCE)
    kept = first.detach()
    calls: list[Callable[[], object]] = [
        lambda: first.exists(fresh_path),
        lambda: watch.wait(PATIENCE),
        first.detach,
        lambda: first.credentials,
        first.connect,
    ]
    for call in calls:
        with pytest.raises(ClientClosedError):
            call()
    # Its node belongs to the session, which lives.
    assert owner(stage.observer, f"{fresh_path}/node") == kept.session_id
    first.close()  # too late to end it
    assert owner(stage.observer, f"{fresh_path}/node") == kept.session_id
    Client(stage.proxy.hosts, resume=kept).close()  # never connected: it ends nothing
    assert owner(stage.observer, f"{fresh_path}/node") == kept.session_id
    with Client(stage.proxy.hosts, resume=kept):
        pass
    soon("it is gone", lambda: owner(stage.observer, f"{fresh_path}/node") is None)


CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from zkwire import Client, Credentials
given = json.loads(sys.stdin.read())
resume = Credentials(given["id"], bytes.fromhex(given["passwd"]))
with Client(given["hosts"], resume=resume) as client:
    print(json.dumps([client.session_id, client.get_ephemerals(given["path"])]))
    client.detach()
"""


@pytest.mark.since("3.6")
def test_to_another_process_and_back(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path, ephemeral=True)
    kept = first.detach()
    given = {
        "hosts": stage.hosts,
        "id": kept.session_id,
        "passwd": kept.passwd.hex(),
        "path": fresh_path,
    }
    ended = subprocess.run(
        [sys.executable, "-I", "-c", CHILD, str(ROOT)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(ended.stdout) == [kept.session_id, [fresh_path]]
    with Client(stage.hosts, resume=kept) as client:
        assert owner(client, fresh_path) == kept.session_id


def test_detach_without_a_connection(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path, ephemeral=True)
    stage.proxy.refuse()
    stage.proxy.cut_all()
    assert first.wait_for_state(State.DISCONNECTED, timeout=PATIENCE) is State.DISCONNECTED
    kept = first.detach()
    stage.proxy.refuse(False)
    with Client(stage.proxy.hosts, resume=kept) as second:
        assert owner(second, fresh_path) == kept.session_id


def test_what_is_being_cleaned_up_is_done_first(stage: Stage, fresh_path: str) -> None:
    holder = SequentialLock(stage.client(direct=True), fresh_path)
    assert holder.acquire(PATIENCE)
    first = stage.client()
    stage.proxy.on("delete", action=cut_before)  # so that it has to be repeated
    assert not SequentialLock(first, fresh_path).acquire(0.5)
    kept = first.detach()
    assert len(stage.nodes(fresh_path)) == 1
    with Client(stage.hosts, resume=kept):
        holder.release()
    assert stage.nodes(fresh_path) == []


# --- when there is nothing to go on with ----------------------------------------------------------


def test_there_is_no_session_before_the_first_connection(stage: Stage) -> None:
    client = Client(stage.proxy.hosts)
    calls: list[Callable[[], object]] = [client.detach, lambda: client.credentials]
    for call in calls:
        with pytest.raises(RuntimeError, match="no session yet"):
            call()
    with client:
        assert client.credentials.session_id == client.session_id


def test_there_is_no_session_after_its_end(stage: Stage) -> None:
    expired = stage.client()
    kept = expired.credentials
    stage.expire(expired)
    assert expired.wait_for_state(State.EXPIRED, timeout=PATIENCE) is State.EXPIRED
    with pytest.raises(SessionExpiredError):
        expired.detach()
    later = Client(stage.proxy.hosts, resume=kept)
    with pytest.raises(SessionExpiredError):
        later.connect(PATIENCE)
    assert later.state is State.EXPIRED
    later.close()


def test_nobody_goes_on_in_time(stage: Stage, fresh_path: str) -> None:
    first = stage.client(timeout=2.0)  # more than a pause of the machine
    first.create(fresh_path, ephemeral=True)
    gone = Watch()
    stage.observer.get_data(fresh_path, watch=gone)
    kept = first.detach()
    event = gone.wait(PATIENCE)  # the server's own doing
    assert event is not None
    assert event.type is EventType.NODE_DELETED
    second = Client(stage.proxy.hosts, resume=kept)
    with pytest.raises(SessionExpiredError):
        second.exists(fresh_path)
    second.close()


def test_a_wrong_password(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path, ephemeral=True)
    wrong = Credentials(first.session_id, bytes(16))
    intruder = Client(stage.hosts, resume=wrong)
    with pytest.raises(SessionExpiredError):
        intruder.connect(PATIENCE)
    intruder.close()
    # A server ends the connection before it looks at the password, but not the session.
    repeat_until_answered(lambda: first.exists(fresh_path))
    assert owner(first, fresh_path) == first.session_id
    assert first.state is State.CONNECTED


# --- locks ----------------------------------------------------------------------------------------


def test_who_waits_for_a_lock_keeps_the_client(stage: Stage, fresh_path: str) -> None:
    """Its place in the queue would live on, without anybody who could leave it."""
    holder, client = stage.client(), stage.client()
    held, wanted = SequentialLock(holder, fresh_path), SequentialLock(client, fresh_path)
    assert held.acquire(PATIENCE)
    waiter = Running(lambda: wanted.acquire(PATIENCE))
    soon("it queues", lambda: len(stage.nodes(fresh_path)) == 2)
    with pytest.raises(RuntimeError, match="being acquired"):
        client.detach()
    held.release()
    assert waiter.result()
    with pytest.raises(RuntimeError, match="a lock is held"):
        client.detach()
    wanted.release()
    client.detach()
    assert stage.nodes(fresh_path) == []


def test_a_lost_lock_that_nobody_has_released_keeps_the_client(
    stage: Stage, fresh_path: str, client: Client
) -> None:
    """Its node may stand there still."""
    lock = SequentialLock(client, fresh_path)
    assert lock.acquire(PATIENCE)
    with client._driver.mutex:
        client._session._lease_holders.lose_all("no server has answered")
    assert not client._session.lease_holders
    with pytest.raises(RuntimeError, match="lost and not released"):
        client.detach()
    with pytest.raises(LockLostError):
        lock.release()
    client.detach()
    stage.wait_no_nodes(fresh_path)


KINDS: dict[str, Callable[[Client, str], Lockable]] = {
    "one node": BlockingLock,
    "queue": SequentialLock,
    "writer": lambda client, path: ReadWriteLock(client, path).write,
    "lease": lease_of,
}


@pytest.mark.since("3.5")
@pytest.mark.parametrize("rivals", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_hazard_B34_a_session_that_is_resumed_does_not_wait_for_itself(
    stage: Stage, fresh_path: str, kind: str, rivals: int
) -> None:
    """Its own node stands there, from before a crash; also if a rival waits between the two."""
    first, rival = stage.client(direct=True), KINDS[kind](stage.client(), fresh_path)
    assert KINDS[kind](first, fresh_path).acquire(PATIENCE)
    kept = first.credentials
    run(first._driver.close(1.0, detach=True))  # as it was when the process died
    waiting = [Running(lambda: rival.acquire(PATIENCE))] if rivals else []
    for _ in waiting:
        if kind == "lease":
            stage.proxy.wait_for(lambda seen: watches_children(seen, f"{fresh_path}/leases"))
        else:
            stage.proxy.wait_for(looked)
    with Client(stage.hosts, resume=kept) as again:
        lock = KINDS[kind](again, fresh_path)
        assert not lock.try_acquire()
        with pytest.raises(NodeExistsError, match="own, from before this client has res") as caught:
            lock.acquire(PATIENCE)
        assert owner(again, str(caught.value.path)) == again.session_id
        again.delete(str(caught.value.path))
        for running in waiting:
            assert running.result()
            rival.release()
        assert lock.acquire(PATIENCE)


def test_other_nodes_of_a_session_are_waited_for(stage: Stage, fresh_path: str) -> None:
    """Of other locks of the client, or made by hand; and those that only look like former ones."""
    client, stranger = stage.client(), stage.observer
    other = SequentialLock(client, fresh_path)
    assert other.acquire(PATIENCE)
    by_hand = client.create(f"{fresh_path}/x-lock-", ephemeral=True, sequential=True)
    session = f"{client.session_id & 2**64 - 1:016x}"
    forged = f"{fresh_path}/{session}-{'0' * 24}-lock-"
    forged = stranger.create(forged, ephemeral=True, sequential=True)
    waiter = Running(lambda: SequentialLock(client, fresh_path).acquire(PATIENCE))
    soon("it queues", lambda: len(stage.nodes(fresh_path)) == 4)
    stranger.delete(forged)
    client.delete(by_hand)
    other.release()
    assert waiter.result()


# --- while the first still lives ------------------------------------------------------------------


def test_the_first_client_is_pushed_out_and_may_come_back(stage: Stage, fresh_path: str) -> None:
    first = stage.client()
    first.create(fresh_path, ephemeral=True)
    stage.proxy.refuse()  # else the two would push each other out forever
    with Client(stage.hosts, resume=first.credentials) as second:
        assert first.wait_for_state(State.DISCONNECTED, timeout=PATIENCE) is State.DISCONNECTED
        assert owner(second, fresh_path) == first.session_id
        second.detach()
    stage.proxy.refuse(False)
    first.connect(PATIENCE)
    assert owner(first, fresh_path) == first.session_id
    first.set_data(fresh_path, b"x")


def test_a_session_moves_over_to_another_member(ensemble: Ensemble, fresh_path: str) -> None:
    here, there = (server.hosts for server in ensemble.servers[:2])
    with Client(here, session_timeout=15) as first:
        session = first.session_id
        first.create(fresh_path, ephemeral=True)
        states: list[State] = []
        first.add_state_listener(states.append)
        second = Client(there, resume=first.credentials)
        second.connect(PATIENCE)
        assert second.session_id == session
        second.set_data(fresh_path, b"second")
        # The first one's server learns of it with the first write, and ends the connection.
        with pytest.raises(ConnectionLossError) as caught:
            first.set_data(fresh_path, b"first")
        assert caught.value.op == "set_data"
        second.detach()
        first.connect(PATIENCE)
        repeat_until_answered(lambda: first.set_data(fresh_path, b"first again"))
        assert first.get_data(fresh_path).data == b"first again"
        assert first.session_id == session
        assert State.EXPIRED not in states
        first.delete(fresh_path)


def repeat_until_answered(call: Callable[[], object]) -> None:
    """Do it over as many connections as it takes."""
    for _ in range(50):
        try:
            call()
        except ConnectionLossError:
            continue
        return
    pytest.fail("no connection lasts")


# --- what credentials show ------------------------------------------------------------------------


def test_credentials_hide_the_password_and_can_be_copied(stage: Stage, client: Client) -> None:
    kept = client.credentials
    assert len(kept.passwd) == 16
    for text in (repr(kept), str(kept), f"{kept}", repr([kept]), repr({"a": kept})):
        assert "<hidden>" in text
        assert repr(kept.passwd)[2:-1] not in text
        assert kept.passwd.hex() not in text
    assert str(kept.session_id) in repr(kept)
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert copy.copy(kept) == kept
    assert kept == client.credentials
    resumed = Client(stage.hosts, resume=kept)
    assert repr(kept.passwd)[2:-1] not in repr(resumed)
    resumed.close()


WRONG: list[tuple[Any, type[Exception], str]] = [
    ((1, b"x"), TypeError, "resume must be Credentials"),
    (7, TypeError, "resume must be Credentials"),
    (Credentials(0, bytes(16)), ValueError, "names no session"),
    (Credentials(5, cast(Any, "SECRET")), TypeError, "an int and bytes"),
    (Credentials(cast(Any, "5"), b"SECRET"), TypeError, "an int and bytes"),
    (Credentials(2**63, b"SECRET"), ValueError, "resume cannot be sent"),
    (Credentials(5, b"SECRET" * SEND_LIMIT), ValueError, "resume cannot be sent"),
]


@pytest.mark.parametrize(("resume", "kind", "message"), WRONG)
def test_what_cannot_be_resumed(resume: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        Client("127.0.0.1:1", resume=resume)
    assert "SECRET" not in str(caught.value)
