"""kazoo's client on zkwire (`zkwire.kazoo`): what it returns, says and calls, and when."""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kazoo import exceptions as ke
from kazoo.client import KazooClient as PlainClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import connection
from kazoo.protocol.states import ZnodeStat
from kazoo.recipe.watchers import DataWatch
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id, make_digest_acl

from tests.support.certificates import Authority, Certificate
from tests.support.lock_helpers import Running
from tests.support.server_control import poll
from tests.support.snippets import ROOT, run_python
from zkwire import Client, State
from zkwire.kazoo import KazooClient, KeeperState, engine
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, hold
from zkwire.testing.server.tls import make_context

PATIENCE = 10.0
NOBODY = "127.0.0.1:1"
"""No server listens there."""


@contextmanager
def started(hosts: str, **options: Any) -> Iterator[Any]:
    client = KazooClient(hosts, **{"timeout": 4.0, **options})
    client.start(PATIENCE)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with started(server.hosts) as client:
        yield client


@pytest.fixture
def proxied(server: Server) -> Iterator[tuple[Any, FaultProxy]]:
    """A client behind a proxy."""
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        yield client, proxy


def eventually(condition: Callable[[], object]) -> None:
    poll("it comes", lambda: condition() or None, PATIENCE)


class Told:
    """What a listener or a watch is told."""

    def __init__(self, listened: Any = None) -> None:
        self._queue = queue.SimpleQueue[Any]()
        self.put, self.empty = self._queue.put, self._queue.empty
        if listened is not None:
            listened.add_listener(self.put)

    def next(self) -> Any:
        return self._queue.get(timeout=PATIENCE)

    def assert_reconnected(self) -> None:
        assert [self.next(), self.next()] == ["SUSPENDED", "CONNECTED"]


# --- values: what kazoo returns, and raises -------------------------------------------------------

SECRET = make_digest_acl("user", "secret", all=True)
ANYONE = ACL(31, Id("world", "anyone"))
CALLS: list[Callable[[Any], object]] = [
    lambda c: c.create("/a", b"1"),
    lambda c: c.create("/a"),
    lambda c: c.create("/deep/er/node", b"", makepath=True),
    lambda c: c.create("/no/node"),
    # Named as the chroot is.
    lambda c: c.create("/chroot/of mine/node", makepath=True),
    lambda c: c.create("/chroot/of mine/other", include_data=True),
    lambda c: c.sync("/chroot/of mine/node"),
    lambda c: c.create("/e", ephemeral=True),
    lambda c: c.create("/e/child"),
    lambda c: c.create("/deep/s-", sequence=True, ephemeral=True),
    lambda c: c.create("/stat", b"123", include_data=True),
    lambda c: [c.create("/null", None), c.get("/null")],
    lambda c: [c.create("/acl", acl=[SECRET]), c.get_acls("/acl")],
    lambda c: c.create("/bad", acl=[ACL(31, Id("unknown", "x"))]),
    lambda c: c.exists("/a"),
    lambda c: c.exists("/b"),
    lambda c: c.get("/a"),
    lambda c: c.get("/b"),
    lambda c: [c.set("/null", b""), c.get("/null")],
    lambda c: c.set("/a", b"22"),
    lambda c: c.set_acls("/a", []),
    lambda c: c.set("/a", b"3", 0),
    lambda c: sorted(c.get_children("/deep")),
    lambda c: c.get_children("/deep/er", include_data=True),
    lambda c: c.get_children("/b"),
    lambda c: c.sync("/a"),
    lambda c: c.get_acls("/a"),
    lambda c: [c.set_acls("/a", [ANYONE]), c.get_acls("/a")],
    lambda c: c.set("/acl", b""),
    lambda c: c.ensure_path("/x/y/z"),
    lambda c: c.delete("/a"),
    lambda c: c.delete("/a"),
    lambda c: c.delete("/x"),
    lambda c: c.delete("/x", recursive=True),
    lambda c: c.create("/a\0"),
    lambda c: transaction(c, 0),
    lambda c: transaction(c, 7),
    lambda c: [c.add_auth("digest", "user:secret"), c.get("/acl")],
    lambda c: c.retry(c.exists, "/deep/er"),
    lambda c: [r := c.get_async("/b"), r.wait(PATIENCE), r.exception][1:],
    lambda c: c.reconfig(joining=None, leaving="1", new_members=None),
]


