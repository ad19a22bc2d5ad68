"""Every operation of the client: both ways to ask, with and without a chroot.

A real server gets one of them, a blocking call with a chroot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.server_control import Backend, Ensemble, Settings, ZooKeeperServer, poll
from zkwire import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    AuthFailedError,
    BadVersionError,
    Check,
    Client,
    ClientClosedError,
    ClientInfo,
    Create,
    Delete,
    EventType,
    GetChildren,
    GetData,
    Id,
    InvalidACLError,
    MultiError,
    NewConfigNoQuorumError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NoWatcherError,
    Perms,
    ReconfigDisabledError,
    ReconfigInProgressError,
    RuntimeInconsistencyError,
    SetData,
    State,
    Watch,
    WatchType,
    digest_auth,
    digest_id,
)
from zkwire.jute.records import CreateRequest, CreateTTLRequest
from zkwire.testing.proxy import FaultProxy

PATIENCE = 30.0
TTL = 3600.0  # nothing is to be deleted meanwhile

ALICE = digest_auth("alice", "wonder:land")
ALICE_ALL = [ACL(Perms.ALL, digest_id("alice", "wonder:land"))]
Refused = list[tuple[type[Exception], Callable[[], object]]]


class Ways:
    """One client's operations, each waited for: ``ways.get_data(path)``.

    ``base`` is the node below which it works, ``outside`` a client that has no chroot.
    """

    def __init__(self, client: Client, base: str, outside: Client, top: str, piped: bool) -> None:
        self.client, self.base, self.outside = client, base, outside
        self._top, self._piped = top, piped

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if not self._piped:
            return getattr(self.client, verb)

        def operation(*arguments: object, **named: object) -> Any:
            return getattr(self.client.pipeline, verb)(*arguments, **named).result(PATIENCE)

        return operation

    def server_path(self, path: str) -> str:
        """What the server calls a path of the client."""
        return self._top + path


@pytest.fixture
def outside(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Client]:
    """A client without a chroot, with ``fresh_path`` created for the length of the test."""
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        yield client
        client.add_auth(*ALICE)
        client.delete_tree(fresh_path)


OWN = pytest.mark.own_server


@pytest.fixture(
    params=[
        pytest.param((False, False), id="blocking"),
        pytest.param((True, False), id="pipeline", marks=OWN),
        pytest.param((False, True), id="blocking-whole", marks=OWN),
        pytest.param((True, True), id="pipeline-whole", marks=OWN),
    ]
)
def ways(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, outside: Client, fresh_path: str
) -> Iterator[Ways]:
    piped, whole = request.param
    top, base = ("", fresh_path) if whole else (fresh_path, "/base")
    with Client(zookeeper.hosts + top) as client:
        if top:
            client.create(base)
        yield Ways(client, base, outside, top, piped)


def assert_refused(calls: Refused, *paths: str) -> None:
    """Each with its error, which names the path, if there is one to name."""
    for error, call in calls:
        with pytest.raises(error) as caught:
            call()
        assert not paths or getattr(caught.value, "path", None) in paths


# --- nodes ----------------------------------------------------------------------------------------

MODES: dict[str, dict[str, Any]] = {
    "persistent": {},
    "ephemeral": {"ephemeral": True},
    "sequential": {"sequential": True},
    "ephemeral sequential": {"ephemeral": True, "sequential": True},
    "container": {"container": True},
    "ttl": {"ttl": TTL},
    "ttl sequential": {"ttl": TTL, "sequential": True},
}


@pytest.mark.since("3.5")
@pytest.mark.parametrize("verb", ["create", "create_with_stat"])
def test_create_in_every_mode(ways: Ways, verb: str) -> None:
    for number, (name, mode) in enumerate(MODES.items()):
        wanted = f"{ways.base}/n{number}"
        made = getattr(ways, verb)(wanted, b"data", **mode)
        path = made if verb == "create" else made.path
        assert path == wanted + f"{number:010}" * mode.get("sequential", False), name
        data, stat = ways.get_data(path)
        assert data == b"data"
        assert stat.ephemeral_owner == (ways.client.session_id if mode.get("ephemeral") else 0)
        assert verb == "create" or made.stat == stat
        assert ways.outside.exists(ways.server_path(path)) == stat
        assert ways.get_acl(path).acl == list(OPEN_ACL_UNSAFE)


ON_THE_WIRE: list[tuple[dict[str, Any], str, int, int | None]] = [
    ({}, "create", 0, None),
    ({"ephemeral": True}, "create", 1, None),
    ({"sequential": True}, "create", 2, None),
    ({"ephemeral": True, "sequential": True}, "create", 3, None),
    ({"container": True}, "create_container", 4, None),
    ({"ttl": 0.001}, "create_ttl", 5, 1),
    ({"ttl": 90}, "create_ttl", 5, 90_000),
    ({"ttl": 1.5, "sequential": True}, "create_ttl", 6, 1500),
    ({"ttl": (2**40 - 1) / 1000}, "create_ttl", 5, 2**40 - 1),
]


@pytest.mark.since("3.5")
def test_a_mode_on_the_wire(outside: Client, zookeeper: ZooKeeperServer, fresh_path: str) -> None:
    """A node's stat does not tell a container, nor a node with a time to live, from any other."""
    with FaultProxy(zookeeper.hosts) as proxy, Client(proxy.hosts) as client:
        for number, (mode, op, flags, ttl) in enumerate(ON_THE_WIRE):
            proxy.reset()
            client.create(f"{fresh_path}/{number}", **mode)
            (request,) = [f for f in proxy.frames() if f.number is not None]
            assert request.op == op
            kind: Any = CreateRequest if ttl is None else CreateTTLRequest
            record = kind.decode(request.body, 8)
            assert (record.flags, getattr(record, "ttl", None)) == (flags, ttl)


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_a_server_deletes_containers_and_what_has_outlived_its_time(backend: Backend) -> None:
    often = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))
    with backend.standalone(often) as server, Client(server.hosts) as client:
        client.create("/stays", ttl=TTL)
        client.create("/container", container=True)
        client.create("/container/child")
        short = [client.create("/t", ttl=0.1), client.create("/ts-", ttl=0.1, sequential=True)]
        client.delete("/container/child")
        paths = (*short, "/container")
        poll("gone", lambda: not any(map(client.exists, paths)) or None, PATIENCE)
        assert client.exists("/stays") is not None


