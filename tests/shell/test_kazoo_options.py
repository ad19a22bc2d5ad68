"""kazoo's client on zkwire: its options, and programs that are run with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kazoo import exceptions as ke
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import connection

from tests.shell.test_kazoo_engine import NOBODY, SECRET, eventually, started
from tests.support.certificates import Authority, Certificate
from zkwire.kazoo import KazooClient, engine
from zkwire.testing import FaultProxy, Server
from zkwire.testing.server.tls import make_context

ROOT = Path(__file__).resolve().parents[2]


def test_hosts_are_tried_in_their_order_and_changed(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy:
        hosts = f"{proxy.hosts},{server.hosts}"
        for _ in range(6):
            with started(hosts, randomize_hosts=False) as client:
                assert client.zkwire.server[1] != server.port
        with started(proxy.hosts) as client:
            client.set_hosts(server.hosts)
            session, there = client.client_id, ("127.0.0.1", server.port)
            assert client.zkwire.server != there
            proxy.close()
            eventually(lambda: client.connected and client.zkwire.server == there)
            assert client.client_id == session


def test_a_large_value_is_for_the_server_to_refuse(server: Server) -> None:
    with started(server.hosts, timeout=7200) as client:  # which may be more than an hour
        with pytest.raises(ke.ConnectionLoss):
            client.create("/large", b"x" * 2**21)
        eventually(lambda: client.connected)
        assert client.exists("/large") is None


def test_credentials_hold_in_each_session(server: Server) -> None:
    with started(server.hosts, auth_data=[("digest", "user:secret")]) as client:
        client.create("/secret", b"s", acl=[SECRET])
        server.expire(client.client_id[0])
        assert client.retry(client.get, "/secret")[0] == b"s"


def test_sasl_is_spoken_as_kazoo_names_it() -> None:
    options = {"mechanism": "DIGEST-MD5", "username": "bob", "password": "secret"}
    with Server(sasl_users={"bob": "secret"}) as server:
        with started(server.hosts, sasl_options=options) as client:
            assert ("sasl", "bob") in client.zkwire.who_am_i()
        stranger: Any = KazooClient(server.hosts, sasl_options={**options, "password": "wrong"})
        stranger.start_async()
        eventually(lambda: stranger.client_state == "AUTH_FAILED")
        with pytest.raises(ke.AuthFailedError):
            stranger.get("/")
        stranger.stop()


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
    monkeypatch.setattr(connection, "PURESASL_AVAILABLE", False)
    client: Any = KazooClient(NOBODY, sasl_options={"mechanism": "GSSAPI"})
    with pytest.raises(ke.SASLException):
        client.start()
    client.stop()


def test_tls_has_the_options_of_kazoo(authority: Authority, shown: Certificate) -> None:
    mine = authority.sign("client")
    context = make_context(str(shown.both), None, str(authority.file), optional=True)
    files = {"ca": str(authority.file), "certfile": str(mine.both), "keyfile": str(mine.both)}
    with Server(tls=context) as server:
        with started(server.hosts, use_ssl=True, **files) as client:
            assert any(who.auth_scheme == "x509" for who in client.zkwire.who_am_i())
        stranger: Any = KazooClient(server.hosts, use_ssl=True)
        with pytest.raises(KazooTimeoutError):
            stranger.start(0.5)
        options = {"use_ssl": True, "verify_certs": False}
        with started(server.hosts, **options) as client:
            assert client.exists("/") is not None
        with pytest.raises(ValueError, match="verify_certs must be True"):
            engine.tls_context(KazooClient(NOBODY, check_hostname=True, **options))


# --- programs that are not one's own --------------------------------------------------------------

PROGRAM = """
import sys
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1])
client.start()
client.create("/made", repr(sys.argv[2:]).encode())
print(__name__, client.get("/made")[0].decode(), client.zkwire.state.value)
client.stop()
"""
INSTALL = """
import sys
from kazoo.client import KazooClient
import kazoo.protocol.connection
before = KazooClient(sys.argv[1])
import zkwire.kazoo
zkwire.kazoo.install()
zkwire.kazoo.install()
class Mine(KazooClient): pass
for client in (before, Mine(sys.argv[1]), zkwire.kazoo.KazooClient(sys.argv[1])):
    client.start()
    client.ensure_path("/a")
    print(type(client._connection).__name__, client.get("/a")[0], client.last_zxid > 0)
    client.stop()
    client.close()
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    path = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=path, timeout=60
    )


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"], ["command"]])
def test_a_program_is_run_unchanged(
    server: Server, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = tmp_path / "command"
    command.write_text(f"#!{sys.executable}\n{PROGRAM}")
    command.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("-m", "zkwire.kazoo", *words, server.hosts, "-x", "y", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("__main__ ['-x', 'y'] connected\n", "")
    assert done.returncode == 0


@pytest.mark.parametrize("words", [[], ["-m"], ["--help"], ["no such program"]])
def test_without_a_program_the_usage_is_shown(tmp_path: Path, words: list[str]) -> None:
    done = run("-m", "zkwire.kazoo", *words, folder=tmp_path)
    assert done.returncode in (1, 2)
    assert ("python -m zkwire.kazoo PROGRAM" in done.stderr) or "no such program" in done.stderr


def test_install_is_for_clients_that_are_made_after_it(server: Server, tmp_path: Path) -> None:
    done = run("-c", INSTALL, server.hosts, folder=tmp_path)
    expected = "ConnectionHandler b'' True\nEngine b'' True\nEngine b'' True\n"
    assert (done.stdout, done.stderr) == (expected, "")
