"""What the blocking client says when a connection breaks, and what it makes of a broken server.

The fake server writes down what it received and what it executed, so each verdict is compared with
the truth: *refused*, *not sent*, *outcome unknown*, *over*.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.shell.test_client import (
    PATIENCE,
    SLACK,
    Background,
    poll_state,
    refused_port,
    undisturbed,
    within,
)
from tests.support.fake_server import (
    Connection,
    FakeServer,
    GoneError,
    Node,
    Request,
    deaf,
    frame,
    mute,
    reply,
    serve,
    silent,
    stat_of,
)
from zkwire import (
    AuthFailedError,
    Client,
    ClientClosedError,
    ConnectionLossError,
    EventType,
    GarbledError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ProtocolError,
    ReplyTooLargeError,
    ServerError,
    SessionExpiredError,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.jute import records as r

MEGABYTE = 1024 * 1024


def ending(call: Any, seconds: float = PATIENCE) -> ZooKeeperError | None:
    """How a reply has ended: its error, or None for a result."""
    try:
        call.result(seconds)
    except ZooKeeperError as error:
        return error
    return None


# --- each way to end ------------------------------------------------------------------------------


def ends_with(
    error: ZooKeeperError, kind: type[ZooKeeperError], op: str, path: str, maybe_applied: bool
) -> bool:
    """Check everything that an error has to say."""
    assert type(error) is kind, repr(error)
    assert (error.op, error.path) == (op, path)
    assert error.maybe_applied is maybe_applied
    assert str(error).startswith(f"{op} {path}: ")
    return True


def test_refused() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        with pytest.raises(NoNodeError) as caught:
            client.set_data("/a", b"")
        assert ends_with(caught.value, NoNodeError, "set_data", "/a", False)
        assert isinstance(caught.value, ServerError)
        assert caught.value.code == -101
        assert "no such node" in str(caught.value)


def test_not_sent_because_there_is_no_server() -> None:
    port = refused_port()
    client = Client(f"127.0.0.1:{port}", session_timeout=1.0)
    with within(1.0 + SLACK), pytest.raises(NotSentError) as caught:
        client.set_data("/a", b"")
    assert ends_with(caught.value, NotSentError, "set_data", "/a", False)
    assert f"127.0.0.1:{port}: Connection refused" in str(caught.value)
    assert "repeat it freely" in str(caught.value)
    client.close()


@pytest.mark.parametrize(
    ("verb", "arguments", "maybe_applied", "advice"),
    [
        ("create", (), True, "look before you repeat it"),
        ("delete", (), True, "look before you repeat it"),
        ("set_data", (b"",), True, "look before you repeat it"),
        ("exists", (), False, "repeat it freely"),
        ("get_data", (), False, "repeat it freely"),
        ("get_children", (), False, "repeat it freely"),
        ("sync", (), False, "repeat it freely"),
    ],
)
@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_outcome_unknown(
    how: str, verb: str, arguments: tuple[Any, ...], maybe_applied: bool, advice: str
) -> None:
    def dies(connection: Connection) -> None:
        connection.greet()
        connection.request()
        if how == "RST":
            connection.reset()

    with FakeServer(dies, serve) as server, Client(server.hosts) as client:
        with pytest.raises(OutcomeUnknownError) as caught:
            getattr(client, verb)("/a", *arguments)
        assert ends_with(caught.value, OutcomeUnknownError, verb, "/a", maybe_applied)
        assert advice in str(caught.value)
        with within(1.0):
            assert client.exists("/") is not None  # and the session is the same
        assert len(server.sessions) == 1


def takes_notes(connection: Connection) -> None:
    """A script that answers nothing, and notes what it is asked."""
    connection.greet()
    for _ in connection.requests():
        pass


def test_expired() -> None:
    with FakeServer(takes_notes, serve) as server:
        client = Client(server.hosts)
        client.connect()
        in_flight = client.pipeline.create("/a")
        server.wait_for(lambda: server.count("create"))
        server.expire(client.session_id)
        assert poll_state(client, State.EXPIRED)
        # It was in flight on a connection that broke first.
        assert type(ending(in_flight)) is OutcomeUnknownError
        with pytest.raises(SessionExpiredError) as caught:
            client.create("/b")
        assert ends_with(caught.value, SessionExpiredError, "create", "/b", False)
        assert "make a new Client" in str(caught.value)
        client.close()


def test_expired_while_queued() -> None:
    """A call that waits for the next connection learns there that the session is gone."""
    gate = threading.Event()

    def gone(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        connection.greet()

    with FakeServer(mute, gone) as server:
        client = Client(server.hosts)
        client.connect()
        server.connections[0].sock.shutdown(socket.SHUT_RDWR)
        server.wait_for(lambda: len(server.connections) == 2)
        queued = client.pipeline.create("/a")
        server.sessions.clear()
        gate.set()
        error = ending(queued)
        assert error is not None
        assert ends_with(error, SessionExpiredError, "create", "/a", False)
        client.close()


def test_expired_by_a_reply() -> None:
    """The server may close a session under a request: its code is the end of the session."""

    def closing(connection: Connection) -> None:
        connection.greet()
        connection.send(reply(connection.request().xid, error=-112))
        connection.wait_gone()

    with FakeServer(closing) as server:
        client = Client(server.hosts)
        with pytest.raises(SessionExpiredError) as caught:
            client.create("/a")
        assert ends_with(caught.value, SessionExpiredError, "create", "/a", False)
        assert poll_state(client, State.EXPIRED)
        client.close()


def test_rejected() -> None:
    def reject(connection: Connection) -> None:
        connection.greet()
        connection.send(reply(connection.request().xid, error=-115))
        connection.wait_gone()

    with FakeServer(reject) as server:
        client = Client(server.hosts, auth=[("digest", b"a:b")])
        with pytest.raises(AuthFailedError) as caught:
            client.create("/a")
        assert ends_with(caught.value, AuthFailedError, "create", "/a", False)
        client.close()


def test_closed() -> None:
    with FakeServer(takes_notes) as server:
        client = Client(server.hosts)
        client.connect()
        sent = client.pipeline.create("/a")
        server.wait_for(lambda: server.count("create"))
        reading = client.pipeline.exists("/b")
        Background(client.close).result()
        for call, op, path, applied in (
            (sent, "create", "/a", True),
            (reading, "exists", "/b", False),
        ):
            error = ending(call)
            assert error is not None
            assert ends_with(error, ClientClosedError, op, path, applied)
        with pytest.raises(ClientClosedError) as caught:
            client.create("/c")
        assert ends_with(caught.value, ClientClosedError, "create", "/c", False)


def test_timed_out() -> None:
    with FakeServer(mute) as server, Client(server.hosts, operation_timeout=0.1) as client:
        with pytest.raises(OperationTimeoutError) as caught:
            client.create("/a")
        assert ends_with(caught.value, OperationTimeoutError, "create", "/a", True)
        with pytest.raises(OperationTimeoutError) as caught:
            client.exists("/a")
        assert ends_with(caught.value, OperationTimeoutError, "exists", "/a", False)


# --- a deep pipeline and a dying server -----------------------------------------------------------


def classify(calls: list[Any]) -> tuple[list[int], list[int], list[int]]:
    """The numbers of the calls that were answered, are unknown, were not sent."""
    answered, unknown, not_sent = [], [], []
    for number, call in enumerate(calls):
        error = ending(call)
        if error is None:
            answered.append(number)
        elif type(error) is OutcomeUnknownError:
            assert error.maybe_applied
            unknown.append(number)
        else:
            assert type(error) is NotSentError, repr(error)
            assert not error.maybe_applied
            not_sent.append(number)
    return answered, unknown, not_sent


def check_verdicts(server: FakeServer, calls: list[Any]) -> tuple[int, int, int]:
    """Compare the verdicts on creates of /0, /1, ... with what the server knows; their counts."""
    answered, unknown, not_sent = classify(calls)
    executed = [int(q.path[1:]) for q in server.executed if q.op == "create"]
    received = {int(q.path[1:]) for q in server.received if q.op == "create"}
    # In one line: answered, then unknown, then not sent.
    assert answered + unknown + not_sent == list(range(len(calls)))
    assert executed == list(range(len(executed))), "twice, or out of order"
    assert len(answered) <= len(executed) <= len(answered) + len(unknown)
    assert received.isdisjoint(not_sent)
    return len(answered), len(unknown), len(not_sent)


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("size", [0, 2000])
def test_verdicts_on_a_pipeline_that_the_server_dies_in(how: str, size: int, seed: int) -> None:
    rng = random.Random(f"{seed}-{how}-{size}")
    for _ in range(8):
        count = 3000
        dies_at = rng.randrange(count)
        unanswered = rng.randrange(20)

        def dies(
            connection: Connection, dies_at: int = dies_at, unanswered: int = unanswered
        ) -> None:
            connection.greet()
            for number in range(dies_at):
                connection.answer(connection.request())
                if number == dies_at - unanswered:
                    connection.flush()
                    connection.put = lambda data: None  # type: ignore[method-assign]
            if how == "RST":
                connection.flush()
                connection.reset()

        with FakeServer(dies, serve) as server:
            client = Client(server.hosts, session_timeout=20)
            client.connect()
            body = bytes(size)
            calls = [client.pipeline.create(f"/{n}", body) for n in range(count)]
            waiting = [Background(lambda c=c: ending(c)) for c in calls[:: count // 8]]  # type: ignore[misc]
            with within(PATIENCE):
                for one in waiting:
                    one.result()
            # What came behind the break was sent on the next connection, or not at all.
            first = next((n for n, c in enumerate(calls) if ending(c) is not None), count)
            behind = [n for n in range(first, count) if ending(calls[n]) is None]
            check_verdicts_around(server, calls, first, behind)
            client.close()


def check_verdicts_around(
    server: FakeServer, calls: list[Any], first: int, behind: list[int]
) -> None:
    """As `check_verdicts`, where the last calls may have met the next connection."""
    of_first = calls[: behind[0]] if behind else calls
    answered, unknown, not_sent = classify(of_first)
    assert answered + unknown + not_sent == list(range(len(of_first)))
    assert behind == list(range(len(of_first), len(calls)))
    executed = [q for q in server.executed if q.op == "create"]
    one = [int(q.path[1:]) for q in executed if q.connection == 0]
    two = [int(q.path[1:]) for q in executed if q.connection == 1]
    assert one == list(range(len(one))), "twice, or out of order"
    assert two == behind
    assert len(answered) <= len(one) <= len(answered) + len(unknown)
    received = {int(q.path[1:]) for q in server.received if q.op == "create"}
    assert received.isdisjoint(not_sent)


def test_what_the_kernel_never_took_was_not_sent() -> None:
    """The server does not read, so most of a long pipeline cannot leave; then it dies."""
    gate = threading.Event()

    def deaf_then_dead(connection: Connection) -> None:
        connection.greet()
        for _ in range(10):
            connection.answer(connection.request())
        connection.flush()
        assert gate.wait(PATIENCE)
        connection.reset()

    with FakeServer(deaf_then_dead, serve) as server:
        client = Client(server.hosts, session_timeout=20)
        client.connect()
        calls = [client.pipeline.create(f"/{n}", bytes(100_000)) for n in range(400)]
        assert calls[9].result(PATIENCE) == "/9"
        with pytest.raises(OperationTimeoutError) as caught:
            calls[11].result(0.1)
        assert caught.value.maybe_applied
        # This one is behind all that the kernel takes, and behind what was cut out for sending.
        with pytest.raises(OperationTimeoutError) as caught:
            calls[399].result(0.1)
        assert not caught.value.maybe_applied
        gate.set()
        last = calls.pop()
        assert type(ending(last)) is NotSentError
        answered, unknown, not_sent = check_verdicts(server, calls)
        assert answered == 10
        assert unknown >= 1
        assert not_sent >= 200
        with within(1.0):
            assert client.exists("/") is not None
        client.close()


def test_a_server_that_stops_reading_is_given_up() -> None:
    with FakeServer(deaf, serve) as server:
        # Long enough to submit them all before it is given up, on a busy machine too.
        client = Client(server.hosts, session_timeout=3.0)
        client.connect()
        calls = [client.pipeline.create(f"/{n}", bytes(100_000)) for n in range(200)]
        with within(3.0 + SLACK):
            assert isinstance(ending(calls[0]), OutcomeUnknownError)
            assert isinstance(ending(calls[199]), NotSentError)
        with within(1.0):
            again(client)
        client.close()


def test_answers_that_arrived_before_the_break_count() -> None:
    """The client is still sending when the server, which has answered, resets the connection."""

    def answers_then_resets(connection: Connection) -> None:
        connection.greet()
        for _ in range(100):
            connection.answer(connection.request())
        connection.flush()
        connection.half_close()

    with FakeServer(answers_then_resets, serve) as server:
        client = Client(server.hosts, session_timeout=20)
        client.connect()
        calls = [client.pipeline.create(f"/{n}", bytes(50_000)) for n in range(400)]
        answered, _, _ = classify(calls[:100])
        assert len(answered) == 100
        client.close()


def test_threads_that_wait_on_a_dying_server_all_learn_of_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        after = rng.randrange(1, 60)

        def dies(connection: Connection, after: int = after) -> None:
            connection.greet()
            for _ in range(after):
                connection.answer(connection.request())
            connection.flush()
            connection.reset()

        with FakeServer(dies, serve) as server:
            client = Client(server.hosts, session_timeout=20)

            def work(number: int, client: Client = client) -> list[str]:
                verdicts = []
                for n in range(8):
                    try:
                        client.create(f"/{number}-{n}")
                        verdicts.append("done")
                    except ConnectionLossError as error:
                        verdicts.append("unknown" if error.maybe_applied else "not sent")
                return verdicts

            workers = [Background(lambda n=n: work(n)) for n in range(16)]  # type: ignore[misc]
            verdicts = [worker.result() for worker in workers]
            executed = {q.path for q in server.executed if q.op == "create"}
            received = {q.path for q in server.received if q.op == "create"}
            for number, row in enumerate(verdicts):
                for n, verdict in enumerate(row):
                    path = f"/{number}-{n}"
                    assert verdict != "done" or path in executed
                    assert verdict != "not sent" or path not in received
            client.close()


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


def answering(garbage: bytes) -> Callable[[Connection], None]:
    """A script that answers the first request with these bytes, and then waits."""

    def script(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(garbage)
        connection.wait_gone()

    return script


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_for_a_reply(kind: str) -> None:
    """It costs one connection: a definite error for the call, and the next one is answered."""
    with FakeServer(answering(GARBAGE[kind]), serve) as server, Client(server.hosts) as client:
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


def again(client: Client) -> None:
    """Ask until an answer comes: the next connection, if this one is still in use."""
    while True:
        with suppress(ConnectionLossError):
            assert client.exists("/") is not None
            return


def test_random_garbage_for_a_reply(seed: int) -> None:
    """Whatever comes: an answer or an error, in time; then the next call is answered."""
    rng = random.Random(seed)
    for _ in range(60):
        data = bytearray(OK)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        script = answering(bytes(data) + rng.randbytes(rng.randrange(40)))
        with FakeServer(script, serve) as server:
            client = Client(server.hosts, session_timeout=0.6)
            client.connect(PATIENCE)
            # A length that is only too long is found out by the silence behind it.
            with within(0.4 + SLACK), suppress(ZooKeeperError):
                client.get_data("/")
            with within(0.4 + SLACK):
                again(client)
            client.close()


def test_answers_to_pings_do_not_hide_a_frame_that_never_ends() -> None:
    """Its length is garbage, so it swallows whatever comes, a few bytes in each third of T."""

    def script(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(struct.pack(">i", 10 * MEGABYTE))
        for _ in connection.requests():
            connection.flush()

    with FakeServer(script, serve) as server:
        client = Client(server.hosts, session_timeout=0.6)
        client.connect()
        with within(0.6 + SLACK), pytest.raises(OutcomeUnknownError):
            client.get_data("/")
        again(client)
        client.close()


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
    def script(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(OK[:-10])

    with FakeServer(script, serve) as server, Client(server.hosts) as client:
        with within(1.0), pytest.raises(OutcomeUnknownError):
            client.get_data("/")
        assert client.exists("/") is not None


def test_a_frame_that_never_ends_is_given_up_unless_it_grows() -> None:
    def script(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(OK[:-10])
        connection.wait_gone()

    with FakeServer(script, serve) as server:
        client = Client(server.hosts, session_timeout=0.6)
        with within(0.6 + SLACK), pytest.raises(OutcomeUnknownError, match="nothing arrived"):
            client.get_data("/")
        again(client)
        client.close()


def test_a_reply_that_comes_twice() -> None:
    """A11: the second one is for nobody."""

    def script(connection: Connection) -> None:
        connection.greet()
        xid = connection.request().xid
        answer = reply(xid, r.ExistsResponse(stat_of(Node(b"", 1))))
        connection.send(answer + answer)
        connection.wait_gone()

    with FakeServer(script, serve) as server, Client(server.hosts) as client:
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

    def script(connection: Connection) -> None:
        connection.greet()
        connection.send(reply(connection.request().xid, error=-118))
        connection.wait_gone()

    with FakeServer(script, serve) as server, Client(server.hosts) as client:
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

    def script(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(struct.pack(">i", 60 * MEGABYTE) + bytes(100_000))
        connection.wait_gone()

    with FakeServer(script, serve) as server:
        client = Client(server.hosts, session_timeout=0.6)
        client.connect()
        with memory_below(5 * MEGABYTE), pytest.raises(OutcomeUnknownError):
            client.get_data("/")
        client.close()


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

    with FakeServer(script) as server:
        client = Client(server.hosts, session_timeout=20)
        client.connect()
        with memory_below(5 * MEGABYTE), within(PATIENCE):
            for _ in range(20):
                assert client.exists("/") is not None
        assert len(server.connections) == 1
        client.close()


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
        waiting = Background(lambda: ending(behind))
        assert isinstance(ending(big), ReplyTooLargeError)
        error = waiting.result()
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


# --- the state of things --------------------------------------------------------------------------


def test_nothing_is_sent_twice(seed: int) -> None:
    """Over many breaks, each request is received once at most, whatever its verdict."""
    rng = random.Random(seed)

    def flaky(connection: Connection) -> None:
        connection.greet()
        for _ in range(rng.randrange(1, 40)):
            connection.answer(connection.request())
        if rng.random() < 0.5:
            connection.flush()
        connection.reset()

    with FakeServer(flaky) as server:
        client = Client(server.hosts, session_timeout=20)
        verdicts: dict[str, str] = {}
        for n in range(300):
            path = f"/{n}"
            error = ending(client.pipeline.create(path))
            verdicts[path] = "done" if error is None else type(error).__name__
        received = [q.path for q in server.received if q.op == "create"]
        executed = {q.path for q in server.executed if q.op == "create"}
        assert len(received) == len(set(received))
        assert {p for p, v in verdicts.items() if v == "done"} <= executed
        assert {p for p, v in verdicts.items() if v == "NotSentError"}.isdisjoint(received)
        assert set(verdicts.values()) <= {"done", "OutcomeUnknownError", "NotSentError"}
        assert len(server.connections) >= 300 // 39  # each of them takes so many at the most
        client.close()


def test_the_state_at_rest_is_the_real_one(seed: int) -> None:
    """A44: after any pattern of cuts the last word is "connected", and a call proves it."""
    rng = random.Random(seed)
    with FakeServer() as server, Client(server.hosts, session_timeout=20) as client:
        for _ in range(100):
            for _ in range(rng.randrange(1, 4)):
                with suppress(OSError):
                    server.connections[-1].sock.shutdown(rng.choice([0, 1, 2]))
                if rng.random() < 0.5:
                    with suppress(ConnectionLossError):
                        client.exists("/")
            client.connect()
            while True:
                with suppress(ConnectionLossError):
                    client.exists("/")
                    break
            # The server may still be about to hear of the last cut.
            assert poll_state(client, State.CONNECTED)
        assert len(server.sessions) == 1


def test_a_watch_that_was_set_by_a_lost_read_is_not_set() -> None:
    def dies(connection: Connection) -> None:
        connection.greet()
        connection.request()

    with FakeServer(dies, serve) as server, Client(server.hosts) as client:
        watch = Watch()
        with pytest.raises(OutcomeUnknownError):
            client.exists("/a", watch=watch)
        with pytest.raises(RuntimeError, match="not set"):
            watch.wait(0)
        client.create("/a")
        assert server.count("set_watches") == 0


def test_silence_is_noticed_in_two_thirds_of_the_session_timeout() -> None:
    """A21."""

    def noticed_after() -> float:
        with FakeServer(mute, silent) as server:
            client = Client(server.hosts, session_timeout=0.9)
            begun = time.monotonic()
            client.connect(PATIENCE)
            heard = time.monotonic()
            server.wait_for(lambda: len(server.connections) >= 2)
            noticed = time.monotonic()
            client.close()
        assert noticed - begun > 0.6
        return noticed - heard

    undisturbed(noticed_after, 0.6 + SLACK / 2)


def test_a_half_closed_connection_is_replaced() -> None:
    def half(connection: Connection) -> None:
        connection.greet()
        connection.half_close()
        connection.wait_gone()

    with FakeServer(half, serve) as server, Client(server.hosts) as client:
        server.wait_for(lambda: len(server.connections) == 2)
        with within(1.0):
            again(client)


def received_ops(server: FakeServer) -> list[Request]:
    return [q for q in server.received if q.op != "ping"]


def test_socket_options_do_not_matter_to_the_order() -> None:
    """Small requests leave at once although Nagle would hold them back."""
    with FakeServer() as server, Client(server.hosts) as client:
        link = client._driver.current_connection
        assert link is not None
        assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.exists("/a")
        assert [q.op for q in received_ops(server)] == ["exists"]
