"""SASL: the blocking client logs in, at real servers and at those of this process."""

from __future__ import annotations

import logging
import ssl
import struct
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, all_ended, within
from tests.shell.test_client_threads import name_of
from tests.shell.test_secure_client import LONG, Time, each_version, only, real, settled
from tests.support.fake_server import Connection, FakeServer, reply
from tests.support.hooks import hooked
from tests.support.installed_servers import LOOPBACK
from tests.support.lock_helpers import Running
from tests.support.secure_servers import USERS, SecureServer
from zkwire import (
    ACL,
    AuthFailedError,
    Client,
    ClientClosedError,
    ConnectionLossError,
    DigestMD5,
    Id,
    NoAuthError,
    NotSentError,
    Perms,
    State,
    Watch,
)
from zkwire.jute import records as r
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import cut_before, hold, rst_before
from zkwire.testing.proxy.faults import Gate

# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
BOB = ("bob", USERS["bob"])
REJECTED = "the server rejected the SASL authentication"
WRONG = [("bob", "wrong horse"), ("nobody", "nobody's")]


# --- SASL -----------------------------------------------------------------------------------------


def refused(hosts: str, mechanism: Any, **options: Any) -> AuthFailedError:
    """The error of a client whose login fails, which must come at once."""
    states: list[State] = []
    client = Client(hosts, sasl=mechanism, session_timeout=LONG, **options)
    client.add_state_listener(states.append)
    with within(3.0), pytest.raises(AuthFailedError) as caught:
        client.connect()
    assert client.state is State.AUTH_FAILED
    with pytest.raises(AuthFailedError):
        client.exists("/")
    with within(CLOSE_BOUND):
        client.close()
    assert State.CONNECTED not in states
    all_ended(name_of(client))
    return caught.value


class TestSasl:
    pytestmark = real

    @pytest.mark.since("3.7")
    @pytest.mark.parametrize("user", USERS)
    def test_a_good_password(
        self, sasl_zookeeper: SecureServer, user: str, fresh_path: str
    ) -> None:
        mechanism = DigestMD5(user, USERS[user])
        everything = [ACL(Perms.ALL, Id("sasl", user))]
        with Client(sasl_zookeeper.hosts, sasl=mechanism) as client:
            assert ("sasl", user) in {(who.auth_scheme, who.user) for who in client.who_am_i()}
            client.create(fresh_path, b"secret", acl=everything)
            assert client.get_data(fresh_path).data == b"secret"
            (stranger,) = set(USERS) - {user}
            others = DigestMD5(stranger, USERS[stranger])
            with Client(sasl_zookeeper.hosts, sasl=others) as other, pytest.raises(NoAuthError):
                other.get_data(fresh_path)
            client.delete(fresh_path)

    def test_one_mechanism_serves_many_clients(self, sasl_zookeeper: SecureServer) -> None:
        mechanism = DigestMD5(*BOB)

        def log_in() -> None:
            with Client(sasl_zookeeper.hosts, sasl=mechanism) as client:
                assert client.exists("/") is not None

        for each in [Running(log_in) for _ in range(8)]:
            each.result()

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_server_that_requires_it_refuses(
        self, sasl_zookeeper: SecureServer, user: str, password: str
    ) -> None:
        error = refused(sasl_zookeeper.hosts, DigestMD5(user, password))
        assert str(error) == REJECTED

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_server_that_offers_it_refuses(
        self, tls_zookeeper: SecureServer, user: str, password: str
    ) -> None:
        error = refused(tls_zookeeper.server.hosts, DigestMD5(user, password))
        assert str(error) == REJECTED

    @pytest.mark.parametrize(("user", "password"), WRONG)
    def test_a_lenient_server_lets_nobody_in_unnoticed(
        self, sasl_zookeeper_lenient: SecureServer, user: str, password: str
    ) -> None:
        error = refused(sasl_zookeeper_lenient.hosts, DigestMD5(user, password))
        assert str(error).endswith("; perhaps it refused the user name or the password")

    def test_a_server_without_it(self, tls_zookeeper_for_certified: SecureServer) -> None:
        error = refused(tls_zookeeper_for_certified.server.hosts, DigestMD5(*BOB))
        assert str(error) == "the server sent no SASL challenge; perhaps SASL is not enabled there"

    def test_who_does_not_log_in_where_it_is_required(self, sasl_zookeeper: SecureServer) -> None:
        client = Client(sasl_zookeeper.hosts, session_timeout=LONG)
        client.connect()
        with within(3.0), pytest.raises(AuthFailedError) as caught:
            client.exists("/")
        print(caught.value)
        assert client.state is State.AUTH_FAILED
        client.close()

    @pytest.mark.since("3.7")
    @each_version
    @pytest.mark.parametrize("user", USERS)
    def test_inside_tls(
        self, tls_zookeeper: SecureServer, user: str, version: ssl.TLSVersion
    ) -> None:
        context = only(tls_zookeeper.client_context(), version)
        mechanism = DigestMD5(user, USERS[user])
        with Client(tls_zookeeper.hosts, tls=context, sasl=mechanism) as client:
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
        assert found == {("sasl", user), ("ip", LOOPBACK)}

    def test_a_wrong_password_inside_tls(self, tls_zookeeper: SecureServer) -> None:
        context = tls_zookeeper.client_context()
        error = refused(tls_zookeeper.hosts, DigestMD5("bob", "wrong"), tls=context)
        assert str(error) == REJECTED

    @pytest.mark.since("3.7")
    def test_each_connection_logs_in_before_anything_else(
        self, sasl_zookeeper: SecureServer, fresh_path: str
    ) -> None:
        check_order(sasl_zookeeper.server.hosts, fresh_path)


