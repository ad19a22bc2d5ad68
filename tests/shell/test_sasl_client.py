"""SASL: the blocking client logs in, at servers of this process.

Real ones are in `tests/real/test_secure_servers.py`, each answer in `tests/unit/test_sasl.py`.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.shell.test_client import CLOSE_BOUND, PATIENCE, all_ended, within
from tests.shell.test_client_threads import name_of
from tests.shell.test_secure_client import LONG, settled
from tests.support.fake_server import Connection, FakeServer, reply
from tests.support.secure_servers import USERS
from zkwire import (
    AuthFailedError,
    Client,
    ConnectionLossError,
    DigestMD5,
    State,
    Watch,
)
from zkwire.jute import records as r
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import rst_before

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
