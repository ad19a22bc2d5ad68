"""The options of kazoo's client on zkwire: hosts, credentials, SASL, TLS, handlers."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from kazoo import exceptions as ke
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import connection

from tests.shell.test_kazoo_engine import NOBODY, SECRET, eventually, started
from tests.support.certificates import Authority, Certificate
from zkwire.kazoo import KazooClient, engine
from zkwire.testing import FaultProxy, Server
from zkwire.testing.server.tls import make_context


def test_hosts_are_tried_in_their_order_where_that_is_asked_for(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy:
        hosts = f"{proxy.hosts},{server.hosts}"
        for _ in range(6):
            with started(hosts, randomize_hosts=False) as client:
                assert client.zkwire.server[1] != server.port


def test_a_large_value_is_for_the_server_to_refuse(server: Server) -> None:
    with started(server.hosts) as client:
        with pytest.raises(ke.ConnectionLoss):
            client.create("/large", b"x" * 2**21)
        eventually(lambda: client.connected)
        assert client.exists("/large") is None


def test_credentials_hold_in_each_session(server: Server) -> None:
    with started(server.hosts, auth_data=[("digest", "user:secret")]) as client:
        client.create("/secret", b"s", acl=[SECRET])
        server.expire(client.client_id[0])
        assert client.retry(client.get, "/secret")[0] == b"s"


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_sasl_is_spoken_as_kazoo_names_it(password: str) -> None:
    options = {"mechanism": "DIGEST-MD5", "username": "bob", "password": password}
    with Server(sasl_users={"bob": "secret"}) as server:
        client: Any = KazooClient(server.hosts, timeout=4.0, sasl_options=options)
        if password == "wrong":
            client.start_async()
            eventually(lambda: client.client_state == "AUTH_FAILED")
            with pytest.raises(ke.AuthFailedError):
                client.get("/")
        else:
            client.start()
            assert ("sasl", "bob") in client.zkwire.who_am_i()
        client.stop()


class FakePeer:
    """A mechanism of pure-sasl's that sends two tokens."""

    def __init__(self, host: str, **options: Any) -> None:
        self.said, self.complete, self.options = list[Any](), False, (host, options)

    def process(self, challenge: bytes | None) -> bytes | None:
        self.said.append(challenge)
        self.complete = len(self.said) == 3
        return [b"hello", None, b""][len(self.said) - 1]


def test_other_mechanisms_are_those_of_pure_sasl(monkeypatch: pytest.MonkeyPatch) -> None:
    peers: list[FakePeer] = []
    module: Any = ModuleType("puresasl.client")

    def make(host: str, **options: Any) -> FakePeer:
        peers.append(FakePeer(host, **options))
        return peers[-1]

    module.SASLClient = make
    monkeypatch.setitem(sys.modules, "puresasl", ModuleType("puresasl"))
    monkeypatch.setitem(sys.modules, "puresasl.client", module)
    monkeypatch.setattr(connection, "PURESASL_AVAILABLE", True)
    exchange = engine.mechanism({"mechanism": "GSSAPI", "service": "zk"}).exchange("server.test")
    assert [next(exchange), exchange.send(b"1")] == [b"hello", b""]
    with pytest.raises(StopIteration):
        exchange.send(b"2")
    assert peers[0].said == [None, b"1", b"2"]
    assert peers[0].options == ("server.test", {"mechanism": "GSSAPI", "service": "zk"})


def test_without_pure_sasl_other_mechanisms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PURESASL_AVAILABLE", False)
    client: Any = KazooClient(NOBODY, sasl_options={"mechanism": "GSSAPI"})
    with pytest.raises(ke.SASLException):
        client.start()
    client.stop()


def test_tls_has_the_options_of_kazoo(authority: Authority, shown: Certificate) -> None:
    mine = authority.sign("client")
    context = make_context(str(shown.both), None, str(authority.file), optional=False)
    files = {"ca": str(authority.file), "certfile": str(mine.both), "keyfile": str(mine.both)}
    with Server(tls=context) as server, started(server.hosts, use_ssl=True, **files) as client:
        assert any(who.auth_scheme == "x509" for who in client.zkwire.who_am_i())


def test_the_certificate_of_another_authority_is_refused_unless_it_is_not_verified(
    shown: Certificate, authority: Authority
) -> None:
    context = make_context(str(shown.both), None, str(authority.file), optional=True)
    with Server(tls=context) as server:
        stranger: Any = KazooClient(server.hosts, use_ssl=True)
        with pytest.raises(KazooTimeoutError):
            stranger.start(0.5)
        with started(server.hosts, use_ssl=True, verify_certs=False) as client:
            assert client.exists("/") is not None
        with pytest.raises(ValueError, match="verify_certs must be True"):
            engine.tls_context(
                KazooClient(NOBODY, use_ssl=True, verify_certs=False, check_hostname=True)
            )


def test_a_handler_for_green_threads_needs_green_threads(server: Server) -> None:
    class Green(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
        name = "sequential_gevent_handler"

    pytest.importorskip("gevent")
    client: Any = KazooClient(server.hosts, handler=Green())
    with pytest.raises(ke.ConfigurationError, match="gevent has not patched threading"):
        client.start()