OPENING = ["connect", "sasl", "sasl", "auth", "set_watches"]


def check_order(upstream: str, path: str) -> None:
    """Five connections, each lost in the midst of requests; the frames of each."""
    with (
        FaultProxy(upstream=upstream) as proxy,
        Client(
            proxy.hosts, sasl=DigestMD5(*BOB), auth=[("digest", b"ann:other")], session_timeout=LONG
        ) as client,
    ):
        client.create(path)
        watch = Watch()
        client.get_data(path, watch=watch)
        session_id = client.session_id
        for _ in range(4):
            for number in range(20):
                client.pipeline.exists(f"{path}/{number}")
            proxy.cut_all()
            # These wait for the next connection.
            replies = [client.pipeline.exists(path) for _ in range(3)]
            for each in replies:
                with suppress(ConnectionLossError):
                    assert each.result(PATIENCE) is not None
            settled(client)
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
            assert ("sasl", "bob") in found
            assert "digest" in {scheme for scheme, _ in found}
        assert client.session_id == session_id
        client.set_data(path, b"")
        assert watch.wait(PATIENCE) is not None
        client.delete(path)
        frames = [frame for frame in proxy.frames() if frame.direction == "c2s"]
    sent = [[f.op for f in frames if f.connection == n] for n in range(5)]
    assert sent[0][:4] == OPENING[:4]
    for ops in sent[1:]:
        assert ops[: len(OPENING)] == OPENING
        assert "sasl" not in ops[3:]


# --- SASL, with servers of this process -----------------------------------------------------------


@contextmanager
def sasl_server(**options: Any) -> Iterator[Server]:
    with Server(sasl_users=USERS, enforce_auth=("sasl",), **options) as server:
        yield server


def test_the_order_at_the_embedded_server() -> None:
    with sasl_server() as server:
        check_order(server.hosts, "/a")


@pytest.mark.parametrize("password", ["wrong horse", "\u5f20"])
def test_the_embedded_server_refuses(password: str) -> None:
    with sasl_server() as server:
        error = refused(server.hosts, DigestMD5("bob", password))
    assert str(error) == REJECTED


def test_no_ping_comes_before_the_login() -> None:
    """The challenge comes late: a ping would be due, and the server would end the connection."""
    now, gate = Time(), Gate()
    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        proxy.on("sasl", action=hold(gate), reply=True)
        client = hooked(Client)(proxy.hosts, sasl=DigestMD5(*BOB), session_timeout=30, _now=now)
        connecting = Running(client.connect)
        gate.wait_reached()
        now.jump(client, 12.0)
        gate.release()
        connecting.result()
        assert client.exists("/") is not None
        ops = [frame.op for frame in proxy.frames() if frame.direction == "c2s"]
        client.close()
    assert ops[:3] == OPENING[:3]
    assert "ping" not in ops[:3]


