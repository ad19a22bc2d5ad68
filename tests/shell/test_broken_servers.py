"""Servers that break the protocol cost a connection, and neither the client nor its memory."""

from __future__ import annotations

import random
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, SLACK, within
from tests.shell.test_client_loss import MEGABYTE, again, ending, ends_with
from tests.support.fake_server import (
    Connection,
    FakeServer,
    GoneError,
    Node,
    frame,
    reply,
    serve,
    stat_of,
)
from tests.support.lock_helpers import Running
from zkwire import (
    AuthFailedError,
    Client,
    ConnectionLossError,
    EventType,
    GarbledError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    ServerError,
    SessionExpiredError,
    ZooKeeperError,
)
from zkwire.jute import records as r

# --- broken servers -------------------------------------------------------------------------------


OK = reply(1, r.GetDataResponse(b"data", stat_of(Node(b"data", 1))))
GARBAGE: dict[str, bytes] = {
    "length -1": struct.pack(">i", -1),
    "length -2**31": struct.pack(">i", -(2**31)),
    "length 0": frame(b""),
    "length 1": frame(b"\0"),
    "length 15": frame(bytes(15)),
    "length 2**31-1": struct.pack(">i", 2**31 - 1),
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "the wrong xid": reply(7, r.GetDataResponse(b"", stat_of(Node(b"", 1)))),
    "xid 0": reply(0),
    "an xid nobody uses": reply(-7),
    "a body that is cut short": frame(OK[4:-1]),
    "a body with a byte too many": frame(OK[4:] + b"\0"),
    "no body": reply(1),
    "a string that is longer than its frame": reply(1) + frame(b""),
    "data longer than the frame": frame(OK[4:20] + struct.pack(">i", 10**6) + OK[24:]),
    "data of length -5": frame(OK[4:20] + struct.pack(">i", -5) + OK[24:]),
    "a notification without a body": reply(-1),
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


def test_random_garbage_for_a_reply(seed: int) -> None:
    """Whatever comes: an answer or an error, in time; then the next call is answered."""
    rng = random.Random(seed)
    for _ in range(60):
        data = bytearray(OK)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        script = answering(bytes(data) + rng.randbytes(rng.randrange(40)))
        with FakeServer(script) as server, impatient(server.hosts) as client:
            # A length that is only too long is found out by the silence behind it.
            with within(0.4 + SLACK), suppress(ZooKeeperError):
                client.get_data("/")
            with within(0.4 + SLACK):
                again(client)


def answers_pings(connection: Connection) -> None:
    for _ in connection.requests():
        connection.flush()


@pytest.mark.parametrize(
    ("sent", "then", "message"),
    [
        # A length that is garbage swallows the answers to pings, a few bytes in each third of T.
        (struct.pack(">i", 10 * MEGABYTE), answers_pings, "/"),
        (OK[:-10], Connection.wait_gone, "nothing arrived"),
    ],
    ids=["grows", "stays"],
)
def test_a_frame_that_never_ends_is_given_up(
    sent: bytes, then: Callable[[Connection], None], message: str
) -> None:
    with FakeServer(answering(sent, then)) as server, impatient(server.hosts) as client:
        with within(0.6 + SLACK), pytest.raises(OutcomeUnknownError, match=message):
            client.get_data("/")
        again(client)


GREETINGS: dict[str, bytes] = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "length -1": struct.pack(">i", -1),
    "length 0": frame(b""),
    "length 2**31-1": struct.pack(">i", 2**31 - 1),
    "a refusal": reply(0, error=-119),
    "too short": frame(bytes(20)),
    "too long": frame(bytes(80)),
    "nothing": b"",
    "a password that is longer than its frame": frame(
        struct.pack(">iiqi", 0, 1000, 7, 1000) + bytes(17)
    ),
}


@pytest.mark.parametrize("kind", GREETINGS)
def test_garbage_for_a_greeting(kind: str) -> None:
    def script(connection: Connection) -> None:
        connection.hello()
        connection.send(GREETINGS[kind])
        connection.half_close()
        connection.wait_gone()

    with FakeServer(script, serve) as server:
        client = Client(server.hosts)
        call = client.pipeline.create("/a")
        with within(1.0):
            assert call.result() == "/a"
        assert len(server.connections) == 2
        client.close()


def test_a_frame_that_ends_in_the_middle() -> None:
    script = answering(OK[:-10], lambda _: None)
    with FakeServer(script) as server, Client(server.hosts) as client:
        with within(1.0), pytest.raises(OutcomeUnknownError):
            client.get_data("/")
        assert client.exists("/") is not None


def test_a_reply_that_comes_twice() -> None:
    """A11: the second one is for nobody."""
    answer = reply(1, r.ExistsResponse(stat_of(Node(b"", 1))))
    with FakeServer(answering(answer * 2)) as server, Client(server.hosts) as client:
        assert client.exists("/") is not None
        server.wait_for(lambda: len(server.connections) == 2)
        with within(1.0):
            again(client)


TERMINAL_CODES = {-112: SessionExpiredError, -115: AuthFailedError, -124: AuthFailedError}


def test_every_error_code_ends_its_own_call_and_nothing_else() -> None:
    """A13: also codes that nobody knows."""
    codes = [c for c in (*range(-150, 0), 1, 2**31 - 1, -(2**31)) if c not in TERMINAL_CODES]
    codes.remove(-118)  # SessionMoved is about the connection as well, see below

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
            while True:
                with suppress(ConnectionLossError):
                    client.create("/a")
                    break
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
    notification = reply(
        -1, r.WatcherEvent(EventType.NODE_DATA_CHANGED, 3, "/" + "f" * 9999), zxid=-1
    )
    flood = notification * 10
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
            big = bytes(limit if request.path == "/big" else 10)
            record = r.GetDataResponse(big, stat_of(Node(big, 1)))
            connection.send(reply(request.xid, record))

    with FakeServer(script) as server, Client(server.hosts, receive_limit=limit) as client:
        before = [client.pipeline.get_data("/small") for _ in range(3)]
        big = client.pipeline.get_data("/big")
        with pytest.raises(ReplyTooLargeError) as caught:
            big.result()
        assert ends_with(caught.value, ReplyTooLargeError, "get_data", "/big", False)
        assert f"over the limit of {limit}" in str(caught.value)
        assert not isinstance(caught.value, ConnectionLossError)
        assert [len(call.result().data) for call in before] == [10] * 3
        with within(1.0):
            assert len(client.get_data("/small").data) == 10
        assert len(server.connections) == 2


def test_calls_behind_a_reply_over_the_limit() -> None:
    """They were sent, and what became of them is unknown; they may be repeated or looked at."""

    def script(connection: Connection) -> None:
        connection.greet()
        first, _ = connection.request(), connection.request()
        record = r.GetDataResponse(bytes(20_000), stat_of(Node(b"", 1)))
        connection.send(reply(first.xid, record))
        connection.wait_gone()

    with FakeServer(script, serve) as server, Client(server.hosts, receive_limit=9999) as client:
        big = client.pipeline.get_data("/big")
        behind = client.pipeline.create("/a")
        waiting = Running(lambda: ending(behind))
        assert isinstance(ending(big), ReplyTooLargeError)
        error = waiting.result()
        assert error is not None
        assert ends_with(error, GarbledError, "create", "/a", True)


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
        for gone in [client.pipeline.delete(f"{fresh_path}/{name}") for name in names]:
            gone.result(60)
