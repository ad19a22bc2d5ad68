"""What the blocking client refuses before it sends anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.shell.test_client import ARGUMENTS, own_threads
from tests.support.fake_server import FakeServer
from tests.unit.test_exports import NO_OPERATIONS
from zkwire import AsyncClient, Client, MultiLock, SequentialLock, State, Watch
from zkwire.jute.frames import SEND_LIMIT
from zkwire.testing import Server

# --- wrong arguments ------------------------------------------------------------------------------


def test_every_operation_has_its_arguments_checked() -> None:
    """The table is complete; what is no operation is tested where it is tested at all."""
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public - NO_OPERATIONS == set(ARGUMENTS)
    pipelined = {name for name in dir(Client("h").pipeline) if not name.startswith("_")}
    assert pipelined == set(ARGUMENTS)


@pytest.mark.parametrize("verb", ARGUMENTS)
def test_a_wrong_argument_is_refused_and_nothing_sent(verb: str) -> None:
    good = {name: value for name, value, _ in ARGUMENTS[verb]}
    tried = 0
    with FakeServer() as server, Client(server.hosts) as client:
        for name, _, wrongs in ARGUMENTS[verb]:
            for value, kind, message in wrongs:
                for operations in (client, client.pipeline):
                    with pytest.raises(kind) as caught:
                        getattr(operations, verb)(**{**good, name: value})
                    assert message in str(caught.value), (name, value)
                    tried += 1
        client.exists("/marker")
        # Numbers leave no gap: nothing was sent, nor given a number, nor kept for later.
        assert [(r.xid, r.op) for r in server.received] == [(1, "exists")]
        assert client.state is State.CONNECTED
    assert tried == 2 * sum(len(wrongs) for _, _, wrongs in ARGUMENTS[verb])


def test_a_node_is_of_one_kind() -> None:
    kinds: list[dict[str, Any]] = [{"ephemeral": True}, {"container": True}, {"ttl": 1}]
    with FakeServer() as server, Client(server.hosts) as client:
        for one, other in itertools.combinations(kinds, 2):
            for verb in ("create", "create_with_stat"):
                with pytest.raises(ValueError, match="not two of them"):
                    getattr(client, verb)("/a", **one, **other)
        with pytest.raises(ValueError, match="a container cannot be sequential"):
            client.create("/a", container=True, sequential=True)
        client.exists("/marker")
        assert [(r.xid, r.op) for r in server.received] == [(1, "exists")]


def test_a_sequential_path_may_end_in_a_slash_and_no_other() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        client.create("/a")
        assert client.create("/a/", sequential=True) == "/a/0000000000"
        with pytest.raises(ValueError, match="end with '/'"):
            client.create("/a/")


def test_the_longest_request_is_sent_and_one_byte_more_is_not(
    hosts: str, client: Client, fresh_path: str
) -> None:
    client.create(fresh_path)
    # Behind the length: xid, opcode, path, data, version.
    room = SEND_LIMIT - 4 - 4 - (4 + len(fresh_path)) - 4 - 4
    client.set_data(fresh_path, bytes(room))
    assert len(client.get_data(fresh_path).data) == room
    with pytest.raises(ValueError, match=f"{SEND_LIMIT + 1} bytes"):
        client.set_data(fresh_path, bytes(room + 1))


def test_watches_of_others_and_closed_ones_are_refused() -> None:
    with FakeServer() as server, Client(server.hosts) as one, Client(server.hosts) as two:
        foreign, closed = Watch(), Watch()
        one.exists("/a", watch=foreign)
        one.exists("/b", watch=closed)
        closed.close()
        server.wait_for(lambda: server.count("remove_watches"))
        before = len(server.received)
        for verb in ("exists", "get_data", "get_children", "get_children_with_stat"):
            with pytest.raises(ValueError, match="another client"):
                getattr(two, verb)("/a", watch=foreign)
            with pytest.raises(ValueError, match="closed"):
                getattr(one, verb)("/a", watch=closed)
        assert len(server.received) == before


WRONG_CLIENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"hosts": None}, TypeError, "hosts must be a str"),
    ({"hosts": ["a:1"]}, TypeError, "hosts must be a str"),
    ({"hosts": b"a:1"}, TypeError, "hosts must be a str"),
    ({"hosts": ""}, ValueError, "names no server"),
    ({"hosts": "a,:1"}, ValueError, "without a name"),
    ({"hosts": ":2181"}, ValueError, "without a name"),
    ({"hosts": "a:"}, ValueError, "bad port"),
    ({"hosts": "a:0"}, ValueError, "bad port"),
    ({"hosts": "a:65536"}, ValueError, "bad port"),
    ({"hosts": "a:http"}, ValueError, "bad port"),
    ({"hosts": "a:-1"}, ValueError, "bad port"),
    ({"hosts": "::1:2181"}, ValueError, "[address]:port"),
    ({"hosts": "[::1"}, ValueError, "bad address"),
    ({"hosts": "a:1;b:1"}, ValueError, "write commas between servers"),
    ({"hosts": "a b:1"}, ValueError, "write commas between servers"),
    ({"hosts": "zk://a:1"}, ValueError, "hosts has no scheme"),
    ({"hosts": "a/b//c"}, ValueError, "empty name"),
    ({"hosts": "a/b/"}, ValueError, "is the chroot: path must not end with '/'"),
    ({"session_timeout": None}, TypeError, "session_timeout must be a number"),
    ({"session_timeout": "10"}, TypeError, "session_timeout must be a number"),
    ({"session_timeout": True}, TypeError, "session_timeout must be a number"),
    ({"session_timeout": 0}, ValueError, "session_timeout must be 0.001"),
    ({"session_timeout": -1.0}, ValueError, "session_timeout must not be negative"),
    ({"session_timeout": float("nan")}, ValueError, "session_timeout must be a number"),
    ({"session_timeout": float("inf")}, ValueError, "session_timeout must be 0.001"),
    ({"session_timeout": 10000}, ValueError, "not 10000: 10000 milliseconds are 10; for a longer"),
    ({"session_timeout": timedelta(0)}, ValueError, "session_timeout must be 0.001"),
    ({"session_timeout": timedelta(days=25)}, ValueError, "session_timeout must be 0.001"),
    ({"session_timeout": timedelta(-1)}, ValueError, "session_timeout must not be negative"),
    ({"observer": print}, TypeError, "observer must be an Observer"),
    ({"lease_margin": None}, TypeError, "lease_margin must be a number"),
    ({"lease_margin": "1"}, TypeError, "lease_margin must be a number"),
    ({"lease_margin": -1}, ValueError, "lease_margin must not be negative"),
    ({"lease_margin": 2.1}, ValueError, "at most a fifth of session_timeout, 10.0 s"),
    ({"operation_timeout": "1"}, TypeError, "operation_timeout must be a number"),
    ({"operation_timeout": False}, TypeError, "operation_timeout must be a number"),
    ({"operation_timeout": -0.1}, ValueError, "operation_timeout must not be negative"),
    ({"operation_timeout": float("nan")}, ValueError, "operation_timeout must be a number"),
    ({"operation_timeout": 10**400}, ValueError, "operation_timeout is out of the range"),
    ({"receive_limit": "1"}, TypeError, "receive_limit must be an int"),
    ({"receive_limit": None}, TypeError, "receive_limit must be an int"),
    ({"receive_limit": 1e6}, TypeError, "receive_limit must be an int"),
    ({"receive_limit": 0}, ValueError, "receive_limit must be"),
    ({"receive_limit": -1}, ValueError, "receive_limit must be"),
    ({"receive_limit": 2**31}, ValueError, "receive_limit must be"),
    ({"send_limit": True}, TypeError, "send_limit must be an int"),
    ({"send_limit": 1023}, ValueError, "send_limit must be 1024 to"),
    ({"send_limit": 2**31}, ValueError, "send_limit must be"),
    ({"read_only": "no"}, TypeError, "read_only must be True or False, not 'no'"),
    ({"read_only": 0}, TypeError, "read_only must be True or False, not 0"),
    ({"shuffle_hosts": "no"}, TypeError, "shuffle_hosts must be True or False"),
    ({"follow_reconfig": "no"}, TypeError, "follow_reconfig must be True or False"),
    ({"auth": None}, TypeError, "auth must be a list or tuple"),
    ({"auth": "digest"}, TypeError, "auth must be a list or tuple"),
    ({"auth": ("digest", b"a:b")}, TypeError, "auth must be a list or tuple"),
    ({"auth": [("digest", "a:b")]}, TypeError, 'such as [digest_auth("user", "password")]'),
    ({"auth": [("digest",)]}, TypeError, "auth must be a list or tuple"),
    ({"auth": [("digest", "a:b")]}, TypeError, "auth must be a list or tuple"),
    ({"auth": [(b"digest", b"a:b")]}, TypeError, "auth must be a list or tuple"),
    ({"auth": [("\udc80", b"SECRET")]}, ValueError, "auth cannot be sent"),
    ({"auth": [("digest", b"SECRET" * SEND_LIMIT)]}, ValueError, "the request has"),
]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    WRONG_CLIENTS,
    ids=[f"{row[0]!r:.60}" for row in WRONG_CLIENTS],
)
def test_a_client_with_a_wrong_argument_is_not_made(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        Client(**{"hosts": "127.0.0.1:1", **arguments})
    assert message in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert own_threads() == set()


def test_known_A52_a_session_of_more_than_an_hour_has_a_unit() -> None:
    longer = timedelta(hours=2)
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="10000 milliseconds are 10"):
            kind("h", session_timeout=10_000)
    with Server(timeouts=(4.0, 10_000.0)) as server:
        with Client(server.hosts, session_timeout=longer) as client:
            assert client.session_timeout == 7200.0
        with Client(server.hosts, session_timeout=timedelta(seconds=5)) as client:
            assert client.session_timeout == 5.0
        with Client(server.hosts, session_timeout=3600) as client:
            assert client.session_timeout == 3600.0


def test_a_port_beside_hosts_is_told_where_it_belongs() -> None:
    kinds: tuple[Any, ...] = (Client, AsyncClient)
    for kind in kinds:
        with pytest.raises(TypeError, match="the port belongs into hosts, as in 'host:2181'"):
            kind("127.0.0.1", 2181)


WRONG_TIMEOUTS = ["1", True, -1, -0.001, float("nan"), 10**400, [1]]


@pytest.mark.parametrize("wrong", WRONG_TIMEOUTS, ids=lambda wrong: repr(wrong)[:6])
def test_a_wrong_timeout_is_refused(wrong: Any) -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        answered = client.pipeline.exists("/a")
        answered.result()
        kind = TypeError if isinstance(wrong, str | bool | list) else ValueError
        watch = Watch()
        client.exists("/a", watch=watch)
        lock = SequentialLock(client, "/lock")
        waits: list[Callable[[Any], object]] = [
            *(client.connect, client.pipeline.exists("/b").result, answered.result),
            *(watch.wait, lock.acquire, lock.lost.wait, MultiLock(lock).lost.wait),
        ]
        for wait in waits:
            with pytest.raises(kind, match=r"^timeout (must|is out)"):
                wait(wrong)


@pytest.mark.parametrize("endless", [float("inf"), 1e300, 1e10], ids=repr)
def test_a_time_limit_may_be_as_long_as_one_likes(endless: float) -> None:
    with FakeServer() as server, Client(server.hosts, operation_timeout=endless) as client:
        client.connect(endless)
        assert client.exists("/a") is None
        watch = Watch()
        client.exists("/a", watch=watch)
        client.pipeline.create("/a")
        assert watch.wait(endless) is not None
        assert len(server.connections) == 1
