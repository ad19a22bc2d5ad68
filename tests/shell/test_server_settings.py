"""What older servers do not know, and what a server's settings decide."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.support.lock_helpers import PATIENCE, Running, Stage
from tests.support.scripted import (
    NO_NODE,
    TIMEOUT,
    Script,
    armed,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    types,
)
from tests.support.secure_servers import SecureServer
from tests.support.server_control import Backend, Ensemble, Settings, ZooKeeperServer, poll
from zkwire import (
    ACL,
    AsyncClient,
    AuthFailedError,
    Check,
    Client,
    ConnectionLossError,
    Create,
    Delete,
    EphemeralOnLocalSessionError,
    EventType,
    GetData,
    Id,
    MultiError,
    NoWatcherError,
    Perms,
    Queue,
    RuntimeInconsistencyError,
    ServerError,
    SetData,
    State,
    Supervisor,
    Watch,
    digest_auth,
    digest_id,
    testing,
)
from zkwire.errors import SERVER_ERRORS, NotSentError, OutcomeUnknownError, UnimplementedError
from zkwire.session.request import Request
from zkwire.testing.proxy import Frame
from zkwire.testing.proxy.faults import Send, Step
from zkwire.wire import ops

# --- an operation that the server does not know ---------------------------------------------------


UNKNOWN = UnimplementedError.code


@pytest.fixture
def script() -> Script:
    return script_in(State.CONNECTED)


def refuse(script: Script, verb: str, *arguments: Any, **answer: Any) -> Request:
    """The server does not know what is called."""
    call = script.call(verb, *arguments)
    script.answer(call, **{"error": UNKNOWN, "zxid": -1, **answer})
    return call


# --- the connection on which it is asked for ------------------------------------------------------


def test_known_A47_the_refusal_overtakes_and_others_get_their_answers(script: Script) -> None:
    """Apache's server sends it past its pipeline; answers may come even to what is behind it."""
    before = script.call("set_data", "/a", b"")
    refused, behind = script.call("who_am_i"), script.call("set_data", "/b", b"")
    lost = script.call("set_data", "/c", b"")
    again, other = script.call("who_am_i"), script.call("get_ephemerals")
    script.flush()
    script.answer(refused, error=UNKNOWN, zxid=-1)
    leaves_at = script.session.act_at
    script.now += 0.5
    script.answer(other, error=UNKNOWN, zxid=-1)  # one connection can bring two refusals
    assert script.session.act_at == leaves_at, "the time to leave the server counts from the first"
    script.answer(before)
    script.answer(behind)
    assert script.session.broken is None
    script.lose(why="the server closed it")
    assert [failure(call) for call in (before, behind, lost)] == [None, None, OutcomeUnknownError]
    assert [failure(call) for call in (refused, again, other)] == [UnimplementedError] * 3
    assert maybe_applied(lost)
    assert "the server does not know get_ephemerals" in str(lost.error())


def test_a_refusal_is_known_to_the_next_connection_of_the_same_address(script: Script) -> None:
    """A server that does not close is left in time.  One with a zxid costs no connection."""
    for _ in range(2):
        assert failure(refuse(script, "who_am_i", zxid=1)) is UnimplementedError
        assert script.session.usable
    refuse(script, "add_watch", "/a", Watch())
    watch = Watch()
    call, read = script.call("add_watch", "/a", watch), script.call("get_data", "/b")
    script.advance(TIMEOUT / 2)
    assert script.state is not State.CONNECTED
    script.connect()
    assert failure(call) is UnimplementedError
    assert failure(script.call("add_watch", "/a", Watch())) is UnimplementedError
    assert not armed(watch)
    script.answer(read)
    assert failure(read) is None
    refuse(script, "create_with_stat", "/a")
    script.lose()
    script.session.on_deadline(script.session.act_at)
    script.session.connection_made(script.now, (2, ("127.0.0.2", 2181)))
    script.sent = []
    script.flush()
    script.welcome()
    script.call("create_with_stat", "/a")
    assert script.names() == ["create2"]


def test_a_server_that_cannot_remove_a_watch_is_not_asked_again(script: Script) -> None:
    script.watching("get_data", "/c")
    refuse(script, "create_with_stat", "/a")
    script.reconnect()
    assert failure(script.call("remove_watches", "/c")) is UnimplementedError


# --- and those after it ---------------------------------------------------------------------------


