"""Who listens to a client's states hears each of them, in order, and cannot hurt the client."""

from __future__ import annotations

import itertools
from queue import SimpleQueue
from typing import Any

import pytest

from tests.support.lock_helpers import ALICE, Stage
from zkwire import (
    ACL,
    Client,
    EventType,
    NotSentError,
    Perms,
    State,
    Watch,
    digest_id,
)
from zkwire.session.states import TRANSITIONS
from zkwire.testing.proxy import Gate, hold

PATIENCE = 30.0

CONNECTING, HANDSHAKE, CONNECTED = State.CONNECTING, State.HANDSHAKE, State.CONNECTED
DISCONNECTED, EXPIRED, CLOSED = State.DISCONNECTED, State.EXPIRED, State.CLOSED
COMING = [CONNECTING, HANDSHAKE, CONNECTED]


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self, client: Client) -> None:
        self.all: list[State] = []
        self._queue: SimpleQueue[State] = SimpleQueue()
        client.add_state_listener(self)

    def __call__(self, state: State) -> None:
        self.all.append(state)
        self._queue.put(state)

    def next(self, count: int) -> list[State]:
        """The next states."""
        return [self._queue.get(timeout=PATIENCE) for _ in range(count)]

    def until(self, last: State) -> list[State]:
        """All states up to this one."""
        states = self.next(1)
        while states[-1] is not last:
            states += self.next(1)
        return states


# --- the order ------------------------------------------------------------------------------------


def test_every_state_from_the_beginning_to_the_close(stage: Stage) -> None:
    client = Client(stage.proxy.hosts)
    heard = Heard(client)
    assert heard.all == []  # what is now is in ``client.state``
    with client:
        assert heard.next(3) == COMING
        for _ in range(5):
            stage.proxy.cut_all()
            assert heard.next(4) == [DISCONNECTED, *COMING]
    assert heard.next(1) == [CLOSED]
    assert len(heard.all) == 3 + 5 * 4 + 1


def assert_possible(states: list[State]) -> None:
    for before, after in itertools.pairwise(states):
        assert after in TRANSITIONS[before].values(), f"{before} -> {after}"


def test_every_state_to_the_expiry(stage: Stage, client: Client) -> None:
    heard = Heard(client)
    stage.expire(client)
    states = heard.until(EXPIRED)
    assert states[:2] == [DISCONNECTED, CONNECTING]
    assert states[-2:] == [HANDSHAKE, EXPIRED]
    assert_possible([CONNECTED, *states])
    client.close()
    assert heard.all == states  # the last one is the last


def test_every_state_without_a_server(stage: Stage) -> None:
    stage.proxy.refuse()
    client = Client(stage.proxy.hosts, session_timeout=1.0)
    heard = Heard(client)
    with pytest.raises(NotSentError):
        client.connect(0.3)
    states = heard.until(DISCONNECTED)
    assert states[0] is CONNECTING
    stage.proxy.refuse(False)
    assert_possible([*states, *heard.until(CONNECTED)])
    client.close()


# --- listeners ------------------------------------------------------------------------------------


def test_a_listener_is_there_once_and_can_be_removed(stage: Stage, client: Client) -> None:
    heard, other = Heard(client), Heard(client)
    client.add_state_listener(heard)
    stage.proxy.cut_all()
    assert other.next(4) == [DISCONNECTED, *COMING]
    client.remove_state_listener(heard)
    client.remove_state_listener(heard)
    client.remove_state_listener(print)
    stage.proxy.cut_all()
    assert other.next(4) == [DISCONNECTED, *COMING]
    assert heard.all == [DISCONNECTED, *COMING]
    wrong: tuple[Any, ...]
    for wrong in (("x",), (None,)):
        with pytest.raises(TypeError, match="listener must be callable"):
            client.add_state_listener(*wrong)
    for wrong in ((), ("connected",), (CONNECTED, None)):
        with pytest.raises(TypeError, match="one or more State"):
            client.wait_for_state(*wrong, timeout=0)
    timeouts: tuple[tuple[Any, type[Exception], str], ...] = (
        (-1, ValueError, "timeout must not be negative"),
        ("1", TypeError, "timeout must be a number"),
    )
    for timeout, error, says in timeouts:
        with pytest.raises(error, match=says):
            client.wait_for_state(CONNECTED, timeout=timeout)


def asked(stage: Stage) -> int:
    return sum(f.op == "get_data" and f.direction == "c2s" for f in stage.proxy.frames())


# --- CONNECTED means: everything is back ----------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    ["auth", "set_watches", pytest.param("set_watches2", marks=pytest.mark.since("3.6"))],
)
def test_connected_comes_behind_authentication_and_watches(
    stage: Stage, fresh_path: str, op: str
) -> None:
    observer = stage.observer
    observer.create(fresh_path, b"", [ACL(Perms.ALL, digest_id("alice", "secret"))])
    client = stage.client()
    client.add_auth(*ALICE)
    watch = Watch()
    client.get_data(fresh_path, watch=watch)
    if op == "set_watches2":
        client.add_watch(f"{fresh_path}/x", Watch())
    heard = Heard(client)
    gate = Gate()
    stage.proxy.on(op, action=hold(gate), reply=True)
    stage.proxy.cut_all()
    gate.wait_reached()
    assert heard.until(HANDSHAKE)[-1] is HANDSHAKE
    before = asked(stage)
    waiting = client.pipeline.get_data(fresh_path)
    assert client.wait_for_state(CONNECTED, timeout=0.2) is None
    assert client.state is HANDSHAKE
    assert not waiting.ready
    assert heard.all == [DISCONNECTED, CONNECTING, HANDSHAKE]
    assert asked(stage) == before  # it waits for all of it
    gate.release()
    assert heard.next(1) == [CONNECTED]
    assert waiting.result(PATIENCE).data == b""  # authenticated
    observer.add_auth(*ALICE)
    observer.set_data(fresh_path, b"x")
    event = watch.wait(PATIENCE)  # watched
    assert event is not None
    assert event.type is EventType.NODE_DATA_CHANGED
