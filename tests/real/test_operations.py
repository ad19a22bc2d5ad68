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
CONFIG_NODE = "/zookeeper/config"
TTL = 3600.0  # nothing is to be deleted meanwhile

ALICE = digest_auth("alice", "wonder:land")
ALICE_ALL = [ACL(Perms.ALL, digest_id("alice", "wonder:land"))]


class Ask:
    """One client's operations, each waited for: ``ask.get_data(path)``."""

    def __init__(self, client: Client, *, pipelined: bool) -> None:
        self._client = client
        self._pipelined = pipelined

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if not self._pipelined:
            return getattr(self._client, verb)

        def operation(*arguments: object, **named: object) -> Any:
            return getattr(self._client.pipeline, verb)(*arguments, **named).result(PATIENCE)

        return operation


class Scene:
    """A client, the node ``base`` below which it works, and ``outside``, which has no chroot."""

    def __init__(self, client: Client, base: str, outside: Client, top: str) -> None:
        self.client = client
        self.base = base
        self.outside = outside
        self._top = top
        self._pipelined = False

    def asked(self, *, pipelined: bool) -> Scene:
        self._pipelined = pipelined
        return self

    @property
    def ask(self) -> Ask:
        return Ask(self.client, pipelined=self._pipelined)

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


@pytest.fixture(params=[pytest.param("whole", marks=pytest.mark.own_server), "chroot"])
def scene(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, outside: Client, fresh_path: str
) -> Iterator[Scene]:
    """A client of its own, with and without a chroot."""
    top, base = ("", fresh_path) if request.param == "whole" else (fresh_path, "/base")
    with Client(zookeeper.hosts + top) as client:
        if top:
            client.create(base)
        yield Scene(client, base, outside, top)


@pytest.fixture(params=["blocking", pytest.param("pipeline", marks=pytest.mark.own_server)])
def ways(request: pytest.FixtureRequest, scene: Scene) -> Scene:
    """The scene with both ways to ask."""
    return scene.asked(pipelined=request.param == "pipeline")


# --- nodes ----------------------------------------------------------------------------------------

MODES: list[tuple[str, dict[str, Any]]] = [
    ("persistent", {}),
    ("ephemeral", {"ephemeral": True}),
    ("sequential", {"sequential": True}),
    ("ephemeral sequential", {"ephemeral": True, "sequential": True}),
    ("container", {"container": True}),
    ("ttl", {"ttl": TTL}),
    ("ttl sequential", {"ttl": TTL, "sequential": True}),
]


@pytest.mark.since("3.5")
@pytest.mark.parametrize("verb", ["create", "create_with_stat"])
@pytest.mark.parametrize(("name", "mode"), MODES, ids=[name for name, _ in MODES])
def test_create_in_every_mode(ways: Scene, verb: str, name: str, mode: dict[str, Any]) -> None:
    wanted = f"{ways.base}/n"
    made = getattr(ways.ask, verb)(wanted, b"data", **mode)
    path = made if verb == "create" else made.path
    assert path == wanted + ("0000000000" if mode.get("sequential") else "")
    data, stat = ways.ask.get_data(path)
    assert data == b"data"
    assert stat.ephemeral_owner == (ways.client.session_id if mode.get("ephemeral") else 0)
    if verb == "create_with_stat":
        assert made.stat == stat
    assert ways.outside.exists(ways.server_path(path)) == stat
    assert ways.ask.get_acl(path).acl == list(OPEN_ACL_UNSAFE)


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
            if ttl is None:
                assert CreateRequest.decode(request.body, 8).flags == flags
            else:
                record = CreateTTLRequest.decode(request.body, 8)
                assert (record.flags, record.ttl) == (flags, ttl)


OFTEN = Settings(java_flags=("-Dznode.container.checkIntervalMs=100",))


@pytest.mark.since("3.5")
@pytest.mark.apache
def test_a_server_deletes_containers_and_what_has_outlived_its_time(backend: Backend) -> None:
    with backend.standalone(OFTEN) as server, Client(server.hosts) as client:
        client.create("/stays", ttl=TTL)
        client.create("/container", container=True)
        client.create("/container/child")
        short = [client.create("/t", ttl=0.1), client.create("/ts-", ttl=0.1, sequential=True)]
        client.delete("/container/child")
        paths = (*short, "/container")

        def gone() -> bool | None:
            return not any(client.exists(path) for path in paths) or None

        poll("they are gone", gone, PATIENCE)
        assert client.exists("/stays") is not None