def test_persistent_watches_end_where_no_server_knows_them() -> None:
    """A newer one had set them, in the middle of an upgrade: the next server may be new, too."""
    script = Script(servers=2)
    script.connect()
    watch, other = script.persistent("/a"), script.watching_missing("/b")
    script.lose()
    for _ in range(2):
        assert types(watch) == []
        script.greet()
        assert script.names() == ["set_watches2"]
        script.feed(reply_frame(ops.SET_WATCHES_XID, -1, UNKNOWN))
        assert "3.6" in (script.session.broken or "")
        script.lose()
    assert types(watch) == [EventType.PERSISTENT_WATCH_REMOVED]
    script.greet()
    (restored,) = script.restore()
    assert restored.set_watches().exist_watches == ("/b",)
    script.answer(script.call("exists", "/b"), error=NO_NODE)
    assert armed(other)


@pytest.mark.real
def test_known_A47_an_operation_that_no_server_knows(
    zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    """A real one: what another thread has sent by then is answered, or executed or not.

    What it has not sent by then raises NotSentError, and is not executed.
    """
    unheard_of = [ops.Op(f"unheard_of_{n}", 9000 + n, None, None) for n in range(10)]
    asked_all = threading.Event()
    done = unknown = 0

    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)

        def write() -> None:
            nonlocal done, unknown
            while not asked_all.is_set():
                try:
                    client.set_data(fresh_path, b"")
                    done += 1
                except NotSentError:
                    continue
                except OutcomeUnknownError:
                    unknown += 1

        def written_since(before: int) -> bool | None:
            return done > before or writer.ended or None

        writer = Running(write)
        for op in unheard_of:
            poll("a write is answered", partial(written_since, done), PATIENCE)
            with pytest.raises(UnimplementedError):
                client.pipeline._send(op, None, b"", None).result(PATIENCE)
        asked_all.set()
        writer.result(PATIENCE)
        stat = client.exists(fresh_path)
        assert stat is not None
        assert unknown <= len(unheard_of)
        assert done <= stat.version <= done + unknown


# --- settings -------------------------------------------------------------------------------------

MIB = 1 << 20


def test_hazard_A57_what_a_server_takes_can_be_sent() -> None:
    big = bytes(3 * MIB)
    with testing.Server(jute_maxbuffer=4 * MIB) as server:
        with Supervisor(server.hosts, send_limit=4 * MIB) as supervisor:
            client = supervisor.client(PATIENCE)
            client.create("/a", big)
            client.pipeline.set_data("/a", big).result(PATIENCE)
            client.multi([SetData("/a", big[MIB:]), Create("/b", big[2 * MIB :])])
            with client.transaction() as transaction:
                transaction.set_data("/b", big)
            assert client.multi_read([GetData("/b")])[0].data == big
            Queue(client, "/q").put(big)

        async def written() -> int:
            async with AsyncClient(server.hosts, send_limit=4 * MIB) as client:
                return (await client.set_data("/a", big)).data_length

        assert asyncio.run(written()) == len(big)
        with Client(server.hosts) as usual:
            for send in (
                lambda: usual.set_data("/a", big),
                lambda: usual.multi([SetData("/a", bytes(MIB - 200)), SetData("/b", bytes(200))]),
                lambda: usual.transaction().set_data("/a", big),
            ):
                with pytest.raises(ValueError, match="this client's send_limit is 1048575"):
                    send()


def test_hazard_A57_a_request_that_is_longer_than_a_server_takes_says_perhaps() -> None:
    """Whether all of it was sent decides which error it is: the server does not read on."""
    with testing.Server() as server, Client(server.hosts, send_limit=4 * MIB) as client:
        client.create("/a")
        with pytest.raises(ConnectionLossError, match=r"perhaps because of the 20000\d\d bytes"):
            client.set_data("/a", bytes(2_000_000))
        assert client.get_data("/a").data == b""


SUPER = digest_auth("super", "user")
SUPER_FLAG = "-Dzookeeper.DigestAuthenticationProvider.superDigest=" + digest_id("super", "user").id
READ_ONLY_FOR_BOB = [ACL(Perms.READ, digest_id("bob", "builder"))]


class Case(NamedTuple):
    """``ask`` makes a server send ``code``; ``{}`` in ``path`` is the test's own node."""

    code: int
    op: str
    path: str | None
    ask: Callable[[Client, str], object]