def transaction(client: Any, version: int) -> Any:
    made = client.transaction()
    made.create("/t", b"t")
    made.set_data("/t", b"u")
    made.check("/deep", version)
    made.delete("/t")
    return made.commit()


def plain(value: Any) -> Any:
    """The value without times, zxids and sessions, which differ."""
    if isinstance(value, ZnodeStat):
        owned = value.ephemeralOwner != 0
        return (value.version, value.cversion, value.aversion, value.dataLength, owned)
    if isinstance(value, tuple | list) and not isinstance(value, ACL | Id):
        return type(value)(plain(one) for one in value)
    return type(value) if isinstance(value, Exception) else value


def said(client: Any, call: Callable[[Any], object]) -> Any:
    try:
        return plain(call(client))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("chroot", ["", "/chroot/of mine"])
def test_each_call_returns_and_raises_what_kazoo_does(chroot: str) -> None:
    answers: list[list[Any]] = []
    for kind in (PlainClient, KazooClient):
        with Server() as server:
            if chroot:
                with Client(server.hosts) as maker:
                    maker.ensure_path(chroot)
            client: Any = kind(server.hosts + chroot, timeout=4.0)
            client.start()
            answers.append([said(client, call) for call in CALLS])
            client.stop()
            client.close()
    assert answers[1] == answers[0]
    # Not the same refusal for everything.
    assert len({str(answer) for answer in answers[0]}) > len(CALLS) / 2


# --- results --------------------------------------------------------------------------------------


def test_a_result_is_got_more_than_once_and_by_several_threads(client: Any) -> None:
    client.create("/a", b"1")
    results = [client.get_async("/a") for _ in range(200)]
    for each in [Running(lambda: [result.get() for result in results]) for _ in range(3)]:
        assert len(each.result()) == 200
    assert all(r.ready() and r.successful() and r.value == r.get() for r in results)


def test_a_callback_is_called_once_whenever_it_is_linked(client: Any) -> None:
    called = Told()
    for _ in range(100):
        result = client.exists_async("/")
        result.rawlink(called.put)
        result.get()
        assert called.next() is result
    done = client.exists_async("/")
    done.get()
    done.rawlink(called.put)
    assert called.next() is done
    client.exists_async("/").get()
    assert called.empty()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_result_is_ready_when_its_answer_is_there(proxied: tuple[Any, FaultProxy]) -> None:
    client, proxy = proxied
    client.create("/a", b"1")
    before = client.exists_async("/")
    assert client.exists("/") is not None  # behind it
    assert before.ready()
    gate = Gate()
    proxy.on("get_data", action=hold(gate))
    result = client.get_async("/a")
    assert not any(result.ready() for _ in range(50))
    reply, _ = result._unread
    assert len(reply._request._wakers) == 1  # to ask often costs nothing
    assert not result.wait(0.01)
    for get in (result.get_nowait, lambda: result.get(timeout=0.01)):
        with pytest.raises(KazooTimeoutError):
            get()
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            result.get()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not result.ready()  # an interrupted get leaves it to others
    gate.release()
    assert result.wait(PATIENCE)
    assert result.get()[0] == b"1"
    assert result.get_nowait() == result.get()


# --- states ---------------------------------------------------------------------------------------


def test_a_lost_connection_is_suspended_and_connected_in_the_same_session(
    server: Server, client: Any
) -> None:
    states, session = Told(client), client.client_id
    server.cut_all()
    states.assert_reconnected()
    assert client.client_id == session
    assert client._connection._socket.getpeername() == ("127.0.0.1", server.port)
    assert client._connection._socket.getsockname()[0] == "127.0.0.1"
    assert client.command(b"ruok") == "imok"
    client._connection._socket.close()
    states.assert_reconnected()


