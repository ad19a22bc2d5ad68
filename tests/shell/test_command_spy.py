"""``zkwire spy``: bytes pass as they are, faults do what they say, secrets stay unseen."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from kazoo.client import KazooClient

from tests.support.command import ROOT, ZKWIRE, ended, process, recording, run
from tests.support.installed_servers import DEBIAN_JARS, find_installed
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import Client, OperationTimeoutError, OutcomeUnknownError, SessionExpiredError, State
from zkwire.cli.main import main
from zkwire.cli.spy.records import Privacy, Recorder
from zkwire.cli.spy.tap import Faults, Tap
from zkwire.testing import Server

PATIENCE = 60.0
SECRET = "geheim-4711"
# What a run says apart from its times, ids, ports, and which end is the first to close.
MEANING = ("n", "conn", "dir", "op", "path", "created", "flags", "error", "fault", "lost")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs import zkwire from here."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class Wiretap:
    """A relay that keeps what passes in both directions, and sends it on in segments of a size.

    It knows nothing of ZooKeeper, so it can say whether something else leaves a stream as it is.
    """

    def __init__(self, upstream: str, segment: int = 1 << 16) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._segment = segment
        self.sent: list[bytearray] = []
        self.received: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                self.sent.append(bytearray())
                self.received.append(bytearray())
                self._start(client, server, self.sent[-1])
                self._start(server, client, self.received[-1])

    def _start(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        thread = threading.Thread(target=self._copy, args=(source, target, kept))
        self._threads.append(thread)
        thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                for at in range(0, len(data), self._segment):
                    target.sendall(data[at : at + self._segment])
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def tapped(upstream: str, *faults: str) -> Iterator[Tap]:
    with closing(Tap([upstream], Faults(list(faults)), ("127.0.0.1", 0))) as tap:
        yield tap


def records_of(tap: Tap) -> list[dict[str, Any]]:
    recorder = Recorder(tap.start, Privacy())
    return [recorder.record(tap.events.get()) for _ in range(tap.events.qsize())]


def use_kazoo(hosts: str) -> None:
    """Some of everything: small and large frames, watches, refusals, credentials, a multi."""
    client = KazooClient(hosts, auth_data=[("digest", f"user:{SECRET}")])
    client.start(PATIENCE)
    changed = threading.Event()
    client.create("/a", os.urandom(3000))
    client.get("/a", watch=lambda _: changed.set())
    client.set("/a", b"")
    assert changed.wait(PATIENCE)
    for number in range(20):
        client.create_async(f"/a/{number}", bytes(number))
    client.create("/a/n-", sequence=True, ephemeral=True)
    assert len(client.get_children("/a")) == 21
    assert client.exists("/missing") is None
    transaction = client.transaction()
    transaction.delete("/a/0")
    transaction.check("/a", 99)
    assert len(transaction.commit()) == 2
    client.stop()
    client.close()


@contextmanager
def between(hosts: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a spy that passes bytes on one by one, and in the end what it has put down."""
    found: list[dict[str, Any]] = []
    with (
        Wiretap(hosts) as behind,
        tapped(behind.hosts, "split:1") as tap,
        Wiretap(tap.hosts[0], segment=1) as before,
    ):
        yield before.hosts, found
        poll("the connections end", lambda: not tap.connections or None, PATIENCE)
        found += [record for record in records_of(tap) if "dir" in record]
    assert (before.sent, before.received) == (behind.sent, behind.received)
    assert [record for record in found if "problem" in record or record["op"] == "unknown"] == []
    assert SECRET not in json.dumps(found)
    # What was put down is all that has passed.
    for side, streams in (("c2s", before.sent), ("s2c", before.received)):
        passed = sum(record["bytes"] for record in found if record["dir"] == side)
        assert passed == sum(map(len, streams)) > 0


