"""How seldom the I/O thread runs while callers read: each time costs two switches of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import zkwire.blocking.io_thread
from tests.shell.test_client import PATIENCE
from tests.support.fake_server import FakeServer
from zkwire import Client
from zkwire.blocking.io_thread import IOThread

MOMENT, LONGEST = 10 * PATIENCE, 40 * PATIENCE


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(zkwire.blocking.io_thread, "MOMENT", MOMENT)
    monkeypatch.setattr(zkwire.blocking.io_thread, "LONGEST_REARM", LONGEST)
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as client:
        client.create("/a")
        yield client


def io_thread(client: Client) -> IOThread:
    io = client._driver.io
    assert io is not None
    return io


def test_the_io_thread_leaves_late_readers_ever_more_time_until_they_are_seldom(
    client: Client,
) -> None:
    driver, io = client._driver, io_thread(client)
    connection = driver.current_connection
    assert connection is not None

    def pause() -> float:
        io._leave_to_reader(connection)
        assert io._rearm_at is not None
        return io._rearm_at - driver.now()

    expected = [MOMENT, 2 * MOMENT, LONGEST, LONGEST]
    assert [pause() for _ in expected] == pytest.approx(expected, abs=PATIENCE)
    io._away_until = driver.now() - 5 * LONGEST
    assert pause() == pytest.approx(MOMENT, abs=PATIENCE)
    io.read_soon()


def test_what_is_deferred_in_a_burst_wakes_the_io_thread_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkwire.blocking.leader.DEFER_SECONDS", LONGEST)
    monkeypatch.setattr("zkwire.blocking.io_thread.DEFER_SECONDS", LONGEST)
    driver, io = client._driver, io_thread(client)
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
