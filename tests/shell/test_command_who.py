"""who: the session of an ephemeral node, and what the servers tell of it where they are asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.installed_servers import InstalledBackend
from tests.support.lock_helpers import PATIENCE
from tests.support.secure_servers import installed_backend
from tests.support.server_control import NoBackendError, Settings, ZooKeeperServer, free_port
from zkwire import Client
from zkwire.cli.main import main
from zkwire.cli.output import hex_id
from zkwire.cli.servers import who
from zkwire.cli.servers.who import connections, ephemerals
from zkwire.testing import Server

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
ADMIN_DUMP = """\
{
  "expiry_time_to_session_ids" : {
    "41686000" : [ 72058048962494464 ]
  },
  "session_id_to_ephemeral_paths" : {
    "72058048962494464" : [ "/b c", "/a/own" ],
    "-1" : [ "/d" ]
  },
  "command" : "dump",
  "error" : null
}"""
ADMIN_CONNECTIONS = """\
{
  "connections" : [ {
    "remote_socket_address" : "127.0.0.1:51434",
    "session_id" : 72058048962494464,
    "last_operation" : "CREA",
    "session_timeout" : 10000
  } ],
  "secure_connections" : [ ],
  "command" : "connections",
  "error" : null
}"""
JETTY = [
    f"/usr/share/java/{name}.jar"
    for name in (
        *("jetty9-http", "jetty9-io", "jetty9-security", "jetty9-server", "jetty9-servlet"),
        *("jetty9-util", "jetty9-util-ajax", "jackson-annotations", "jackson-core"),
        *("jackson-databind", "servlet-api"),
    )
]


def test_what_servers_say() -> None:
    first, second, other = "0x1000069eb9e0000", "0x1000069eb9e0001", "0x1000069eb9e0002"
    assert [ephemerals(DUMP, s) for s in (first, second, other)] == [["/a/own", "/b c"], ["/d"], []]
    address = {"server": "zk1:2181", "address": "0:0:0:0:0:0:0:1:32976", "timeout": 10.0}
    assert connections(CONS, first, "zk1:2181") == [address]
    assert connections(CONS, other, "zk1:2181") == []


def test_a_server_that_allows_nothing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(server.hosts) as client, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client.create("/own", ephemeral=True)
        client.create("/own2", ephemeral=True)
        client.create("/other")
        session = hex_id(client.session_id)
        hosts = f"{server.hosts},127.0.0.1:{closed.getsockname()[1]}"
        assert main(["--server", hosts, "who", "/own", "--admin-port", "0"]) == 0
        out, err = capsys.readouterr()
        assert out == f"/own belongs to session {session}\n"
        assert "does not allow cons and dump:" in err
        assert "4lw.commands.whitelist=srvr,cons,dump" in err
        assert "was not asked: Connection refused" in err
        assert max(map(len, err.splitlines())) <= 80

        assert main(["--server", server.hosts, "--quiet", "who", session, "--search"]) == 0
        shown = f"session {session}\nowns 2 ephemeral nodes\n  /own\n  /own2\n"
        assert capsys.readouterr() == (shown, "")
        assert main(["--server", server.hosts, "--quiet", "who", "0x1", "--search"]) == 1
        assert capsys.readouterr().out == "session 0x1\nowns 0 ephemeral nodes\n"

        assert main(["--server", server.hosts, "who", "/other"]) == 1
        assert capsys.readouterr().out == "no session owns /other: it is not ephemeral\n"
        assert main(["--server", server.hosts, "who", "/nothing"]) == 1
        assert capsys.readouterr().out == ""


def test_each_server_of_the_list_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real one answers: each server its own connections, and all ephemeral nodes."""
    session = "0x1000069eb9e0000"

    def answering(word: str, address: tuple[object, tuple[str, int]], *_: object) -> str:
        if word == "dump":
            return DUMP
        return CONS if address[1][1] == 2 else ""

    monkeypatch.setattr("zkwire.cli.servers.who.ask", answering)
    assert main(["--server", "127.0.0.1:1,127.0.0.1:2/a", "who", session]) == 0
    assert capsys.readouterr() == (
        f"session {session}\n"
        "connected from 0:0:0:0:0:0:0:1:32976 to 127.0.0.1:2, timeout 10 s\n"
        "owns 2 ephemeral nodes\n"
        "  /b c\n"
        "  /own\n",
        "",
    )


