"""What the blocking client says when a connection breaks, and what it makes of a broken server.

The fake server writes down what it received and what it executed, so each verdict is compared with
the truth: *refused*, *not sent*, *outcome unknown*, *over*.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.shell.test_client import (
    PATIENCE,
    SLACK,
    poll_state,
    refused_port,
    undisturbed,
    within,
)
from tests.support.fake_server import (
    Connection,
    FakeServer,
    Request,
    answering,
    deaf,
    mute,
    serve,
)
from tests.support.lock_helpers import Running
from zkwire import (
    Client,
    ClientClosedError,
    ConnectionLossError,
    NoNodeError,
    NotSentError,
    OperationTimeoutError,
    OutcomeUnknownError,
    ServerError,
    SessionExpiredError,
    State,
    ZooKeeperError,
)

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
    with FakeServer(takes_notes, serve) as server, Client(server.hosts) as client:
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


def test_closed() -> None:
    with FakeServer(takes_notes) as server:
        client = Client(server.hosts)
        client.connect()
        sent = client.pipeline.create("/a")
        server.wait_for(lambda: server.count("create"))
        reading = client.pipeline.exists("/b")
        Running(client.close).result()
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


def dying(rng: random.Random, most: int, how: str) -> Callable[[Connection], None]:
    """A script that dies at some request; the answers to the last few are lost."""
    dies_at, unanswered = rng.randrange(most), rng.randrange(20)

    def script(connection: Connection) -> None:
        connection.greet()
        for number in range(dies_at):
            connection.answer(connection.request())
            if number == dies_at - unanswered:
                connection.flush()
                connection.put = lambda data: None  # type: ignore[method-assign]
        if how == "RST":
            connection.flush()
            connection.reset()

    return script


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("size", [0, 2000])
def test_verdicts_on_a_pipeline_that_the_server_dies_in(how: str, size: int, seed: int) -> None:
    rng = random.Random(f"{seed}-{how}-{size}")
    for _ in range(8):
        count = 3000
        with (
            FakeServer(dying(rng, count, how), serve) as server,
            Client(server.hosts, session_timeout=20) as client,
        ):
            body = bytes(size)
            calls = [client.pipeline.create(f"/{n}", body) for n in range(count)]
            waiting = [Running(lambda c=c: ending(c)) for c in calls[:: count // 8]]  # type: ignore[misc]
            with within(PATIENCE):
                for one in waiting:
                    one.result()
            # What came behind the break was sent on the next connection, or not at all.
            first = next((n for n, c in enumerate(calls) if ending(c) is not None), count)
            behind = [n for n in range(first, count) if ending(calls[n]) is None]
            check_verdicts_around(server, calls, first, behind)


def check_verdicts_around(
    server: FakeServer, calls: list[Any], first: int, behind: list[int]
) -> None:
    """As `check_verdicts`, where the last calls may have met the next connection."""
    executed = [q for q in server.executed if q.op == "create"]
    one = [int(q.path[1:]) for q in executed if q.connection == 0]
    two = [int(q.path[1:]) for q in executed if q.connection == 1]
    if first == len(calls):  # all that had been sent by the end was answered
        assert one + two == list(range(len(calls)))
        return
    of_first = calls[: behind[0]] if behind else calls
    answered, unknown, not_sent = classify(of_first)
    assert answered + unknown + not_sent == list(range(len(of_first)))
    assert behind == list(range(len(of_first), len(calls)))
    assert one == list(range(len(one))), "twice, or out of order"
    assert two == behind
    assert len(answered) <= len(one) <= len(answered) + len(unknown)
    received = {int(q.path[1:]) for q in server.received if q.op == "create"}
    assert received.isdisjoint(not_sent)


def test_what_the_kernel_never_took_was_not_sent() -> None:
    """The server does not read, so most of a long pipeline cannot leave; then it dies."""
    gate = threading.Event()

    def deaf_then_dead(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        connection.reset()

    with (
        FakeServer(answering(10, deaf_then_dead), serve) as server,
        Client(server.hosts, session_timeout=20) as client,
    ):
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


def test_a_server_that_stops_reading_is_given_up() -> None:
    with FakeServer(deaf, serve) as server, Client(server.hosts, session_timeout=3.0) as client:
        # Long enough to submit them all before it is given up, on a busy machine too.
        calls = [client.pipeline.create(f"/{n}", bytes(100_000)) for n in range(200)]
        with within(3.0 + SLACK):
            assert isinstance(ending(calls[0]), OutcomeUnknownError)
            assert isinstance(ending(calls[199]), NotSentError)
        with within(1.0):
            again(client)


def test_answers_that_arrived_before_the_break_count() -> None:
    """The client is still sending when the server, which has answered, resets the connection."""

    with (
        FakeServer(answering(100, Connection.half_close), serve) as server,
        Client(server.hosts, session_timeout=20) as client,
    ):
        calls = [client.pipeline.create(f"/{n}", bytes(50_000)) for n in range(400)]
        answered, _, _ = classify(calls[:100])
        assert len(answered) == 100


def test_threads_that_wait_on_a_dying_server_all_learn_of_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        with FakeServer(answering(rng.randrange(1, 60), Connection.reset), serve) as server:
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

            workers = [Running(lambda n=n: work(n)) for n in range(16)]  # type: ignore[misc]
            verdicts = [worker.result() for worker in workers]
            executed = {q.path for q in server.executed if q.op == "create"}
            received = {q.path for q in server.received if q.op == "create"}
            for number, row in enumerate(verdicts):
                for n, verdict in enumerate(row):
                    path = f"/{number}-{n}"
                    assert verdict != "done" or path in executed
                    assert verdict != "not sent" or path not in received
            client.close()


def again(client: Client) -> None:
    """Ask until an answer comes: the next connection, if this one is still in use."""
    while True:
        with suppress(ConnectionLossError):
            assert client.exists("/") is not None
            return


# --- the state of things --------------------------------------------------------------------------


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


def test_silence_is_noticed_in_two_thirds_of_the_session_timeout() -> None:
    """A21."""

    def noticed_after() -> float:
        with FakeServer(mute) as server:
            client = Client(server.hosts, session_timeout=0.9)
            begun = time.monotonic()
            client.connect(PATIENCE)
            heard, before = time.monotonic(), len(server.connections)
            server.wait_for(lambda: len(server.connections) > before)
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


def test_a_hold_without_a_connection_makes_the_io_thread_look_at_its_deadline() -> None:
    """It may wait for an attempt to connect that outlasts the lease."""
    over = threading.Event()

    class Holder:
        def _lose(self, message: str = "") -> tuple[()]:
            return ()

        _let_go = _lose

    def hangs_up(connection: Connection) -> None:
        connection.greet()
        over.wait(PATIENCE)

    with FakeServer(hangs_up, mute) as server, Client(server.hosts) as client:
        driver, me, woken = client._driver, threading.get_ident(), list[int]()
        client.wait_for_state(State.CONNECTED, timeout=PATIENCE)
        driver.wake = lambda: woken.append(threading.get_ident())  # type: ignore[method-assign]
        driver.hold(Holder())
        assert me not in woken  # the reader of a connection looks often enough
        over.set()
        client.wait_for_state(State.DISCONNECTED, timeout=PATIENCE)
        woken.clear()
        driver.hold(Holder())
        assert me in woken
        del driver.wake


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