@pytest.mark.since("3.5")
def test_read_write_and_delete(ways: Ways) -> None:
    path, ephemeral = f"{ways.base}/n", f"{ways.base}/e"
    assert ways.exists(path) is None
    ways.create(path, b"0", container=True)
    assert ways.set_data(path, b"\0\xff" * 500, 0).version == 1
    data, stat = ways.get_data(path)
    assert (data, stat.version, stat.data_length) == (b"\0\xff" * 500, 1, 1000)
    assert ways.exists(path) == stat
    assert ways.sync(path) is None
    assert ways.get_children(ways.base) == ["n"]
    names, parent = ways.get_children_with_stat(ways.base)
    assert (names, parent.num_children) == (["n"], 1)
    stale: Refused = [
        (BadVersionError, lambda: ways.set_data(path, b"", 0)),
        (BadVersionError, lambda: ways.delete(path, 0)),
        (NodeExistsError, lambda: ways.create(path, ttl=TTL)),
    ]
    assert_refused(stale, path)
    ways.create(f"{path}/child")
    ways.create(ephemeral, ephemeral=True)
    assert_refused([(NotEmptyError, lambda: ways.delete(path))], path)
    child = f"{ephemeral}/child"
    assert_refused([(NoChildrenForEphemeralsError, lambda: ways.create(child))], child)
    ways.delete(f"{path}/child")
    assert ways.delete(path, 1) is None
    assert_refused([(NoNodeError, lambda: ways.delete(path))], path)


