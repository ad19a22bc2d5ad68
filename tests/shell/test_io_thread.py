"""When the I/O thread reads: how seldom while callers do, and what it lets gather."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from tests.shell.test_client import PATIENCE
from tests.support.fake_server import FakeServer
from zkwire import Client
from zkwire.blocking.io_thread import TAKES, IOThread
from zkwire.net.connection import GATHER, STREAM, Connection

# --- events that come one by one ------------------------------------------------------------------

SOON = GATHER / 8


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    with Client(fake.hosts, session_timeout=100 * PATIENCE) as client:  # no ping helps out
        client.create("/a")
        client.create("/b")
        yield client


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
