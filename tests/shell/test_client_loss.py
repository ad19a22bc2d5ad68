"""What both clients say when a connection breaks, and what a broken server costs them.

The fake server writes down what it received and what it executed, so each verdict is compared with
the truth: *refused*, *not sent*, *outcome unknown*, *over*. What the state machine decides is
tested elsewhere; this is about the I/O around it: what is sent and when, and what is held back."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, within
from tests.shell.test_roles import Clock
from tests.support.aio_helpers import eventually, spinning
from tests.support.both_clients import Side, answer, asking, both, done, ended
from tests.support.both_clients import ending as ending  # noqa: PLC0414 - others ask for it here
from tests.support.fake_server import (
    Connection,
    FakeServer,
    Node,
    answering,
    reply,
    serve,
)
from tests.support.hooks import hooked
from zkwire import (
    AsyncClient,
    Client,
    ConnectionLossError,
    GarbledError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    State,
)
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.net.dial import readable_within
from zkwire.session.request import SEND_BATCH
from zkwire.testing import Server

# --- a deep pipeline and a dying server -----------------------------------------------------------


def check_verdicts(server: FakeServer, calls: list[Any]) -> tuple[int, int, int]:
    """Compare the verdicts on creates of /0, /1, ... with what the server knows; their counts.

    The last calls may have met the next connection.
    """
    errors = [ending(call) for call in calls]
    first = next((n for n, error in enumerate(errors) if error), len(calls))
    behind = [n for n in range(first, len(calls)) if errors[n] is None]
    end = behind[0] if behind else len(calls)
    verdicts = [type(None), OutcomeUnknownError, NotSentError]
    kinds = [verdicts.index(type(error)) for error in errors[:end]]
    assert kinds == sorted(kinds), "answered, then unknown, then not sent"
    assert all(e.maybe_applied == (type(e) is OutcomeUnknownError) for e in errors if e)
    executed = [q for q in server.executed if q.op == "create"]
    one, two = ([int(q.path[1:]) for q in executed if q.connection == c] for c in (0, 1))
    if first == len(calls):  # all that had been sent by the end was answered
        assert one + two == list(range(len(calls)))
        return first, 0, 0
    answered, unknown, not_sent = map(kinds.count, range(3))
    assert one == list(range(len(one))), "twice, or out of order"
    assert two == behind == list(range(end, len(calls)))
    assert answered <= len(one) <= answered + unknown
    received = {int(q.path[1:]) for q in server.received if q.op == "create"}
    assert received.isdisjoint(n for n, kind in enumerate(kinds) if kind == 2)
    return answered, unknown, not_sent


@both
async def test_what_the_kernel_never_took_was_not_sent(side: Side) -> None:
    """The server does not read, so most of a long pipeline cannot leave; then it dies."""
    gate = threading.Event()

    def deaf_then_dead(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        connection.reset()

    with FakeServer(answering(10, deaf_then_dead), serve) as server:
        async with side.opened(server.hosts, session_timeout=20) as client:
            body = bytes(100_000)
            calls = [asking(client).create(f"/{n}", body) for n in range(400)]
            assert await answer(calls[9]) == "/9"
            link = client._driver.current_connection
            await eventually("the kernel takes no more", lambda: link.pending)
            assert len(link.backlog) <= SEND_BATCH + len(body) + 1000
            with spinning() as count:
                await asyncio.sleep(0.2)
            assert count() < 20, "it must rest while the server does not read"
            # The last is behind all that the kernel takes, and behind what was cut for sending.
            for number, sent in ((11, True), (399, False)):
                with pytest.raises(OperationTimeoutError) as caught:
                    await answer(calls[number], 0.1)
                assert caught.value.maybe_applied == sent
            gate.set()
            last = calls.pop()
            await ended(calls)
            assert type(ending(last)) is NotSentError
            answered, unknown, not_sent = check_verdicts(server, calls)
            assert (answered, unknown >= 1, not_sent >= 200) == (10, True, True)
            assert await done(client.exists("/")) is not None


@both
async def test_answers_that_arrived_before_the_break_count(side: Side) -> None:
    """The client is still sending when the server, which has answered, resets the connection."""
    with FakeServer(answering(100, Connection.half_close), serve) as server:
        async with side.opened(server.hosts, session_timeout=20) as client:
            errors = await ended(
                [asking(client).create(f"/{n}", bytes(50_000)) for n in range(400)]
            )
            assert errors[:100] == [None] * 100
            assert errors[100] is not None


# --- the state of things --------------------------------------------------------------------------


async def retried(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result, on this connection or on a later one."""
    while True:
        with suppress(ConnectionLossError):
            return await done(call(*arguments))


