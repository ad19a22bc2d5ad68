"""How seldom the I/O thread runs while callers read: each time costs two switches of threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_server import FakeServer
from zkwire import Client
from zkwire.blocking.io_thread import LONGEST_REARM, MOMENT, REARM, IOThread

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
