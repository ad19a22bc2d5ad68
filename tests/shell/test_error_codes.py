"""Every documented error code: the exception it becomes, from a real server where one sends it.

A code that no real server can be made to send is forced out of the embedded one; so that nothing
depends on luck there, all others are forced once more. Which class each code has is in
tests/unit/test_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest

from tests.support.lock_helpers import Stage
from tests.support.secure_servers import SecureServer
from tests.support.server_control import Backend, Ensemble, Settings, ZooKeeperServer
from zkwire import (
    ACL,
    AuthFailedError,
    Check,
    Client,
    Create,
    Delete,
    EphemeralOnLocalSessionError,
    Id,
    MultiError,
    NoWatcherError,
    Perms,
    RuntimeInconsistencyError,
    ServerError,
    State,
    Watch,
    digest_auth,
    digest_id,
)
from zkwire.errors import SERVER_ERRORS
from zkwire.testing.proxy import Frame
from zkwire.testing.proxy.faults import Send, Step

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
