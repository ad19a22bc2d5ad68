"""`zkwire spy` between clients and servers that speak TLS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.secure_servers import SecureServer
from zkwire.cli.main import main

pytestmark = pytest.mark.usefixtures("importable")

# A client of zkwire's, with TLS or without, and then one that speaks no TLS where it should.
CLIENT = """
import socket, ssl, sys
from zkwire import Client
hosts, *ca = sys.argv[1:]
with Client(hosts, tls=ssl.create_default_context(cafile=ca[0]) if ca else None) as client:
    client.create("/spied-through-tls", b"x" * 100_000)
    assert len(client.get_data("/spied-through-tls")[0]) == 100_000
    client.delete("/spied-through-tls")
if ca:
    host, port = hosts.split(":")
    with socket.create_connection((host, port)) as plain:
        plain.sendall(b"no TLS at all, and long enough for a record")
        while plain.recv(1000):
            pass
"""


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs import zkwire from here."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.parametrize("clients", ["clients too", "servers alone"])
def test_it_shows_what_passes_between_those_that_speak_tls(
    clients: str,
    tls_zookeeper_for_certified: SecureServer,
    authority: Authority,
    capfd: pytest.CaptureFixture[str],
) -> None:
    own = authority.sign("spy", hosts=("IP:127.0.0.1",))
    shown = authority.sign("a client of a server")
    words = ["spy", tls_zookeeper_for_certified.hosts, "--cafile", str(authority.file)]
    words += ["--cert", str(shown.certificate), "--key", str(shown.key), "--for", "60s"]
    program = [sys.executable, "-c", CLIENT, "{}"]
    if clients == "clients too":
        words += ["--tls-cert", str(own.certificate), "--tls-key", str(own.key)]
        program.append(str(authority.file))
    assert main([*words, "--", *program]) == 0
    out, err = capfd.readouterr()
    assert " create " in out
    assert out.count("/spied-through-tls") >= 4
    assert ("does not speak TLS" in err) == (clients == "clients too")
    assert "Traceback" not in err


def test_a_server_whose_certificate_is_not_trusted(
    tls_zookeeper: SecureServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its clients are cut off, and standard error says why."""
    ask = "import socket, sys; a = sys.argv[1].split(':'); s = socket.create_connection(a)"
    program = [sys.executable, "-c", f"{ask}; s.sendall(b'1234'); s.recv(1)", "{}"]
    assert main(["spy", tls_zookeeper.hosts, "--tls", "--", *program]) == 0
    assert "the certificate is not trusted" in capfd.readouterr().err


def test_words_and_files_that_do_not_fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong, before anything has begun."""
    missing = str(tmp_path / "missing.pem")
    assert main(["spy", "127.0.0.1:1", "--tls-key", missing]) == 2
    assert "--tls-cert" in capfd.readouterr().err
    assert main(["spy", "127.0.0.1:1", "--tls-cert", missing]) == 1
    assert f"cannot use {missing}" in capfd.readouterr().err
