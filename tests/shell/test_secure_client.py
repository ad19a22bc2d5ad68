"""The client over TLS: floods, lost connections, forks, interrupts, and handshakes that fail.

The servers are of this process; real ones are in `tests/real/test_secure_servers.py`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, all_ended, within
from tests.shell.test_client_threads import name_of
from tests.support.both_clients import again
from tests.support.certificates import EXPIRED, Authority, Certificate
from tests.support.fake_server import Connection, FakeServer, Node, reply, serve, silent
from tests.support.hooks import hooked
from tests.support.installed_servers import LOOPBACK
from tests.support.secure_servers import BOTH_NAMES, USERS
from tests.support.server_control import poll
from zkwire import (
    AsyncClient,
    AsyncSequentialLock,
    AuthFailedError,
    Client,
    ConnectionLossError,
    DigestMD5,
    NotSentError,
    OutcomeUnknownError,
    State,
    Watch,
)
from zkwire.jute import records as r
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Action, cut_before, rst_before

# Later Pythons warn of forks beside threads: rightly so, and it is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
# Nothing is to happen to a session.
LONG = 20.0
# How long a client tries that cannot succeed.
TRIES = 0.3
NO_ANSWER = "none has answered yet"
SLACK = 0.7


def only(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = version
    return context


def settled(client: Client) -> None:
    """Wait until the client is connected again, if it is not."""
    assert client.wait_for_state(State.CONNECTED, timeout=PATIENCE) is State.CONNECTED


def failure(hosts: str, tls: ssl.SSLContext | None, **options: Any) -> str:
    """Why no connection can be made, in the words for users; without the server's name."""
    client = hooked(Client)(hosts, tls=tls, **options)
    text = NO_ANSWER
    deadline = time.monotonic() + PATIENCE
    while NO_ANSWER in text:  # no attempt has ended yet
        assert time.monotonic() < deadline
        with within(TRIES + SLACK), pytest.raises(NotSentError) as caught:
            client.connect(TRIES)
        text = str(caught.value)
    assert not client.state.terminal
    with within(CLOSE_BOUND):
        client.close()
    all_ended(name_of(client))
    before, server, reason = text.partition(f"({hosts}: ")
    assert before == f"no server could be reached within {TRIES} s "
    assert server
    return reason.removesuffix(")")


@pytest.fixture
def server(shown: Certificate) -> Iterator[Server]:
    with Server(tls=shown.server_context()) as server:
        yield server


Proxied = tuple[FaultProxy, Client, Client]


@contextmanager
def behind_proxy(server: Server, tls: ssl.SSLContext) -> Iterator[Proxied]:
    """A client behind a proxy, and one that no fault is to hit."""
    with (
        FaultProxy(upstream=server.hosts) as proxy,
        Client(proxy.hosts, tls=tls, session_timeout=LONG) as client,
        Client(server.hosts, tls=tls) as observer,
    ):
        yield proxy, client, observer


@pytest.fixture
def proxied(server: Server, trusting: ssl.SSLContext) -> Iterator[Proxied]:
    with behind_proxy(server, trusting) as proxied:
        yield proxied


# --- its everyday work ----------------------------------------------------------------------------


async def test_an_asyncio_client(server: Server, trusting: ssl.SSLContext) -> None:
    data = bytes(900_000)
    async with AsyncClient(server.hosts, tls=trusting, session_timeout=LONG) as client:
        await client.create("/a", data)
        answers = await asyncio.gather(*(client.get_data("/a") for _ in range(8)))
        assert all(answer.data == data for answer in answers)
        server.cut_all()
        async with AsyncSequentialLock(client, "/lock") as lock:
            assert lock.fence is not None


# --- outcomes -------------------------------------------------------------------------------------


def outcome(call: Any) -> str:
    try:
        call.result(PATIENCE)
    except NotSentError:
        return "not sent"
    except OutcomeUnknownError:
        return "unknown"
    return "success"


