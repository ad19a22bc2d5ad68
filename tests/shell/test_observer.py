"""What an observer is told, in which thread; and the page about metrics, traces and logs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from tests.support.snippets import blocks
from zkwire import (
    AsyncClient,
    Check,
    Client,
    ClientClosedError,
    Event,
    Lock,
    MultiError,
    NoNodeError,
    NotSentError,
    Observer,
    OperationTimeoutError,
    OutcomeUnknownError,
    RequestEnd,
    SequentialLock,
    State,
    Watch,
)
from zkwire.net.observer import Observation
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after, cut_before, drop

PATIENCE = 30.0
ROUNDS = 9
STATES = [State.CONNECTING, State.HANDSHAKE, State.CONNECTED, State.CLOSED]


class Notes(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str | None, str]] = []
        self.ends: list[RequestEnd] = []
        self.threads: list[str] = []
        self.states: list[State] = []
        self.servers: list[tuple[str, int] | None] = []
        self.events: list[Event] = []
        self.told_of: set[int] = set()
        self.told = threading.Condition()

    def request_submitted(self, op: str, path: str | None) -> int:
        self.begun.append((op, path, threading.current_thread().name))
        return len(self.begun) - 1

    def request_ended(self, begun: Any, end: RequestEnd) -> None:
        assert self.begun[begun][:2] == (end.op, end.path)
        with self.told:
            self.ends.append(end)
            self.told_of.add(begun)
            self.threads.append(threading.current_thread().name)
            self.told.notify_all()

    def state_changed(self, state: State, session_id: int, server: tuple[str, int] | None) -> None:
        self.states.append(state)
        self.servers.append(server)

    def watch_fired(self, event: Event) -> None:
        self.events.append(event)

    def wait_for(self, number: int) -> list[RequestEnd]:
        """The ends, once there are so many."""
        with self.told:
            assert self.told.wait_for(lambda: len(self.ends) >= number, PATIENCE)
        return self.ends

    @property
    def outcomes(self) -> list[tuple[str, str, bool]]:
        return [(end.op, end.outcome, end.maybe_applied) for end in self.ends]


def address(hosts: str) -> tuple[str, int]:
    host, port = hosts.split(":")
    return host, int(port)


def in_loop(
    hosts: str, use: Callable[[AsyncClient], Coroutine[Any, Any, Any]], **named: Any
) -> None:
    """What is done with a client for asyncio."""

    async def main() -> None:
        async with AsyncClient(hosts, **named) as client:
            await use(client)

    asyncio.run(main())


# --- both clients ---------------------------------------------------------------------------------


def test_requests_are_told_in_the_thread_that_asks(server: Server) -> None:
    notes, here = Notes(), threading.current_thread().name
    with Client(server.hosts, observer=notes) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        with pytest.raises(NoNodeError):
            client.delete("/none")
        with pytest.raises(MultiError):
            client.multi([Check("/", 17)])
        client.create("/a")
        event = watch.wait(PATIENCE)
    asked = [("exists", "/a"), ("delete", "/none"), ("multi", None), ("create", "/a")]
    assert notes.begun == [(op, path, here) for op, path in asked]
    assert [end.outcome for end in notes.ends] == ["ok", "NoNodeError", "MultiError", "ok"]
    assert notes.threads == [here] * 4
    for end in notes.ends:
        assert end.server == address(server.hosts)
        assert 0 < end.seconds < PATIENCE
        assert not end.maybe_applied
    assert (notes.states, notes.servers[2]) == (STATES, address(server.hosts))
    assert notes.events == [event]


def test_the_requests_of_a_lock_are_told(server: Server) -> None:
    notes = Notes()
    with Client(server.hosts, observer=notes) as client, SequentialLock(client, "/a"):
        pass
    assert {"create2", "get_children", "delete"} <= {op for op, _, _ in notes.begun}


def test_lost_and_late_and_refused_requests_are_told_once(server: Server) -> None:
    notes = Notes()
    limits: dict[str, Any] = {"observer": notes, "operation_timeout": 0.05}
    late = ("create", "OperationTimeoutError", True)

    async def create(client: AsyncClient) -> None:
        with pytest.raises(OperationTimeoutError):
            await client.create("/a")

    async def withdraw() -> None:
        waiting = AsyncClient("127.0.0.1:1", observer=notes, session_timeout=60.0)
        task = asyncio.ensure_future(waiting.get_data("/"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes.ends[-1].outcome == "NotSentError"
        await waiting.close()

    with FaultProxy(server.hosts) as proxy:
        with Client(proxy.hosts, observer=notes) as client:
            proxy.on("create", action=cut_after)
            with pytest.raises(OutcomeUnknownError):
                client.create("/a")
        assert notes.ends[0].server == address(proxy.hosts)
        with Client(proxy.hosts, **limits) as client:
            proxy.on("create", action=drop)
            with pytest.raises(OperationTimeoutError):
                client.create("/a")
        proxy.on("create", action=drop)
        in_loop(proxy.hosts, create, **limits)
    asyncio.run(withdraw())
    with pytest.raises(ClientClosedError):
        client.get_data("/")
    assert notes.outcomes == [
        ("create", "OutcomeUnknownError", True),
        *(late, late),
        ("get_data", "NotSentError", False),
        ("get_data", "ClientClosedError", False),
    ]
    assert len(notes.ends) == len(notes.begun)


def test_the_nodes_of_a_missing_chroot_are_told(server: Server) -> None:
    notes = Notes()
    with Client(f"{server.hosts}/top/root", observer=notes) as client, Lock(client, "/lock"):
        pass  # it makes the nodes of its own path as containers
    in_loop(f"{server.hosts}/other/root", lambda client: client.ensure_path("/a"), observer=notes)
    created = [end.path for end in notes.ends if (end.op, end.outcome) == ("create", "ok")]
    assert created == ["/top", "/", "/other", "/", "/a"]
    assert len(notes.ends) == len(notes.begun)


# --- observers that fail --------------------------------------------------------------------------


class Broken(Observer):
    """Raises wherever it is called."""

    def request_submitted(self, op: str, path: str | None) -> None:
        raise LookupError("submitted")

    def request_ended(self, begun: Any, end: RequestEnd) -> None:
        assert begun is None
        raise LookupError("ended")

    def state_changed(self, state: State, session_id: int, server: tuple[str, int] | None) -> None:
        raise LookupError("state")

    def watch_fired(self, event: Event) -> None:
        raise LookupError("fired")


def test_an_observer_that_raises_is_logged_and_harms_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: AsyncClient) -> None:
        assert (await client.get_data("/")).data == b""

    with Client(server.hosts, observer=Broken()) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        client.create("/a")
        assert watch.wait(PATIENCE)
    in_loop(server.hosts, use, observer=Broken())
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    said = {record.getMessage() for record in failed}
    assert said == {
        f"the observer's {method} has failed"
        for method in ("request_submitted", "request_ended", "state_changed", "watch_fired")
    }
    assert all(record.name == "zkwire" and record.exc_info for record in failed)


def test_an_interrupt_of_the_observer_is_the_callers(server: Server) -> None:
    class Interrupted(Observer):
        def request_submitted(self, op: str, path: str | None) -> None:
            raise KeyboardInterrupt

    with Client(server.hosts, observer=Interrupted()) as client, pytest.raises(KeyboardInterrupt):
        client.create("/a")
    assert "/a" not in server.tree.nodes


@pytest.mark.parametrize("line", range(1, 6))
def test_ctrl_c_leaves_no_later_request_untold(server: Server, line: int) -> None:
    left = line

    def look(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code is Observation.ended.__code__ and event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return look

    notes = Notes()
    with Client(server.hosts, observer=notes) as client:
        while left > 0:  # the main thread reads unless the I/O thread was first
            before = sys.gettrace()
            sys.settrace(look)
            try:
                with suppress(KeyboardInterrupt):
                    client.pipeline.get_data("/")
                    client.get_data("/")
            finally:
                sys.settrace(before)
        client.connect()
        already = len(notes.begun)
        for _ in range(ROUNDS):
            client.pipeline.get_data("/")
        client.get_data("/")
    assert {*range(already, already + ROUNDS + 1)} <= notes.told_of


def test_what_is_no_observer_is_refused() -> None:
    class Async(Observer):
        async def request_ended(self, begun: Any, end: RequestEnd) -> None:  # type: ignore[override]
            """It would have to be awaited."""

    wrong: Any
    for wrong, says in ((print, "has no request_submitted"), (Async(), "request_ended is async")):
        for kind in (Client, AsyncClient):
            with pytest.raises(TypeError, match=says):
                kind("127.0.0.1:1", observer=wrong)


# --- the page -------------------------------------------------------------------------------------

prometheus_client = pytest.importorskip("prometheus_client")
opentelemetry = pytest.importorskip("opentelemetry.sdk.trace")


def run_block(number: int, hosts: str) -> dict[str, Any]:
    """Run one block of the page; what it has defined."""
    names: dict[str, Any] = {}
    exec(blocks("how-to/observe", hosts)[number], names)
    return names


def test_prometheus_counts_requests_states_and_events(server: Server) -> None:
    names = run_block(0, server.hosts)
    fired = threading.Event()
    with Client(server.hosts, observer=names["Metrics"]()) as client:
        client.exists("/a", watch=lambda event: fired.set())
        client.create("/a")
        assert fired.wait(30)
    shown = prometheus_client.generate_latest().decode().splitlines()
    for name in ("REQUESTS", "USABLE", "STATES", "EVENTS"):
        prometheus_client.REGISTRY.unregister(names[name])
    for line in (
        'request_seconds_count{op="exists",outcome="ok"} 2.0',
        'request_seconds_count{op="create",outcome="ok"} 1.0',
        'states_total{state="connected"} 2.0',
        'watch_events_total{type="NODE_CREATED"} 1.0',
        "usable 0.0",
    ):
        assert f"zookeeper_{line}" in shown


@pytest.fixture(scope="module")
def exporter() -> Any:
    """Where all spans of this process go: OpenTelemetry takes one provider for its life."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: Any) -> Any:
    """The finished spans of this test, by name."""
    exporter.clear()
    return lambda: {span.name: span for span in exporter.get_finished_spans()}