@pytest.fixture
def admin_server() -> Iterator[tuple[int, dict[str, str]]]:
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
        yield server.server_port, pages
        server.shutdown()
        thread.join()


def test_what_is_refused_is_asked_of_the_admin_server(
    server: Server, admin_server: tuple[int, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    port, pages = admin_server
    words = ["--server", server.hosts, "who", "0x1000069eb9e0000", "--admin-port"]
    for wrong in ("", "[]", '{"command": "dump", "error": null}', "[" * 9999):
        pages["/commands/dump"] = wrong
        assert main([*words, str(port)]) == 1
        assert "does not allow cons and dump:" in capsys.readouterr().err
    pages |= {"/commands/dump": ADMIN_DUMP, "/commands/connections": ADMIN_CONNECTIONS}
    assert main([*words, str(port)]) == 0
    assert capsys.readouterr() == (
        "session 0x1000069eb9e0000\n"
        f"connected from 127.0.0.1:51434 to {server.hosts}, timeout 10 s\n"
        "owns 2 ephemeral nodes\n"
        "  /a/own\n"
        "  /b c\n",
        "",
    )
    words[1] = f"{server.hosts},{server.hosts.replace('127.0.0.1', 'localhost')}"
    assert main([*words, str(port)]) == 0
    assert capsys.readouterr().out.count("connected from") == 1
    assert main([*words[:-2], "0xffffffffffffffff", words[-1], str(port)]) == 0
    assert "owns 1 ephemeral node\n  /d\n" in capsys.readouterr().out
    assert main([*words, "0"]) == 1
    assert main([*words, "70000"]) == 2


@pytest.mark.real
@pytest.mark.apache
def test_a_real_server(
    zookeeper: ZooKeeperServer, fresh_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        for name in ("a", "b c"):
            client.create(f"{fresh_path}/{name}", ephemeral=True)
        words = ["--server", zookeeper.hosts + fresh_path, "--json", "who"]
        assert main([*words, "/a"]) == 0
        told = json.loads(capsys.readouterr().out)
        (connection,) = told["connections"]
        assert connection["address"].startswith("127.0.0.1:")
        assert (connection["server"], connection["timeout"]) == (
            zookeeper.hosts,
            client.session_timeout,
        )
        assert (told["session"], told["path"]) == (hex_id(client.session_id), "/a")
        assert (told["ephemerals"], told["refused"], told["failed"]) == (["/a", "/b c"], {}, {})
        client.close()
        assert main(["--server", zookeeper.hosts, "who", told["session"]]) == 1
        assert "connected to none" in capsys.readouterr().out
    with Client(zookeeper.hosts) as client:
        client.delete_tree(fresh_path)


@pytest.mark.since("3.5")
@pytest.mark.real
@pytest.mark.apache
def test_a_real_admin_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that allows no word; Debian's package of ZooKeeper leaves its jars to others."""
    monkeypatch.setattr(who, "_SECONDS", PATIENCE)  # its first page takes it longest
    if not all(Path(jar).exists() for jar in JETTY):
        pytest.skip("there is no Jetty in /usr/share/java")
    try:
        found = installed_backend()
    except NoBackendError as why:
        pytest.skip(str(why))
    backend = InstalledBackend(found.java, ":".join((found.classpath, *JETTY)))
    port = free_port()
    options = {"admin.enableServer": "true", "admin.serverPort": str(port)}
    options |= {"admin.serverAddress": "127.0.0.1", "4lw.commands.whitelist": "srvr"}
    with backend.standalone(Settings(options=options)) as server, Client(server.hosts) as client:
        client.create("/own", ephemeral=True)
        assert main(["--server", server.hosts, "who", "/own", "--admin-port", str(port)]) == 0
        out, err = capsys.readouterr()
        assert f"/own belongs to session {hex_id(client.session_id)}\nconnected from 127." in out
        assert out.endswith(" s\nowns 1 ephemeral node\n  /own\n")
        assert err == ""