@pytest.mark.since("3.6")
def test_what_is_below_a_path(ways: Ways) -> None:
    """All children at every depth, and the session's own ephemeral nodes."""
    for path in ("/d", "/d/b", "/d/b/c"):
        ways.create(ways.base + path)
    assert ways.get_all_children_number(ways.base) == 3
    assert ways.get_all_children_number(f"{ways.base}/d/b/c") == 0
    assert_refused([(NoNodeError, lambda: ways.get_all_children_number(f"{ways.base}/no"))])
    paths = [f"{ways.base}/{name}" for name in ("a", "ab", "b")]
    for path in paths:
        ways.create(path, ephemeral=True)
    theirs = ways.outside.create(ways.server_path(f"{ways.base}/theirs"), ephemeral=True)
    assert sorted(ways.get_ephemerals()) == paths
    assert sorted(ways.get_ephemerals(f"{ways.base}/a")) == paths[:2]
    assert ways.get_ephemerals(f"{ways.base}/no") == []
    ways.outside.delete(theirs)


# --- access lists and identities ------------------------------------------------------------------


def test_only_who_has_the_rights_reads_writes_and_sees_hashes(ways: Ways) -> None:
    path = f"{ways.base}/secret"
    acl = [*ALICE_ALL, ACL(Perms.READ, Id("world", "anyone"))]
    ways.create(path, b"data", acl)
    shown, stat = ways.get_acl(path)
    assert shown == [ACL(Perms.ALL, Id("digest", "alice:x")), acl[1]]  # not the hash
    assert stat.aversion == 0
    assert ways.get_data(path).data == b"data"
    refused: Refused = [
        (NoAuthError, lambda: ways.set_data(path, b"x")),
        (NoAuthError, lambda: ways.create(f"{path}/child")),
        (NoAuthError, lambda: ways.set_acl(path, OPEN_ACL_UNSAFE)),
    ]
    assert_refused(refused, path, f"{path}/child")
    assert ways.add_auth(*ALICE) is None
    assert ways.get_acl(path).acl == acl
    assert ways.set_data(path, b"x").version == 1
    assert ways.set_acl(path, READ_ACL_UNSAFE, 0).aversion == 1
    assert ways.get_acl(path).acl == list(READ_ACL_UNSAFE)
    strange, new = [ACL(Perms.ALL, Id("no-such-scheme", "x"))], f"{ways.base}/n"
    versions: Refused = [
        (BadVersionError, lambda: ways.set_acl(ways.base, OPEN_ACL_UNSAFE, 7)),
        (NoNodeError, lambda: ways.set_acl(new, OPEN_ACL_UNSAFE)),
        (NoNodeError, lambda: ways.get_acl(new)),
        (InvalidACLError, lambda: ways.create(new, b"", strange)),
        (InvalidACLError, lambda: ways.set_acl(ways.base, strange)),
    ]
    assert_refused(versions)
    assert ways.exists(new) is None


def test_the_creator_is_all_that_the_connection_is_authenticated_as(ways: Ways) -> None:
    path = f"{ways.base}/mine"
    assert_refused([(InvalidACLError, lambda: ways.create(path, b"", CREATOR_ALL_ACL))])
    ways.add_auth(*ALICE)
    ways.add_auth(*digest_auth("bob", "builder"))
    ways.create(path, b"", CREATOR_ALL_ACL)
    ids = {entry.id for entry in ways.get_acl(path).acl}
    assert ids == {digest_id("alice", "wonder:land"), digest_id("bob", "builder")}
    assert_refused([(NoAuthError, lambda: ways.outside.get_data(ways.server_path(path)))])
    # Who may delete depends on the parent.
    ways.delete(path)


@pytest.mark.since("3.7")
def test_who_am_i(ways: Ways) -> None:
    alone = ways.who_am_i()
    assert alone == [ClientInfo("ip", "127.0.0.1")]
    ways.add_auth(*ALICE)
    assert set(ways.who_am_i()) == {*alone, ClientInfo("digest", "alice")}