def test_a_stopped_client_refuses_and_starts_again(server: Server, client: Any) -> None:
    with pytest.raises(ke.KazooException, match="until it is stopped"):
        client.close()
    states, session = Told(client), client.client_id
    results = [client.create_async(f"/{n}") for n in range(100)]
    client.stop()
    assert [result.get(timeout=PATIENCE) for result in results] == [f"/{n}" for n in range(100)]
    assert states.next() == "LOST"
    with pytest.raises(ke.ConnectionClosedError):
        client.get("/")
    with pytest.raises(ke.ConnectionClosedError):
        _ = client.zkwire
    assert server.inspect(lambda: len(list(server.sessions))) == 0
    client.close()
    client.start()
    assert client.client_id != session
    assert client.get("/99")[0] == b""
    assert states.next() == "CONNECTED"
    client.zkwire.close()  # a program that does so ends the session
    assert states.next() == "LOST"
    with pytest.raises(ke.ConnectionClosedError):
        client.get("/")


def test_a_link_that_is_called_in_place_may_ask_for_the_result(client: Any) -> None:
    client.handler.stop()  # from now on kazoo calls what is linked to a result as it sets it
    told: list[Any] = []
    for error in (None, ke.NodeExistsError):
        made = client.create_async("/made")
        made.rawlink(told.append)
        with nullcontext() if error is None else pytest.raises(error):
            assert made.get(timeout=PATIENCE) == "/made"
        assert told.pop() is made
        assert told == []


def test_a_client_that_nobody_names_goes_on_until_it_is_stopped(server: Server) -> None:
    def register() -> Any:
        client: Any = KazooClient(server.hosts, timeout=4.0)
        client.start(PATIENCE)
        return weakref.ref(client)

    client = register()
    gc.collect()
    assert client().exists("/") is not None
    client().stop()
    client().close()
    eventually(lambda: gc.collect() is not None and client() is None)


def test_a_client_that_stops_in_its_watch_ends_its_session(server: Server, client: Any) -> None:
    watched = Told()

    def stop(_: object) -> None:
        with pytest.raises(RuntimeError, match="join"):  # of kazoo's handler, which is its thread
            client.stop()
        watched.put(client.client_state)

    client.get("/", watch=stop)
    client.set("/", b"")
    assert watched.next() == "CLOSED"
    assert server.inspect(lambda: len(list(server.sessions))) == 0


def test_a_session_is_continued_by_its_id(server: Server, client: Any) -> None:
    client.create("/mine", ephemeral=True)
    session = client.client_id
    with started(server.hosts, client_id=session) as second:
        assert second.client_id == session
        assert second.exists("/mine").owner_session_id == session[0]


@pytest.mark.parametrize("retry", [KazooRetry(max_tries=3), KazooRetry(max_tries=-1, deadline=0.3)])
def test_an_end_of_trying_leaves_nothing(retry: KazooRetry) -> None:
    client: Any = KazooClient(NOBODY, timeout=4.0)
    with pytest.raises(KazooTimeoutError):
        client.start(timeout=0.05)
    assert client.client_state == "CLOSED"
    client = KazooClient(NOBODY, timeout=4.0, connection_retry=retry)
    client.start_async()
    assert client._connection.connection_stopped.wait(PATIENCE)  # some programs wait for it
    eventually(lambda: client.client_state == "CLOSED")
    client.stop()
    assert not [t for t in threading.enumerate() if t.name.endswith(("-io", "-callbacks"))]


def test_a_session_that_cannot_begin_is_logged_and_is_the_end(
    server: Server, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client.use_ssl, client.ca = True, "/no/such/file"
    server.expire(client.client_id[0])
    eventually(lambda: client.client_state == "CLOSED")
    assert "No new session can begin" in caplog.text
    client.use_ssl = False
    client.stop()
    client.start()
    assert client.exists("/") is not None


# --- watches --------------------------------------------------------------------------------------


def test_a_data_watch_goes_on_in_the_next_session(server: Server, client: Any) -> None:
    client.create("/a", b"0")
    seen = Told()
    DataWatch(client, "/a", lambda data, _: seen.put(data))
    assert seen.next() == b"0"
    server.expire(client.client_id[0])
    eventually(lambda: client.connected and client.zkwire.state is State.CONNECTED)
    client.retry(client.set, "/a", b"1")
    assert seen.next() == b"1"


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
        with pytest.raises(ke.AuthFailedError, match="the server rejected the SASL"):
            stranger.start()
        assert stranger.client_state == KeeperState.CLOSED
        stranger.start_async()
        eventually(lambda: (stranger.client_state, stranger.connected) == ("AUTH_FAILED", False))
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
    path = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return run_python(*arguments, cwd=folder, env=path)


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