@pytest.mark.parametrize("action", [cut_before, rst_before], ids=["FIN", "RST"])
@pytest.mark.parametrize("direction", ["c2s", "s2c"])
def test_no_outcome_is_wrong(proxied: Proxied, direction: str, action: Action) -> None:
    """The n-th piece of a flood of creates is stopped, whatever part of a record it ends in."""
    counts: Counter[str] = Counter()
    proxy, client, observer = proxied
    for n in (1, 2, 3, 5, 8, 13):
        settled(client)
        left = n

        def rule(frame: Any) -> Action | None:
            nonlocal left
            left -= frame.direction == direction
            return action if left == 0 and frame.direction == direction else None

        proxy.rule(rule)
        paths = [f"/{n}-{number:03}" for number in range(300)]
        replies = {}
        for path in paths:
            replies[path] = client.pipeline.create(path, bytes(3000))
            if len(replies) == 1:
                outcome(replies[path])  # a busy machine would answer none in time
        outcomes = {path: outcome(each) for path, each in replies.items()}
        proxy.clear()
        observer.sync("/")
        there = {f"/{name}" for name in observer.get_children("/")}
        for path, ended in outcomes.items():
            assert ended != "success" or path in there, path
            assert ended != "not sent" or path not in there, path
        # In the order of the requests; the last ones may have come after the break.
        runs = [ended for ended, _ in groupby(outcomes.values())]
        order = iter(["success", "unknown", "not sent", "success"])
        assert all(ended in order for ended in runs), runs
        executed = [path in there for path in paths if outcomes[path] == "unknown"]
        assert executed == sorted(executed, reverse=True)
        counts.update(outcomes.values())
    assert counts["unknown"]
    assert counts["success"]


# --- which server, and which certificate ----------------------------------------------------------