@pytest.mark.since("3.5")
def test_authentication_takes_effect_for_the_requests_behind_it(
    zookeeper: ZooKeeperServer, outside: Client, fresh_path: str
) -> None:
    path = outside.create(f"{fresh_path}/secret", b"data", ALICE_ALL)
    with Client(zookeeper.hosts) as client:
        pipeline = client.pipeline
        early, authentication = pipeline.get_data(path), pipeline.add_auth(*ALICE)
        replies = [pipeline.get_data(path) for _ in range(50)]
        with pytest.raises(NoAuthError):
            early.result(PATIENCE)
        assert authentication.result(PATIENCE) is None
        assert [reply.result(PATIENCE).data for reply in replies] == [b"data"] * 50
    with Client(zookeeper.hosts, auth=[ALICE]) as client:
        assert client.get_data(path).data == b"data"
    wrong = digest_auth("alice", "wrong")
    with Client(zookeeper.hosts, auth=[wrong]) as client, pytest.raises(NoAuthError):
        client.get_data(path)


def test_an_unknown_scheme_ends_the_session(ways: Ways) -> None:
    with pytest.raises(AuthFailedError) as caught:
        ways.add_auth("no-such-scheme", b"x")
    assert caught.value.op == "auth"
    assert ways.client.state is State.AUTH_FAILED
    with pytest.raises(AuthFailedError):
        ways.exists("/")


# --- multi ----------------------------------------------------------------------------------------


@pytest.mark.since("3.5")
def test_multi_does_all_of_it(ways: Ways) -> None:
    base = ways.base
    results = ways.multi(
        [
            Create(f"{base}/a", b"1"),
            Check(f"{base}/a", 0),
            SetData(f"{base}/a", b"2", 0),
            Create(f"{base}/s-", sequential=True, ephemeral=True),
            Create(f"{base}/gone"),
            Delete(f"{base}/gone", 0),
            Create(f"{base}/c", container=True),
            Create(f"{base}/t", ttl=TTL),
            Create(f"{base}/ts-", ttl=TTL, sequential=True),
        ]
    )
    assert [results[0], results[3]] == [f"{base}/a", f"{base}/s-0000000001"]
    assert results[2].version == 1
    assert [results[1], results[5]] == [None, None]
    assert results[6:] == [f"{base}/c", f"{base}/t", f"{base}/ts-0000000005"]
    stats = [ways.exists(path) for path in (results[0], results[3], *results[6:])]
    assert len({stat.czxid for stat in stats}) == 1  # all in one transaction
    assert stats[1].ephemeral_owner == ways.client.session_id
    assert ways.exists(f"{base}/gone") is None
    assert ways.multi([]) == []


FAILURES: list[tuple[Callable[[str], Any], type[Exception]]] = [
    (lambda base: Create(f"{base}/x/y"), NoNodeError),
    (Create, NodeExistsError),
    (lambda base: Delete(f"{base}/x"), NoNodeError),
    (lambda base: Delete(base, 7), BadVersionError),
    (Delete, NotEmptyError),
    (lambda base: SetData(base, b"", 7), BadVersionError),
    (lambda base: Check(base, 7), BadVersionError),
    (lambda base: Check(f"{base}/x"), NoNodeError),
    (lambda base: Create(f"{base}/x", b"", CREATOR_ALL_ACL), InvalidACLError),
    (lambda base: Create(f"{base}/x", b"", CREATOR_ALL_ACL, container=True), InvalidACLError),
    (lambda base: Create(f"{base}/no/x", ttl=TTL), NoNodeError),
]


