"""What real servers with TLS or SASL say, byte by byte, to a bare client: the basis of errors.

`TlsFilter` and `DigestMD5` are used here over an ordinary blocking socket, without zkwire's client.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.support.certificates import Authority
from tests.support.installed_servers import LOOPBACK
from tests.support.secure_servers import USERS, WANTS_CERTIFICATE, SecureServer
from zkwire.errors import AuthFailedError
from zkwire.net.sasl import DigestMD5
from zkwire.net.tls import TlsFilter, describe

pytestmark = [pytest.mark.real, pytest.mark.apache]

SECONDS = 30.0
"""The longest that a server may be silent before the test fails."""

CONNECT = struct.Struct(">iqiqi16s?")
NEW_SESSION = CONNECT.pack(0, 0, 10_000, 0, 16, bytes(16), False)
SASL, AUTH, SET_WATCHES, WHO_AM_I = 102, 100, 101, 107
EXISTS, CREATE, GET_DATA, PING, CLOSE = 3, 1, 4, 11, -11
ROOT = b"\0\0\0\x01/\0"
NULL = struct.pack(">i", -1)
REQUIRES_SASL, AUTH_FAILED = -124, -115

# Whether close_notify comes before the end is a race inside the server: it means nothing.
TLS_ENDS = {"EOF", "close_notify"}

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
BOB = ("bob", USERS["bob"])
# 3.8 checks an unknown user against the password of who logged in before, so it is nobody's.
WRONG = [("bob", "wrong"), ("nobody", "nobody's"), ("bob", "")]


def buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Reply(NamedTuple):
    """A reply's header without its zxid, and what follows."""

    xid: int
    error: int
    body: bytes


