"""The embedded server with TLS: clients of both kinds, certificates of theirs, and what is no TLS.

What real servers do there is in `tests/real/test_secure_servers.py`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_secure_servers import IP, NEW_SESSION, VERSIONS, Wire, buffer, only, session
from tests.shell.test_secure_client import failure
from tests.support.certificates import OPENSSL_SECONDS, Authority, Certificate
from tests.support.secure_servers import BOTH_NAMES, WANTS_CERTIFICATE
from tests.testbed.test_server import persist
from zkwire import (
    ACL,
    AsyncClient,
    AsyncSequentialLock,
    Client,
    EventType,
    Id,
    InvalidACLError,
    NoAuthError,
    Perms,
    SequentialLock,
    Watch,
)
from zkwire.session.outcomes import UNGREETED
from zkwire.testing import Ensemble, Server
from zkwire.testing.server.loop import VirtualClock
from zkwire.testing.server.tls import make_context

ROOT = Path(__file__).resolve().parents[2]
LONG = 20.0
DATA = bytes(range(256)) * 3500

each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Certificate:
    return authority.sign("embedded", hosts=BOTH_NAMES)


def context_for(shown: Certificate, clients: Authority | None, *, optional: bool) -> ssl.SSLContext:
    return make_context(
        str(shown.both), None, str(clients.file) if clients else None, optional=optional
    )


@contextmanager
def serving(
    shown: Certificate, clients: Authority | None = None, *, optional: bool = False, **more: Any
) -> Iterator[Server]:
    with Server(tls=context_for(shown, clients, optional=optional), **more) as server:
        yield server


def certified(authority: Authority, name: str = "client") -> ssl.SSLContext:
    return authority.client_context(authority.sign(name))


# --- its everyday work ----------------------------------------------------------------------------


@each_version
def test_a_client(authority: Authority, shown: Certificate, version: ssl.TLSVersion) -> None:
    context = only(authority.client_context(), version)
    with (
        serving(shown) as server,
        Client(f"localhost:{server.port}", tls=context, session_timeout=LONG) as client,
    ):
        client.create("/a", DATA)
        replies = [client.pipeline.get_data("/a") for _ in range(8)]
        assert all(reply.result().data == DATA for reply in replies)
        watch = Watch()
        client.exists("/b", watch=watch)
        session_id = client.session_id
        server.cut_all()
        with Client(server.hosts, tls=context) as other:
            other.create("/b")
        told = watch.wait(LONG)
        assert told is not None
        assert told.type is EventType.NODE_CREATED
        with SequentialLock(client, "/lock"):
            server.stop()
            server.start()
        assert client.session_id == session_id


@each_version
async def test_an_asyncio_client(
    authority: Authority, shown: Certificate, version: ssl.TLSVersion
) -> None:
    context = only(authority.client_context(), version)
    with serving(shown) as server:
        async with AsyncClient(server.hosts, tls=context, session_timeout=LONG) as client:
            await client.create("/a", DATA)
            answers = await asyncio.gather(*(client.get_data("/a") for _ in range(8)))
            assert all(answer.data == DATA for answer in answers)
            server.cut_all()
            async with AsyncSequentialLock(client, "/lock") as lock:
                assert lock.fence is not None


def test_an_ensemble(authority: Authority, shown: Certificate) -> None:
    context = authority.client_context()
    with (
        Ensemble(2, tls=context_for(shown, None, optional=False)) as ensemble,
        Client(ensemble.hosts, tls=context, session_timeout=LONG) as client,
    ):
        client.create("/a", ephemeral=True)
        here = ensemble.server_for_session(client.session_id)
        assert here is not None
        here.stop()
        assert persist(lambda: client.exists("/a")) is not None


def test_the_openssl_command(authority: Authority, shown: Certificate) -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None  # it has made the certificates
    with serving(shown) as server:
        done = subprocess.run(
            [openssl, "s_client", "-quiet", "-verify_return_error", "-CAfile", authority.file,
             "-connect", server.hosts],
            input=b"srvr", capture_output=True, timeout=OPENSSL_SECONDS, check=False,
        )  # fmt: skip
    assert b"Mode: standalone\n" in done.stdout
    assert done.returncode == 0  # which needs a close_notify


# --- certificates of clients ----------------------------------------------------------------------


@each_version
@pytest.mark.parametrize("optional", [True, False])
def test_a_clients_certificate_is_an_identity(
    authority: Authority, shown: Certificate, version: ssl.TLSVersion, optional: bool
) -> None:
    context = only(certified(authority), version)
    mine = [ACL(Perms.ALL, Id("x509", "CN=client"))]
    with serving(shown, authority, optional=optional) as server:
        with session(server.port, context) as wire:
            assert wire.who_am_i() == {("x509", "CN=client"), IP}
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


def test_certificates_that_are_not_asked_for(authority: Authority, shown: Certificate) -> None:
    with serving(shown) as server, session(server.port, certified(authority)) as wire:
        assert wire.who_am_i() == {IP}
    with (
        serving(shown, authority, optional=True) as server,
        session(server.port, authority.client_context()) as wire,
    ):
        assert wire.who_am_i() == {IP}
    with Server() as plain, Client(plain.hosts) as client, pytest.raises(InvalidACLError):
        client.create("/x", acl=[ACL(Perms.ALL, Id("x509", "CN=client"))])


@each_version
def test_a_client_that_has_none(
    authority: Authority, shown: Certificate, version: ssl.TLSVersion
) -> None:
    context = only(authority.client_context(), version)
    with serving(shown, authority) as server:
        assert re.search(WANTS_CERTIFICATE, failure(server.hosts, context))


@pytest.mark.parametrize("request_", [b"", buffer(NEW_SESSION) * 1000], ids=["silent", "request"])
def test_the_refusal_arrives_whatever_has_been_sent(
    authority: Authority, shown: Certificate, request_: bytes
) -> None:
    context = only(authority.client_context(), ssl.TLSVersion.TLSv1_3)
    with serving(shown, authority) as server, Wire(server.port, context) as wire:
        wire.send(request_)
        assert wire.rest() == b""
        assert re.fullmatch(WANTS_CERTIFICATE, wire.ending)


@pytest.mark.parametrize("optional", [True, False])
def test_the_certificate_of_a_stranger(
    authority: Authority, shown: Certificate, tmp_path: Path, optional: bool
) -> None:
    stranger = Authority(tmp_path, "stranger")
    context = certified(stranger)
    context.load_verify_locations(authority.file)
    with serving(shown, authority, optional=optional) as server:
        words = failure(server.hosts, context)
    assert "TLS: the server does not accept the client certificate: unknown ca" in words


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
    with (
        Server(tls=make_context(str(shown.both), None, f"{file}2", optional=False)) as server,
        session(server.port, context) as wire,
    ):
        assert wire.who_am_i() == {("x509", written), IP}


# --- what is no TLS -------------------------------------------------------------------------------


def test_plain_text_is_answered_by_nothing(authority: Authority, shown: Certificate) -> None:
    with serving(shown) as server:
        for garbage in (buffer(NEW_SESSION), b"srvr\n", b"GET / HTTP/1.1\r\n\r\n", bytes(70_000)):
            with Wire(server.port) as wire:
                wire.send(garbage)
                assert wire.rest() == b""
        with Client(server.hosts, tls=authority.client_context()) as client:
            client.create("/lives")
        assert failure(server.hosts, None) == "the server closed it" + UNGREETED
    with Server() as server:
        assert "TLS" in failure(server.hosts, authority.client_context())


def test_garbage_behind_the_first_request(authority: Authority, shown: Certificate) -> None:
    """The server goes on, whichever of it comes along with what."""
    with serving(shown, authority, optional=True) as server:
        context = only(authority.client_context(), ssl.TLSVersion.TLSv1_2)
        with Wire(server.port, context) as wire:
            assert wire.tls is not None
            request = wire.tls.encrypt(buffer(NEW_SESSION))
            wire._socket.sendall(request + bytes(50))
            wire.rest()
        with Client(server.hosts, tls=authority.client_context()) as client:
            client.create("/lives")


def test_silence_ends(authority: Authority, shown: Certificate) -> None:
    clock = VirtualClock()
    with (
        serving(shown, now=clock) as server,
        socket.create_connection(("127.0.0.1", server.port)) as silent,
        Wire(server.port, authority.client_context()) as wire,
    ):  # whose handshake is done, so that the other has been accepted, too
        clock.advance(30.0)
        assert wire.rest() == b""
        silent.settimeout(OPENSSL_SECONDS)
        assert silent.recv(1) == b""


def test_an_end_in_the_middle_of_a_handshake(authority: Authority, shown: Certificate) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    with serving(shown) as server:
        for end in range(1, len(hello), 40):
            with socket.create_connection(("127.0.0.1", server.port)) as half:
                half.sendall(hello[:end])
        with Client(server.hosts, tls=authority.client_context()) as client:
            client.create("/lives")


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
            with session(int(found[1].rpartition(":")[2]), context) as wire:
                assert wire.who_am_i() == {IP, *[("x509", "CN=client")] * (auth == "need")}
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