@pytest.mark.since("3.5")
def test_children_of_containers_and_not_of_ephemerals(ways: Scene) -> None:
    container, ephemeral = f"{ways.base}/c", f"{ways.base}/e"
    ways.ask.create(container, container=True)
    ways.ask.create(f"{container}/child")
    ways.ask.create(ephemeral, ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        ways.ask.create(f"{ephemeral}/child")
    with pytest.raises(NodeExistsError):
        ways.ask.create(container, ttl=TTL)
    with pytest.raises(NotEmptyError):
        ways.ask.delete(container)


def test_read_write_and_delete(ways: Scene) -> None:
    path = f"{ways.base}/n"
    assert ways.ask.exists(path) is None
    ways.ask.create(path, b"0")
    assert ways.ask.set_data(path, b"\0\xff" * 500, 0).version == 1
    with pytest.raises(BadVersionError) as caught:
        ways.ask.set_data(path, b"", 0)
    assert caught.value.path == path
    data, stat = ways.ask.get_data(path)
    assert (data, stat.version, stat.data_length) == (b"\0\xff" * 500, 1, 1000)
    assert ways.ask.exists(path) == stat
    assert ways.ask.sync(path) is None
    assert ways.ask.get_children(ways.base) == ["n"]
    names, parent = ways.ask.get_children_with_stat(ways.base)
    assert (names, parent.num_children) == (["n"], 1)
    with pytest.raises(BadVersionError):
        ways.ask.delete(path, 0)
    assert ways.ask.delete(path, 1) is None
    with pytest.raises(NoNodeError):
        ways.ask.delete(path)


@pytest.mark.since("3.6")
def test_get_all_children_number_counts_every_depth(ways: Scene) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/d"):
        ways.ask.create(ways.base + path)
    assert ways.ask.get_all_children_number(ways.base) == 4
    assert ways.ask.get_all_children_number(f"{ways.base}/a/b/c") == 0
    with pytest.raises(NoNodeError):
        ways.ask.get_all_children_number(f"{ways.base}/no")


@pytest.mark.since("3.6")
def test_get_ephemerals_are_the_sessions_own_below_a_prefix(ways: Scene) -> None:
    paths = [f"{ways.base}/{name}" for name in ("a", "ab", "b")]
    for path in paths:
        ways.ask.create(path, ephemeral=True)
    ways.ask.create(f"{ways.base}/plain")
    ways.outside.create(ways.server_path(f"{ways.base}/theirs"), ephemeral=True)
    assert sorted(ways.ask.get_ephemerals()) == paths
    assert sorted(ways.ask.get_ephemerals(f"{ways.base}/a")) == paths[:2]
    assert ways.ask.get_ephemerals(f"{ways.base}/no") == []
    ways.outside.delete(ways.server_path(f"{ways.base}/theirs"))


# --- access lists and identities ------------------------------------------------------------------


def test_only_who_has_the_rights_reads_writes_and_sees_hashes(ways: Scene) -> None:
    path = f"{ways.base}/secret"
    acl = [*ALICE_ALL, ACL(Perms.READ, Id("world", "anyone"))]
    ways.ask.create(path, b"data", acl)
    shown, stat = ways.ask.get_acl(path)
    assert shown == [ACL(Perms.ALL, Id("digest", "alice:x")), acl[1]]  # not the hash
    assert stat.aversion == 0
    assert ways.ask.get_data(path).data == b"data"
    calls: list[Callable[[], object]] = [
        lambda: ways.ask.set_data(path, b"x"),
        lambda: ways.ask.create(f"{path}/child"),
        lambda: ways.ask.set_acl(path, OPEN_ACL_UNSAFE),
    ]
    for refused in calls:
        with pytest.raises(NoAuthError) as caught:
            refused()
        assert caught.value.path in {path, f"{path}/child"}
    assert ways.ask.add_auth(*ALICE) is None
    assert ways.ask.get_acl(path).acl == acl
    assert ways.ask.set_data(path, b"x").version == 1
    assert ways.ask.set_acl(path, READ_ACL_UNSAFE, 0).aversion == 1
    assert ways.ask.get_acl(path).acl == list(READ_ACL_UNSAFE)


def test_set_acl_has_a_version_of_its_own(ways: Scene) -> None:
    path = f"{ways.base}/n"
    ways.ask.create(path)
    assert ways.ask.set_acl(path, OPEN_ACL_UNSAFE, 0).aversion == 1
    with pytest.raises(BadVersionError):
        ways.ask.set_acl(path, OPEN_ACL_UNSAFE, 0)
    with pytest.raises(NoNodeError):
        ways.ask.set_acl(f"{path}/no", OPEN_ACL_UNSAFE)
    with pytest.raises(NoNodeError):
        ways.ask.get_acl(f"{path}/no")


def test_an_acl_that_the_server_does_not_understand(ways: Scene) -> None:
    path = f"{ways.base}/n"
    strange = [ACL(Perms.ALL, Id("no-such-scheme", "x"))]
    calls: list[Callable[[], object]] = [
        lambda: ways.ask.create(path, b"", strange),
        lambda: ways.ask.create(path, b"", CREATOR_ALL_ACL),  # nobody is authenticated
        lambda: ways.ask.set_acl(ways.base, strange),
    ]
    for refused in calls:
        with pytest.raises(InvalidACLError):
            refused()
    assert ways.ask.exists(path) is None


def test_the_creator_is_all_that_the_connection_is_authenticated_as(ways: Scene) -> None:
    path = f"{ways.base}/mine"
    ways.ask.add_auth(*ALICE)
    ways.ask.add_auth(*digest_auth("bob", "builder"))
    ways.ask.create(path, b"", CREATOR_ALL_ACL)
    ids = {entry.id for entry in ways.ask.get_acl(path).acl}
    assert ids == {digest_id("alice", "wonder:land"), digest_id("bob", "builder")}
    with pytest.raises(NoAuthError):
        ways.outside.get_data(ways.server_path(path))
    # Who may delete depends on the parent.
    ways.ask.delete(path)


@pytest.mark.since("3.7")
def test_who_am_i(ways: Scene, zookeeper: ZooKeeperServer) -> None:
    alone = ways.ask.who_am_i()
    assert alone == [ClientInfo("ip", "127.0.0.1")]
    ways.ask.add_auth(*ALICE)
    assert set(ways.ask.who_am_i()) == {*alone, ClientInfo("digest", "alice")}


@pytest.mark.since("3.5")
def test_authentication_takes_effect_for_the_requests_behind_it(
    outside: Client, ways: Scene
) -> None:
    path = f"{ways.base}/secret"
    outside.create(ways.server_path(path), b"data", ALICE_ALL)
    pipeline = ways.client.pipeline
    replies: list[Any] = [
        pipeline.get_data(path),
        pipeline.add_auth(*ALICE),
        *(pipeline.get_data(path) for _ in range(50)),
    ]
    with pytest.raises(NoAuthError):
        replies[0].result(PATIENCE)
    assert replies[1].result(PATIENCE) is None
    assert [reply.result(PATIENCE).data for reply in replies[2:]] == [b"data"] * 50


@pytest.mark.parametrize("way", ["blocking", "pipeline"])
def test_an_unknown_scheme_ends_the_session(zookeeper: ZooKeeperServer, way: str) -> None:
    with Client(zookeeper.hosts) as client:
        ask = Ask(client, pipelined=way == "pipeline")
        with pytest.raises(AuthFailedError) as caught:
            ask.add_auth("no-such-scheme", b"x")
        assert caught.value.op == "auth"
        assert client.state is State.AUTH_FAILED
        with pytest.raises(AuthFailedError):
            ask.exists("/")


def test_credentials_of_the_constructor_are_those_of_add_auth(
    zookeeper: ZooKeeperServer, outside: Client, fresh_path: str
) -> None:
    outside.create(f"{fresh_path}/secret", b"data", ALICE_ALL)
    with Client(zookeeper.hosts, auth=[ALICE]) as client:
        assert client.get_data(f"{fresh_path}/secret").data == b"data"
    with (
        Client(zookeeper.hosts, auth=[digest_auth("alice", "wrong")]) as client,
        pytest.raises(NoAuthError),
    ):
        client.get_data(f"{fresh_path}/secret")


# --- multi ----------------------------------------------------------------------------------------


@pytest.mark.since("3.5")
def test_multi_does_all_of_it(ways: Scene) -> None:
    base = ways.base
    results = ways.ask.multi(
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
    stats = [ways.ask.exists(path) for path in (results[0], results[3], *results[6:])]
    assert len({stat.czxid for stat in stats}) == 1  # all in one transaction
    assert stats[1].ephemeral_owner == ways.client.session_id
    assert ways.ask.exists(f"{base}/gone") is None
    assert ways.ask.multi([]) == []


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
def test_multi_does_nothing_of_it(ways: Scene) -> None:
    base = ways.base
    ways.ask.create(f"{base}/child")
    for culprit, expected in FAILURES:
        operations = [
            Create(f"{base}/new"),
            SetData(base, b"new"),
            culprit(base),
            Check(base),
            Delete(f"{base}/child"),
        ]
        with pytest.raises(MultiError) as caught:
            ways.ask.multi(operations)
        error = caught.value
        assert error.index == 2
        assert [type(result) for result in error.results] == [
            type(None),
            type(None),
            expected,
            RuntimeInconsistencyError,
            RuntimeInconsistencyError,
        ]
        failed, last = error.results[2], error.results[4]
        assert failed is not None
        assert last is not None
        assert error.__cause__ is failed
        assert error.code == failed.code
        assert not error.maybe_applied
        assert (failed.path or "").startswith(base)
        assert last.path == f"{base}/child"
        assert ways.ask.get_children(base) == ["child"]
        assert ways.ask.get_data(base).data == b""


def test_transaction(scene: Scene) -> None:
    base = scene.base
    with scene.client.transaction() as t:
        created = t.create(f"{base}/a", b"1")
        t.set_data(f"{base}/a", b"2", 0)
        t.check(f"{base}/a", 1)
        with pytest.raises(RuntimeError):
            created.result()  # not yet
        assert scene.client.exists(f"{base}/a") is None
        t.create(f"{base}/b-", sequential=True)
        t.delete(f"{base}/a", 1)
    assert t.results[0] == f"{base}/a"
    assert t.results[1].version == 1
    assert t.results[2:] == [None, f"{base}/b-0000000001", None]
    assert created.result() == f"{base}/a"
    t = scene.client.transaction()
    t.create(f"{base}/c")
    t.check(f"{base}/a")
    with pytest.raises(MultiError) as caught:
        t.commit()
    assert caught.value.index == 1

    def gives_up() -> None:
        with scene.client.transaction() as t:
            t.create(f"{base}/c")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gives_up()
    assert scene.client.get_children(base) == ["b-0000000001"]


def test_a_block_that_has_committed_commits_nothing_more(scene: Scene) -> None:
    with scene.client.transaction() as t:
        t.create(f"{scene.base}/once")
        t.commit()
    assert t.results == [f"{scene.base}/once"]


def test_a_transaction_takes_writes_only(scene: Scene) -> None:
    t = scene.client.transaction()
    with pytest.raises(ValueError, match="get_data cannot be part"):
        t.get_data(scene.base)
    with pytest.raises(ValueError, match="sync cannot be part"):
        t.sync(scene.base)
    with pytest.raises(ValueError, match="cannot be part"):
        scene.client.multi([GetData(scene.base)])
    with pytest.raises(ValueError, match="cannot be part"):
        scene.client.multi_read([Create(scene.base)])
    with pytest.raises(ValueError, match="cannot set a watch"):
        scene.client.multi_read([GetData(scene.base, watch=Watch())])
    assert t.commit() == []


@pytest.mark.since("3.6")
def test_multi_read_has_a_result_or_an_error_for_each(ways: Scene) -> None:
    base = ways.base
    ways.ask.create(f"{base}/a", b"data")
    ways.ask.create(f"{base}/secret", b"", ALICE_ALL)
    data, children, missing, refused, last = ways.ask.multi_read(
        [
            GetData(f"{base}/a"),
            GetChildren(base),
            GetChildren(f"{base}/no"),
            GetData(f"{base}/secret"),
            GetData(base),
        ]
    )
    assert data == ways.ask.get_data(f"{base}/a")
    assert sorted(children) == ["a", "secret"]
    assert type(missing) is NoNodeError
    assert (missing.op, missing.path) == ("get_children", f"{base}/no")
    assert type(refused) is NoAuthError
    assert last.stat.num_children == 2
    assert ways.ask.multi_read([]) == []


# --- the ensemble's configuration -----------------------------------------------------------------


@pytest.mark.since("3.5")
def test_a_server_on_its_own_has_an_empty_configuration(ways: Scene) -> None:
    data, stat = ways.ask.get_config()
    assert data == b""
    assert stat.czxid == 0
    watch = Watch()
    assert ways.ask.get_config(watch=watch) == (data, stat)
    watch.close()


@pytest.mark.since("3.5")
def test_reconfig_is_refused_where_it_is_switched_off(ways: Scene) -> None:
    for arguments in ({"leaving": ["3"]}, {"members": ["server.1=h:1:2;3"], "version": 7}):
        with pytest.raises(ReconfigDisabledError) as caught:
            ways.ask.reconfig(**arguments)
        assert (caught.value.code, caught.value.op) == (-123, "reconfig")
        assert not caught.value.maybe_applied


@pytest.mark.since("3.5")
def test_an_ensemble_tells_its_members(ensemble: Ensemble, fresh_path: str) -> None:
    with Client(ensemble.hosts) as client:
        text = client.get_config().data.decode()
        client.create(fresh_path)
        assert [line.partition("=")[0] for line in text.splitlines()] == [
            "server.1",
            "server.2",
            "server.3",
            "version",
        ]
        with Client(ensemble.hosts + fresh_path) as inside:  # the node stands outside of chroots
            assert inside.get_config().data.decode() == text
        client.delete(fresh_path)


SUPER = digest_auth("super", "user")
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
        number, other = next(
            (number, server)
            for number, server in enumerate(ensemble.servers, 1)
            if server is not leader
        )
        name = f"server.{number}"
        nobody = stack.enter_context(Client(leader.hosts))
        client = stack.enter_context(Client(leader.hosts, auth=[SUPER]))
        watch = Watch()
        before, stat = client.get_config(watch=watch)
        members = entries(before)
        version = int(members["version"], 16)

        with pytest.raises(NoAuthError):
            nobody.reconfig(leaving=[str(number)])
        with pytest.raises(BadVersionError):
            client.reconfig(leaving=[str(number)], version=version + 1)

        after, changed = client.reconfig(leaving=[str(number)], version=version)
        now = entries(after)
        assert set(now) == set(members) - {name}
        assert int(now["version"], 16) > version
        assert changed.mzxid > stat.mzxid
        event = watch.wait(PATIENCE)
        assert event is not None
        assert (event.type, event.path) == (EventType.NODE_DATA_CHANGED, CONFIG_NODE)
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


def entries(config: bytes) -> dict[str, str]:
    """The lines of a configuration."""
    return dict(line.split("=", 1) for line in config.decode().splitlines())


# --- watches as such ------------------------------------------------------------------------------


@pytest.mark.since("3.6")
def test_add_watch_fires_until_it_is_closed(ways: Scene) -> None:
    path = f"{ways.base}/n"
    watch = Watch()
    assert ways.ask.add_watch(path, watch) is watch
    ways.outside.create(ways.server_path(path))
    ways.outside.set_data(ways.server_path(path), b"x")
    ways.outside.delete(ways.server_path(path))
    seen = [watch.wait(PATIENCE) for _ in range(3)]
    assert [(e.type, e.path) for e in seen if e] == [
        (EventType.NODE_CREATED, path),
        (EventType.NODE_DATA_CHANGED, path),
        (EventType.NODE_DELETED, path),
    ]
    watch.close()
    with pytest.raises(ClientClosedError):
        watch.wait(0)


@pytest.mark.since("3.5")
def test_remove_watches_tells_each_watch(ways: Scene) -> None:
    one, two, child = Watch(), Watch(), Watch()
    ways.ask.get_data(ways.base, watch=one)
    ways.ask.exists(ways.base, watch=two)
    ways.ask.get_children(ways.base, watch=child)
    assert ways.ask.remove_watches(ways.base, WatchType.DATA) is None
    for watch in (one, two):
        event = watch.wait(PATIENCE)
        assert event is not None
        assert (event.type, event.path) == (EventType.DATA_WATCH_REMOVED, ways.base)
    with pytest.raises(NoWatcherError):
        ways.ask.remove_watches(ways.base, WatchType.DATA)
    ways.outside.create(ways.server_path(f"{ways.base}/x"))
    event = child.wait(PATIENCE)  # the other type is untouched
    assert event is not None
    assert event.type is EventType.NODE_CHILDREN_CHANGED
    with pytest.raises(NoWatcherError) as caught:
        ways.ask.remove_watches(ways.base)
    assert caught.value.path == ways.base
