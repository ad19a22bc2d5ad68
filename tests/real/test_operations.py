"""What the client asks for as a server does it: nodes, access lists, multi, members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

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
    Create,
    Delete,
    EventType,
    GetData,
    Id,
    InvalidACLError,
    MultiError,
    NewConfigNoQuorumError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Perms,
    ReconfigInProgressError,
    RuntimeInconsistencyError,
    SequentialLock,
    SetData,
    State,
    Watch,
    digest_auth,
    digest_id,
)

PATIENCE = 30.0
TTL = 3600.0  # nothing is to be deleted meanwhile

ALICE = digest_auth("alice", "wonder:land")
ALICE_ALL = [ACL(Perms.ALL, digest_id("alice", "wonder:land"))]
Refused = list[tuple[type[Exception], Callable[[], object]]]


class Place(NamedTuple):
    """A client, the node below which it works, and ``outside``, a client without a chroot."""

    client: Any
    base: str
    outside: Client
    top: str

    def server_path(self, path: str) -> str:
        """What the server calls a path of the client."""
        return self.top + path


@pytest.fixture
def outside(zookeeper: ZooKeeperServer, fresh_path: str) -> Iterator[Client]:
    """A client without a chroot, with ``fresh_path`` created for the length of the test."""
    with Client(zookeeper.hosts) as client:
        client.create(fresh_path)
        yield client
        client.add_auth(*ALICE)
        client.delete_tree(fresh_path)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.own_server)])
def place(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, outside: Client, fresh_path: str
) -> Iterator[Place]:
    """With a chroot, and, on zkwire's own server, without one."""
    top, base = ("", fresh_path) if request.param else (fresh_path, "/base")
    with Client(zookeeper.hosts + top) as client:
        if top:
            client.create(base)
        yield Place(client, base, outside, top)


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
def test_create_in_every_mode(place: Place, verb: str) -> None:
    for number, (name, mode) in enumerate(MODES.items()):
        wanted = f"{place.base}/n{number}"
        made = getattr(place.client, verb)(wanted, b"data", **mode)
        path = made if verb == "create" else made.path
        assert path == wanted + f"{number:010}" * mode.get("sequential", False), name
        data, stat = place.client.get_data(path)
        assert data == b"data"
        assert stat.ephemeral_owner == (place.client.session_id if mode.get("ephemeral") else 0)
        assert verb == "create" or made.stat == stat
        assert place.outside.exists(place.server_path(path)) == stat
        assert place.client.get_acl(path).acl == list(OPEN_ACL_UNSAFE)


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


# --- access lists and identities ------------------------------------------------------------------


def test_only_who_has_the_rights_reads_writes_and_sees_hashes(place: Place) -> None:
    path = f"{place.base}/secret"
    acl = [*ALICE_ALL, ACL(Perms.READ, Id("world", "anyone"))]
    place.client.create(path, b"data", acl)
    shown, stat = place.client.get_acl(path)
    assert shown == [ACL(Perms.ALL, Id("digest", "alice:x")), acl[1]]  # not the hash
    assert stat.aversion == 0
    assert place.client.get_data(path).data == b"data"
    refused: Refused = [
        (NoAuthError, lambda: place.client.set_data(path, b"x")),
        (NoAuthError, lambda: place.client.create(f"{path}/child")),
        (NoAuthError, lambda: place.client.set_acl(path, OPEN_ACL_UNSAFE)),
    ]
    assert_refused(refused, path, f"{path}/child")
    assert place.client.add_auth(*ALICE) is None
    assert place.client.get_acl(path).acl == acl
    assert place.client.set_data(path, b"x").version == 1
    assert place.client.set_acl(path, READ_ACL_UNSAFE, 0).aversion == 1
    assert place.client.get_acl(path).acl == list(READ_ACL_UNSAFE)
    strange, new = [ACL(Perms.ALL, Id("no-such-scheme", "x"))], f"{place.base}/n"
    versions: Refused = [
        (BadVersionError, lambda: place.client.set_acl(place.base, OPEN_ACL_UNSAFE, 7)),
        (NoNodeError, lambda: place.client.set_acl(new, OPEN_ACL_UNSAFE)),
        (NoNodeError, lambda: place.client.get_acl(new)),
        (InvalidACLError, lambda: place.client.create(new, b"", strange)),
        (InvalidACLError, lambda: place.client.set_acl(place.base, strange)),
    ]
    assert_refused(versions)
    assert place.client.exists(new) is None


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


def test_an_unknown_scheme_ends_the_session(place: Place) -> None:
    with pytest.raises(AuthFailedError) as caught:
        place.client.add_auth("no-such-scheme", b"x")
    assert caught.value.op == "auth"
    assert place.client.state is State.AUTH_FAILED
    with pytest.raises(AuthFailedError):
        place.client.exists("/")


# --- multi ----------------------------------------------------------------------------------------


@pytest.mark.since("3.5")
def test_multi_does_all_of_it(place: Place) -> None:
    base = place.base
    results = place.client.multi(
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
    stats = [place.client.exists(path) for path in (results[0], results[3], *results[6:])]
    assert len({stat.czxid for stat in stats}) == 1  # all in one transaction
    assert stats[1].ephemeral_owner == place.client.session_id
    assert place.client.exists(f"{base}/gone") is None
    assert place.client.multi([]) == []


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
def test_multi_does_nothing_of_it(place: Place) -> None:
    base, child = place.base, f"{place.base}/child"
    place.client.create(child)
    for culprit, expected in FAILURES:
        around = Create(f"{base}/new"), SetData(base, b"new"), Check(base), Delete(child)
        with pytest.raises(MultiError) as caught:
            place.client.multi([*around[:2], culprit(base), *around[2:]])
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
        assert place.client.get_children(base) == ["child"]
        assert place.client.get_data(base).data == b""


def test_transaction(place: Place) -> None:
    base, client = place.base, place.client
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


# --- the ensemble's configuration -----------------------------------------------------------------


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


def test_wrong_arguments_are_refused_before_anything_is_sent(
    outside: Client, fresh_path: str
) -> None:
    client: Any = outside
    lock = SequentialLock(client, fresh_path)
    wrong: tuple[tuple[Callable[[], object], type[Exception], str], ...] = (
        (lambda: client.add_state_listener("x"), TypeError, "listener must be callable"),
        (client.wait_for_state, TypeError, "one or more State"),
        (lambda: client.wait_for_state(State.CONNECTED, timeout="1"), TypeError, "a number"),
        (lambda: client.wait_for_state(State.CONNECTED, timeout=-1), ValueError, "negative"),
        (lambda: lock.guard([GetData("/")]), ValueError, "cannot be part"),
    )
    assert lock.acquire(PATIENCE)
    for call, error, says in wrong:
        with pytest.raises(error, match=says):
            call()
    lock.release()
