"""kazoo's client on zkwire, interrupted: a later call finds it as it would have been."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest
from kazoo import exceptions as ke
from kazoo.handlers.threading import SequentialThreadingHandler

from tests.shell.test_kazoo_engine import NOBODY, PATIENCE, started
from zkwire import Client
from zkwire.kazoo import KazooClient, engine
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, hold


def test_an_interrupted_get_leaves_the_result_to_others(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        gate = Gate()
        proxy.on("get_data", action=hold(gate))
        result = client.get_async("/")
        previous = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                result.get()
        finally:
            signal.signal(signal.SIGALRM, previous)
        assert not result.ready()
        gate.release()
        assert result.get()[0] == b""


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_get_may_be_interrupted_at_each_line(server: Server) -> None:
    line, left = 0, 0

    def look(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != engine.__file__:
            return None
        left -= event == "line"
        if left == 0 and event == "line":
            raise KeyboardInterrupt
        return look

    with started(server.hosts) as client:
        while left <= 0:
            line = left = line + 1
            result, told = client.get_async("/"), threading.Event()
            sys.settrace(look)
            try:
                result.get()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            result.rawlink(lambda _, told=told: told.set())
            assert told.wait(PATIENCE), line
            assert result.get()[0] == b"", line
    assert line > 5


def test_a_client_whose_handler_is_refused_can_be_stopped() -> None:
    handler = SequentialThreadingHandler()
    handler.name = "sequential_gevent_handler"
    client = KazooClient(NOBODY, handler=handler)
    with pytest.raises(ke.ConfigurationError, match="has not patched"):
        client.start()
    client.stop()
    client.close()


def test_a_client_whose_stop_was_interrupted_starts_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(server.hosts) as client:
        inner = client.zkwire
        monkeypatch.setattr(Client, "close", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.stop()
        monkeypatch.undo()
        client.start(PATIENCE)
        assert client.get("/")[0] == b""
        inner.close()


def test_to_ask_often_whether_a_result_is_ready_costs_nothing(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        gate = Gate()
        proxy.on("get_data", action=hold(gate))
        result = client.get_async("/")
        asked = [result.ready() for _ in range(50)]
        reply, _ = result._unread
        assert (any(asked), len(reply._request._wakers)) == (False, 1)
        gate.release()
        assert result.get()[0] == b""
