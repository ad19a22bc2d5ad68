"""doctor: every server of the list is asked, each is described, and nothing hangs."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.certificates import EXPIRED, Authority, Certificate
from tests.support.fake_server import Connection, FakeServer
from zkwire import Client
from zkwire.cli.main import main
from zkwire.cli.output import Output
from zkwire.cli.servers.asking import NOT_ALLOWED, Srvr
from zkwire.cli.servers.doctor import Checkup, _show
from zkwire.testing import Ensemble, Server

ROW = r"{}  {}\s+3\.8\.0    \d+\.\d ms\s+10 s     {}"


@pytest.fixture(autouse=True)
def narrow(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    out, err = capsys.readouterr()
    assert (max(map(len, out.splitlines()), default=0) <= 80, err) == (True, "")


def examined(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    status = main(["--json", *words, "doctor"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_an_ensemble_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    with Ensemble() as ensemble:
        assert main(["--server", ensemble.hosts, "doctor"]) == 0
        assert not ensemble.sessions
    lines = capsys.readouterr().out.splitlines()
    assert lines[0:6:2] == ensemble.hosts.split(",")
    assert [line.split()[0] for line in lines[1:6:2]] == ["leader,", "follower,", "follower,"]
    assert lines[6:] == ["3 of 3 servers can be used"]


def test_what_a_server_that_is_well_shows_to_a_script(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    status, (found,) = examined(capsys, "--server", server.hosts)
    assert (status, found["usable"], found["problem"], found["hints"]) == (0, True, None, [])
    assert all(found[time] > 0.0 for time in ("connect_ms", "ping_ms", "session_timeout"))


@contextmanager
def saying(text: bytes) -> Iterator[str]:
    """A server that says this, whatever it is sent, and ends the connection."""

    def script(connection: Connection) -> None:
        connection.receive()
        connection.send(text)

    with FakeServer(script) as server:
        yield server.hosts


def test_each_thing_that_may_be_wrong(
    server: Server, capsys: pytest.CaptureFixture[str], shown: Certificate
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown.both)
    with ExitStack() as stack:
        closed, silent = (stack.enter_context(socket.socket()) for _ in range(2))
        for sock in (closed, silent):
            sock.bind(("127.0.0.1", 0))
        silent.listen()
        read_only = stack.enter_context(Server(read_only=True))
        servers = {
            "no.such.name.invalid:2181": ("resolve the name", "does the name exist"),
            f"127.0.0.1:{closed.getsockname()[1]}": ("Connection refused", "does the server run"),
            f"127.0.0.1:{silent.getsockname()[1]}": ("no answer to the greeting", "says nothing"),
            read_only.hosts: ("read-only", "perhaps it has no quorum"),
            stack.enter_context(Server(tls=tls)).hosts: ("before it greeted", "try --tls"),
            stack.enter_context(saying(b"HTTP/1.1 400 No\r\n")): ("", "HTTP is spoken"),
            stack.enter_context(saying(b"220 mail\r\n")): ("", "no ZooKeeper server"),
            stack.enter_context(saying(f"srvr {NOT_ALLOWED}.\n".encode())): ("", ""),
            stack.enter_context(
                saying(b"This ZooKeeper instance is not currently serving requests\n")
            ): ("", "perhaps it has no quorum"),
            server.hosts: (None, None),
        }
        words = ["--server", ",".join(servers), "--connect-timeout", "1500ms"]
        status, found = examined(capsys, *words)
        assert status == 1
        for checkup, (problem, hint) in zip(found, servers.values(), strict=True):
            assert checkup["usable"] is (problem is None), checkup
            assert (problem or "") in (checkup["problem"] or ""), checkup
            assert (hint or "") in "".join(checkup["hints"]), checkup
            assert bool(hint) is bool(checkup["hints"]), checkup
            assert "read_only=True" not in (checkup["problem"] or "")
        some = [name for name in servers if "127.0.0.1" in name and name != [*servers][2]]
        assert main(["--server", ",".join(some), *words[2:], "doctor"]) == 1
        out = capsys.readouterr().out
        assert out.endswith("1 of 8 servers can be used\n")
        assert out.count("hint: perhaps it has no quorum") == 1
        assert max(map(len, out.splitlines())) <= 80
        assert main(["--server", read_only.hosts, "--read-only", "doctor"]) == 0


def test_a_chroot_that_is_missing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    status, (checkup,) = examined(capsys, "--server", f"{server.hosts}/x/y")
    assert (status, checkup["problem"]) == (1, "the chroot /x/y does not exist")
    assert checkup["hints"][0].endswith("zkwire --server HOST create -p /x/y")
    with Client(server.hosts) as client:
        client.ensure_path("/x/y")
    assert examined(capsys, "--server", f"{server.hosts}/x/y")[0] == 0


def test_certificates(
    authority: Authority, shown: Certificate, capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    def serving(certificate: Certificate, *, asks: bool = False) -> Server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.both)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.file)
        return Server(tls=context)

    elsewhere = authority.sign("elsewhere", hosts=("DNS:elsewhere.example",))
    expired = authority.sign("over", hosts=("IP:127.0.0.1",), period=EXPIRED)
    cases = (
        (serving(elsewhere), "is not for host", "name the server"),
        (serving(expired), "expired", "clock of this machine"),
        (serving(shown, asks=True), "client certificate", "--cert FILE"),
        (server, "TLS", "without TLS"),
        (serving(shown), "", ""),
    )
    with ExitStack() as stack:
        hosts = ",".join(stack.enter_context(case[0]).hosts for case in cases[:3])
        hosts = ",".join([hosts, server.hosts, stack.enter_context(cases[4][0]).hosts])
        status, found = examined(capsys, "--server", hosts, "--cafile", str(authority.file))
        assert [checkup["usable"] for checkup in found] == [False] * 4 + [True]
        for checkup, (_, problem, hint) in zip(found, cases, strict=True):
            assert problem in (checkup["problem"] or ""), checkup
            assert hint in "".join(checkup["hints"]), checkup
        status, (stranger,) = examined(capsys, "--server", cases[4][0].hosts, "--tls")
        assert (status, stranger["hints"][0].startswith("--cafile FILE")) == (1, True)


def test_one_address_of_a_name_is_enough(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        both = [
            (socket.AF_INET, closed.getsockname()),
            (socket.AF_INET, ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr("zkwire.cli.servers.asking.resolve", lambda *_: both)
        assert main(["--server", "zk.example", "doctor"]) == 0
    out = capsys.readouterr().out
    assert f"zk.example:2181 (127.0.0.1:{server.port})\n    standalone, " in out
    assert out.endswith("1 of 1 servers can be used\n")


def test_a_resolver_that_hangs(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hanging(host: str, port: int) -> list[Any]:
        if host == "zk.example":
            released.wait(60)
        return [(socket.AF_INET, (host, port))]

    monkeypatch.setattr("zkwire.cli.servers.asking.resolve", hanging)
    words = ["--server", f"{server.hosts},zk.example", "--connect-timeout", "1"]
    status, found = examined(capsys, *words)
    released.set()
    assert (status, found[1]["problem"]) == (1, "cannot resolve the name in time")


def test_long_addresses_stay_within_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    checkup = Checkup(
        "zookeeper-1.example.com:2181", "[2001:db8:1234:5678:9abc:def0:1234:5678]:2181"
    )
    checkup.mode, checkup.version, checkup.nodes = "standalone", "3.10.0", 12_345_678
    checkup.ping, checkup.session_timeout = 0.1234, 40.0
    _show(Output(), [checkup, Checkup("x:1", None, "a b " * 40)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "zookeeper-1.example.com:2181 ([2001:db8:1234:5678:9abc:def0:1234:5678]:2181)",
        "    standalone, 3.10.0, ping 123.4 ms, session 40 s, 12,345,678 nodes",
    ]
    assert max(map(len, lines)) <= 80


def test_what_srvr_tells() -> None:
    told = Srvr(
        "Zookeeper version: 3.4.14-4c25d480, built on 2019\nMode: standalone\nNode count: 4\n"
    )
    assert (told.version, told.mode, told.nodes, told.latency) == ("3.4.14", "standalone", 4, None)
    assert Srvr("").version is None
