"""doctor and who: every server of the list is asked, what it tells is shown, and nothing hangs."""

from __future__ import annotations

import json
import re
import shlex
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Certificate
from tests.support.command import Ran, plays, recording, run
from tests.support.fake_server import Connection, FakeServer
from tests.support.installed_servers import InstalledBackend
from tests.support.lock_helpers import PATIENCE
from tests.support.secure_servers import installed_backend
from tests.support.server_control import NoBackendError, Settings, ZooKeeperServer, free_port
from zkwire import Client
from zkwire.cli.output import hex_id
from zkwire.cli.servers import who
from zkwire.cli.servers.asking import NOT_ALLOWED
from zkwire.testing import Ensemble, Server

ANY = {
    r"127\.0\.0\.1:\d+": "HOST",
    r"0x[0-9a-f]+": "SESSION",
    r"\d+\.\d ms": "MILLISECONDS",
    r" {2,}": "  ",  # columns are as wide as what differs
}


def compare(name: str, hosts: str) -> None:
    """Run the commands of a recording; they must write what it shows, ports and such aside."""
    text, shown = "\n".join(recording(name)), []
    for line in text.splitlines():
        if line.startswith("$ cat "):
            shown += [line, *Path(line.removeprefix("$ cat ")).read_text().splitlines()]
        elif line.startswith("$ zkwire "):
            ran = run(hosts, *shlex.split(line)[2:])
            shown += [line, *ran.lines, *ran.err.splitlines()]
    said = "\n".join(shown)
    for pattern, word in ANY.items():
        text, said = (re.sub(pattern, word, each) for each in (text, said))
    assert said == text


