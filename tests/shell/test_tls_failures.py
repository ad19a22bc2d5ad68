"""What goes wrong with TLS, and how the blocking client says so."""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_client import PATIENCE, within
from tests.shell.test_roles import Interrupting
from tests.shell.test_secure_client import LONG, each_version, failure, only, real
from tests.support.certificates import Authority, Certificate
from tests.support.fake_server import Connection, FakeServer, silent
from tests.support.hooks import hooked
from tests.support.installed_servers import LOOPBACK
from tests.support.lock_helpers import Running
from tests.support.secure_servers import WANTS_CERTIFICATE, SecureServer
from zkwire import Client
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import split

ENDED = "TLS: the other side ended the connection; perhaps it does not speak TLS"
NO_TLS = "TLS: the other side does not speak TLS"
RESET = "TLS: Connection reset by peer"


class TestTlsFailures:
    pytestmark = real

    @each_version
    def test_a_certificate_for_another_host(
        self, tls_zookeeper_elsewhere: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_elsewhere
        words = failure(server.hosts, only(server.client_context(), version))
        assert words == f"TLS: the certificate is not for host '{LOOPBACK}'"

    @each_version
    def test_an_expired_certificate(
        self, tls_zookeeper_expired: SecureServer, version: ssl.TLSVersion
    ) -> None:
        server = tls_zookeeper_expired
        words = failure(server.hosts, only(server.client_context(), version))
        assert words == "TLS: certificate has expired"

    def test_a_certificate_of_a_stranger(self, tls_zookeeper: SecureServer, tmp_path: Path) -> None:
        words = failure(tls_zookeeper.hosts, Authority(tmp_path, "stranger").client_context())
        assert words == (
            "TLS: the certificate is not trusted: unable to get local issuer certificate"
        )

    @pytest.mark.since("3.7")
    @each_version
    def test_a_client_certificate_is_missing_or_unknown_or_good(
        self,
        tls_zookeeper_for_certified: SecureServer,
        authority: Authority,
        tmp_path: Path,
        version: ssl.TLSVersion,
    ) -> None:
        server = tls_zookeeper_for_certified
        words = failure(server.hosts, only(server.client_context(), version))
        assert re.fullmatch(WANTS_CERTIFICATE, words)
        stranger = Authority(tmp_path, "stranger")
        context = only(stranger.client_context(stranger.sign("client")), version)
        context.load_verify_locations(authority.file)
        assert failure(server.hosts, context) == (
            "TLS: the server does not accept the client certificate: certificate unknown"
        )
        with Client(server.hosts, tls=only(server.client_context("client"), version)) as client:
            found = {(who.auth_scheme, who.user) for who in client.who_am_i()}
        assert found == {("x509", "CN=client"), ("ip", LOOPBACK)}

    def test_the_wrong_port_of_netty(self, tls_zookeeper: SecureServer) -> None:
        context = tls_zookeeper.client_context()
        assert failure(tls_zookeeper.hosts, None) == "the server closed it" + UNGREETED
        assert failure(tls_zookeeper.server.hosts, context) == ENDED

    def test_a_tls_client_at_an_ordinary_plain_port(
        self, sasl_zookeeper: SecureServer, trusting: ssl.SSLContext
    ) -> None:
        # Which one the kernel tells first is a race.
        assert failure(sasl_zookeeper.server.hosts, trusting) in {ENDED, RESET}


REFUSED = "TLS: the server refused: handshake failure; perhaps it wants a client certificate"
GARBAGE = {
    "text": (b"220 mail.example ESMTP\r\n", NO_TLS),
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", NO_TLS),
    "zeros": (bytes(100), NO_TLS),
    "noise": (bytes(range(255, 0, -1)), NO_TLS),
    "alert": (b"\x15\x03\x03\0\x02\x02\x28", REFUSED),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_for_a_tls_handshake(kind: str, trusting: ssl.SSLContext) -> None:
    data, words = GARBAGE[kind]

    def talks(connection: Connection) -> None:
        connection.receive()
        connection.send(data)
        connection.wait_gone()

    with FakeServer(talks) as server:
        assert failure(server.hosts, trusting) == words


def server_hello(hello: bytes, shown: Certificate) -> bytes:
    """What a TLS server answers to a client's first message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = shown.server_context().wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(hello)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("end", ["FIN", "RST"])
def test_an_end_in_the_middle_of_the_tls_handshake(
    part: float, end: str, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    def leaves(connection: Connection) -> None:
        answer = server_hello(connection.receive(), shown)
        connection.send(answer[: round(len(answer) * part)])
        if end == "RST":
            connection.reset()

    with FakeServer(leaves) as server:
        words = failure(server.hosts, trusting).partition(" before it greeted")[0]
    if end == "RST":
        assert words in {RESET, "the server reset it"}
    elif part < 1:
        assert words == ENDED
    else:  # it was done, as far as the client could see
        assert words in {"the server closed it", "the server reset it"}


def test_silence_in_the_tls_handshake(trusting: ssl.SSLContext) -> None:
    with FakeServer(silent) as server:
        words = failure(server.hosts, trusting, session_timeout=1.0)
    assert words == "no answer to the TLS handshake"


@pytest.mark.parametrize("one_name", [False, True])
def test_a_silent_server_does_not_hide_a_good_one(
    one_name: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """Of two in the connect string, or of two addresses of one name, in one attempt."""
    with FakeServer(silent) as mute, Server(tls=shown.server_context()) as server:

        def resolver(host: str, port: int) -> list[tuple[int, Any]]:
            ports = [mute.port, server.port] if one_name else [port]
            return [(socket.AF_INET, (LOOPBACK, port)) for port in ports]

        hosts = "localhost:1" if one_name else f"{mute.hosts},{server.hosts}"
        for seed in range(10):  # each has an order of its own
            client = hooked(Client)(
                hosts, tls=trusting, session_timeout=6.0, _resolver=resolver, _seed=seed
            )
            with within(6.0), client:
                assert client.exists("/") is not None
            if mute.connections:
                break
        mute.wait_for(lambda: mute.connections[0].sock.fileno() == -1)


@pytest.mark.parametrize("behind", [False, True])
def test_an_interrupted_send_costs_nobody_anything(
    behind: bool, trusting: ssl.SSLContext, shown: Certificate
) -> None:
    """As without TLS: hazard E13."""
    with (
        Server(tls=shown.server_context()) as server,
        Client(server.hosts, tls=trusting) as client,
    ):
        client.create("/a")
        link = client._driver.current_connection
        assert link is not None
        others: list[Any] = []

        def meanwhile() -> None:
            Running(lambda: others.append(client.pipeline.create("/b"))).result(PATIENCE)

        link._taken = Interrupting(behind, KeyboardInterrupt(), meanwhile)
        with pytest.raises(KeyboardInterrupt):
            client.set_data("/a", b"new")
        assert others[0].result(PATIENCE) == "/b"
        assert client.get_data("/a").data == b"new"
        assert client._driver.current_connection is link


def test_a_handshake_in_single_bytes(trusting: ssl.SSLContext, shown: Certificate) -> None:
    """And everything behind it."""
    with Server(tls=shown.server_context()) as server, FaultProxy(server.hosts) as proxy:
        proxy.rule(lambda _: split)
        with Client(proxy.hosts, tls=trusting, session_timeout=LONG) as client:
            client.create("/a", bytes(2000))
            assert client.get_data("/a").data == bytes(2000)


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
