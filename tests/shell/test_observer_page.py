"""The page about metrics, traces and logs: its code runs, with the libraries that it names."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from tests.support.snippets import blocks
from zkwire import AsyncClient, Client, NotSentError, OutcomeUnknownError, State
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_after, cut_before

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


def test_the_parent_of_a_span_is_the_callers(server: Server, spans: Any) -> None:
    run_block(1, server.hosts)
    request, parent = spans()["zookeeper create"], spans()["pay the invoice"]
    assert request.parent.span_id == parent.context.span_id
    assert request.attributes["zookeeper.path"] == "/invoice-17"
    assert request.attributes["zookeeper.outcome"] == "ok"
    host, port = server.hosts.split(":")
    assert request.attributes["server.address"] == host
    assert request.attributes["server.port"] == int(port)


def test_the_parent_of_a_span_is_the_tasks(server: Server, exporter: Any) -> None:
    names = run_block(1, server.hosts)
    own: dict[int, str] = {}

    async def worker(client: AsyncClient, number: int) -> None:
        with names["tracer"].start_as_current_span(f"worker {number}") as span:
            own[span.context.span_id] = f"/{number}"
            await client.create(f"/{number}")

    async def main() -> None:
        async with AsyncClient(server.hosts, observer=names["Spans"]()) as client:
            await asyncio.gather(*(worker(client, number) for number in range(3)))

    exporter.clear()
    asyncio.run(main())
    requests = [s for s in exporter.get_finished_spans() if s.name == "zookeeper create"]
    found = {s.parent.span_id: s.attributes["zookeeper.path"] for s in requests}
    assert found == own
    assert len(own) == 3


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