def test_bytes_pass_as_they_are(server: Server) -> None:
    """One byte at a time, both ways, between a client that is not ours and its server."""
    with between(server.hosts) as (hosts, found):
        use_kazoo(hosts)
    requests = {record["n"] for record in found if record["dir"] == "c2s"}
    replies = [record for record in found if record["dir"] == "s2c" and record["op"] != "watch"]
    assert {record["re"] for record in replies} == requests


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
def test_bytes_of_the_java_client_pass_as_they_are(zookeeper: ZooKeeperServer) -> None:
    installed = find_installed()
    script = "create /spied some-data\nget -s /spied\nls /\naddauth digest user:x\ndelete /spied\n"
    jars = f"{installed.classpath}:{DEBIAN_JARS}/commons-cli.jar"  # not among a server's jars
    command = [installed.java, "-cp", jars, "org.apache.zookeeper.ZooKeeperMain"]
    with between(zookeeper.hosts) as (hosts, found):
        done = subprocess.run(
            [*command, "-waitforconnection", "-server", hosts],
            input=script, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert "some-data" in done.stdout, done.stdout + done.stderr
    ops = {record["op"] for record in found}
    assert ops >= {"connect", "create", "get_data", "get_children2", "auth", "delete"}


def test_faults_do_what_they_say(server: Server) -> None:
    with tapped(server.hosts, "drop-reply:create", "cut-before:setData#2") as tap:
        with Client(tap.hosts[0]) as client, Client(server.hosts) as other:
            with pytest.raises(OperationTimeoutError):
                client.pipeline.create("/dropped").result(0.2)
            assert other.exists("/dropped")
        with Client(tap.hosts[0]) as client:
            client.set_data("/dropped", b"1")
            with pytest.raises(OutcomeUnknownError):
                client.set_data("/dropped", b"2")
            assert client.get_data("/dropped")[0] == b"1"
        faults = [record["fault"] for record in records_of(tap) if record["op"] == "fault"]
    assert faults == ["drop-reply:create", "cut-before:setData#2"]
    with tapped(server.hosts, "delay:100ms") as tap, Client(tap.hosts[0]) as client:
        before = time.monotonic()
        client.exists("/")
        assert time.monotonic() - before >= 0.1


def test_a_session_is_ended(server: Server) -> None:
    """At a request, and at a time: its ephemeral nodes are gone, and its client hears of it."""
    with tapped(server.hosts, "expire:sync", "expire@1h") as tap, Client(server.hosts) as other:
        for path in ("/by-request", "/by-time"):
            with Client(tap.hosts[0]) as client:
                client.create(path, ephemeral=True)
                if path == "/by-request":
                    with pytest.raises((SessionExpiredError, OutcomeUnknownError)):
                        client.sync("/")
                else:
                    tap.expire_all(Faults(["expire@1h"]).timed[0])
                assert client.wait_for_state(State.EXPIRED, timeout=PATIENCE)
            assert other.exists(path) is None
        refused = [r for r in records_of(tap) if r["op"] == "connect" and not r.get("granted", 1)]
    assert len(refused) == 2


def test_a_black_hole_ends(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    look = [*ZKWIRE, "--server", "{}", "ls", "/"]
    words = ["spy", "--op", "connect", "--fault", "blackhole:300ms", server.hosts]
    assert main([*words, "--", *look]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" ✕ ")[1] for line in shown if "fault" in line] == [
        "fault blackhole:300ms",
        "fault blackhole:300ms is over",
    ]


def test_it_ends_by_itself(server: Server, tmp_path: Path) -> None:
    """After a time, or behind so many records: the program ends with it, and all is written."""
    assert main(["spy", server.hosts, "--for", "10ms"]) == 0
    ask = "import socket, sys, time; a = sys.argv[1].split(':'); s = socket.create_connection(a)"
    program = [sys.executable, "-c", f"{ask}; s.send(b'ruok'); time.sleep(600)", "{}"]
    file = tmp_path / "run.jsonl"
    assert main(["spy", "-n", "2", "-o", str(file), server.hosts, "--", *program]) == 143
    assert [json.loads(line)["op"] for line in file.read_text().splitlines()] == ["open", "command"]


@pytest.mark.parametrize("form", ["text", "jsonl", "svg"])
def test_without_an_output_it_shows_nothing(
    form: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    look = [*ZKWIRE, "-s", "{}", "ls"]
    assert main(["spy", "-f", form, server.hosts, "--", *look]) == 0


@pytest.mark.parametrize(("words", "status"), [
    ("HOSTS -- FOLDER/missing", 127),
    ("HOSTS -- FOLDER", 126),
    ("-l HOSTS HOSTS -- true", 125),
    ("-l HOSTS HOSTS", 1),
    ("-o FOLDER/no/such/run.svg HOSTS -- true", 125),
])  # fmt: skip
def test_what_cannot_be_run_or_listened_on(
    server: Server, tmp_path: Path, words: str, status: int
) -> None:
    line = words.replace("HOSTS", server.hosts).replace("FOLDER", str(tmp_path))
    ran = run(server.hosts, "spy", *line.split())
    assert (ran.status, ran.out) == (status, b"")
    assert len([said for said in ran.err.splitlines() if said.startswith("zkwire: ")]) == 1


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_with_everything_written(
    number: signal.Signals, status: int, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "run.svg"
    words = ["spy", server.hosts, "-o", str(file)]
    with process(*words) as spy:
        assert spy.stderr is not None
        address = spy.stderr.readline().split()[2].rstrip(",")
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))), Client(address) as client:
            client.exists("/")
            spy.send_signal(number)
            shown, wrong = spy.communicate(timeout=PATIENCE)
    assert (spy.returncode, wrong) == (status, "")
    assert "c1 ✕ close by the spy" in shown
    assert "exists" in shown
    assert file.read_text().endswith("</svg>\n")