class Wire:
    """A connection for one thread, with TLS if there is a context.

    `ending`: how it ended, once it has.
    """

    def __init__(
        self, port: int | None, context: ssl.SSLContext | None = None, host: str = "localhost"
    ) -> None:
        assert port is not None
        self.ending = ""
        self.tls: TlsFilter | None = None
        self._came = b""
        with ExitStack() as undo:
            self._socket = undo.enter_context(socket.create_connection((LOOPBACK, port), SECONDS))
            if context is not None:
                self.tls = TlsFilter(context, host)
                self._shake_hands(self.tls)
            undo.pop_all()

    def _shake_hands(self, tls: TlsFilter) -> None:
        done = False
        while not done:
            try:
                done = tls.handshake()
            finally:
                self._socket.sendall(tls.take_output())
            if not done:
                data = self._receive()
                if not data:
                    raise ConnectionError(f"{self.ending} in the handshake")
                tls.feed(data)
        self._came += tls.feed(b"")

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            data = b""
            self.ending = self.ending or "reset"
        if not data:
            self.ending = self.ending or "EOF"
        return data

    def send(self, data: bytes) -> None:
        self._socket.sendall(self.tls.encrypt(data) if self.tls else data)

    def more(self) -> None:
        """Wait for bytes, or for the end."""
        data = self._receive()
        if self.tls is None:
            self._came += data
            return
        self._came += self.tls.feed(data)
        if self.tls.error is not None:
            self.ending = self.ending or describe(self.tls.error)
        elif self.tls.eof:
            self.ending = self.ending or "close_notify"

    def rest(self) -> bytes:
        """All bytes until the end."""
        while not self.ending:
            self.more()
        return self._came

    def frame(self) -> bytes:
        """The next frame; the end may have come along with it."""
        while not self._whole_frame():
            assert not self.ending, f"{self.ending} instead of a frame"
            self.more()
        (length,) = struct.unpack_from(">i", self._came)
        found, self._came = self._came[4 : 4 + length], self._came[4 + length :]
        return found

    def _whole_frame(self) -> bool:
        came = self._came
        return len(came) >= 4 and len(came) >= 4 + struct.unpack_from(">i", came)[0]

    def begin_session(self, session_id: int = 0, password: bytes = bytes(16)) -> None:
        """Have a new session, or go on with an old one."""
        self.send(buffer(CONNECT.pack(0, 0, 10_000, session_id, len(password), password, False)))
        answer = self.frame()
        version, timeout, self.session_id, size = struct.unpack_from(">iiqi", answer)
        assert version == 0
        assert timeout > 0, "the session is over"
        assert self.session_id != 0
        self.session_password = answer[20 : 20 + size]

    def call(self, xid: int, operation: int, body: bytes = b"") -> Reply:
        self.send(buffer(struct.pack(">ii", xid, operation) + body))
        answer = self.frame()
        xid, _, error = struct.unpack_from(">iqi", answer)
        return Reply(xid, error, answer[16:])

    def log_in(self, user: str, password: str) -> list[Reply]:
        """One SASL exchange, to its end or the server's refusal; the server's replies."""
        exchange = DigestMD5(user, password).exchange("localhost")
        token, replies = next(exchange), list[Reply]()
        while True:
            replies.append(self.call(len(replies) + 1, SASL, buffer(token)))
            if replies[-1].error:
                return replies
            answer = replies[-1].body
            try:
                token = exchange.send(b"" if answer == NULL else answer[4:])
            except StopIteration:
                return replies

    def who_am_i(self) -> set[tuple[str, str]]:
        """The identities that the server has for this connection: scheme and name."""
        reply = self.call(100, WHO_AM_I)
        assert reply.error == 0
        (count,) = struct.unpack_from(">i", reply.body)
        at, words = 4, list[str]()
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">i", reply.body, at)
            words.append(reply.body[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return set(zip(words[::2], words[1::2], strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


IP = ("ip", LOOPBACK)


@contextmanager
def session(port: int | None, context: ssl.SSLContext | None = None) -> Iterator[Wire]:
    with Wire(port, context) as wire:
        wire.begin_session()
        yield wire


def only(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = version
    return context


# --- SASL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", USERS)
def test_a_good_password(sasl_zookeeper: SecureServer, user: str) -> None:
    with session(sasl_zookeeper.server.port) as wire:
        challenge, proof = wire.log_in(user, USERS[user])
        assert challenge.body[4:].startswith(b'realm="zk-sasl-md5",nonce="')
        assert challenge.body.endswith(b'",charset=utf-8,algorithm=md5-sess')
        assert proof.body.startswith(struct.pack(">i", 40) + b"rspauth=")
        assert wire.who_am_i() == {("sasl", user), IP}
        assert wire.call(101, EXISTS, ROOT).error == 0


@pytest.mark.parametrize(("user", "password"), WRONG)
@pytest.mark.parametrize(
    ("name", "code", "tls"),
    [
        ("sasl_zookeeper", REQUIRES_SASL, False),
        ("tls_zookeeper", AUTH_FAILED, False),
        ("tls_zookeeper", AUTH_FAILED, True),
    ],
)
def test_a_server_refuses_by_code_then_ends_the_connection(
    request: pytest.FixtureRequest, name: str, code: int, tls: bool, user: str, password: str
) -> None:
    """The first requires SASL, the second offers it."""
    server: SecureServer = request.getfixturevalue(name)
    way = (server.secure_port, server.client_context()) if tls else (server.server.port,)
    with session(*way) as wire:
        assert wire.log_in(user, password)[1:] == [Reply(2, code, NULL)]
        assert wire.rest() == b""
        assert wire.ending in (TLS_ENDS if tls else {"EOF"})


@pytest.mark.since("3.7")
@pytest.mark.parametrize(
    ("name", "users", "says"),
    [
        ("sasl_zookeeper_lenient", WRONG, "refused the user name or the password"),
        ("tls_zookeeper_for_certified", [BOB], "SASL is not enabled there"),
    ],
)
def test_a_lenient_server_refuses_by_a_null_token_and_goes_on(
    request: pytest.FixtureRequest, name: str, users: list[tuple[str, str]], says: str
) -> None:
    """And so does one that has no SASL."""
    for user, password in users:
        with session(request.getfixturevalue(name).server.port) as wire:
            with pytest.raises(AuthFailedError, match=says):
                wire.log_in(user, password)
            assert wire.who_am_i() == {IP}
            assert wire.call(101, EXISTS, ROOT).error == 0


@pytest.mark.since("3.7")
def test_a_lenient_server_takes_a_good_password(sasl_zookeeper_lenient: SecureServer) -> None:
    with session(sasl_zookeeper_lenient.server.port) as wire:
        wire.log_in(*BOB)
        assert wire.who_am_i() == {("sasl", "bob"), IP}


BEFORE_LOGIN = {
    "exists": (1, EXISTS, ROOT),
    "ping": (-2, PING, b""),
    "set watches": (-8, SET_WATCHES, struct.pack(">qiii", 0, 0, 0, 0)),
    "close": (1, CLOSE, b""),
}


def test_a_server_that_requires_sasl_refuses_all_else_before_the_login(
    sasl_zookeeper: SecureServer,
) -> None:
    for xid, operation, body in BEFORE_LOGIN.values():
        with session(sasl_zookeeper.server.port) as wire:
            assert wire.call(xid, operation, body) == Reply(xid, REQUIRES_SASL, b"")
            assert wire.rest() == b""
            assert wire.ending == "EOF"
    with session(sasl_zookeeper.server.port) as wire:  # but it takes other credentials
        packet = struct.pack(">i", 0) + buffer(b"digest") + buffer(b"user:word")
        assert wire.call(-4, AUTH, packet) == Reply(-4, 0, b"")
        wire.log_in(*BOB)
        assert {scheme for scheme, _ in wire.who_am_i()} == {"digest", "sasl", "ip"}


def test_one_connection_logs_in_once(sasl_zookeeper: SecureServer) -> None:
    with session(sasl_zookeeper.server.port) as wire:
        wire.log_in(*BOB)
        assert wire.call(3, SASL, buffer(b"")) == Reply(3, REQUIRES_SASL, NULL)
        assert wire.rest() == b""


def test_a_session_outlives_the_refusal_of_its_login(sasl_zookeeper: SecureServer) -> None:
    with session(sasl_zookeeper.server.port) as wire:
        wire.log_in("bob", "wrong")
        wire.rest()
    with Wire(sasl_zookeeper.server.port) as again:
        again.begin_session(wire.session_id, wire.session_password)
        assert again.session_id == wire.session_id
        again.log_in(*BOB)
        assert again.call(3, EXISTS, ROOT).error == 0


# --- TLS ------------------------------------------------------------------------------------------


@pytest.mark.since("3.7")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("host", ["localhost", LOOPBACK])
def test_tls(tls_zookeeper: SecureServer, version: ssl.TLSVersion, host: str) -> None:
    context = only(tls_zookeeper.client_context(), version)
    with Wire(tls_zookeeper.secure_port, context, host) as wire:
        wire.begin_session()
        assert wire.who_am_i() == {IP}


def test_much_through_tls(tls_zookeeper: SecureServer, fresh_path: str) -> None:
    data = bytes(range(256)) * 4000
    everyone = struct.pack(">ii", 1, 31) + buffer(b"world") + buffer(b"anyone")
    ephemeral = struct.pack(">i", 1)
    path = buffer(fresh_path.encode())
    with session(tls_zookeeper.secure_port, tls_zookeeper.client_context()) as wire:
        assert wire.call(1, CREATE, path + buffer(data) + everyone + ephemeral).error == 0
        assert wire.call(2, GET_DATA, path + b"\0").body[4 : 4 + len(data)] == data


@pytest.mark.since("3.7")
@pytest.mark.parametrize("user", USERS)
def test_sasl_inside_tls(tls_zookeeper: SecureServer, user: str) -> None:
    with session(tls_zookeeper.secure_port, tls_zookeeper.client_context()) as wire:
        wire.log_in(user, USERS[user])
        assert wire.who_am_i() == {("sasl", user), IP}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_a_session_may_lack_close_notify(
    tls_zookeeper: SecureServer, version: ssl.TLSVersion
) -> None:
    context = only(tls_zookeeper.client_context(), version)
    with session(tls_zookeeper.secure_port, context) as wire:
        assert wire.call(1, CLOSE) == Reply(1, 0, b"")
        assert wire.rest() == b""
        assert wire.ending in TLS_ENDS


def test_a_refused_frame_ends_the_connection(tls_zookeeper: SecureServer) -> None:
    with Wire(tls_zookeeper.secure_port, tls_zookeeper.client_context()) as wire:
        wire.send(b"\x7f\xff\xff\xff")
        assert wire.rest() == b""
        assert wire.ending in TLS_ENDS


def refusal(server: SecureServer, context: ssl.SSLContext, host: str = "localhost") -> str:
    """How a handshake fails."""
    with pytest.raises(ssl.SSLError) as caught, Wire(server.secure_port, context, host):
        pass
    return describe(caught.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_that_has_expired(
    tls_zookeeper_expired: SecureServer, version: ssl.TLSVersion
) -> None:
    context = only(tls_zookeeper_expired.client_context(), version)
    assert refusal(tls_zookeeper_expired, context) == "TLS: certificate has expired"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("host", ["localhost", LOOPBACK])
def test_a_certificate_for_another_host(
    tls_zookeeper_elsewhere: SecureServer, version: ssl.TLSVersion, host: str
) -> None:
    context = only(tls_zookeeper_elsewhere.client_context(), version)
    words = refusal(tls_zookeeper_elsewhere, context, host)
    assert words == f"TLS: the certificate is not for host '{host}'"


def test_a_certificate_of_a_stranger(tls_zookeeper: SecureServer, tmp_path: Path) -> None:
    context = Authority(tmp_path, "stranger").client_context()
    assert refusal(tls_zookeeper, context) == (
        "TLS: the certificate is not trusted: unable to get local issuer certificate"
    )


@pytest.mark.since("3.7")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_certificate_is_an_identity(
    tls_zookeeper_for_certified: SecureServer, version: ssl.TLSVersion
) -> None:
    server = tls_zookeeper_for_certified
    with session(server.secure_port, only(server.client_context("client"), version)) as wire:
        assert wire.who_am_i() == {("x509", "CN=client"), IP}


def test_a_missing_client_certificate(tls_zookeeper_for_certified: SecureServer) -> None:
    """In TLS 1.3 it is told after the handshake."""
    server = tls_zookeeper_for_certified
    context = only(server.client_context(), ssl.TLSVersion.TLSv1_2)
    assert re.fullmatch(WANTS_CERTIFICATE, refusal(server, context))
    context = only(server.client_context(), ssl.TLSVersion.TLSv1_3)
    for request in (b"", buffer(NEW_SESSION)):
        with Wire(server.secure_port, context) as wire:
            wire.send(request)
            assert wire.rest() == b""
            assert re.fullmatch(WANTS_CERTIFICATE, wire.ending)


def test_a_client_certificate_of_a_stranger(
    tls_zookeeper_for_certified: SecureServer, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    context = stranger.client_context(stranger.sign("client"))
    context.load_verify_locations(authority.file)
    expected = "TLS: the server does not accept the client certificate: certificate unknown"
    with Wire(tls_zookeeper_for_certified.secure_port, context) as wire:
        assert wire.rest() == b""
        assert wire.ending == expected
    context = only(context, ssl.TLSVersion.TLSv1_2)
    assert refusal(tls_zookeeper_for_certified, context) == expected


# --- the wrong port -------------------------------------------------------------------------------


def test_the_wrong_port_answers_nothing(
    tls_zookeeper: SecureServer, sasl_zookeeper: SecureServer, authority: Authority
) -> None:
    """Plain text to the port for TLS, and TLS to the plain port of Netty and to the ordinary one.

    The last takes the first four bytes for a length, and closes with the rest unread: a FIN and a
    reset are then on their way, and either may be seen.
    """
    with Wire(tls_zookeeper.secure_port) as wire:
        wire.send(buffer(NEW_SESSION))
        assert wire.rest() == b""
        assert wire.ending == "EOF"
    with pytest.raises(ConnectionError, match="EOF in the handshake"):
        Wire(tls_zookeeper.server.port, tls_zookeeper.client_context())
    with pytest.raises(ConnectionError, match=r"(EOF|reset) in the handshake"):
        Wire(sasl_zookeeper.server.port, authority.client_context())