@pytest.mark.since("3.5")
def test_multi_does_nothing_of_it(ways: Ways) -> None:
    base, child = ways.base, f"{ways.base}/child"
    ways.create(child)
    for culprit, expected in FAILURES:
        around = Create(f"{base}/new"), SetData(base, b"new"), Check(base), Delete(child)
        with pytest.raises(MultiError) as caught:
            ways.multi([*around[:2], culprit(base), *around[2:]])
        error = caught.value
        kinds = [type(result) for result in error.results]
        none, skipped = type(None), RuntimeInconsistencyError
        assert (error.index, kinds) == (2, [none, none, expected, skipped, skipped])
        failed, last = error.results[2], error.results[4]
        assert failed is not None
        assert last is not None
        assert error.__cause__ is failed
        assert error.code == failed.code
        assert not error.maybe_applied
        assert (failed.path or "").startswith(base)
        assert last.path == child
        assert ways.get_children(base) == ["child"]
        assert ways.get_data(base).data == b""


def test_transaction(ways: Ways) -> None:
    base, client = ways.base, ways.client
    with client.transaction() as t:
        created = t.create(f"{base}/a", b"1")
        t.set_data(f"{base}/a", b"2", 0)
        t.check(f"{base}/a", 1)
        with pytest.raises(RuntimeError):
            created.result()  # not yet
        assert client.exists(f"{base}/a") is None
        t.create(f"{base}/b-", sequential=True)
        t.delete(f"{base}/a", 1)
    assert t.results[0] == created.result() == f"{base}/a"
    assert t.results[1].version == 1
    assert t.results[2:] == [None, f"{base}/b-0000000001", None]
    t = client.transaction()
    t.create(f"{base}/c")
    t.check(f"{base}/a")
    with pytest.raises(MultiError) as caught:
        t.commit()
    assert caught.value.index == 1
    with pytest.raises(ZeroDivisionError), client.transaction() as t:  # noqa: PT012
        t.create(f"{base}/c")
        raise ZeroDivisionError
    assert client.get_children(base) == ["b-0000000001"]
    with client.transaction() as t:  # a block that has committed commits nothing more
        t.create(f"{base}/once")
        t.commit()
    assert t.results == [f"{base}/once"]


@pytest.mark.since("3.6")
def test_multi_read_has_a_result_or_an_error_for_each(ways: Ways) -> None:
    base = ways.base
    ways.create(f"{base}/a", b"data")
    ways.create(f"{base}/secret", b"", ALICE_ALL)
    reads = GetData(f"{base}/a"), GetChildren(base), GetChildren(f"{base}/no")
    data, children, missing, refused, last = ways.multi_read(
        [*reads, GetData(f"{base}/secret"), GetData(base)]
    )
    assert data == ways.get_data(f"{base}/a")
    assert sorted(children) == ["a", "secret"]
    assert type(missing) is NoNodeError
    assert (missing.op, missing.path) == ("get_children", f"{base}/no")
    assert type(refused) is NoAuthError
    assert last.stat.num_children == 2
    assert ways.multi_read([]) == []


# --- the ensemble's configuration -----------------------------------------------------------------


@pytest.mark.since("3.5")
def test_a_server_on_its_own_has_an_empty_configuration(ways: Ways) -> None:
    data, stat = ways.get_config()
    assert (data, stat.czxid) == (b"", 0)
    watch = Watch()
    assert ways.get_config(watch=watch) == (data, stat)
    watch.close()
    for arguments in ({"leaving": ["3"]}, {"members": ["server.1=h:1:2;3"], "version": 7}):
        with pytest.raises(ReconfigDisabledError) as caught:
            ways.reconfig(**arguments)
        assert (caught.value.code, caught.value.op) == (-123, "reconfig")
        assert not caught.value.maybe_applied


def entries(config: bytes) -> dict[str, str]:
    """The lines of a configuration."""
    return dict(line.split("=", 1) for line in config.decode().splitlines())