@pytest.mark.parametrize(("name", "status"), [("TERM", 9), ("INT", 8)])
def test_a_signal_is_for_the_program(name: str, status: int, server: Server) -> None:
    """SIGTERM is sent on; SIGINT the terminal has sent to the program as well."""
    script = f'trap "exit 9" {name}; kill -{name} $PPID; sleep 0.3; exit 8'
    done = ended("spy", "--quiet", server.hosts, "--", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_reader_of_the_text_that_has_ended_costs_no_drawing(
    server: Server, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    files = ["-o", str(tmp_path / "run.svg")]
    look = [*ZKWIRE, "-s", "{}", "ls"]
    with os.fdopen(writer):
        ran = ended("-q", "spy", *files, server.hosts, "--", *look, stdout=writer)
    assert ran.returncode == 141
    assert (tmp_path / "run.svg").read_text().endswith("</svg>\n")


def test_the_recording_in_the_docs_is_what_happens(server: Server, tmp_path: Path) -> None:
    """The page's program through the page's command: the same messages in the same order."""
    docs = ROOT / "docs"
    page = (docs / "command-watching.md").read_text()
    program = page.split("<!-- program: spy -->\n```python\n")[1].split("```")[0]
    (tmp_path / "lost.py").write_text(program)
    file = tmp_path / "run.jsonl"
    words = recording("spy")[0].removeprefix("$ zkwire ")
    for theirs, ours in {
        "127.0.0.1:2181": server.hosts,
        "python3": sys.executable,
        "lost.py": str(tmp_path / "lost.py"),
        " -- ": f" -o {file} -- ",
    }.items():
        words = words.replace(theirs, ours)
    with Client(server.hosts) as client:
        client.create("/jobs")
    assert main(words.split()) == 0
    runs = [
        [{key: r[key] for key in MEANING if key in r} for r in map(json.loads, lines.splitlines())]
        for lines in (file.read_text(), (docs / "spy.jsonl").read_text())
    ]
    assert runs[0] == runs[1]
