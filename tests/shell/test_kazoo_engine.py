"""kazoo's client on zkwire (`zkwire.kazoo`): what it returns, says and calls, and when."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo import exceptions as ke
from kazoo.client import KazooClient as PlainClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.recipe.watchers import DataWatch
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id, make_digest_acl

from zkwire import Client, State
from zkwire.kazoo import KazooClient, NotSent, OutcomeUnknown
from zkwire.testing import FaultProxy, Server
from zkwire.testing.proxy import Gate, cut_after, cut_before, hold

ROOT = Path(__file__).resolve().parents[2]
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


def eventually(condition: Callable[[], object]) -> None:
    latest = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < latest, "it has not come"
        time.sleep(0.005)


def states_of(client: Any) -> queue.SimpleQueue[str]:
    """The states that a listener is told from now on."""
    states = queue.SimpleQueue[str]()
    client.add_listener(states.put)
    return states


# --- values: what kazoo returns, and raises -------------------------------------------------------

SECRET = make_digest_acl("user", "secret", all=True)
CALLS: dict[str, Callable[[Any], object]] = {
    "create": lambda c: c.create("/a", b"1"),
    "create again": lambda c: c.create("/a"),
    "create with parents": lambda c: c.create("/deep/er/node", b"", makepath=True),
    "create without parents": lambda c: c.create("/no/node"),
    "create what is named as the chroot": lambda c: [
        c.create("/chroot/of mine/node", makepath=True),
        c.create("/chroot/of mine/other", include_data=True),
        c.sync("/chroot/of mine/node"),
    ],
    "create below an ephemeral": lambda c: [
        c.create("/e", ephemeral=True),
        c.create("/e/child"),
    ],
    "create a sequence": lambda c: c.create("/deep/s-", sequence=True, ephemeral=True),
    "create with stat": lambda c: c.create("/stat", b"123", include_data=True),
    "create null": lambda c: [c.create("/null", None), c.get("/null")],
    "create with an ACL": lambda c: [c.create("/acl", acl=[SECRET]), c.get_acls("/acl")],
    "create with a bad ACL": lambda c: c.create("/bad", acl=[ACL(31, Id("unknown", "x"))]),
    "exists": lambda c: c.exists("/a"),
    "exists not": lambda c: c.exists("/b"),
    "get": lambda c: c.get("/a"),
    "get nothing": lambda c: c.get("/b"),
    "get empty": lambda c: [c.set("/null", b""), c.get("/null")],
    "set": lambda c: c.set("/a", b"22"),
    "set ACLs to none": lambda c: c.set_acls("/a", []),
    "set an old version": lambda c: c.set("/a", b"3", 0),
    "children": lambda c: sorted(c.get_children("/deep")),
    "children and stat": lambda c: c.get_children("/deep/er", include_data=True),
    "children of nothing": lambda c: c.get_children("/b"),
    "sync": lambda c: c.sync("/a"),
    "ACLs": lambda c: c.get_acls("/a"),
    "set ACLs": lambda c: [c.set_acls("/a", [ACL(31, Id("world", "anyone"))]), c.get_acls("/a")],
    "a server's refusal": lambda c: c.set("/acl", b""),
    "ensure a path": lambda c: c.ensure_path("/x/y/z"),
    "delete": lambda c: c.delete("/a"),
    "delete nothing": lambda c: c.delete("/a"),
    "delete a parent": lambda c: c.delete("/x"),
    "delete all": lambda c: c.delete("/x", recursive=True),
    "a path that is none": lambda c: c.create("/a\0"),
    "transaction": lambda c: transaction(c, 0),
    "refused transaction": lambda c: transaction(c, 7),
    "add_auth": lambda c: [c.add_auth("digest", "user:secret"), c.get("/acl")],
    "retry": lambda c: c.retry(c.exists, "/deep/er"),
    "an async error": lambda c: waited(c.get_async("/b")).exception,
    "reconfig": lambda c: c.reconfig(joining=None, leaving="1", new_members=None),
}


def waited(result: Any) -> Any:
    assert result.wait(PATIENCE)
    return result


def transaction(client: Any, version: int) -> list[Any]:
    made = client.transaction()
    made.create("/t", b"t")
    made.set_data("/t", b"u")
    made.check("/deep", version)
    made.delete("/t")
    return [type(r) if isinstance(r, Exception) else r for r in made.commit()]


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
    answers: list[dict[str, Any]] = []
    for kind in (PlainClient, KazooClient):
        with Server() as server:
            if chroot:
                with Client(server.hosts) as maker:
                    maker.ensure_path(chroot)
            client: Any = kind(server.hosts + chroot, timeout=4.0)
            client.start()
            answers.append({name: said(client, call) for name, call in CALLS.items()})
            client.stop()
            client.close()
    assert answers[1] == answers[0]
    # Not the same refusal for everything.
    assert len({str(answer) for answer in answers[0].values()}) > len(CALLS) / 2


def test_an_error_names_what_was_refused(client: Any) -> None:
    with pytest.raises(ke.NoNodeError, match="set_data /gone") as caught:
        client.set("/gone", b"")
    assert caught.value.maybe_applied is False


def test_the_newest_zxid_is_known(client: Any) -> None:
    client.create("/a")
    assert client.last_zxid == client.get("/a")[1].czxid


# --- results --------------------------------------------------------------------------------------


def test_a_result_is_got_more_than_once_and_by_several_threads(client: Any) -> None:
    client.create("/a", b"1")
    results = [client.get_async("/a") for _ in range(200)]
    got = queue.SimpleQueue[Any]()

    def get_all() -> None:
        got.put([result.get() for result in results])

    threads = [threading.Thread(target=get_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert {len(got.get_nowait()) for _ in threads} == {200}
    assert all(r.ready() and r.successful() and r.value == r.get() for r in results)


def test_a_callback_is_called_once_whenever_it_is_linked(client: Any) -> None:
    called = queue.SimpleQueue[Any]()
    for _ in range(100):
        result = client.exists_async("/")
        result.rawlink(called.put)
        result.get()
        assert called.get(timeout=PATIENCE) is result
    done = client.exists_async("/")
    done.get()
    done.rawlink(called.put)
    assert called.get(timeout=PATIENCE) is done
    client.exists_async("/").get()
    assert called.empty()


def test_a_result_whose_answer_is_there_is_ready(client: Any) -> None:
    first = client.exists_async("/")
    assert client.exists("/") is not None  # behind it
    assert first.ready()
    assert first.get_nowait() == client.exists_async("/").get(timeout=PATIENCE)


def test_a_result_that_is_not_there_in_time_comes_later(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        client.create("/a", b"1")
        gate = Gate()
        proxy.on("get_data", action=hold(gate))
        result = client.get_async("/a")
        assert not result.ready()
        assert not result.wait(0.01)
        for get in (result.get_nowait, lambda: result.get(timeout=0.01)):
            with pytest.raises(KazooTimeoutError):
                get()
        gate.release()
        assert result.wait(PATIENCE)
        assert result.get()[0] == b"1"


# --- states ---------------------------------------------------------------------------------------


def test_a_lost_connection_is_suspended_and_connected_in_the_same_session(
    server: Server, client: Any
) -> None:
    states, session = states_of(client), client.client_id
    server.cut_all()
    assert [states.get(timeout=PATIENCE) for _ in range(2)] == ["SUSPENDED", "CONNECTED"]
    assert client.client_id == session


def test_an_expired_session_is_lost_and_a_new_one_begins(server: Server, client: Any) -> None:
    states, session, inner = states_of(client), client.client_id, client.zkwire
    server.expire(session[0])
    seen = [states.get(timeout=PATIENCE)]
    while seen[-1] != "CONNECTED":
        seen.append(states.get(timeout=PATIENCE))
    assert [state for state in seen if state != "SUSPENDED"] == ["LOST", "CONNECTED"]
    assert client.client_id != session
    assert inner.state is State.EXPIRED
    assert client.zkwire.state is State.CONNECTED
    assert client.exists("/") is not None


def test_a_stopped_client_refuses_and_starts_again(server: Server, client: Any) -> None:
    states, session = states_of(client), client.client_id
    results = [client.create_async(f"/{n}") for n in range(100)]
    client.stop()
    assert [result.get(timeout=PATIENCE) for result in results] == [f"/{n}" for n in range(100)]
    assert states.get(timeout=PATIENCE) == "LOST"
    with pytest.raises(ke.ConnectionClosedError):
        client.get("/")
    with pytest.raises(ke.ConnectionClosedError):
        _ = client.zkwire
    assert server.inspect(lambda: len(list(server.sessions))) == 0
    client.start()
    assert client.client_id != session
    assert client.get("/99")[0] == b""


def test_a_listener_may_stop_the_client(server: Server) -> None:
    client: Any = KazooClient(server.hosts, timeout=4.0)
    done = threading.Event()

    def stop(state: str) -> None:
        if state == "LOST":
            client.stop()
            done.set()

    client.start()
    client.add_listener(stop)
    server.expire(client.client_id[0])
    assert done.wait(PATIENCE)
    assert client.client_state == "CLOSED"


def test_a_session_is_continued_by_its_id(server: Server, client: Any) -> None:
    client.create("/mine", ephemeral=True)
    session = client.client_id
    with started(server.hosts, client_id=session) as second:
        assert second.client_id == session
        assert second.exists("/mine").owner_session_id == session[0]


def test_start_gives_up_in_time_and_leaves_nothing() -> None:
    client: Any = KazooClient(NOBODY, timeout=4.0)
    with pytest.raises(KazooTimeoutError):
        client.start(timeout=0.05)
    assert client.client_state == "CLOSED"
    assert not [t for t in threading.enumerate() if t.name.endswith(("-io", "-callbacks"))]


@pytest.mark.parametrize("retry", [KazooRetry(max_tries=3), KazooRetry(max_tries=-1, deadline=0.3)])
def test_the_connection_retry_decides_when_to_give_up(retry: KazooRetry) -> None:
    client: Any = KazooClient(NOBODY, timeout=4.0, connection_retry=retry)
    client.start_async()
    eventually(lambda: client.client_state == "CLOSED")
    client.stop()


def test_each_connection_that_was_made_counts_the_attempts_anew(server: Server) -> None:
    with started(server.hosts, connection_retry=KazooRetry(max_tries=3)) as client:
        states = states_of(client)
        for _ in range(4):
            server.cut_all()
            assert states.get(timeout=PATIENCE) == "SUSPENDED"
            assert states.get(timeout=PATIENCE) == "CONNECTED"


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


def test_a_session_may_be_longer_than_an_hour(server: Server) -> None:
    with started(server.hosts, timeout=7200) as client:
        assert client.exists("/") is not None


def test_hosts_are_changed_for_the_next_connection(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        client.set_hosts(server.hosts)
        session = client.client_id
        assert client.zkwire.server != ("127.0.0.1", server.port)
        proxy.close()
        there = ("127.0.0.1", server.port)
        eventually(lambda: client.connected and client.zkwire.server == there)
        assert client.client_id == session


def test_a_read_only_server_is_connected_read_only(server: Server) -> None:
    server.set_read_only(True)
    with started(server.hosts, read_only=True) as client:
        assert client.client_state == "CONNECTED_RO"
        with pytest.raises(ke.NotReadOnlyCallError):
            client.create("/a")


# --- lost requests --------------------------------------------------------------------------------


def test_requests_in_flight_at_a_cut_say_whether_they_may_be_done(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        for n in range(400):
            client.create(f"/{n}")
        proxy.on("set_data", nth=150, action=cut_after)
        results = [client.set_async(f"/{n}", b"new") for n in range(400)]
        for result in results:
            result.wait(PATIENCE)
        lost = [result.exception for result in results if result.exception is not None]
        outcomes = [type(result.exception or result.value) for result in results]
        values = [client.get(f"/{n}")[0] for n in range(400)]
    assert set(outcomes) <= {ZnodeStat, OutcomeUnknown, NotSent}
    assert all(isinstance(error, ke.ConnectionLoss) for error in lost)
    assert all(error.maybe_applied is (type(error) is OutcomeUnknown) for error in lost)
    assert outcomes.count(OutcomeUnknown) > 0
    for kind, value in zip(outcomes, values, strict=True):
        assert kind is OutcomeUnknown or value == (b"new" if kind is ZnodeStat else b"")


def test_a_lost_read_is_never_applied(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        proxy.on("get_data", action=cut_before)
        with pytest.raises(OutcomeUnknown) as caught:
            client.get("/")
    assert caught.value.maybe_applied is False


def test_a_request_that_finds_no_server_is_not_sent() -> None:
    with Server(tick=0.1) as server, started(server.hosts, timeout=0.3) as client:
        server.stop()
        eventually(lambda: not client.connected)
        with pytest.raises(NotSent) as caught:
            client.create("/a")
        assert caught.value.maybe_applied is False


def test_a_retry_of_kazoo_repeats_what_was_lost(server: Server) -> None:
    with FaultProxy(server.hosts) as proxy, started(proxy.hosts) as client:
        proxy.on("get_data", action=cut_before)
        assert client.retry(client.get, "/")[0] == b""


# --- watches --------------------------------------------------------------------------------------


def test_a_watch_outlives_a_lost_connection_and_fires_once(server: Server, client: Any) -> None:
    client.create("/a")
    events = queue.SimpleQueue[Any]()
    client.get("/a", watch=events.put)
    client.exists("/a", watch=events.put)
    states = states_of(client)
    server.cut_all()
    assert [states.get(timeout=PATIENCE) for _ in range(2)] == ["SUSPENDED", "CONNECTED"]
    client.set("/a", b"1")
    client.set("/a", b"2")
    event = events.get(timeout=PATIENCE)
    assert (event.type, event.path, event.state) == ("CHANGED", "/a", "CONNECTED")
    client.exists("/b", watch=events.put)
    client.create("/b")
    assert events.get(timeout=PATIENCE).path == "/b"


def test_a_watch_is_told_that_its_session_has_ended(server: Server, client: Any) -> None:
    events = queue.SimpleQueue[Any]()
    client.get_children("/", watch=events.put)
    server.expire(client.client_id[0])
    event = events.get(timeout=PATIENCE)
    assert (event.type, event.state, event.path) == ("NONE", "EXPIRED_SESSION", None)


def test_a_watch_is_not_called_once_the_client_is_stopped(client: Any) -> None:
    events = queue.SimpleQueue[Any]()
    client.get("/", watch=events.put)
    client.restart()
    client.get("/", watch=events.put)
    client.create("/a")
    client.set("/", b"")
    assert events.get(timeout=PATIENCE).type == "CHANGED"


def test_an_event_has_the_path_without_the_chroot(server: Server, client: Any) -> None:
    client.ensure_path("/chroot/a")
    events = queue.SimpleQueue[Any]()
    with started(f"{server.hosts}/chroot") as below:
        below.get("/a", watch=events.put)
        client.set("/chroot/a", b"1")
        assert events.get(timeout=PATIENCE).path == "/a"
        assert below.zkwire.get_data("/a").data == b"1"


def test_a_chrooted_client_deletes_its_root(server: Server, client: Any) -> None:
    client.ensure_path("/chroot/a")
    with started(f"{server.hosts}/chroot") as below:
        below.delete("/", recursive=True)
        assert client.exists("/chroot") is None
        with (
            pytest.warns(UserWarning, match="No chroot path exists"),
            started(f"{server.hosts}/chroot"),
        ):
            pass


def test_a_data_watch_goes_on_in_the_next_session(server: Server, client: Any) -> None:
    client.create("/a", b"0")
    seen = queue.SimpleQueue[Any]()
    DataWatch(client, "/a", lambda data, _: seen.put(data))
    assert seen.get(timeout=PATIENCE) == b"0"
    server.expire(client.client_id[0])
    eventually(lambda: client.connected and client.zkwire.state is State.CONNECTED)
    client.retry(client.set, "/a", b"1")
    assert seen.get(timeout=PATIENCE) == b"1"


def test_a_lock_of_kazoo_excludes_one_of_kazoo_without_zkwire(server: Server, client: Any) -> None:
    other: Any = PlainClient(server.hosts)
    other.start()
    try:
        with client.Lock("/lock"):
            assert not other.Lock("/lock").acquire(blocking=False)
        with other.Lock("/lock"):
            assert not client.Lock("/lock").acquire(blocking=False)
    finally:
        other.stop()
        other.close()


# --- the same session in two languages ------------------------------------------------------------


def test_both_apis_have_one_session(client: Any) -> None:
    client.create("/mine", ephemeral=True)
    inner = client.zkwire
    assert inner.get_data("/mine").stat.ephemeral_owner == client.client_id[0] == inner.session_id


def test_the_inner_client_closed_by_a_program_is_the_end_of_the_session(client: Any) -> None:
    states = states_of(client)
    client.zkwire.close()
    assert states.get(timeout=PATIENCE) == "LOST"
    with pytest.raises(ke.ConnectionClosedError):
        client.get("/")


# --- what programs reach for ----------------------------------------------------------------------


def test_a_subclass_that_overrides_call_sees_each_request(server: Server) -> None:
    class Counting(KazooClient):
        def _call(self, request: Any, async_object: Any) -> Any:
            names.append(type(request).__name__)
            return super()._call(request, async_object)

    names: list[str] = []
    counting: Any = Counting(server.hosts)
    counting.start()
    counting.create("/a")
    counting.stop()
    counting.close()
    assert names == ["Create"]


def test_a_client_that_runs_is_not_closed(client: Any) -> None:
    with pytest.raises(ke.KazooException, match="until it is stopped"):
        client.close()
    client.stop()
    client.close()
    client.start()
    assert client.exists("/") is not None


def test_an_unknown_request_is_refused_in_its_result(client: Any) -> None:
    result = client.handler.async_result()
    client._call(object(), result)
    with pytest.raises(NotImplementedError, match="object"):
        result.get()


def test_the_socket_names_the_server_and_its_close_is_a_lost_connection(
    server: Server, client: Any
) -> None:
    assert client._connection._socket.getpeername() == ("127.0.0.1", server.port)
    assert client.command(b"ruok") == "imok"
    states = states_of(client)
    client._connection._socket.close()
    assert [states.get(timeout=PATIENCE) for _ in range(2)] == ["SUSPENDED", "CONNECTED"]


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


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    path = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=path, timeout=60
    )


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"], ["command"]])
def test_a_program_is_run_unchanged(server: Server, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = tmp_path / "command"
    command.write_text(f"#!{sys.executable}\n{PROGRAM}")
    command.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        done = run("-m", "zkwire.kazoo", *words, server.hosts, "-x", "y", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("__main__ ['-x', 'y'] connected\n", "")
    assert done.returncode == 0


@pytest.mark.parametrize("words", [[], ["-m"], ["--help"], ["no such program"]])
def test_without_a_program_the_usage_is_shown(tmp_path: Path, words: list[str]) -> None:
    done = run("-m", "zkwire.kazoo", *words, folder=tmp_path)
    assert done.returncode in (1, 2)
    assert ("python -m zkwire.kazoo PROGRAM" in done.stderr) or "no such program" in done.stderr


def test_install_is_for_clients_that_are_made_after_it(server: Server, tmp_path: Path) -> None:
    program = f"""
from kazoo.client import KazooClient
import kazoo.protocol.connection
before = KazooClient({server.hosts!r})
import zkwire.kazoo
zkwire.kazoo.install()
zkwire.kazoo.install()
class Mine(KazooClient): pass
for client in (before, Mine({server.hosts!r}), zkwire.kazoo.KazooClient({server.hosts!r})):
    client.start()
    client.ensure_path("/a")
    print(type(client._connection).__name__, client.get("/a")[0], client.last_zxid > 0)
    client.stop()
    client.close()
"""
    done = run("-c", program, folder=tmp_path)
    expected = "ConnectionHandler b'' True\nEngine b'' True\nEngine b'' True\n"
    assert (done.stdout, done.stderr) == (expected, "")