def test_a_configuration_of_plain_ports_cuts_nobody_off(
    trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """A configuration knows no port for TLS, so the ports that it names answer no TLS handshake."""
    with FakeServer(serve) as plain, FakeServer(serve, tls=shown.server_context()) as server:
        named = f"server.1=127.0.0.1:2888:3888:participant;{plain.hosts}\nversion=100"
        server.nodes["/zookeeper/config"] = Node(named.encode(), 1)
        with Client(
            server.hosts, tls=trusting, follow_reconfig=True, session_timeout=2.0
        ) as client:
            client.connect()
            both = {(LOOPBACK, server.port), (LOOPBACK, plain.port)}
            poll("it follows", lambda: set(client._session.hosts._hosts) == both or None, PATIENCE)
            for _ in range(3):
                server.reset_all()
                again(client.sync)


def test_the_servers_name_is_told(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """An address is no name, and RFC 6066 does not allow to send it as one."""
    names: list[str | None] = []
    context = shown.server_context()
    context.sni_callback = lambda _, name, __: names.append(name)
    with Server(tls=context) as server:
        for host in ("localhost", LOOPBACK):
            with Client(f"{host}:{server.port}", tls=trusting) as client:
                assert client.exists("/") is not None
        assert names == ["localhost", None]

        def resolver(_: str, port: int) -> list[tuple[int, Any]]:
            return [(socket.AF_INET, (LOOPBACK, port))]

        # Only a resolver of one's own finds a name that cannot be told; it costs the attempt alone.
        assert "TLS: " in failure(f".x:{server.port}", trusting, _resolver=resolver)


def test_a_bad_certificate_is_told(
    authority: Authority, server: Server, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    """For another host, expired, of a stranger; and the server goes on."""
    elsewhere = authority.sign("elsewhere", hosts=("DNS:elsewhere.example",))
    expired = authority.sign("expired", hosts=BOTH_NAMES, period=EXPIRED)
    for shown, words in (
        (elsewhere, f"TLS: the certificate is not for host '{LOOPBACK}'"),
        (expired, "TLS: certificate has expired"),
    ):
        with Server(tls=shown.server_context()) as other:
            assert failure(other.hosts, trusting) == words
    stranger = Authority(tmp_path, "stranger").client_context()
    assert failure(server.hosts, stranger) == (
        "TLS: the certificate is not trusted: unable to get local issuer certificate"
    )
    with Client(server.hosts, tls=trusting) as client:
        assert client.exists("/") is not None


# --- handshakes that fail -------------------------------------------------------------------------

ENDED = {"TLS: the other side ended the connection; perhaps it does not speak TLS"}
GONE = {"TLS: Connection reset by peer", "the server reset it"}
NO_TLS = {"TLS: the other side does not speak TLS"}
REFUSED = {"TLS: the server refused: handshake failure; perhaps it wants a client certificate"}


def server_hello(hello: bytes, shown: Certificate) -> bytes:
    """What a TLS server answers to a client's first message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = shown.server_context().wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(hello)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(("answer", "end", "words"), [
    (b"220 mail.example ESMTP\r\n", "", NO_TLS),
    (bytes(100), "", NO_TLS),
    (b"\x15\x03\x03\0\x02\x02\x28", "", REFUSED),  # an alert
    (0.0, "FIN", ENDED),
    (0.01, "FIN", ENDED),
    (0.5, "FIN", ENDED),
    (1.0, "FIN", {"the server closed it", "the server reset it"}),  # done, as far as is seen
    (0.0, "RST", GONE),
    (0.5, "RST", GONE),
    (1.0, "RST", GONE),
])  # fmt: skip
def test_garbage_or_an_end_in_the_tls_handshake(
    answer: bytes | float, end: str, words: set[str], trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """After these bytes, or after this part of what a server with TLS answers first."""

    def talks(connection: Connection) -> None:
        hello = server_hello(connection.receive(), shown)
        data = answer if isinstance(answer, bytes) else hello[: round(len(hello) * answer)]
        connection.send(data)
        if end == "RST":
            connection.reset()
        elif not end:
            connection.wait_gone()

    with FakeServer(talks) as server:
        assert failure(server.hosts, trusting).partition(" before it greeted")[0] in words


def test_silence_in_the_tls_handshake(trusting: ssl.SSLContext) -> None:
    with FakeServer(silent) as server:
        words = failure(server.hosts, trusting, session_timeout=1.0)
    assert words == "no answer to the TLS handshake"


BOB = ("bob", USERS["bob"])
REJECTED = "the server rejected the SASL authentication"
PERHAPS = "the server gave no proof of a login; perhaps it refused the user name or the password"
NO_CHALLENGE = "the server sent no SASL challenge; perhaps SASL is not enabled there"
OPENING = ["connect", "sasl", "sasl", "auth", "set_watches"]


def refused(hosts: str, mechanism: Any, **options: Any) -> str:
    """What the error of a client says whose login fails, which must come at once."""
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
    return str(caught.value)


def nobody_may_ask(hosts: str, mechanism: Any = None) -> None:
    """A client that is connected without a login ends with its first request."""
    client = Client(hosts, sasl=mechanism, session_timeout=LONG)
    client.connect()
    with within(3.0), pytest.raises(AuthFailedError):
        client.exists("/")
    assert client.state is State.AUTH_FAILED
    client.close()


@contextmanager
def sasl_server(**options: Any) -> Iterator[Server]:
    with Server(sasl_users=USERS, enforce_auth=("sasl",), **options) as server:
        yield server


def test_each_connection_logs_in_before_anything_else() -> None:
    """Of a client for which requests wait, and watches, and other credentials."""
    known: dict[str, Any] = {"sasl": DigestMD5(*BOB), "auth": [("digest", b"ann:other")]}
    with (
        sasl_server() as server,
        FaultProxy(upstream=server.hosts) as proxy,
        Client(proxy.hosts, session_timeout=LONG, **known) as client,
    ):
        client.create("/a")
        watch = Watch()
        client.get_data("/a", watch=watch)
        for _ in range(2):
            proxy.cut_all()
            # These wait for the next connection.
            for each in [client.pipeline.exists("/a") for _ in range(3)]:
                with suppress(ConnectionLossError):
                    assert each.result(PATIENCE) is not None
            settled(client)
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
            assert ("sasl", "bob") in found
            assert "digest" in {scheme for scheme, _ in found}
        client.set_data("/a", b"")
        assert watch.wait(PATIENCE) is not None
        frames = [frame for frame in proxy.frames() if frame.direction == "c2s"]
    for number in range(3):
        ops = [frame.op for frame in frames if frame.connection == number]
        assert ops[: len(OPENING) - (not number)] == OPENING[: len(OPENING) - (not number)]
        assert "sasl" not in ops[3:]


def test_a_login_that_is_cut_anywhere_goes_on_with_the_next_connection() -> None:
    mechanism = DigestMD5(*BOB)  # one serves many clients
    with sasl_server() as server, FaultProxy(upstream=server.hosts) as proxy:
        for reply_to, nth in ((False, 1), (False, 2), (True, 1), (True, 2)):
            proxy.on("sasl", nth=nth, action=rst_before, reply=reply_to)
            with within(3.0), Client(proxy.hosts, sasl=mechanism, session_timeout=LONG) as client:
                assert client.exists("/") is not None
            proxy.clear()
        assert refused(server.hosts, DigestMD5("bob", "\u5f20")) == REJECTED


CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'
PROOFS = {
    b"rspauth=" + b"0" * 32: "the server's proof that it knows the password is wrong",
    b"": PERHAPS,
}


@pytest.mark.parametrize("proof", PROOFS, ids=repr)
def test_a_server_that_does_not_know_the_password(proof: bytes) -> None:
    def pretends(connection: Connection) -> None:
        connection.greet()
        for answer in (CHALLENGE, proof):
            request = connection.request()
            connection.send(reply(request.xid, r.SetSASLResponse(answer), zxid=0))
        connection.wait_gone()

    with FakeServer(pretends) as server:
        assert refused(server.hosts, DigestMD5(*BOB)) == PROOFS[proof]
        assert len(server.connections) == 1  # and does not come back
        assert [request.op for request in server.received] == ["sasl", "sasl"]


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
    assert not [each for each in told if "Tr0ub4dor" in each]


# --- mechanisms of a user's -----------------------------------------------------------------------


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


def yields(*tokens: Any, then: BaseException | None = None) -> Callable[[str], Any]:
    def exchange(host: str) -> Generator[bytes, bytes, None]:
        for token in tokens:  # noqa: UP028 - answers are sent into it
            yield token
        if then is not None:
            raise then

    return exchange


def raises(host: str) -> Any:
    raise LookupError("no ticket")


def test_a_mechanism_that_fails(reported: list[BaseException]) -> None:
    problem = LookupError("no ticket")
    failing: list[tuple[Callable[[str], Any], type[BaseException], str]] = [
        (yields(then=problem), LookupError, "no ticket"),
        (yields(b"", then=problem), LookupError, "no ticket"),
        (raises, LookupError, "no ticket"),
        (lambda _: None, TypeError, "not an iterator"),
        (lambda _: b"", TypeError, "not an iterator"),
        (yields("text"), TypeError, "mechanism failed: a SASL token must be bytes, not str"),
        (yields(None), TypeError, "mechanism failed: a SASL token must be bytes, not NoneType"),
        (yields(bytearray(b"x")), TypeError, "a SASL token must be bytes, not bytearray"),
    ]
    with sasl_server() as server:
        for exchange, kind, words in failing:
            assert words in refused(server.hosts, Custom(exchange))
            assert [type(each) for each in reported] == [kind]
            reported.clear()
        refuses = yields(b"", then=AuthFailedError("not this server"))
        assert refused(server.hosts, Custom(refuses)) == "not this server"
        assert reported == []  # that is no mistake, and whoever calls is told