@both
async def test_hazard_A44_the_state_at_rest_is_the_real_one(
    side: Side, fake: FakeServer, seed: int
) -> None:
    """A44: after any pattern of cuts the last word is "connected", and a call proves it."""
    rng = random.Random(seed)
    async with side.opened(fake.hosts, session_timeout=20) as client:
        for _ in range(100):
            for _ in range(rng.randrange(1, 4)):
                with suppress(OSError):
                    fake.connections[-1].sock.shutdown(rng.choice([0, 1, 2]))
                if rng.random() < 0.5:
                    with suppress(ConnectionLossError):
                        await done(client.exists("/"))
            await done(client.connect())
            await retried(client.exists, "/")
            # The server may still be about to hear of the last cut.
            await eventually("at rest", lambda: client.state is State.CONNECTED)
        assert len(fake.sessions) == 1


@both
async def test_small_requests_leave_at_once(side: Side, fake: FakeServer) -> None:
    async with side.opened(fake.hosts) as client:
        link = client._driver.current_connection
        assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await done(client.exists("/a"))


# --- under asyncio --------------------------------------------------------------------------------


async def test_a_loop_that_was_blocked_reads_before_it_judges(server: Server) -> None:
    """An answer in the kernel is no silence; a connection that is about to go is not used."""
    clock = Clock()
    async with hooked(AsyncClient)(server.hosts, session_timeout=20, _now=clock) as client:
        first = client._driver.current_connection
        clock.ahead += 15
        assert await client.exists("/") is not None
        link, driver = client._driver.current_connection, client._driver.io
        assert link is not None
        assert driver is not None
        assert link is not first
        waiting = client.set_data("/", b"")
        assert readable_within(link.sock, PATIENCE)  # and nobody has read it
        clock.ahead += 15
        driver.turn()
        assert waiting.ready
        assert (await waiting).version == 1
        assert client._driver.current_connection is link


# --- servers that break the protocol --------------------------------------------------------------


def data_reply(xid: int, data: bytes) -> bytes:
    return reply(xid, r.GetDataResponse(data, Node(data, 1).stat()))


OK = data_reply(1, b"data")
GARBAGE: dict[str, bytes] = {
    "length -1": struct.pack(">i", -1),
    "length 15": frame(bytes(15)),
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "the wrong xid": data_reply(7, b""),
    "a body with a byte too many": frame(OK[4:] + b"\0"),
    "data longer than the frame": frame(OK[4:20] + struct.pack(">i", 10**6) + OK[24:]),
    "a notification cut short": frame(reply(-1, r.WatcherEvent(1, 3, "/a"))[4:-1]),
}


def answers_first(
    garbage: bytes, then: Callable[[Connection], object] = Connection.wait_gone
) -> Callable[[Connection], None]:
    """A script that answers the first request with these bytes, and then waits.

    All later requests are served.  A connection that ends before its first one changes nothing.
    """
    asked: list[Connection] = []

    def script(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if not asked:
                asked.append(connection)
                connection.send(garbage)
                then(connection)
                return
            connection.answer(request)

    return script


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_for_a_reply(kind: str) -> None:
    """It costs one connection: a definite error for the call, and the next one is answered."""
    with FakeServer(answers_first(GARBAGE[kind])) as server, Client(server.hosts) as client:
        session_id = client.session_id
        verb, arguments = ("create", ("/x",)) if "xid" in kind else ("get_data", ("/",))
        call = getattr(client.pipeline, verb)(*arguments)
        behind = client.pipeline.create("/y")
        with within(1.0), pytest.raises((ProtocolError, GarbledError)) as caught:
            call.result()
        assert caught.value.maybe_applied == ("xid" in kind)
        with within(1.0):
            error = ending(behind)  # none, if it was asked for after the break
            assert error is None or isinstance(error, ConnectionLossError)
            assert client.exists("/") is not None
        assert client.session_id == session_id
        assert len(server.connections) == 2


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.real
def test_a_big_reply_of_a_real_server(zookeeper: Any, fresh_path: str) -> None:
    """Frames of more than 1 MiB are ordinary: servers do not apply their limit to replies."""
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        names = [f"{n:0200d}" for n in range(7000)]
        for call in [client.pipeline.create(f"{fresh_path}/{name}") for name in names]:
            call.result(60)
        assert sorted(client.get_children(fresh_path)) == names
        with Client(zookeeper.hosts, receive_limit=1_000_000) as small:
            with pytest.raises(ReplyTooLargeError):
                small.get_children(fresh_path)
            assert small.exists(fresh_path) is not None
        client.delete_tree(fresh_path)