def test_the_page_shows_what_happens(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Client(server.hosts) as client:
        client.create("/services")
        client.create("/services/web", b"limit=10")
        client.create("/services/web/key", b"\xff\0")
        client.create("/services/web/7", ephemeral=True)
        compare("copying", server.hosts)
    with Ensemble() as ensemble, Server() as fresh:
        ensemble.servers[2].stop()
        compare("doctor", ensemble.hosts)
        for name in ("nodes", "error"):
            compare(name, fresh.hosts)


# --- doctor ---------------------------------------------------------------------------------------


def examined(hosts: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    ran = run(hosts, "--json", *words, "doctor")
    return ran.status, [json.loads(line) for line in ran.lines]


def doctor(hosts: str, *words: str) -> Ran:
    ran = run(hosts, *words, "doctor")
    assert (max(map(len, ran.lines)) <= 80, ran.err) == (True, "")
    return ran


@contextmanager
def saying(text: str) -> Iterator[str]:
    """A server that says this, whatever it is sent, and ends the connection."""

    def script(connection: Connection) -> None:
        connection.receive()
        connection.send(text.encode())

    with FakeServer(script) as server:
        yield server.hosts


NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"


def test_each_thing_that_may_be_wrong(server: Server, shown: Certificate) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown.both)
    with ExitStack() as stack:
        enter = stack.enter_context
        closed, silent = (enter(socket.socket()) for _ in range(2))
        for sock in (closed, silent):
            sock.bind(("127.0.0.1", 0))
        silent.listen()
        read_only = enter(Server(read_only=True))
        silent_hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = {
            "no.such.name.invalid:2181": ("resolve the name", "does the name exist"),
            f"127.0.0.1:{closed.getsockname()[1]}": ("Connection refused", "does the server run"),
            silent_hosts: ("no answer to the greeting", "says nothing"),
            read_only.hosts: ("read-only", "perhaps it has no quorum"),
            enter(Server(tls=tls)).hosts: ("before it greeted", "try --tls"),
            enter(saying("HTTP/1.1 400 No\r\n")): ("", "speaks HTTP"),
            enter(saying("220 mail\r\n")): ("", "not a ZooKeeper server"),
            enter(saying(f"srvr {NOT_ALLOWED}.\n")): ("", ""),
            enter(saying(NOT_SERVING)): ("", "perhaps it has no quorum"),
            server.hosts: (None, None),
        }
        limit = "--connect-timeout", "1500ms"
        status, found = examined(",".join(servers), *limit)
        assert status == 1
        for checkup, (problem, hint) in zip(found, servers.values(), strict=True):
            assert checkup["usable"] is (problem is None), checkup
            assert (problem or "") in (checkup["problem"] or ""), checkup
            assert (hint or "") in "".join(checkup["hints"]), checkup
            assert bool(hint) is bool(checkup["hints"]), checkup
            assert "read_only=True" not in (checkup["problem"] or "")
        some = [name for name in servers if "127.0.0.1" in name and name != silent_hosts]
        ran = doctor(",".join(some), *limit)
        assert (ran.status, ran.lines[-1]) == (1, "1 of 8 servers can be used")
        assert ran.out.count(b"hint: perhaps it has no quorum") == 1
        assert doctor(read_only.hosts, "--read-only").status == 0


def test_a_chroot_that_is_missing(server: Server) -> None:
    status, (checkup,) = examined(f"{server.hosts}/x/y")
    assert (status, checkup["problem"]) == (1, "the chroot /x/y does not exist")
    assert checkup["hints"][0].endswith("zkwire --server HOST create -p /x/y")
    with Client(server.hosts) as client:
        client.ensure_path("/x/y")
    assert examined(f"{server.hosts}/x/y")[0] == 0


# --- who ------------------------------------------------------------------------------------------

# Recorded: what ZooKeeper 3.8.0 has answered.
CONS = """\
 /127.0.0.1:32998[0](queued=0,recved=1,sent=0)
 /0:0:0:0:0:0:0:1:32976[1](queued=0,recved=4,sent=4,sid=0x1000069eb9e0000,lop=CREA,to=10000,lcxid=0x3)
 /127.0.0.1:32978[1](queued=0,recved=2,sent=2,sid=0x1000069eb9e0001,lop=CREA,to=4000,lcxid=0x1)

"""
DUMP = """\
SessionTracker dump:
Session Sets (1)/(2):
2 expire at Wed Nov 25 03:50:17 UTC 2026:
\t0x1000069eb9e0000
\t0x1000069eb9e0001
ephemeral nodes dump:
Sessions with Ephemerals (2):
0x1000069eb9e0001:
\t/d
0x1000069eb9e0000:
\t/b c
\t/a/own
Connections dump:
Connections Sets (1)/(3):
3 expire at Wed Nov 25 03:50:23 UTC 2026:
\tip: /127.0.0.1:32984 sessionId: 0x0
"""
# Recorded: what its admin server has answered, session ids as decimal numbers.
ADMIN = {
    "/commands/dump": """{
  "expiry_time_to_session_ids" : { "41686000" : [ 72058048962494464 ] },
  "session_id_to_ephemeral_paths" : {
    "72058048962494464" : [ "/b c", "/a/own" ],
    "-1" : [ "/d" ]
  },
  "command" : "dump",
  "error" : null
}""",
    "/commands/connections": """{
  "connections" : [ {
    "remote_socket_address" : "127.0.0.1:51434",
    "session_id" : 72058048962494464,
    "last_operation" : "CREA",
    "session_timeout" : 10000
  } ],
  "secure_connections" : [ ],
  "command" : "connections",
  "error" : null
}""",
}
SESSION = "0x1000069eb9e0000"
JETTY = [
    f"/usr/share/java/{name}.jar"
    for name in (
        *("jetty9-http", "jetty9-io", "jetty9-security", "jetty9-server", "jetty9-servlet"),
        *("jetty9-util", "jetty9-util-ajax", "jackson-annotations", "jackson-core"),
        *("jackson-databind", "servlet-api"),
    )
]


def test_a_server_that_allows_nothing(server: Server) -> None:
    with Client(server.hosts) as client, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for name in ("/own", "/own2"):
            client.create(name, ephemeral=True)
        client.create("/other")
        session = hex_id(client.session_id)
        hosts = f"{server.hosts},127.0.0.1:{closed.getsockname()[1]}"
        ran = run(hosts, "who", "/own", "--admin-port", "0")
        assert (ran.status, ran.lines) == (0, [f"/own belongs to session {session}"])
        assert "does not allow cons and dump;" in ran.err
        assert "4lw.commands.whitelist=srvr,cons,dump" in ran.err
        assert "was not asked: Connection refused" in ran.err
        assert max(map(len, ran.err.splitlines())) <= 80
        text = (
            "-q who SESSION --search -> session SESSION | owns 2 ephemeral nodes |   /own |   /own2"
        )
        plays(server, text, SESSION=session)
        for words, said in {
            "-q who 0x1 --search": ["session 0x1", "owns 0 ephemeral nodes"],
            "who /other": ["no session owns /other: it is not ephemeral"],
            "who /nothing": [],
        }.items():
            ran = run(server.hosts, *words.split())
            assert (ran.status, ran.lines) == (1, said)


OWNS = ["owns 2 ephemeral nodes", "  /a/own", "  /b c"]


def test_each_server_of_the_list_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a real one answers: each server its own connections, and all ephemeral nodes."""

    def answering(word: str, address: tuple[object, tuple[str, int]], *_: object) -> str:
        return DUMP if word == "dump" else CONS if address[1][1] == 2 else ""

    monkeypatch.setattr("zkwire.cli.servers.who.ask", answering)
    connected = "connected from 0:0:0:0:0:0:0:1:32976 to 127.0.0.1:2, timeout 10 s"
    ran = run("127.0.0.1:1,127.0.0.1:2/a", "who", SESSION)
    owns = ["owns 2 ephemeral nodes", "  /b c", "  /own"]  # below the chroot
    assert (ran.status, ran.err) == (0, "")
    assert ran.lines == [f"session {SESSION}", connected, *owns]


@pytest.fixture
def admin_server() -> Iterator[tuple[str, dict[str, str]]]:
    """A port where HTTP is spoken, and what it answers, by the path of the request."""
    pages: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield str(server.server_port), pages
        server.shutdown()
        thread.join()


def test_what_is_refused_is_asked_of_the_admin_server(
    server: Server, admin_server: tuple[str, dict[str, str]]
) -> None:
    port, pages = admin_server

    def asked(session: str = SESSION, hosts: str = server.hosts, port: str = port) -> Ran:
        return run(hosts, "who", session, "--admin-port", port)

    for wrong in ("", "[]", '{"command": "dump", "error": null}', "[" * 9999):
        pages["/commands/dump"] = wrong
        ran = asked()
        assert (ran.status, "does not allow cons and dump;" in ran.err) == (1, True)
    pages |= ADMIN
    connected = f"connected from 127.0.0.1:51434 to {server.hosts}, timeout 10 s"
    ran = asked()
    assert (ran.status, ran.err) == (0, "")
    assert ran.lines == [f"session {SESSION}", connected, *OWNS]
    both = f"{server.hosts},{server.hosts.replace('127.0.0.1', 'localhost')}"
    assert asked(hosts=both).out.count(b"connected from") == 1
    assert asked("0xffffffffffffffff").lines[-2:] == ["owns 1 ephemeral node", "  /d"]
    assert asked(port="0").status == 1
    assert asked(port="70000").status == 2


@pytest.mark.real
@pytest.mark.apache
def test_a_real_server(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    hosts = zookeeper.hosts + fresh_path
    with Client(zookeeper.hosts) as observer:
        for name in ("a", "services", "workers"):
            observer.ensure_path(f"{fresh_path}/{name}")
        with Client(hosts) as client:
            client.create("/services/web-1", ephemeral=True)
            client.create("/workers/7", ephemeral=True)
            compare("owner", hosts)
            told = run(hosts, "--json", "who", "/workers/7").record
            (connection,) = told["connections"]
            assert connection["address"].startswith("127.0.0.1:")
            assert connection["server"] == zookeeper.hosts
            assert connection["timeout"] == client.session_timeout
            assert (told["session"], told["path"]) == (hex_id(client.session_id), "/workers/7")
            assert told["ephemerals"] == ["/services/web-1", "/workers/7"]
            assert (told["refused"], told["failed"]) == ({}, {})
        ran = run(zookeeper.hosts, "who", told["session"])
        assert (ran.status, b"connected to none" in ran.out) == (1, True)
        observer.delete_tree(fresh_path)


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
def test_a_real_admin_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that allows no word; Debian's package of ZooKeeper leaves its jars to others."""
    monkeypatch.setattr(who, "_SECONDS", PATIENCE)  # its first page takes it longest
    if not all(Path(jar).exists() for jar in JETTY):
        pytest.skip("there is no Jetty in /usr/share/java")
    try:
        found = installed_backend()
    except NoBackendError as why:
        pytest.skip(str(why))
    backend = InstalledBackend(found.java, ":".join((found.classpath, *JETTY)))
    port = str(free_port())
    options = {"admin.enableServer": "true", "admin.serverPort": port}
    options |= {"admin.serverAddress": "127.0.0.1", "4lw.commands.whitelist": "srvr"}
    with backend.standalone(Settings(options=options)) as server, Client(server.hosts) as client:
        client.create("/own", ephemeral=True)
        ran = run(server.hosts, "who", "/own", "--admin-port", port)
        session = hex_id(client.session_id)
    assert (ran.status, ran.err) == (0, "")
    belongs, connected, *owns = ran.lines
    assert belongs == f"/own belongs to session {session}"
    assert re.fullmatch(r"connected from 127\..* s", connected)
    assert owns == ["owns 1 ephemeral node", "  /own"]