class Custom:
    """A mechanism of a user's."""

    def __init__(self, exchange: Callable[[str], Any]) -> None:
        self.exchange = exchange


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What was reported as an unhandled exception of a thread is."""
    found: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(args.exc_value))
    return found


def test_a_mechanism_that_raises(reported: list[BaseException]) -> None:
    problem = LookupError("no ticket")

    def at_once(host: str) -> Generator[bytes, bytes, None]:
        raise problem
        yield b""

    def later(host: str) -> Generator[bytes, bytes, None]:
        yield b""
        raise problem

    def refuses(host: str) -> Generator[bytes, bytes, None]:
        yield b""
        raise AuthFailedError("not this server")

    def no_generator(host: str) -> Any:
        raise problem

    with sasl_server() as server:
        for exchange in (at_once, later, no_generator):
            error = refused(server.hosts, Custom(exchange))
            assert "no ticket" in str(error)
            assert reported.pop() is problem
        assert str(refused(server.hosts, Custom(refuses))) == "not this server"
        assert reported == []  # that is no mistake, and whoever calls is told


@pytest.mark.parametrize("token", ["text", None, 7, bytearray(b"x")], ids=repr)
def test_a_mechanism_that_yields_no_bytes(token: Any, reported: list[BaseException]) -> None:
    def exchange(host: str) -> Any:
        yield token

    with sasl_server() as server:
        error = refused(server.hosts, Custom(exchange))
    kind = type(token).__name__
    assert str(error) == f"the SASL mechanism failed: a SASL token must be bytes, not {kind}"
    assert [type(each) for each in reported] == [TypeError]


@pytest.mark.parametrize("made", [None, 7, b""], ids=repr)
def test_a_mechanism_without_a_generator(made: Any, reported: list[BaseException]) -> None:
    with sasl_server() as server:
        error = refused(server.hosts, Custom(lambda host: made))
    assert "not an iterator" in str(error)
    assert len(reported) == 1


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_mechanism_that_is_satisfied_early(tokens: int) -> None:
    """It decides; what the server thinks of it shows in what the client may do."""

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        for _ in range(tokens):
            yield b""

    with Server(sasl_users=USERS) as server, Client(server.hosts, sasl=Custom(exchange)) as client:
        assert [who.auth_scheme for who in client.who_am_i()] == ["ip"]
    with sasl_server() as server:
        client = Client(server.hosts, sasl=Custom(exchange))
        with within(3.0), pytest.raises(AuthFailedError):
            client.exists("/")
        client.close()


def test_a_mechanism_is_told_the_host() -> None:
    hosts: SimpleQueue[str] = SimpleQueue()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        hosts.put(host)
        return DigestMD5(*BOB).exchange(host)

    with (
        sasl_server() as server,
        Client(f"localhost:{server.port}", sasl=Custom(exchange)) as client,
    ):
        assert client.exists("/") is not None
    assert hosts.get_nowait() == "localhost"
    assert hosts.empty()


def test_a_mechanism_that_takes_long() -> None:
    """Longer than the attempt may: that one is given up, and the next one is made."""
    now, gate = Time(), Gate()
    thinking, go_on = threading.Event(), threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        thinking.set()
        assert go_on.wait(PATIENCE)
        return (yield from DigestMD5(*BOB).exchange(host))

    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        proxy.on("sasl", action=hold(gate), reply=True)  # else it may come in time
        client = hooked(Client)(proxy.hosts, sasl=Custom(exchange), session_timeout=30, _now=now)
        with within(1.0), pytest.raises(NotSentError):
            client.connect(0.2)
        assert thinking.wait(PATIENCE)
        now._ahead += 21.0  # more than two thirds of the session timeout
        go_on.set()
        client.connect(40.0)
        assert client.exists("/") is not None
        assert {frame.connection for frame in proxy.frames()} == {0, 1}
        client.close()
        gate.release()


def test_close_does_not_wait_for_a_mechanism() -> None:
    thinking, go_on = threading.Event(), threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        thinking.set()
        assert go_on.wait(PATIENCE)
        yield b""

    with sasl_server() as server:
        client = Client(server.hosts, sasl=Custom(exchange))
        connecting = Running(lambda: client.connect(PATIENCE))
        assert thinking.wait(PATIENCE)
        with within(CLOSE_BOUND + 0.5):
            client.close()
        go_on.set()
        # Or it was connected, or rejected for its empty token, in the moment of the close.
        with suppress(ClientClosedError, AuthFailedError):
            connecting.result()
        thread = client._driver.thread
        assert thread is not None
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_mechanism_begins_anew_with_each_connection() -> None:
    begun = 0
    closed = threading.Event()

    def exchange(host: str) -> Generator[bytes, bytes, None]:
        nonlocal begun
        begun += 1
        if begun > 1:
            return (yield from DigestMD5(*BOB).exchange(host))
        try:
            yield b""
        finally:
            closed.set()

    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        proxy.on("sasl", action=cut_before, reply=True)
        with Client(proxy.hosts, sasl=Custom(exchange), session_timeout=LONG) as client:
            assert client.exists("/") is not None
        assert closed.is_set()
    assert begun == 2


CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'
PROOFS = {
    b"rspauth=" + b"0" * 32: "the server's proof that it knows the password is wrong",
    b"rspauth=": "the server's SASL answer is garbage",
    b"hello=1": "the server gave no proof that it knows the password",
    b"\xff\0": "the server's SASL answer is garbage",
    b"": "the server gave no proof of a login; perhaps it refused the user name or the password",
}


@pytest.mark.parametrize("proof", PROOFS, ids=repr)
def test_a_server_that_does_not_know_the_password(proof: bytes) -> None:
    seen: list[str] = []

    def pretends(connection: Connection) -> None:
        connection.greet()
        for answer in (CHALLENGE, proof):
            request = connection.request()
            seen.append(request.op)
            connection.send(reply(request.xid, r.SetSASLResponse(answer), zxid=0))
        connection.wait_gone()

    with FakeServer(pretends) as server:
        error = refused(server.hosts, DigestMD5(*BOB))
        assert len(server.connections) == 1  # and does not come back
    assert str(error) == PROOFS[proof]
    assert seen == ["sasl", "sasl"]


@pytest.mark.parametrize(
    "answer",
    [
        reply(77, r.SetSASLResponse(CHALLENGE)),  # to something that was not asked
        reply(1),  # without a body
        struct.pack(">i", 3) + b"abc",
        reply(1, error=-5),  # a fault of the server's, which says nothing of the password
    ],
    ids=["xid", "no body", "no header", "error"],
)
def test_garbage_in_the_login_costs_the_connection_only(answer: bytes) -> None:
    def garbles(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(answer)
        connection.wait_gone()

    def knows(connection: Connection) -> None:
        connection.greet()
        request = connection.request()
        connection.send(reply(request.xid, error=-115))
        connection.wait_gone()

    with FakeServer(garbles, knows) as server:
        error = refused(server.hosts, DigestMD5(*BOB))
        assert len(server.connections) == 2
    assert str(error) == REJECTED


def last_words(client: Client) -> list[str]:
    """All that can be shown of the error that ends a session."""
    with pytest.raises(AuthFailedError) as caught:
        client.connect()
    error = caught.value
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    linked = [str(error.__context__), str(error.__cause__)]
    return [str(error), repr(error), repr(error.__dict__), *linked, *shown.format()]


def test_the_password_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = "Tr0ub4dor&3-\u00e4"
    caplog.set_level(logging.DEBUG)
    traced: list[Any] = []
    told: list[str] = []
    with (
        Server(sasl_users={"bob": secret}) as server,
        Server(sasl_users={"bob": "another"}) as strange,
        Server() as without,
    ):
        for hosts in (server.hosts, strange.hosts, without.hosts):
            mechanism = DigestMD5("bob", secret)
            client = Client(hosts, sasl=mechanism, trace=traced.append, session_timeout=LONG)
            if hosts == server.hosts:
                assert client.exists("/") is not None
            else:
                told += last_words(client)
            told += [repr(client), repr(mechanism), str(mechanism)]
            client.close()
    told += [*map(repr, traced), caplog.text]
    assert sum("-115" in each for each in told) >= 2
    assert any("sasl" in repr(frame) for frame in traced)
    for each in told:
        assert "Tr0ub4dor" not in each


def test_a_login_that_is_cut_anywhere_goes_on_with_the_next_connection() -> None:
    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        for reply_to in (False, True):
            for nth in (1, 2):
                proxy.on("sasl", nth=nth, action=rst_before, reply=reply_to)
                with (
                    within(3.0),
                    Client(proxy.hosts, sasl=DigestMD5(*BOB), session_timeout=LONG) as client,
                ):
                    assert client.exists("/") is not None
                proxy.clear()