def check(case: Case, client: Client, node: str) -> None:
    """The case ends as it says, and the session goes on."""
    with pytest.raises(ServerError) as caught:
        case.ask(client, node)
    error = caught.value
    assert type(error) is SERVER_ERRORS[case.code]
    path = case.path.format(node) if case.path else None
    assert (error.code, error.op, error.path) == (case.code, case.op, path)
    assert error.maybe_applied == (case.code == -5)
    assert str(error).startswith(f"{case.op}")
    assert client.state in {State.CONNECTED, State.CONNECTED_READ_ONLY}


# --- what an ordinary server sends ----------------------------------------------------------------

NOBODYS = [ACL(Perms.ALL, Id("no-such", ""))]
ORDINARY = [
    Case(-8, "delete", "/zookeeper", lambda c, n: c.delete("/zookeeper")),
    Case(-101, "get_data", "{}/no", lambda c, n: c.get_data(f"{n}/no")),
    Case(-101, "create", "{}/no/x", lambda c, n: c.create(f"{n}/no/x")),
    Case(-102, "set_data", "{}/bob", lambda c, n: c.set_data(f"{n}/bob", b"")),
    Case(-103, "set_data", "{}", lambda c, n: c.set_data(n, b"", 9)),
    Case(-103, "set_acl", "{}", lambda c, n: c.set_acl(n, READ_ONLY_FOR_BOB, 9)),
    Case(-108, "create", "{}/mine/x", lambda c, n: c.create(f"{n}/mine/x")),
    Case(-110, "create", "{}", lambda c, n: c.create(n)),
    Case(-110, "create2", "{}", lambda c, n: c.create_with_stat(n)),
    Case(-110, "create_ttl", "{}", lambda c, n: c.create(n, ttl=3600)),
    Case(-110, "create_container", "{}", lambda c, n: c.create(n, container=True)),
    Case(-111, "delete", "{}", lambda c, n: c.delete(n)),
    Case(-114, "set_acl", "{}", lambda c, n: c.set_acl(n, NOBODYS)),
    # Its own table knows of no watch; a server is not even asked.
    Case(-121, "remove_watches", "{}", lambda c, n: c.remove_watches(n)),
    Case(-123, "reconfig", None, lambda c, n: c.reconfig(leaving=["3"])),
]


