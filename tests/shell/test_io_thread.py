"""When the I/O thread reads: how seldom while callers do, and what it lets gather."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.shell.test_client import PATIENCE
from tests.support.fake_server import FakeServer
from tests.support.family_helpers import soon
from tests.support.lock_helpers import Running
from zkwire import Client, Event, EventType, Watch
from zkwire.blocking.io_thread import LONGEST_REARM, MOMENT, REARM, TAKES, IOThread
from zkwire.net.connection import GATHER, STREAM, Connection

# --- beside callers who read ----------------------------------------------------------------------

LATER = 1000.0


def test_the_io_thread_leaves_late_readers_ever_more_time_until_they_are_seldom() -> None:
    now = 0.0
    session = SimpleNamespace(in_flight=())
    connection: Any = SimpleNamespace(epolls=object(), read_at=0.0)
    io: Any = object.__new__(IOThread)
    io._driver = SimpleNamespace(session=session, now=lambda: now)
    io._rearm, io._away_until = REARM, -LATER

    def pause() -> float:
        io._leave_to_reader(connection)
        return float(io._rearm_at - now)

    for expected in (MOMENT, 2 * MOMENT, 4 * MOMENT, 8 * MOMENT, LONGEST_REARM, LONGEST_REARM):
        assert pause() == pytest.approx(expected)
        now = io._rearm_at + 3 * expected
    now += LONGEST_REARM
    assert pause() == pytest.approx(MOMENT)
    connection.epolls = None
    assert pause() == pytest.approx(REARM)


def test_what_is_deferred_in_a_burst_wakes_the_io_thread_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("leader", "io_thread"):
        monkeypatch.setattr(f"zkwire.blocking.{module}.DEFER_SECONDS", LATER)
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as client:
        client.create("/a")
        driver, io = client._driver, client._driver.io
        assert io is not None
        called: list[str] = []
        woken: list[None] = []
        monkeypatch.setattr(io, "wake", lambda: woken.append(None))

        driver.defer(lambda: called.append("first"))
        driver.defer(lambda: called.append("second"))
        io._call_deferred()  # as when the time has come
        driver.defer(lambda: called.append("third"))
        assert (called, len(woken)) == (["first", "second"], 1)
        io._call_deferred()
        io._call_deferred()  # nothing has come since
        driver.defer(lambda: called.append("fourth"))
        assert (called, len(woken)) == (["first", "second", "third"], 2)
        client.get_data("/a")
        assert called[-1] == "fourth"
        monkeypatch.undo()


# --- events that come one by one ------------------------------------------------------------------

SOON = GATHER / 8
ONE, MANY = 60, 600  # bytes of an event, and of what gathers


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    with Client(fake.hosts, session_timeout=100 * PATIENCE) as client:  # no ping helps out
        client.create("/a")
        client.create("/b")
        yield client


def called_of_b(client: Client) -> list[Event]:
    """What a callback hears of /b."""
    events: list[Event] = []
    client.get_data("/b", watch=events.append)
    return events


def test_a_listener_that_lets_events_gather_holds_up_no_other_thread(
    fake: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The I/O thread leaves to it what it lets gather, but not for long."""
    has_begun, end = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        """Callers let events gather until the test ends that; the I/O thread does for no time."""
        if threading.current_thread() is not client._driver.thread:
            has_begun.set()
            assert end.wait(PATIENCE)

    monkeypatch.setattr("zkwire.blocking.io_thread.MOMENT", 100 * PATIENCE)
    monkeypatch.setattr(Connection, "streams", Mock(return_value=True))
    monkeypatch.setattr("zkwire.blocking.leader.time", SimpleNamespace(sleep=sleep))
    io: Any = client._driver.io
    connection: Any = client._driver.current_connection
    events, watch = called_of_b(client), Watch()
    client.get_data("/a", watch=watch)
    thread = Running(lambda: watch.wait(PATIENCE))
    soon("it listens", lambda: connection.listener is not None)
    connection.gathering = True  # so the I/O thread is not faster
    fake.connections[-1].event(EventType.NODE_DELETED, "/a")
    assert has_begun.wait(PATIENCE)
    assert Running(lambda: client.get_data("/a")).result().data == b""

    fake.connections[-1].event(EventType.NODE_DELETED, "/b")
    soon("the I/O thread stands back", lambda: io._rearm_at is not None)
    assert not events
    monkeypatch.setattr("zkwire.blocking.io_thread.MOMENT", SOON)
    io._rearm_at = client._driver.now()
    client._driver.wake()
    soon("the I/O thread has read for it", lambda: events)
    assert not thread.ended
    end.set()
    assert thread.result() is not None


def test_the_io_thread_does_not_wake_itself_to_call_what_it_has_read(
    fake: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = called_of_b(client)
    wake = Mock()
    monkeypatch.setattr(IOThread, "wake", wake)
    fake.connections[-1].event(EventType.NODE_DELETED, "/b")
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

    def events(self, number: int, size: int, seconds: float = SOON, read: float = 0) -> int:
        """So many, each so long behind the one before; how many of them gather."""
        gathering = 0
        for _ in range(number):
            self._now += seconds
            gathering += self.connection.streams(self._now)
            self.connection.read_at = self._now + read
            self.connection.got = size
            self.connection.taken = self._now, self._now
        return gathering


def test_events_gather_where_many_come_one_by_one() -> None:
    link = Received()
    assert link.events(STREAM, ONE) == 0
    assert link.events(STREAM, MANY) == STREAM
    assert link.events(1, MANY, 2 * GATHER) == 0, "it is late, so perhaps the last one"
    number = 10 * STREAM
    # Two that answer each other: the first time shows that none comes meanwhile.
    assert Received().events(number, ONE) == number // (STREAM + 1)
    assert Received().events(number, ONE, read=SOON / 2) == 0, "a caller reads answers between them"
    assert Received().events(number, 100 * MANY) == 0, "others came together"


# --- how long the I/O thread goes on with it ------------------------------------------------------


@pytest.mark.parametrize(
    ("bringing", "stream", "task", "expected"),
    [
        (10 * TAKES, STREAM, False, TAKES),
        (2, STREAM, False, 3),  # the third brings nothing
        (10 * TAKES, STREAM - 1, False, 1),
        (10 * TAKES, STREAM, True, 1),  # a callback hands something over to it
    ],
)
def test_the_io_thread_reads_a_stream_a_few_times_before_it_looks_at_all_else(
    bringing: int, stream: int, task: bool, expected: int
) -> None:
    """So many receives bring events."""
    connection, read = Received().connection, Mock()
    connection.stream = stream
    driver = Mock(tasks=[])
    if task:
        driver.call_callbacks = Mock(side_effect=lambda: driver.tasks.append(None))

    def take(_connection: Connection) -> None:
        connection.read_at += read.call_count < bringing
        read()

    IOThread._read(Mock(_driver=driver, _take=take), connection)
    assert read.call_count == expected
