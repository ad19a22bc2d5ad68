"""Hazards of the client that the tests of the state machine do not provoke: rows A and E.

Rows that are not here have a ``test_known_<row>_...`` in the tests of the state machine.
"""

from __future__ import annotations

import ast
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import zkwire
from tests.shell.hazards.staging import EmbeddedStage
from tests.support.family_helpers import soon
from tests.support.hooks import hooked
from tests.support.lock_helpers import (
    PATIENCE,
    Running,
    holding,
    make_path,
    requests,
    wait_until_waiting,
)
from tests.support.scripted import GONE, Script, event_frame, reply_frame, types
from zkwire import (
    Client,
    ConnectionLossError,
    Election,
    EventType,
    SequentialLock,
    State,
    ZooKeeperError,
)
from zkwire.testing.proxy import Gate, cut_after, hold
from zkwire.wire import ops


def catch_up(client: Client) -> None:
    """Have an answer, whatever becomes of the present connection."""

    def answered() -> bool:
        try:
            client.sync()
        except ConnectionLossError:
            return False
        return True

    soon("it answers again", answered, PATIENCE)


# --- watches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["event", "answer"])
def test_hazard_A41_an_event_during_the_restoration(first: str) -> None:
    """Before or behind the answer to SetWatches: it is told once, to every kind of watch."""
    script = Script()
    script.connect()
    watches = [script.watching("get_data", "/a"), script.watching("exists", "/a")]
    script.greet_again()
    (restoring,) = [sent for sent in script.flush() if sent.xid == ops.SET_WATCHES_XID]
    pieces = [event_frame(EventType.NODE_DATA_CHANGED, "/a"), reply_frame(restoring.xid)]
    script.feed(b"".join(pieces if first == "event" else reversed(pieces)))
    assert script.state is State.CONNECTED
    assert [types(watch) for watch in watches] == [[EventType.NODE_DATA_CHANGED]] * 2
    script.reconnect()
    assert [sent for sent in script.sent if sent.xid == ops.SET_WATCHES_XID] == []


# --- the session ----------------------------------------------------------------------------------


def test_hazard_A25_listeners_that_block_in_every_state(stage: EmbeddedStage) -> None:
    """Pings and reconnects go on while the first listener has not come back yet."""
    client, blocked, go = stage.client(timeout=1.5), threading.Event(), threading.Event()

    def dwell(_: State) -> None:
        blocked.set()
        assert go.wait(4 * PATIENCE)

    client.add_state_listener(dwell)
    session_id = client.session_id
    try:
        stage.proxy.cut_all()
        assert blocked.wait(PATIENCE)
        stage.proxy.wait_for(
            lambda frames: sum(f.op == "ping" and f.xid == -2 for f in frames) >= 6, PATIENCE
        )
        catch_up(client)
        assert client.session_id == session_id
    finally:
        go.set()


@pytest.mark.parametrize("election", [False, True])
def test_hazard_A26_D11_a_contended_acquire_inside_a_callback(
    stage: EmbeddedStage, fresh_path: str, election: bool
) -> None:
    make_path(stage.observer, f"{fresh_path}-watched")
    client, results = stage.client(), list[bool]()
    rival, lock = (
        Election(each, fresh_path).lead() if election else SequentialLock(each, fresh_path)
        for each in (stage.observer, client)
    )
    client.get_data(f"{fresh_path}-watched", watch=lambda _: results.append(lock.acquire(PATIENCE)))
    with holding(rival):
        stage.observer.set_data(f"{fresh_path}-watched", b"go")
        wait_until_waiting(stage)
        assert results == []
    soon("the callback has got it", lambda: results == [True], PATIENCE)
    lock.release()


