"""Who listens to a client's states hears each of them, in order, and cannot hurt the client."""

from __future__ import annotations

import itertools
import threading
from queue import SimpleQueue

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
from zkwire.testing.proxy import Frame, Gate, hold

PATIENCE = 30.0

CONNECTING, HANDSHAKE, CONNECTED = State.CONNECTING, State.HANDSHAKE, State.CONNECTED
DISCONNECTED, EXPIRED, CLOSED = State.DISCONNECTED, State.EXPIRED, State.CLOSED
COMING = [CONNECTING, HANDSHAKE, CONNECTED]


@pytest.fixture
def stage(tidy: Stage) -> Stage:
    return tidy


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


def requests(frames: list[Frame], op: str) -> int:
    return sum(frame.op == op and frame.direction == "c2s" for frame in frames)


def pongs(frames: list[Frame]) -> int:
    """How many pings were answered."""
    return sum(frame.op == "ping" and frame.direction == "s2c" for frame in frames)


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


def test_every_state_to_the_expiry(stage: Stage, client: Client) -> None:
    heard = Heard(client)
    stage.expire(client)
    states = heard.until(EXPIRED)
    assert states[:2] == [DISCONNECTED, CONNECTING]
    assert states[-2:] == [HANDSHAKE, EXPIRED]
    for before, after in itertools.pairwise([CONNECTED, *states]):
        assert after in TRANSITIONS[before].values(), f"{before} -> {after}"
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
    states += heard.until(CONNECTED)
    for before, after in itertools.pairwise(states):
        assert after in TRANSITIONS[before].values(), f"{before} -> {after}"
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
    for wrong in ("x", None):
        with pytest.raises(TypeError, match="listener must be callable"):
            client.add_state_listener(wrong)  # type: ignore[arg-type]


@pytest.mark.own_server
def test_a_listener_that_blocks_does_not_cost_the_session(stage: Stage, fresh_path: str) -> None:
    client = stage.client(timeout=3.0)
    session = client.session_id
    client.create(fresh_path, ephemeral=True)
    go_on, reached = threading.Event(), threading.Event()

    def blocks(_: State) -> None:
        reached.set()
        assert go_on.wait(60.0)

    client.add_state_listener(blocks)
    heard = Heard(client)
    stage.proxy.cut_all()
    assert reached.wait(PATIENCE)
    assert client.wait_for_state(CONNECTED, timeout=PATIENCE) is CONNECTED
    # For two session timeouts and more it is pings that keep the session.
    before = pongs(stage.proxy.frames())
    stage.proxy.wait_for(lambda frames: pongs(frames) >= before + 7, 60.0)
    stat = client.exists(fresh_path)
    assert stat is not None
    assert stat.ephemeral_owner == client.session_id == session
    assert heard.all == []
    go_on.set()
    assert heard.next(4) == [DISCONNECTED, *COMING]


# --- wait_for_state -------------------------------------------------------------------------------


def test_wrong_arguments_of_a_wait(client: Client) -> None:
    for wrong in ((), ("connected",), (CONNECTED, None)):
        with pytest.raises(TypeError, match="one or more State"):
            client.wait_for_state(*wrong, timeout=0)
    with pytest.raises(ValueError, match="timeout must not be negative"):
        client.wait_for_state(CONNECTED, timeout=-1)
    with pytest.raises(TypeError, match="timeout must be a number"):
        client.wait_for_state(CONNECTED, timeout="1")  # type: ignore[arg-type]


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
    before = requests(stage.proxy.frames(), "get_data")
    waiting = client.pipeline.get_data(fresh_path)
    assert client.wait_for_state(CONNECTED, timeout=0.2) is None
    assert client.state is HANDSHAKE
    assert not waiting.ready
    assert heard.all == [DISCONNECTED, CONNECTING, HANDSHAKE]
    assert requests(stage.proxy.frames(), "get_data") == before  # it waits for all of it
    gate.release()
    assert heard.next(1) == [CONNECTED]
    assert waiting.result(PATIENCE).data == b""  # authenticated
    observer.add_auth(*ALICE)
    observer.set_data(fresh_path, b"x")
    event = watch.wait(PATIENCE)  # watched
    assert event is not None
    assert event.type is EventType.NODE_DATA_CHANGED