@pytest.mark.since("3.5")
def test_an_ensemble_tells_its_members(ensemble: Ensemble, fresh_path: str) -> None:
    with Client(ensemble.hosts) as client:
        config = client.get_config().data
        client.create(fresh_path)
        assert list(entries(config)) == ["server.1", "server.2", "server.3", "version"]
        with Client(ensemble.hosts + fresh_path) as inside:  # the node stands outside of chroots
            assert inside.get_config().data == config
        client.delete(fresh_path)


RECONFIGURABLE = Settings(
    options={"reconfigEnabled": "true"},
    java_flags=(
        "-Dzookeeper.DigestAuthenticationProvider.superDigest=" + digest_id("super", "user").id,
    ),
)


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_a_member_leaves_the_ensemble_and_joins_again(backend: Backend) -> None:
    with backend.ensemble(RECONFIGURABLE) as ensemble, ExitStack() as stack:
        # The leader answers; a client of the member that leaves would lose its connection.
        leader = ensemble.leader()
        numbered = enumerate(ensemble.servers, 1)
        number, other = next(each for each in numbered if each[1] is not leader)
        name = f"server.{number}"
        nobody = stack.enter_context(Client(leader.hosts))
        client = stack.enter_context(Client(leader.hosts, auth=[digest_auth("super", "user")]))
        watch = Watch()
        before, stat = client.get_config(watch=watch)
        members = entries(before)
        version, leaving = int(members["version"], 16), [str(number)]
        assert_refused(
            [
                (NoAuthError, lambda: nobody.reconfig(leaving=leaving)),
                (BadVersionError, lambda: client.reconfig(leaving=leaving, version=version + 1)),
            ]
        )
        after, changed = client.reconfig(leaving=leaving, version=version)
        now = entries(after)
        assert set(now) == set(members) - {name}
        assert int(now["version"], 16) > version
        assert changed.mzxid > stat.mzxid
        assert_fires(watch, EventType.NODE_DATA_CHANGED, "/zookeeper/config")
        assert client.get_config().data == after
        address = members[name].partition(";")[0]
        joining = f"{name}={address};127.0.0.1:{other.port}"

        def join() -> bytes | None:
            try:
                return client.pipeline.reconfig(joining=[joining]).result(PATIENCE).data
            except (NewConfigNoQuorumError, ReconfigInProgressError):
                return None

        joined = entries(poll("the member has joined", join, PATIENCE))
        assert set(joined) == set(members)
        assert int(joined["version"], 16) > int(now["version"], 16)


# --- watches as such ------------------------------------------------------------------------------


def assert_fires(watch: Watch, kind: EventType, path: str) -> None:
    event = watch.wait(PATIENCE)
    assert event is not None
    assert (event.type, event.path) == (kind, path)


@pytest.mark.since("3.6")
def test_add_watch_fires_until_it_is_closed(ways: Ways) -> None:
    path, watch = f"{ways.base}/n", Watch()
    there = ways.server_path(path)
    assert ways.add_watch(path, watch) is watch
    ways.outside.create(there)
    ways.outside.set_data(there, b"x")
    ways.outside.delete(there)
    for kind in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED):
        assert_fires(watch, kind, path)
    watch.close()
    with pytest.raises(ClientClosedError):
        watch.wait(0)


@pytest.mark.since("3.5")
def test_remove_watches_tells_each_watch(ways: Ways) -> None:
    one, two, child = Watch(), Watch(), Watch()
    ways.get_data(ways.base, watch=one)
    ways.exists(ways.base, watch=two)
    ways.get_children(ways.base, watch=child)
    assert ways.remove_watches(ways.base, WatchType.DATA) is None
    for watch in (one, two):
        assert_fires(watch, EventType.DATA_WATCH_REMOVED, ways.base)
    assert_refused([(NoWatcherError, lambda: ways.remove_watches(ways.base, WatchType.DATA))])
    ways.outside.create(ways.server_path(f"{ways.base}/x"))
    assert_fires(child, EventType.NODE_CHILDREN_CHANGED, ways.base)  # the other is untouched
    assert_refused([(NoWatcherError, lambda: ways.remove_watches(ways.base))], ways.base)