def test_hazard_A27_a_forked_child_is_refused_and_ends_nothing(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    client = stage.client()
    lock, session_id = SequentialLock(client, fresh_path), client.session_id
    with holding(lock):
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads are the point
            pid = os.fork()
        if pid == 0:
            signal.alarm(int(PATIENCE))  # a child that hangs dies silently
            try:
                client.get_data("/")
            except ZooKeeperError as error:
                client.close()
                os.write(writing, f"{type(error).__name__} {lock.held}".encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "ForkedError False"
        os.waitpid(pid, 0)
        client.sync()
        assert client.session_id == session_id
        assert lock.held


PACKAGE = Path(zkwire.__file__).parent
WALL_CLOCKS = re.compile(r"\b(time\.(time|time_ns|ctime|localtime|gmtime)|datetime|date\.today)\b")


def test_hazard_A28_nothing_reads_the_wall_clock() -> None:
    """Neither ``time.time`` nor ``datetime``, and not under another name.

    Servers show times of day, and so do the embedded one and the command.
    """
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in {"testing", "cli"}:
            tree = ast.parse(file.read_text())
            code = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            code += [
                f"{node.module}.{alias.name}"
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            ]
            code = [text for text in code if text != "datetime.timedelta"]  # which has no clock
            assert not [text for text in code if WALL_CLOCKS.match(text)], file


def test_hazard_A31_names_are_looked_up_anew_and_one_bad_name_costs_itself(
    stage: EmbeddedStage,
) -> None:
    """One of three does not resolve, one has moved to another address by the next attempt."""
    port, moved, asked = stage.proxy.hosts.rpartition(":")[2], threading.Event(), list[str]()

    def resolver(host: str, _: int) -> list[tuple[int, Any]]:
        asked.append(host)
        if host == "bad.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        there = host == "two.example" and moved.is_set()
        return [(socket.AF_INET, ("127.0.0.1", int(port) if there or not moved.is_set() else 1))]

    hosts = "bad.example,one.example,two.example"
    with hooked(Client)(hosts, session_timeout=PATIENCE, _resolver=resolver) as client:
        client.sync()
        session_id = client.session_id
        moved.set()
        stage.proxy.cut_all()
        catch_up(client)
        assert client.session_id == session_id
        assert asked.count("two.example") >= 1


def test_hazard_A35_a_sync_counts_only_on_the_connection_of_its_listing(
    stage: EmbeddedStage, fresh_path: str
) -> None:
    """The session moves between the two, so the sync is asked for again before the listing."""
    make_path(stage.observer, fresh_path)
    lock = stage.lock(SequentialLock, fresh_path)
    stage.proxy.on("create2", action=cut_after)
    stage.proxy.on("get_children", nth=2, action=cut_after)
    assert lock.acquire(PATIENCE)
    looked = [f for f in requests(stage.proxy.frames()) if f.op in ("sync", "get_children")]
    last = looked[-1]
    assert [f.op for f in looked if f.connection == last.connection] == ["sync", "get_children"]
    lock.release()


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[State] = []

    def see(self, state: State) -> list[Callable[[], object]]:
        return [lambda: self.told.append(state)]


def _happenings(script: Script) -> list[Callable[[], object]]:
    """What may happen to a session in its present state."""
    if script.session.ended:
        return []
    if script.state in (State.DISCONNECTED, State.NOT_STARTED, State.CONNECTING):
        return [script.dial, lambda: script.advance(0.5)]
    if script.state is State.HANDSHAKE:
        return [script.welcome, script.lose, script.restore, script.flush]
    return [
        script.lose,
        lambda: script.feed(b"\xff" * 8),
        lambda: script.advance(20.0),
        script.pong,
    ]


def test_hazard_A44_the_last_state_told_is_the_real_one() -> None:
    """A thousand random patterns of losses, greetings, silence and garbage."""
    for seed in range(1000):
        rng, script, listener = random.Random(seed), Script(), Listener()
        script.session.observers.add(listener)
        for _ in range(rng.randrange(2, 25)):
            if happenings := _happenings(script):
                rng.choice(happenings)()
            script.drop_if_broken()
            if rng.random() < 0.5:
                script.wake()
        if rng.random() < 0.2 and script.state is State.HANDSHAKE:
            script.flush()
            script.feed(GONE)
        script.wake()
        assert listener.told[-1:] == [script.state] or script.state is State.NOT_STARTED, seed


# --- the process ----------------------------------------------------------------------------------


BLOCKED = """
import sys, threading
from zkwire import Client
client = Client(sys.argv[1])
client.connect()
client.add_state_listener(lambda state: threading.Event().wait())
client.pipeline.exists("/never-answered")
client.pipeline.get_data("/", watch=lambda event: threading.Event().wait())
"""


def test_hazard_E7_an_exit_waits_for_nobody_and_says_nothing(stage: EmbeddedStage) -> None:
    """With a request that is never answered, a watch and a listener that never come back."""
    gate = Gate()
    stage.proxy.on("exists", action=hold(gate))
    way = [sys.executable, "-W", "error", "-c", BLOCKED, stage.proxy.hosts]
    child = subprocess.run(way, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    gate.release()
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def _act(barrier: threading.Barrier, what: Callable[[], object]) -> None:
    barrier.wait(PATIENCE)
    with suppress(ZooKeeperError):
        what()


def test_hazard_E9_many_threads_start_and_close_one_client(stage: EmbeddedStage) -> None:
    for seed in range(20):
        client, rng = Client(stage.hosts), random.Random(seed)
        acts: list[Callable[[], object]] = [client.connect, client.close, client.sync]
        barrier = threading.Barrier(8)
        threads = [Running(partial(_act, barrier, rng.choice(acts))) for _ in range(8)]
        for thread in threads:
            thread.result()
        Running(client.close).result()
        assert client.state is State.CLOSED
