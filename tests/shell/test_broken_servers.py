"""Servers that break the protocol cost a connection, and neither the client nor its memory.

What the session makes of each kind of garbage: tests/unit/test_session_garbage.py.
"""

from __future__ import annotations

import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, SLACK, within
from tests.shell.test_client_loss import MEGABYTE, again, ending, ends_with
from tests.support.fake_server import Connection, FakeServer, GoneError, Node, reply
from zkwire import (
    Client,
    ConnectionLossError,
    EventType,
    GarbledError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    ServerError,
)
from zkwire.jute import records as r
from zkwire.jute.frames import frame


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


def answering(
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
    with FakeServer(answering(GARBAGE[kind])) as server, Client(server.hosts) as client:
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


@contextmanager
def impatient(hosts: str) -> Iterator[Client]:
    """A client that gives a silent connection up soon, once it is connected."""
    with closing(Client(hosts, session_timeout=0.6)) as client:
        client.connect(PATIENCE)
        yield client


def answers_pings(connection: Connection) -> None:
    for _ in connection.requests():
        connection.flush()


UNENDED: dict[str, tuple[bytes, Callable[[Connection], object], str]] = {
    # A length that is garbage swallows the answers to pings, a few bytes in each third of T.
    "grows": (struct.pack(">i", 10 * MEGABYTE), answers_pings, "/"),
    "stays": (OK[:-10], Connection.wait_gone, "nothing arrived"),
    "is cut": (OK[:-10], lambda _: None, "/"),
}


@pytest.mark.parametrize("how", UNENDED)
def test_a_frame_that_never_ends_is_given_up(how: str) -> None:
    sent, then, message = UNENDED[how]
    with FakeServer(answering(sent, then)) as server, impatient(server.hosts) as client:
        with within(0.6 + SLACK), pytest.raises(OutcomeUnknownError, match=message):
            client.get_data("/")
        again(client)


def test_a_reply_that_comes_twice() -> None:
    """A11: the second one is for nobody."""
    answer = reply(1, r.ExistsResponse(Node(b"", 1).stat()))
    with FakeServer(answering(answer * 2)) as server, Client(server.hosts) as client:
        assert client.exists("/") is not None
        server.wait_for(lambda: len(server.connections) == 2)
        with within(1.0):
            again(client)


def test_every_error_code_ends_its_own_call_and_nothing_else() -> None:
    """A13: also codes that nobody knows. A few are about the session, see test_error_codes.py."""
    about_the_session = {-112, -115, -118, -124}
    codes = [*{*range(-150, 0), 1, 2**31 - 1, -(2**31)} - about_the_session]

    def script(connection: Connection) -> None:
        connection.greet()
        for code in codes:
            connection.put(reply(connection.request().xid, error=code))
        for request in connection.requests():
            connection.answer(request)

    with FakeServer(script) as server, Client(server.hosts) as client:
        calls = [client.pipeline.set_data("/a", b"") for _ in codes]
        for code, call in zip(codes, calls, strict=True):
            error = ending(call)
            assert isinstance(error, ServerError)
            assert error.code == code
            assert error.maybe_applied == (code in {-4, -5, -7, -122})
            assert str(error).startswith("set_data /a: ")
        assert client.exists("/") is not None
        assert len(server.connections) == 1


def test_a_moved_session_is_looked_for_again() -> None:
    """A34: the server says that it does not own the session any more."""
    script = answering(reply(1, error=-118))
    with FakeServer(script) as server, Client(server.hosts) as client:
        with pytest.raises(ServerError, match="moved"):
            client.create("/a")
        with within(1.0):
            again(client)
        assert len(server.connections) == 2


# --- memory ---------------------------------------------------------------------------------------


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if the block, with the client and the fake server in it, allocates more at any time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < limit, f"{(peak - before) / MEGABYTE:.1f} MB"


def test_a_claim_of_a_long_frame_costs_no_memory() -> None:
    """Room is made for bytes that have come, not for those that were announced."""
    script = answering(struct.pack(">i", 60 * MEGABYTE) + bytes(100_000))
    with (
        FakeServer(script) as server,
        impatient(server.hosts) as client,
        memory_below(5 * MEGABYTE),
        pytest.raises(OutcomeUnknownError),
    ):
        client.get_data("/")


def test_endless_frames_are_read_and_forgotten() -> None:
    """A flood of notifications that nobody asked for: no memory, and answers get through."""
    event = r.WatcherEvent(EventType.NODE_DATA_CHANGED, 3, "/" + "f" * 9999)
    flood = reply(-1, event, zxid=-1) * 10
    stop = threading.Event()

    def script(connection: Connection) -> None:
        connection.greet()

        def pour() -> None:
            with suppress(GoneError):
                while not stop.is_set():
                    connection.send(flood)

        pouring = threading.Thread(target=pour)
        pouring.start()
        try:
            for request in connection.requests():
                connection.answer(request)
                connection.flush()
        finally:
            stop.set()
            pouring.join()

    with FakeServer(script) as server, Client(server.hosts, session_timeout=20) as client:
        with memory_below(5 * MEGABYTE), within(PATIENCE):
            for _ in range(20):
                assert client.exists("/") is not None
        assert len(server.connections) == 1


def test_a_reply_over_the_limit_ends_its_own_call_for_good() -> None:
    """A16: a definite error, one reconnect, and the calls around it are not touched."""
    limit = 10_000

    def script(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if request.op == "create":  # sent behind the big one: perhaps it was applied
                connection.send(data_reply(request.xid - 1, bytes(limit)))
                connection.wait_gone()
            elif request.path == "/small":
                connection.send(data_reply(request.xid, bytes(10)))

    with FakeServer(script) as server, Client(server.hosts, receive_limit=limit) as client:
        before = [client.pipeline.get_data("/small") for _ in range(3)]
        big, behind = client.pipeline.get_data("/big"), client.pipeline.create("/a")
        client._driver.flush()
        with pytest.raises(ReplyTooLargeError) as caught:
            big.result()
        assert ends_with(caught.value, ReplyTooLargeError, "get_data", "/big", False)
        assert f"over the limit of {limit}" in str(caught.value)
        assert not isinstance(caught.value, ConnectionLossError)
        assert [len(call.result().data) for call in before] == [10] * 3
        error = ending(behind)
        assert error is not None
        assert ends_with(error, GarbledError, "create", "/a", True)
        with within(1.0):
            assert len(client.get_data("/small").data) == 10
        assert len(server.connections) == 2


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