@pytest.mark.since("3.5")
def test_codes_of_an_ordinary_server(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        client.create(f"{fresh_path}/bob", b"", READ_ONLY_FOR_BOB)
        client.create(f"{fresh_path}/mine", ephemeral=True)
        for case in ORDINARY:
            check(case, client, fresh_path)
        with pytest.raises(MultiError) as caught:
            client.multi([Create(f"{fresh_path}/a"), Check(fresh_path, 9), Delete(fresh_path)])
        assert caught.value.code == -103
        last = caught.value.results[2]
        assert type(last) is RuntimeInconsistencyError
        assert (last.code, last.op, last.path) == (-2, "delete", fresh_path)
        for name in ("/mine", "/bob", ""):
            client.delete(fresh_path + name)


def without_watch(frame: Frame) -> Iterable[Step]:
    """The request, with the last byte, whether to set a watch, at 0."""
    return (Send(frame.raw[:-1] + b"\0"),)


@pytest.mark.since("3.5")
def test_no_such_watch_as_the_server_says_it(zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """A server that does not know of a watch which the client has: its word counts."""
    with Stage(zookeeper) as stage:
        client = stage.client()
        stage.proxy.on("exists", action=without_watch)
        client.exists(fresh_path, watch=Watch())
        with pytest.raises(NoWatcherError) as caught:
            client.remove_watches(fresh_path)
        assert (caught.value.code, caught.value.path) == (-121, fresh_path)
        replies = [f.error for f in stage.proxy.frames() if f.op == "remove_watches"]
        assert replies == [None, -121]


def test_an_unknown_scheme_is_refused_for_good(zookeeper: ZooKeeperServer) -> None:
    with Client(zookeeper.hosts) as client:
        with pytest.raises(AuthFailedError) as caught:  # -115
            client.add_auth("no-such", b"")
        assert caught.value.op == "auth"
        assert client.state is State.AUTH_FAILED


def test_a_server_that_wants_authentication_ends_the_session(sasl_zookeeper: SecureServer) -> None:
    with Client(sasl_zookeeper.hosts) as client:
        with pytest.raises(AuthFailedError) as caught:  # -124
            client.create("/x")
        assert (caught.value.op, caught.value.path) == ("create", "/x")
        assert not caught.value.maybe_applied
        assert client.state is State.AUTH_FAILED


# --- what a server sends that is set up for it ----------------------------------------------------

# Without TTL nodes, with quotas, and with reconfiguration although it is alone.
ODD = Settings(
    options={"reconfigEnabled": "true", "enforceQuota": "true"},
    java_flags=(SUPER_FLAG, "-Dzookeeper.extendedTypesEnabled=false"),
)
LOST = Settings(
    options={"reconfigEnabled": "true", "localSessionsEnabled": "true"},
    java_flags=(SUPER_FLAG, "-Dreadonlymode.enabled=true"),
)


@pytest.mark.since("3.7")
@pytest.mark.apache
def test_codes_of_a_server_that_is_set_up_for_them(backend: Backend, fresh_path: str) -> None:
    with backend.standalone(ODD) as server, Client(server.hosts, auth=[SUPER]) as client:
        client.create(fresh_path)
        limits = f"/zookeeper/quota{fresh_path}"
        client.ensure_path(limits)
        client.create(f"{limits}/zookeeper_limits", b"count=-1,bytes=-1,countHardLimit=1")
        client.create(f"{limits}/zookeeper_stats", b"count=1,bytes=0")
        for case in (
            Case(-6, "create_ttl", "{}/t", lambda c, n: c.create(n + "/t", ttl=1)),
            Case(-6, "reconfig", None, lambda c, n: c.reconfig(leaving=["3"])),
            Case(-125, "create", "{}/x", lambda c, n: c.create(n + "/x")),
        ):
            check(case, client, fresh_path)


@pytest.fixture
def odd_ensemble(backend: Backend) -> Iterator[Ensemble]:
    """Three servers with local sessions, read-only mode and reconfiguration."""
    with backend.ensemble(LOST) as ensemble:
        yield ensemble


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_codes_of_an_ensemble_that_is_set_up_for_them(
    odd_ensemble: Ensemble, fresh_path: str
) -> None:
    leader = odd_ensemble.leader()
    with Client(leader.hosts, auth=[SUPER]) as client:
        strangers = [f"server.{n}=127.0.0.1:{n}:{n + 9};{n + 90}" for n in (8, 9)]
        text = client.get_config().data.decode().splitlines()
        ports = [server.port for server in odd_ensemble.servers]
        me = f"{text[ports.index(leader.port)].partition(';')[0]};127.0.0.1:{leader.port}"
        for case in (
            Case(-120, "create", "{}", lambda c, n: c.create(n, ephemeral=True)),
            Case(-13, "reconfig", None, lambda c, n: c.reconfig(members=[me, *strangers])),
            Case(-8, "reconfig", None, lambda c, n: c.reconfig(members=[me])),
            Case(-5, "reconfig", None, lambda c, n: c.reconfig(leaving=["one"])),
            Case(-103, "reconfig", None, lambda c, n: c.reconfig(leaving=["3"], version=1 << 40)),
        ):
            check(case, client, fresh_path)
        assert client.get_config().data.decode().splitlines() == text
    follower = next(s for s in odd_ensemble.servers if s.port != leader.port)
    for server in (leader, follower):  # a follower passes on that its session has expired
        with Client(server.hosts) as client:
            for before in ([], [Create(f"{fresh_path}-before")]):
                with pytest.raises(MultiError, match="localSessionsUpgradingEnabled") as caught:
                    client.multi([*before, Create(f"{fresh_path}-mine", ephemeral=True)])
                assert type(caught.value.__cause__) is EphemeralOnLocalSessionError
                assert caught.value.index == len(before)
                assert client.state is State.CONNECTED
    # Before it is read-only it would make a session of its own, and forget that.
    last = odd_ensemble.leave_read_only()
    with Client(last.hosts, read_only=True, session_timeout=30) as client:
        assert client.state is State.CONNECTED_READ_ONLY
        assert client.exists(fresh_path) is None
        for case in (
            Case(-119, "create", "{}", lambda c, n: c.create(n)),
            Case(-119, "sync", "{}", lambda c, n: c.sync(n)),
            Case(-119, "multi", None, lambda c, n: c.multi([Create(n)])),
        ):
            check(case, client, fresh_path)
