"""Events that come one by one gather before they are read: when they do, and who waits for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.shell.test_client import PATIENCE
from tests.support.fake_server import FakeServer
from tests.support.family_helpers import soon
from tests.support.lock_helpers import Running
from zkwire import Client, Event, EventType, Watch
from zkwire.blocking.io_thread import TAKES, IOThread
from zkwire.net.connection import GATHER, STREAM, Connection

SOON = GATHER / 8
ONE, MANY = 60, 600  # bytes of an event, and of what gathers


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.hosts, session_timeout=100 * PATIENCE) as client:  # no ping helps out
        client.create("/a")
        client.create("/b")
        yield client


@pytest.fixture
def connection(client: Client) -> Connection:
    connection = client._driver.current_connection
    assert connection is not None
    return connection


@pytest.fixture
def late_io_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has stood back, the I/O thread would come back too late for a test."""
    monkeypatch.setattr("zkwire.blocking.io_thread.MOMENT", 100 * PATIENCE)


class Gathering:
    """Callers let events gather until the test ends that; the I/O thread does for no time."""

    def __init__(self, client: Client) -> None:
        self.has_begun = threading.Event()
        self.end = threading.Event()
        self._client = client

    def sleep(self, _seconds: float) -> None:
        if threading.current_thread() is not self._client._driver.thread:
            self.has_begun.set()
            assert self.end.wait(PATIENCE)


@pytest.fixture
def gathering(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gathering]:
    gathering = Gathering(client)
    monkeypatch.setattr(Connection, "streams", Mock(return_value=True))
    monkeypatch.setattr("zkwire.blocking.leader.time", SimpleNamespace(sleep=gathering.sleep))
    yield gathering
    gathering.end.set()


def gatherer(
    server: FakeServer, client: Client, connection: Connection, gathering: Gathering
) -> Running[Event | None]:
    """A thread that waits for an event of /a, and lets others gather before it reads that."""
    watch = Watch()
    client.get_data("/a", watch=watch)
    thread = Running(lambda: watch.wait(PATIENCE))
    soon("it listens", lambda: connection.listener is not None)
    connection.gathering = True  # so the I/O thread is not faster
    server.connections[-1].event(EventType.NODE_DELETED, "/a")
    assert gathering.has_begun.wait(PATIENCE)
    return thread


def called_of_b(client: Client) -> list[Event]:
    """What a callback hears of /b."""
    events: list[Event] = []
    client.get_data("/b", watch=events.append)
    return events


@pytest.mark.usefixtures("late_io_thread")
def test_a_listener_that_lets_events_gather_holds_up_no_other_thread(
    server: FakeServer,
    client: Client,
    connection: Connection,
    gathering: Gathering,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The I/O thread leaves to it what it lets gather, but not for long."""
    io, events = client._driver.io, called_of_b(client)
    assert io is not None
    thread = gatherer(server, client, connection, gathering)
    assert Running(lambda: client.get_data("/a")).result().data == b""

    server.connections[-1].event(EventType.NODE_DELETED, "/b")
    soon("the I/O thread stands back", lambda: io._rearm_at is not None)
    assert not events
    monkeypatch.setattr("zkwire.blocking.io_thread.MOMENT", SOON)
    io._rearm_at = client._driver.now()
    client._driver.wake()
    soon("the I/O thread has read for it", lambda: events)
    assert not thread.ended
    gathering.end.set()
    assert thread.result() is not None


def test_the_io_thread_does_not_wake_itself_to_call_what_it_has_read(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = called_of_b(client)
    wake = Mock()
    monkeypatch.setattr(IOThread, "wake", wake)
    server.connections[-1].event(EventType.NODE_DELETED, "/b")
    soon("the callback is called", lambda: events)
    monkeypatch.undo()
    wake.assert_not_called()


# --- when they gather -----------------------------------------------------------------------------


class Received:
    """A connection on which events come, and the time by a clock of its own."""

    def __init__(self) -> None:
        with socket.socket() as sock:
            self.connection = Connection(sock)
        self._now = 1.0

    def event(self, seconds: float, size: int) -> bool:
        """So long behind the one before, in a receive of ``size`` bytes; whether it gathers."""
        self._now += seconds
        gathers = self.connection.streams(self._now)
        self.connection.read_at = self._now
        self.connection.got = size
        self.connection.taken = self._now, self._now
        return gathers


def test_events_gather_where_many_come_one_by_one() -> None:
    link = Received()
    assert not any(link.event(SOON, ONE) for _ in range(STREAM))
    assert all(link.event(SOON, MANY) for _ in range(STREAM))
    assert not link.event(2 * GATHER, MANY), "it is late, so perhaps the last one"


def test_events_do_not_gather_where_each_waits_for_the_one_before() -> None:
    """Two that answer each other: the first time shows that none comes meanwhile."""
    link = Received()
    assert sum(link.event(SOON, ONE) for _ in range(10 * STREAM)) == 10 * STREAM // (STREAM + 1)


def test_events_do_not_gather_where_answers_are_read_between_them() -> None:
    link = Received()
    for _ in range(10 * STREAM):
        assert not link.event(SOON, ONE)
        link.connection.read_at += SOON / 2  # by a caller


def test_events_do_not_gather_behind_others_that_came_together() -> None:
    link = Received()
    assert not any(link.event(SOON, 100 * MANY) for _ in range(10 * STREAM))


# --- how long the I/O thread goes on with it ------------------------------------------------------


def takes(bringing: int, *, stream: int = STREAM, task: bool = False) -> int:
    """How often the I/O thread reads before it looks at all else, if so many receives bring events.

    ``task``: a callback hands something over to it.
    """
    connection, read = Received().connection, Mock()
    connection.stream = stream
    driver = Mock(tasks=[])
    if task:
        driver.call_callbacks = Mock(side_effect=lambda: driver.tasks.append(None))

    def take(_connection: Connection) -> None:
        connection.read_at += read.call_count < bringing
        read()

    IOThread._read(Mock(_driver=driver, _take=take), connection)
    return read.call_count


def test_the_io_thread_reads_a_stream_of_events_a_few_times_before_it_looks_at_all_else() -> None:
    assert takes(10 * TAKES) == TAKES
    assert takes(2) == 3, "the third brings nothing"
    assert takes(10 * TAKES, stream=STREAM - 1) == 1


def test_what_is_handed_over_to_the_io_thread_does_not_wait_for_a_stream_to_end() -> None:
    assert takes(10 * TAKES, task=True) == 1
