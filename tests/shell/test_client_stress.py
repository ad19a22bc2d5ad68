"""Many threads on one client, with and without faults, and its pings meanwhile."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import tracemalloc  # noqa: F401  (pytest's hook would import it in the midst of a collection)
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from tests.shell.test_client import PATIENCE, poll_state, within
from tests.shell.test_client_threads import STALL, ask, ask_until_answered
from tests.support.fake_server import Connection, FakeServer, Request, echo, reply
from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from zkwire import Client, ConnectionLossError, EventType, OperationTimeoutError, State, Watch
from zkwire.jute import records as r
from zkwire.testing.proxy import (
    Action,
    FaultProxy,
    Frame,
    cut_after,
    cut_before,
    rst_after,
    rst_before,
    split,
    truncate,
)

ROUNDS = 1200  # of all threads together


# --- stress ---------------------------------------------------------------------------------------


def use(client: Client, tag: str, rng: random.Random) -> None:
    """Ask in one of several ways; each answer can be for nobody else."""
    match rng.randrange(6):
        case 0:
            tags = [f"{tag}/{n}" for n in range(rng.randrange(1, 60))]
            calls = [(each, client.pipeline.get_data(each)) for each in tags]
            rng.shuffle(calls)
            for each, call in calls:
                assert call.result().data.decode() == each
        case 1:
            call = client.pipeline.get_data(tag)
            with contextlib.suppress(OperationTimeoutError):
                assert call.result(rng.random() / 1000).data.decode() == tag
        case 2:  # nobody reads the answers
            for n in range(rng.randrange(5)):
                client.pipeline.get_data(f"{tag}/{n}")
        case 3:
            watch, path = Watch(), "/watched" + tag.replace("/", "-")
            client.exists(path, watch=watch)
            client.create(path)
            event = watch.wait(STALL)
            assert event is not None
            assert (event.type, event.path) == (EventType.NODE_CREATED, path)
        case _:
            ask(client, tag)


def lost(client: Client, seed: object, number: int, rounds: int) -> int:
    """How often a thread has lost its connection in so many rounds."""
    rng, losses = random.Random(f"{seed}-{number}"), 0
    for n in range(rounds):
        try:
            use(client, f"/{number}/{n}", rng)
        except ConnectionLossError:
            losses += 1
    return losses


def check_order(frames: list[Frame]) -> None:
    """A18: xids rise strictly on each connection, from 1 up, and nothing is sent but frames."""
    xids: dict[int, list[int]] = {}
    for frame in frames:
        if frame.direction == "c2s" and frame.kind == "request" and (frame.xid or 0) > 0:
            xids.setdefault(frame.connection, []).append(frame.xid or 0)
        assert frame.kind != "raw" or frame.direction == "s2c"
    for row in xids.values():
        assert all(a < b for a, b in pairwise(row))


def cutting(rng: random.Random) -> Callable[[Frame], Action | None]:
    """Connections break at random frames in every way there is."""

    def fault(frame: Frame) -> Action | None:
        if frame.kind == "connect" or rng.random() > 0.004:
            return None
        action: Action = rng.choice([cut_before, cut_after, rst_before, rst_after, split])
        return truncate(rng.randrange(12)) if rng.random() < 0.2 else action

    return fault


@pytest.mark.parametrize("cuts", [False, True], ids=["calm", "cuts"])
@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_stress(threads: int, cuts: bool, seed: int) -> None:
    """Every thread gets its own answers, and none of them waits forever."""
    with FakeServer(echo) as server, FaultProxy(server.hosts) as proxy:
        with Client(proxy.hosts, session_timeout=20) as client:
            if cuts:
                proxy.rule(cutting(random.Random(f"{seed}-{threads}")))
            work = [
                Running(partial(lost, client, seed, n, ROUNDS // threads)) for n in range(threads)
            ]
            losses = sum(worker.result(STALL) for worker in work)
            proxy.clear()
            assert cuts or losses == 0
            with within(1.0):
                ask_until_answered(client, "/last")
            assert poll_state(client, State.CONNECTED)
        check_order(proxy.frames())
        # It was one, and it was closed.
        poll("the session is closed", lambda: not server.sessions or None, PATIENCE)
        assert {c.session_id for c in server.connections if c.session_id} == {0x1000}
        assert cuts or len(server.connections) == 1


# --- pings under load -----------------------------------------------------------------------------


TIMEOUT = 3.0


class Flood:
    """A script: after the first answer, events for longer than the session timeout."""

    def __init__(self) -> None:
        self.over = threading.Event()
        # Long, so that what the sockets hold is soon read: an answer to a ping stands behind it.
        event = r.WatcherEvent(EventType.NODE_CREATED, 3, "/" + 10_000 * "f")
        self._events = reply(-1, event, zxid=-1) * 100
        self._one_frame = threading.Lock()

    def __call__(self, connection: Connection) -> None:
        connection.greet()
        connection.answer(connection.request())
        connection.flush()
        waiting = connection.request()
        pouring = threading.Thread(target=self._pour, args=(connection, waiting))
        pouring.start()
        try:
            while not self.over.is_set():
                ping = connection.request(pings=True)
                with self._one_frame:  # events alone would not keep the connection
                    connection.answer(ping)
                    connection.flush()
            for request in connection.requests():
                connection.answer(request)
        finally:
            pouring.join()

    def _pour(self, connection: Connection, waiting: Request) -> None:
        ends = time.monotonic() + 1.5 * TIMEOUT
        with contextlib.suppress(OSError):
            while time.monotonic() < ends:
                with self._one_frame:
                    connection.sock.sendall(self._events)
            connection.answer(waiting)
        self.over.set()


@pytest.mark.parametrize("reader", ["a caller", "the I/O thread"])
def test_pings_go_out_under_a_flood(reader: str) -> None:
    """A23: bytes keep the socket readable for longer than the session timeout."""
    flood = Flood()
    with FakeServer(flood) as server, Client(server.hosts, session_timeout=TIMEOUT) as client:
        client.create("/a")
        call = client.pipeline.exists("/a")
        if reader == "the I/O thread":
            assert flood.over.wait(PATIENCE)
        assert call.result(PATIENCE) is not None
        times = [q.time for q in server.received]
        # Due after a third; what matters is that the server never reaches its own limit.
        assert max(b - a for a, b in pairwise([*times, time.monotonic()])) < TIMEOUT
        assert server.count("ping") >= 3
        assert len(server.connections) == 1