@pytest.mark.parametrize("fault", [cut_after, cut_before, None])
def test_a_lost_request_says_what_is_known(server: Server, spans: Any, fault: Any) -> None:
    """Of one that was never sent, that it cannot have been done."""
    limit = 10.0 if fault else 1.0
    names = run_block(1, server.hosts)
    with (
        FaultProxy(server.hosts) as proxy,
        Client(proxy.hosts, observer=names["Spans"](), session_timeout=limit) as client,
    ):
        if fault:
            proxy.on("create", action=fault)
        else:
            client.connect()
            proxy.refuse()
            proxy.cut_all()
            client.wait_for_state(*[s for s in State if not s.usable], timeout=30)
        with pytest.raises(OutcomeUnknownError if fault else NotSentError) as raised:
            client.create("/lost")
    attributes = spans()["zookeeper create"].attributes
    assert attributes["zookeeper.outcome"] == raised.type.__name__
    assert attributes["zookeeper.maybe_applied"] is bool(fault)
    assert ("server.address" in attributes) is bool(fault)


def test_a_log_line_has_fields(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("zkwire")
    level = logger.level
    try:
        run_block(2, server.hosts)
    finally:
        logger.setLevel(level)
        logger.handlers.clear()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (connected,) = [line for line in lines if line["state"] == "connected"]
    assert connected["server"] == server.hosts
    assert connected["session"] in connected["message"]
    assert len(blocks("how-to/observe")) == 3, "each block is run"
