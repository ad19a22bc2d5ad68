"""The embedded server with TLS: certificates of clients, what is no TLS, and the command for it.

Everyday work over it is in `tests/shell/test_secure_client.py`.
"""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.shell.test_secure_client import each_version, failure, only
from tests.support.certificates import OPENSSL_SECONDS, Authority, Certificate
from tests.support.secure_servers import BOTH_NAMES, WANTS_CERTIFICATE
from zkwire import ACL, Client, Id, InvalidACLError, NoAuthError, Perms
from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest
from zkwire.net.tls import describe
from zkwire.testing import Server
from zkwire.testing.server.loop import VirtualClock
from zkwire.testing.server.tls import make_context

ROOT = Path(__file__).resolve().parents[2]
GREETING = frame(ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode())
IP = ("ip", "127.0.0.1")


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Certificate:
    return authority.sign("embedded", hosts=BOTH_NAMES)


def serving(
    shown: Certificate, clients: Authority | None = None, *, optional: bool = False, **more: Any
) -> Server:
    file = str(clients.file) if clients else None
    return Server(tls=make_context(str(shown.both), None, file, optional=optional), **more)


def certified(authority: Authority, name: str = "client") -> ssl.SSLContext:
    return authority.client_context(authority.sign(name))


def names(hosts: str, context: ssl.SSLContext) -> set[tuple[str, str]]:
    """Who a client is to the server."""
    with Client(hosts, tls=context) as client:
        return {(who.auth_scheme, who.user) for who in client.who_am_i()}


def plain(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), OPENSSL_SECONDS)


def secured(server: Server, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(plain(server), server_hostname="localhost")


def lives(server: Server, context: ssl.SSLContext) -> None:
    with Client(server.hosts, tls=context) as client:
        assert client.exists("/") is not None


# --- certificates of clients ----------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("optional", [True, False])
def test_a_clients_certificate_is_an_identity(
    authority: Authority, shown: Certificate, version: ssl.TLSVersion, optional: bool
) -> None:
    context = only(certified(authority), version)
    mine = [ACL(Perms.ALL, Id("x509", "CN=client"))]
    with serving(shown, authority, optional=optional) as server:
        assert names(server.hosts, context) == {("x509", "CN=client"), IP}
        with (
            Client(server.hosts, tls=context) as client,
            Client(server.hosts, tls=certified(authority, "stranger")) as stranger,
        ):
            client.create("/mine", acl=mine)
            client.create("/auth", acl=[ACL(Perms.ALL, Id("auth", ""))])
            assert client.get_acl("/auth").acl == mine
            with pytest.raises(NoAuthError):
                stranger.set_data("/mine", b"")
            with pytest.raises(InvalidACLError):
                client.create("/x", acl=[ACL(Perms.ALL, Id("x509", "nobody"))])


def test_a_client_that_has_none_is_told(authority: Authority, shown: Certificate) -> None:
    """In TLS 1.3 behind its handshake, whatever it has sent by then."""
    context = authority.client_context()
    with serving(shown, authority) as server:
        assert re.search(WANTS_CERTIFICATE, failure(server.hosts, context))
        for request in (b"", GREETING * 300):  # one record
            with secured(server, context) as wire:
                wire.send(request)
                with pytest.raises(ssl.SSLError) as caught:
                    wire.recv(1)
            assert re.fullmatch(WANTS_CERTIFICATE, describe(caught.value))
        only(context, ssl.TLSVersion.TLSv1_2)
        assert re.search(WANTS_CERTIFICATE, failure(server.hosts, context))


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (r"/C=DE/O=A, B \+ \"C\"/OU=<b>;\\c/CN=x", r"CN=x,OU=\<b\>\;\\c,O=A\, B \+ \"C\",C=DE"),
        ("/DC=org/DC=example/UID=7+CN=two names", "UID=7+CN=two names,DC=example,DC=org"),
        ("/CN= #both=ends ", r"CN=\ \#both\=ends\ "),
        ("/emailAddress=a@b/CN=Ä", "CN=Ä,1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_how_a_subject_is_written(
    authority: Authority, shown: Certificate, tmp_path: Path, given: str, written: str
) -> None:
    """As the JDK's X500Principal.getName() does."""
    file = str(tmp_path / "both.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-utf8", "-multivalue-rdn", "-subj", given, "-keyout", file, "-out", f"{file}2"],
        check=True, capture_output=True, timeout=OPENSSL_SECONDS,
    )  # fmt: skip
    context = authority.client_context()
    context.load_cert_chain(f"{file}2", file)
    with Server(tls=make_context(str(shown.both), None, f"{file}2", optional=False)) as server:
        assert names(server.hosts, context) == {("x509", written), IP}


# --- what is no TLS -------------------------------------------------------------------------------


def test_garbage_behind_the_first_request(authority: Authority, shown: Certificate) -> None:
    """In one piece with it; the server goes on."""
    with serving(shown, authority, optional=True) as server:
        context = only(authority.client_context(), ssl.TLSVersion.TLSv1_2)
        with secured(server, context) as wire:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, True)
            wire.send(GREETING)
            raw = socket.socket(fileno=wire.detach())
            raw.settimeout(OPENSSL_SECONDS)
        with raw, suppress(ConnectionResetError):
            raw.sendall(bytes(50))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, False)
            while raw.recv(65536):
                pass
        lives(server, authority.client_context())


def test_silence_ends(authority: Authority, shown: Certificate) -> None:
    clock = VirtualClock()
    with (
        serving(shown, now=clock) as server,
        plain(server) as silent,
        secured(server, authority.client_context()) as wire,
    ):  # whose handshake is done, so that the other has been accepted, too
        clock.advance(30.0)
        assert wire.recv(1) == silent.recv(1) == b""


def test_a_context_that_cannot_serve(authority: Authority) -> None:
    with pytest.raises(ValueError, match="for clients"):
        Server(tls=authority.client_context())
    wrong: Any = "cert.pem"
    with pytest.raises(TypeError, match=r"ssl\.SSLContext, not str"):
        Server(tls=wrong)


# --- the command ----------------------------------------------------------------------------------


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "zkwire", "server", "--listen", "127.0.0.1:0", *more]


@pytest.mark.parametrize("auth", ["need", "want"])
def test_the_command(authority: Authority, shown: Certificate, auth: str) -> None:
    files = ("--certificate", str(shown.certificate), "--key", str(shown.key))
    clients = ("--client-ca", str(authority.file), "--client-auth", auth)
    context = certified(authority) if auth == "need" else authority.client_context()
    with subprocess.Popen(
        command(*files, *clients), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r" listens at ([0-9.:]+) \(TLS\),", process.stdout.readline())
            assert found is not None
            assert names(found[1], context) == {IP, *[("x509", "CN=client")] * (auth == "need")}
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(OPENSSL_SECONDS) == 0


def test_files_that_the_command_cannot_use(authority: Authority, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for arguments, status, words in (
        (("--client-ca", str(authority.file)), 2, "need --certificate"),
        (("--certificate", "/no/such.pem"), 1, "cannot use /no/such.pem: No such file"),
        (("--certificate", str(garbage)), 1, f"cannot use {garbage}: "),
    ):
        done = subprocess.run(
            command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == status
        assert words in done.stderr
        assert "Traceback" not in done.stderr
