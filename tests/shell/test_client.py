"""The blocking client as its users see it: operations, arguments, watches, limits, the end."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tests.support.fake_server import (
    Connection,
    FakeServer,
    deaf,
    mute,
    reply,
    serve,
    silent,
)
from tests.support.server_control import poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    AuthFailedError,
    BadVersionError,
    Check,
    Client,
    ClientClosedError,
    Create,
    Delete,
    Event,
    EventType,
    GetChildren,
    GetData,
    Id,
    MultiLock,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotSentError,
    OperationTimeoutError,
    SequentialLock,
    ServerError,
    SessionExpiredError,
    SetData,
    State,
    Watch,
    ZooKeeperError,
)
from zkwire.blocking.io_thread import IOThread
from zkwire.jute.frames import SEND_LIMIT
from zkwire.net import connection
from zkwire.session.hosts import HostList, parse_hosts
from zkwire.testing import Server

# What a deadline may be missed by, and the bound of a close.
SLACK = 0.3
CLOSE_BOUND = 1.5
PATIENCE = 30.0
# For so long a shared machine may stand still. With it a limit is still below the 6.7 s after which
# a client gives a silent connection up, if nothing else is said of its session timeout.
PAUSE = 3.0


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer, a pause of the machine apart."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took <= seconds + PAUSE, f"took {took:.2f} s, allowed were {seconds} s"


def undisturbed(measure: Callable[[], float], limit: float, times: int = 8) -> None:
    """Fail if a figure is over its limit each time.

    A pause of the machine adds to it now and then; what the code does shows in the best one.
    """
    figures: list[float] = []
    while not figures or figures[-1] > limit:
        assert len(figures) < times, f"always more than {limit}: {figures}"
        figures.append(measure())


def own_threads() -> set[str]:
    """The client's threads; an embedded server of the whole run may have some, too."""
    names = {thread.name for thread in threading.enumerate()}
    return {n for n in names if n.startswith("zkwire") and not n.startswith("zkwire-server")}


class Background:
    """A function in a thread; `result` returns or raises what it did."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self, seconds: float = PATIENCE) -> Any:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still running after {seconds} s"
        if self._error is not None:
            raise self._error
        return self._value


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.real)])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that serves: the fake one, then a real one, with the same answers."""
    if request.param == "real":
        yield request.getfixturevalue("zookeeper").hosts
    else:
        with FakeServer() as server:
            yield server.hosts


@pytest.fixture
def client(hosts: str) -> Iterator[Client]:
    with Client(hosts) as client:
        yield client


def seen(watch: Watch) -> Event:
    """The watch's event, without the zxid that servers tell from 3.9 on."""
    event = watch.wait(PATIENCE)
    assert event is not None
    return Event(event.type, event.path, event.state)


# --- operations -----------------------------------------------------------------------------------


def test_life_of_a_node(client: Client, fresh_path: str) -> None:
    assert client.exists(fresh_path) is None
    assert client.create(fresh_path, b"one") == fresh_path
    data, stat = client.get_data(fresh_path)
    assert (data, stat.version, stat.data_length) == (b"one", 0, 3)
    assert client.set_data(fresh_path, b"two").version == 1
    assert client.set_data(fresh_path, b"three", 1).version == 2
    assert client.get_data(fresh_path).data == b"three"
    found = client.exists(fresh_path)
    assert found is not None
    assert found == client.get_data(fresh_path).stat
    client.sync(fresh_path)
    client.delete(fresh_path, 2)
    assert client.exists(fresh_path) is None


def test_the_four_modes_of_a_create(hosts: str, client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    made = [
        client.create(f"{fresh_path}/{i}-", ephemeral=i > 1, sequential=bool(i % 2))
        for i in range(4)
    ]
    assert [path[len(fresh_path) :] for path in made] == [
        "/0-",
        "/1-0000000001",
        "/2-",
        "/3-0000000003",
    ]
    owners = []
    for path in made:
        stat = client.exists(path)
        assert stat is not None
        owners.append(stat.ephemeral_owner)
    assert owners == [0, 0, client.session_id, client.session_id]
    client.close()
    with Client(hosts) as other:
        # A close waits for its answer, but not for long.
        left = ["0-", "1-0000000001"]
        look = lambda: sorted(other.get_children(fresh_path)) == left or None  # noqa: E731
        poll("the ephemeral ones are gone", look, PATIENCE)


def test_create_with_stat_knows_the_new_node(client: Client, fresh_path: str) -> None:
    path, stat = client.create_with_stat(fresh_path, b"data")
    assert path == fresh_path
    assert stat == client.get_data(path).stat
    made = client.create_with_stat(f"{fresh_path}/n-", sequential=True)
    assert made.path == f"{fresh_path}/n-0000000000"
    assert made.stat.czxid > stat.czxid


def test_children(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    assert client.get_children(fresh_path) == []
    for name in ("a", "b"):
        client.create(f"{fresh_path}/{name}")
    assert sorted(client.get_children(fresh_path)) == ["a", "b"]
    names, stat = client.get_children_with_stat(fresh_path)
    assert sorted(names) == ["a", "b"]
    assert stat.num_children == 2


def test_empty_data_and_none_at_all_read_as_empty(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    assert client.get_data(fresh_path).data == b""


REFUSALS: list[tuple[type[ServerError], str, tuple[Any, ...]]] = [
    (NoNodeError, "create", ("{}/no/node",)),
    (NoNodeError, "create_with_stat", ("{}/no/node",)),
    (NodeExistsError, "create", ("{}",)),
    (NodeExistsError, "create_with_stat", ("{}",)),
    (NoNodeError, "delete", ("{}/no",)),
    (BadVersionError, "delete", ("{}/child", 7)),
    (NotEmptyError, "delete", ("{}",)),
    (NoNodeError, "set_data", ("{}/no", b"")),
    (BadVersionError, "set_data", ("{}", b"", 7)),
    (NoNodeError, "get_data", ("{}/no",)),
    (NoNodeError, "get_children", ("{}/no",)),
    (NoNodeError, "get_children_with_stat", ("{}/no",)),
]


@pytest.mark.parametrize("way", ["blocking", "pipeline"])
def test_refusals_have_classes_of_their_own(client: Client, fresh_path: str, way: str) -> None:
    client.create(fresh_path)
    client.create(f"{fresh_path}/child")
    for expected, verb, arguments in REFUSALS:
        filled = [a.format(fresh_path) if isinstance(a, str) else a for a in arguments]
        ask = getattr(client if way == "blocking" else client.pipeline, verb)
        with pytest.raises(expected) as caught:
            getattr(ask(*filled), "result", lambda: None)()
        assert type(caught.value) is expected
        assert caught.value.path == filled[0]
        assert caught.value.op is not None
        assert not caught.value.maybe_applied
    assert client.get_children(fresh_path) == ["child"]


def test_pipeline_gives_the_results_of_the_blocking_calls(client: Client, fresh_path: str) -> None:
    pipeline = client.pipeline
    replies: list[Any] = [
        pipeline.create(fresh_path, b"a"),
        pipeline.create_with_stat(f"{fresh_path}/x"),
        pipeline.exists(fresh_path),
        pipeline.get_data(fresh_path),
        pipeline.set_data(fresh_path, b"b"),
        pipeline.get_data(fresh_path),
        pipeline.get_children(fresh_path),
        pipeline.get_children_with_stat(fresh_path),
        pipeline.sync(),
        pipeline.delete(f"{fresh_path}/x"),
        pipeline.exists(f"{fresh_path}/x"),
    ]
    results = [reply.result(PATIENCE) for reply in replies]
    assert all(reply.ready for reply in replies)
    assert results[0] == fresh_path
    assert results[1].path == f"{fresh_path}/x"
    assert results[2].num_children == 1
    assert results[3].data == b"a"
    assert results[4].version == 1
    assert results[5].data == b"b"
    assert results[6] == ["x"]
    assert results[7].children == ["x"]
    assert results[8:] == [None, None, None]


def test_chroot_is_put_before_and_taken_off(hosts: str, client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    watch = Watch()
    with Client(hosts + fresh_path) as inside:
        assert inside.create("/a", b"1") == "/a"
        assert inside.create("/s-", sequential=True) == "/s-0000000001"
        assert sorted(inside.get_children("/")) == ["a", "s-0000000001"]
        assert inside.create_with_stat("/b").path == "/b"
        inside.get_data("/a", watch=watch)
        client.set_data(f"{fresh_path}/a", b"2")
        assert seen(watch) == Event(EventType.NODE_DATA_CHANGED, "/a", State.CONNECTED)
        with pytest.raises(NoNodeError) as caught:
            inside.get_data("/no")
        assert caught.value.path == "/no"
    assert client.get_data(f"{fresh_path}/a").data == b"2"


def test_properties(hosts: str) -> None:
    client = Client(hosts, session_timeout=30.0)
    assert state_of(client) is State.NOT_STARTED
    assert client.session_id == 0
    assert client.session_timeout == 30.0
    assert client.lease_remaining() == 0.0
    with client:
        assert state_of(client) is State.CONNECTED
        assert client.session_id != 0
        assert client.session_timeout == 30.0
        assert 20.0 < client.lease_remaining() <= 30.0
        assert hosts in repr(client)
    assert state_of(client) is State.CLOSED
    assert client.lease_remaining() == 0.0


def state_of(client: Client) -> State:
    """For a type checker, which does not expect a property to change."""
    return client.state


def test_server_may_grant_another_timeout() -> None:
    def grant(connection: Connection) -> None:
        connection.greet(timeout_ms=1234)
        for request in connection.requests():
            connection.answer(request)

    with FakeServer(grant) as server, Client(server.hosts, session_timeout=9) as client:
        assert client.session_timeout == 1.234


def test_credentials_are_sent_before_any_request() -> None:
    secrets = [("digest", b"me:secret"), ("other", b"\0\xff")]
    with FakeServer() as server, Client(server.hosts, auth=secrets) as client:
        client.exists("/a")
        assert [r.op for r in server.received] == ["auth", "auth", "exists"]
        assert [(r.record.scheme, r.record.auth) for r in server.received[:2]] == secrets


def test_documentation_stands_on_both_kinds_of_operation() -> None:
    for name in ("create", "get_data", "exists", "set_data", "delete", "sync"):
        assert "connection" in (getattr(Client, name).__doc__ or "")


# --- wrong arguments ------------------------------------------------------------------------------

BAD_PATHS: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "path must be a str"),
    (b"/a", TypeError, "path must be a str"),
    (7, TypeError, "path must be a str"),
    ("", ValueError, "start with '/'"),
    ("a", ValueError, "start with '/'"),
    ("/a//b", ValueError, "empty name"),
    ("/a/./b", ValueError, "'.' or '..'"),
    ("/..", ValueError, "'.' or '..'"),
    ("/a\0b", ValueError, "U+0000"),
    ("/a\x1f", ValueError, "U+001F"),
    ("/\x7f", ValueError, "U+007F"),
    ("/\ud800", ValueError, "U+D800"),
    ("/\ufff0", ValueError, "U+FFF0"),
    ("/" + "a" * SEND_LIMIT, ValueError, "jute.maxbuffer"),
]
ENDS_IN_SLASH: list[tuple[Any, type[Exception], str]] = [("/a/", ValueError, "end with '/'")]
BAD_DATA: list[tuple[Any, type[Exception], str]] = [
    ("text", TypeError, "use .encode()"),
    (None, TypeError, "data must be bytes"),
    (bytearray(b"x"), TypeError, "data must be bytes"),
    (7, TypeError, "data must be bytes"),
    (bytes(SEND_LIMIT), ValueError, "jute.maxbuffer"),
]
BAD_VERSIONS: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "version must be an int"),
    ("1", TypeError, "version must be an int"),
    (1.0, TypeError, "version must be an int"),
    (True, TypeError, "version must be an int"),
    (-2, ValueError, "-1 (any) or 0 to"),
    (2**31, ValueError, "-1 (any) or 0 to"),
]
WORLD = Id("world", "anyone")
BAD_ACLS: list[tuple[Any, type[Exception], str]] = [
    ("world:anyone:r", TypeError, "list or tuple of ACL"),
    (OPEN_ACL_UNSAFE[0], TypeError, "list or tuple of ACL, not ACL; put it into a list"),
    (True, TypeError, "list or tuple of ACL, not bool; ephemeral=... and so on have names"),
    ([], ValueError, "not be empty"),
    ((), ValueError, "not be empty"),
    ([None], TypeError, "acl must hold"),
    ([(31, WORLD)], TypeError, "acl must hold"),
    ([ACL(31, ("world", "anyone"))], TypeError, "acl must hold"),  # type: ignore[arg-type]
    ([ACL(31, Id("world", None))], TypeError, "must be str"),  # type: ignore[arg-type]
    ([ACL(31, Id(b"world", "anyone"))], TypeError, "must be str"),  # type: ignore[arg-type]
    ([ACL("r", WORLD)], ValueError, "0 to 31"),  # type: ignore[arg-type]
    ([ACL(32, WORLD)], ValueError, "0 to 31"),
    ([ACL(-1, WORLD)], ValueError, "0 to 31"),
]
BAD_WATCHES: list[tuple[Any, type[Exception], str]] = [
    (7, TypeError, "a Watch or a callable"),
    (True, TypeError, "a Watch or a callable"),
    ("watch", TypeError, "a Watch or a callable"),
    (Watch, TypeError, "a Watch or a callable"),
]

# Never to be tried on a real server: one that got a wrong TTL would end for good.
BAD_TTLS: list[tuple[Any, type[Exception], str]] = [
    ("1", TypeError, "ttl must be a number"),
    (True, TypeError, "ttl must be a number"),
    (0, ValueError, "ttl must be 0.001"),
    (0.0009, ValueError, "ttl must be 0.001"),
    (-1, ValueError, "ttl must be 0.001"),
    (2**40 / 1000, ValueError, "ttl must be 0.001"),
    (float("nan"), ValueError, "ttl must be 0.001"),
    (float("inf"), ValueError, "ttl must be 0.001"),
]
BAD_OPERATIONS: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "not iterable"),
    (7, TypeError, "not iterable"),
    ([None], TypeError, "not an operation"),
    (["/a"], TypeError, "not an operation such as Create(path, data)"),
    (Create("/a"), TypeError, "must be a list, also of one"),
]
BAD_WRITES: list[tuple[Any, type[Exception], str]] = [
    ([GetData("/a")], ValueError, "get_data cannot be part"),
    ([Create("/a"), GetChildren("/a")], ValueError, "get_children cannot be part"),
    ([Create("a")], ValueError, "start with '/'"),
    ([Create("/a", "text")], TypeError, "use .encode()"),  # type: ignore[arg-type]
    ([Create("/a", b"", [])], ValueError, "not be empty"),
    ([Create("/a", ttl=0)], ValueError, "ttl must be 0.001"),
    ([Create("/a", ttl=1, ephemeral=True)], ValueError, "not two of them"),
    ([Check("/a", -2)], ValueError, "-1 (any) or 0 to"),
    ([Delete("/")], ValueError, "root cannot be deleted"),
    ([SetData("/a", b"", True)], TypeError, "version must be an int"),
    ([SetData("/a", bytes(SEND_LIMIT // 2))] * 3, ValueError, "jute.maxbuffer"),
]
BAD_READS: list[tuple[Any, type[Exception], str]] = [
    ([Create("/a")], ValueError, "create cannot be part"),
    ([GetData("/a"), Check("/a")], ValueError, "check cannot be part"),
    ([GetData("/a/")], ValueError, "end with '/'"),
    ([GetData("/a", watch=print)], ValueError, "cannot set a watch"),
]
BAD_SERVERS: list[tuple[Any, type[Exception], str]] = [
    ("server.1=h:1:2;3", TypeError, "servers must be a list of str"),
    ([1], TypeError, "servers must be a list of str"),
    (None, ValueError, "either members, or joining and leaving"),
]

# Each operation: its good arguments, and for each of them which ways there are to get it wrong.
Wrong = list[tuple[Any, type[Exception], str]]
ARGUMENTS: dict[str, list[tuple[str, Any, Wrong]]] = {
    "create": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("data", b"", BAD_DATA),
        ("acl", OPEN_ACL_UNSAFE, BAD_ACLS),
        ("ttl", None, BAD_TTLS),
        ("container", False, []),
    ],
    "create_with_stat": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("data", b"", BAD_DATA),
        ("acl", OPEN_ACL_UNSAFE, BAD_ACLS),
        ("ttl", None, BAD_TTLS),
        ("container", False, []),
    ],
    "delete": [
        ("path", "/a", [*BAD_PATHS, *ENDS_IN_SLASH, ("/", ValueError, "root cannot be deleted")]),
        ("version", -1, BAD_VERSIONS),
    ],
    "set_data": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("data", b"", BAD_DATA),
        ("version", -1, BAD_VERSIONS),
    ],
    "exists": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH), ("watch", None, BAD_WATCHES)],
    "get_data": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH), ("watch", None, BAD_WATCHES)],
    "get_children": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH), ("watch", None, BAD_WATCHES)],
    "get_children_with_stat": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("watch", None, BAD_WATCHES),
    ],
    "sync": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH)],
    "set_acl": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("acl", OPEN_ACL_UNSAFE, [*BAD_ACLS, (None, TypeError, "list or tuple of ACL")]),
        ("version", -1, BAD_VERSIONS),
    ],
    "get_acl": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH)],
    "multi": [("operations", [], BAD_OPERATIONS + BAD_WRITES)],
    "multi_read": [("operations", [], BAD_OPERATIONS + BAD_READS)],
    "add_watch": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        ("watch", print, [*BAD_WATCHES, (None, TypeError, "a Watch or a callable")]),
    ],
    "remove_watches": [
        ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
        (
            "which",
            3,
            [
                (0, ValueError, "not a valid WatchType"),
                (6, ValueError, "not a valid WatchType"),
                ("any", ValueError, "not a valid WatchType"),
                (None, ValueError, "not a valid WatchType"),
            ],
        ),
    ],
    "add_auth": [
        ("scheme", "digest", [(b"digest", TypeError, "scheme must be a str")]),
        (
            "secret",
            b"a:b",
            [
                ("a:b", TypeError, "secret must be bytes"),
                (None, TypeError, "secret must be bytes"),
                (bytes(SEND_LIMIT), ValueError, "jute.maxbuffer"),
            ],
        ),
    ],
    "who_am_i": [],
    "get_ephemerals": [
        (
            "prefix",
            "/",
            [
                (None, TypeError, "prefix must be a str"),
                (b"/a", TypeError, "prefix must be a str"),
                ("", ValueError, "must start with '/'"),
                ("a", ValueError, "must start with '/'"),
            ],
        )
    ],
    "get_all_children_number": [("path", "/a", BAD_PATHS + ENDS_IN_SLASH)],
    "get_config": [("watch", None, BAD_WATCHES)],
    "reconfig": [
        ("members", ["server.1=h:1:2;3"], BAD_SERVERS),
        ("joining", None, [(["server.1=h:1:2;3"], ValueError, "either members, or joining")]),
        ("leaving", None, [(["1"], ValueError, "either members, or joining")]),
        (
            "version",
            -1,
            [
                ("1", ValueError, "version must be"),
                (None, ValueError, "version must be"),
                (-2, ValueError, "version must be"),
                (2**63, ValueError, "version must be"),
            ],
        ),
    ],
}
# What is no operation; what it does with wrong arguments is tested where it is tested at all.
OTHERS = {
    "add_state_listener",
    "close",
    "connect",
    "credentials",
    "delete_tree",
    "detach",
    "ensure_path",
    "lease_remaining",
    "pipeline",
    "remove_state_listener",
    "session_id",
    "session_timeout",
    "state",
    "transaction",
    "wait_for_state",
    "walk",
}


def test_every_operation_has_its_arguments_checked() -> None:
    """The table above is complete: an operation that is added must be added there."""
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public - OTHERS == set(ARGUMENTS)
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
    ({"hosts": ""}, ValueError, "without a name"),
    ({"hosts": "a,,b"}, ValueError, "without a name"),
    ({"hosts": ":2181"}, ValueError, "without a name"),
    ({"hosts": "a:"}, ValueError, "bad port"),
    ({"hosts": "a:0"}, ValueError, "bad port"),
    ({"hosts": "a:65536"}, ValueError, "bad port"),
    ({"hosts": "a:http"}, ValueError, "bad port"),
    ({"hosts": "a:-1"}, ValueError, "bad port"),
    ({"hosts": "::1:2181"}, ValueError, "[address]:port"),
    ({"hosts": "[::1"}, ValueError, "bad address"),
    ({"hosts": "a:1;b:1"}, ValueError, "write commas between servers"),
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
    port: Any = 2181
    for kind in (Client, AsyncClient):
        with pytest.raises(TypeError, match="the port belongs into hosts, as in 'host:2181'"):
            kind("127.0.0.1", port)


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


# --- watches --------------------------------------------------------------------------------------


def test_each_read_sets_the_watch_that_fires_for_it(client: Client, fresh_path: str) -> None:
    reads = {
        "exists": EventType.NODE_DATA_CHANGED,
        "get_data": EventType.NODE_DATA_CHANGED,
        "get_children": EventType.NODE_CHILDREN_CHANGED,
        "get_children_with_stat": EventType.NODE_CHILDREN_CHANGED,
    }
    client.create(fresh_path)
    for number, (verb, expected) in enumerate(reads.items()):
        watch = Watch()
        getattr(client, verb)(fresh_path, watch=watch)
        assert not watch.ready
        client.set_data(fresh_path, b"x")
        client.create(f"{fresh_path}/{number}")
        assert seen(watch) == Event(expected, fresh_path, State.CONNECTED)


def test_a_missing_node_is_watched_by_exists_alone(client: Client, fresh_path: str) -> None:
    watch, other = Watch(), Watch()
    assert client.exists(fresh_path, watch=watch) is None
    with pytest.raises(NoNodeError):
        client.get_data(fresh_path, watch=other)
    with pytest.raises(RuntimeError, match="not set"):
        other.wait(0)
    client.create(fresh_path)
    assert seen(watch) == Event(EventType.NODE_CREATED, fresh_path, State.CONNECTED)


def test_a_reply_that_shows_a_change_comes_behind_its_watch(
    hosts: str, client: Client, fresh_path: str
) -> None:
    client.create(fresh_path, b"0")
    with Client(hosts) as other:
        for number in range(1, 51):
            watch = Watch()
            client.get_data(fresh_path, watch=watch)
            other.set_data(fresh_path, b"%d" % number)
            client.sync(fresh_path)
            assert client.get_data(fresh_path).data == b"%d" % number
            assert watch.ready
            assert watch.wait(0) is not None


def test_wait_ends_at_its_limit_and_finds_a_later_event(client: Client, fresh_path: str) -> None:
    watch = Watch()
    client.exists(fresh_path, watch=watch)
    with within(0.1 + SLACK):
        assert watch.wait(0.1) is None
    waiting = Background(lambda: watch.wait(PATIENCE))
    client.create(fresh_path)
    assert waiting.result().type == EventType.NODE_CREATED


def test_iterating_ends_when_the_watch_is_no_longer_set(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    watch, seen = Watch(), []
    client.get_data(fresh_path, watch=watch)
    client.pipeline.set_data(fresh_path, b"")
    for event in watch:
        seen.append(event.type)
        if len(seen) < 3:
            client.get_data(fresh_path, watch=watch)
            client.pipeline.set_data(fresh_path, b"")
    assert seen == [EventType.NODE_DATA_CHANGED] * 3


def test_a_closed_watch_ends_its_waiters_and_is_forgotten_by_the_server() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        watch = Watch()
        client.exists("/a", watch=watch)
        waiting = Background(lambda: watch.wait(PATIENCE))
        watch.close()
        watch.close()
        with pytest.raises(ClientClosedError, match="watch"):
            waiting.result()
        with pytest.raises(ClientClosedError, match="watch"):
            watch.wait()
        server.wait_for(lambda: server.count("remove_watches"))
        assert list(watch) == []
        assert server.count("remove_watches") == 1


def test_a_closed_watch_does_not_take_anothers_away(client: Client, fresh_path: str) -> None:
    one, two = Watch(), Watch()
    for watch in (one, two):
        client.exists(fresh_path, watch=watch)
    one.close()
    client.create(fresh_path)
    assert two.wait(PATIENCE) is not None


def test_a_watch_that_is_closed_while_its_read_is_under_way_never_fires() -> None:
    """It is set by the reply, so the reply must find out that nobody wants it any more."""
    called: list[Event] = []
    may_answer = threading.Event()

    def late(connection: Connection) -> None:
        connection.greet()
        for request in connection.requests():
            if request.op == "exists":
                assert may_answer.wait(PATIENCE)
            connection.answer(request)

    with FakeServer(late) as server, Client(server.hosts) as client:
        watch = Watch(called.append)
        reading = client.pipeline.exists("/a", watch=watch)
        server.wait_for(lambda: server.count("exists"))
        watch.close()
        may_answer.set()
        reading.result(PATIENCE)
        client.create("/a")
        client.sync()
        client.close()  # and with it the callback thread, behind all that it has to do
    assert called == []


def test_watches_end_with_the_session() -> None:
    called: list[Event] = []
    with FakeServer() as server:
        client = Client(server.hosts)
        client.connect()
        watch = Watch()
        client.exists("/a", watch=watch)
        client.exists("/a", watch=called.append)
        waiting = Background(lambda: watch.wait(PATIENCE))
        server.expire(client.session_id)
        with pytest.raises(SessionExpiredError):
            waiting.result()
        with pytest.raises(SessionExpiredError):
            watch.wait()
        client.close()
    assert called == [Event(EventType.NONE, "", State.EXPIRED)]


def test_watches_survive_a_lost_connection() -> None:
    """Those of all kinds, each fires once, for what happened before, between and after."""
    with FakeServer() as server, Client(server.hosts) as client, Client(server.hosts) as other:
        for path in ("/data", "/gone", "/children", "/idle"):
            client.create(path)
        watches = {name: Watch() for name in ("data", "gone", "children", "idle", "new")}
        client.get_data("/data", watch=watches["data"])
        client.get_data("/gone", watch=watches["gone"])
        client.get_children("/children", watch=watches["children"])
        client.get_data("/idle", watch=watches["idle"])
        client.exists("/new", watch=watches["new"])
        mine = server.connections[0]
        mine.watches.clear()  # this server loses them, and the changes are made behind its back
        other.set_data("/data", b"changed")
        other.delete("/gone")
        other.create("/new")
        mine.sock.shutdown(socket.SHUT_RDWR)
        types = {
            name: event.type if (event := watch.wait(PATIENCE)) else None
            for name, watch in watches.items()
            if name not in ("idle", "children")
        }
        assert types == {
            "data": EventType.NODE_DATA_CHANGED,
            "gone": EventType.NODE_DELETED,
            "new": EventType.NODE_CREATED,
        }
        other.set_data("/idle", b"later")
        other.create("/children/one")
        assert watches["idle"].wait(PATIENCE) is not None
        assert watches["children"].wait(PATIENCE) is not None
        assert server.count("set_watches") == 1


# --- callbacks ------------------------------------------------------------------------------------


def test_callbacks_run_in_order_in_a_thread_of_their_own(client: Client, fresh_path: str) -> None:
    seen: list[tuple[str, str]] = []
    done = threading.Event()

    def note(event: Event) -> None:
        seen.append((event.path, threading.current_thread().name))
        if len(seen) == 100:
            done.set()

    paths = [f"{fresh_path}-{n}" for n in range(100)]
    for path in paths:
        client.exists(path, watch=note)
    for reply_ in [client.pipeline.create(path) for path in paths]:
        reply_.result()
    assert done.wait(PATIENCE)
    assert [path for path, _ in seen] == paths
    (name,) = {name for _, name in seen}
    assert name.startswith("zkwire") and name.endswith("callbacks")  # noqa: PT018


def test_a_callback_may_block_and_the_session_lives_on() -> None:
    """A25: pings go on, and so do calls, for longer than the session timeout."""
    entered, leave = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    with FakeServer() as server, Client(server.hosts, session_timeout=2.4) as client:
        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        server.wait_for(lambda: server.count("ping") >= 4)
        assert client.exists("/a") is not None
        leave.set()
        assert len(server.sessions) == 1


def test_a_callback_may_call_the_client_and_wait(client: Client, fresh_path: str) -> None:
    """A26: also for an event that another thread has to bring about, and for its own."""
    results: list[Any] = []
    done = threading.Event()

    def ask(event: Event) -> None:
        results.append(client.get_data(fresh_path).data)
        results.append(client.pipeline.set_data(fresh_path, b"y").result(PATIENCE).version)
        watch = Watch()
        client.get_data(fresh_path, watch=watch)
        client.set_data(fresh_path, b"z")
        fired = watch.wait(PATIENCE)
        results.append(fired and fired.type)
        done.set()

    client.exists(fresh_path, watch=ask)
    client.create(fresh_path, b"x")
    assert done.wait(PATIENCE)
    assert results == [b"x", 1, EventType.NODE_DATA_CHANGED]


def test_a_callback_may_set_itself_again(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    versions: list[int] = []
    done = threading.Event()

    def again(event: Event) -> None:
        if event.type == EventType.NONE:
            return
        versions.append(client.get_data(fresh_path, watch=again).stat.version)
        done.set() if versions[-1] == 20 else client.set_data(fresh_path, b"")

    client.get_data(fresh_path, watch=again)
    client.set_data(fresh_path, b"")
    assert done.wait(PATIENCE)
    assert versions == list(range(1, 21))


def test_a_callback_that_raises_is_reported_and_the_next_one_runs(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    called = threading.Event()

    def fail(event: Event) -> None:
        raise ArithmeticError("of the user's own")

    client.exists(fresh_path, watch=fail)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    (report,) = reported
    assert report.exc_type is ArithmeticError
    assert report.thread is not None
    assert "callbacks" in report.thread.name


def test_a_coroutine_function_as_a_callback_is_reported(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never be awaited."""
    reported, called = list[str](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(str(args.exc_value)))

    async def note(event: Event) -> None:
        raise AssertionError("awaited")

    client.exists(fresh_path, watch=note)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    assert len(reported) == 1
    assert "note is async: callbacks of a Client are not awaited" in reported[0]


def test_a_hook_that_raises_ends_no_callbacks(
    client: Client, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook is the program's own, and may fail as its callbacks do."""
    reported: list[type[BaseException]] = []

    def hook(args: threading.ExceptHookArgs) -> None:
        raise ArithmeticError("in the hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: reported.append(kind))
    called = threading.Event()
    client.exists(fresh_path, watch=lambda event: 1 / 0)
    client.exists(fresh_path, watch=lambda event: called.set())
    client.create(fresh_path)
    assert called.wait(PATIENCE)
    assert reported == [ArithmeticError]


def test_the_same_callback_on_one_path_is_called_once(client: Client, fresh_path: str) -> None:
    called: list[EventType | int] = []

    def note(event: Event) -> None:
        called.append(event.type)

    for _ in range(3):
        client.exists(fresh_path, watch=note)
    client.create(fresh_path)
    client.close()
    assert called == [EventType.NODE_CREATED]


def test_a_callback_may_close_the_client(client: Client, fresh_path: str) -> None:
    """E8."""
    took: list[float] = []
    done = threading.Event()

    def close(event: Event) -> None:
        started = time.monotonic()
        client.close()
        took.append(time.monotonic() - started)
        done.set()

    client.exists(fresh_path, watch=close)
    client.pipeline.create(fresh_path)
    assert done.wait(PATIENCE)
    assert took[0] < CLOSE_BOUND + PAUSE
    assert client.state is State.CLOSED


# --- pipelines ------------------------------------------------------------------------------------


def test_a_pipeline_is_carried_out_in_order_and_few_writes() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        client.create("/a")
        replies = [client.pipeline.set_data("/a", b"%d" % n) for n in range(5000)]
        assert [reply_.result(PATIENCE).version for reply_ in replies] == list(range(1, 5001))
        data = [r.record.data for r in server.executed if r.op == "set_data"]
        assert data == [b"%d" % n for n in range(5000)]


def test_results_may_be_asked_for_in_any_order_and_again(client: Client, fresh_path: str) -> None:
    client.create(fresh_path)
    replies = [client.pipeline.set_data(fresh_path, b"") for _ in range(50)]
    assert replies[49].result().version == 50
    assert [reply_.result().version for reply_ in reversed(replies)] == list(range(50, 0, -1))
    assert replies[0].result(0).version == 1


def test_a_pipeline_that_nobody_waits_for_leaves_by_itself() -> None:
    with FakeServer() as server, Client(server.hosts) as client:
        for n in range(300):
            client.pipeline.exists(f"/{n}")
        server.wait_for(lambda: server.count("exists") == 300)


def test_calls_made_before_the_connection_wait_for_it_in_order() -> None:
    with FakeServer() as server:
        client = Client(server.hosts)
        replies = [client.pipeline.create(f"/{n}") for n in range(50)]
        assert client.exists("/49") is not None
        assert [reply_.result() for reply_ in replies] == [f"/{n}" for n in range(50)]
        client.close()
        assert [r.path for r in server.executed if r.op == "create"] == [f"/{n}" for n in range(50)]


def test_two_threads_may_wait_for_one_reply() -> None:
    gate = threading.Event()

    def late(connection: Connection) -> None:
        connection.greet()
        request = connection.request()
        assert gate.wait(PATIENCE)
        connection.answer(request)
        for request in connection.requests():
            connection.answer(request)

    with FakeServer(late) as server, Client(server.hosts) as client:
        one = client.pipeline.exists("/a")
        waiting = [Background(one.result) for _ in range(4)]
        server.wait_for(lambda: server.count("exists"))
        gate.set()
        assert [w.result() for w in waiting] == [None] * 4


# --- connecting -----------------------------------------------------------------------------------


def refused_port() -> int:
    """A port that nobody listens on; below the range from which clients' own ports are taken."""
    from tests.support.server_control import free_port

    return free_port()


def test_connect_names_every_server_and_what_it_said() -> None:
    def refuse(connection: Connection) -> None:
        connection.hello()
        connection.send(reply(0, error=-119))
        connection.wait_gone()

    def close(connection: Connection) -> None:
        connection.hello()

    def reset(connection: Connection) -> None:
        connection.hello()
        connection.reset()

    port = refused_port()
    with (
        FakeServer(refuse) as refusing,
        FakeServer(close) as closing,
        FakeServer(reset) as resetting,
        FakeServer(silent) as mute_,
    ):
        servers = [refusing.hosts, closing.hosts, resetting.hosts, mute_.hosts, f"127.0.0.1:{port}"]
        hosts = ",".join(servers)
        client = Client(hosts, session_timeout=4.0)  # each is to be tried, pauses or not
        with within(4.0 + SLACK), pytest.raises(NotSentError) as caught:
            client.connect()
        message = str(caught.value)
        assert f"{refusing.hosts}: the server is read-only and refuses new sessions" in message
        hint = "before it greeted (does it expect TLS"
        assert f"{closing.hosts}: the server closed it {hint}" in message
        assert f"{resetting.hosts}: the server reset it {hint}" in message
        assert f"{mute_.hosts}: no answer to the greeting (is it a ZooKeeper server?" in message
        assert f"127.0.0.1:{port}: Connection refused" in message
        assert not caught.value.maybe_applied
        client.close()


def test_a_with_statement_that_fails_leaves_no_thread() -> None:
    with pytest.raises(NotSentError), Client(f"127.0.0.1:{refused_port()}", session_timeout=0.2):
        raise AssertionError("unreachable")
    assert own_threads() == set()


def test_connect_waits_no_longer_than_told() -> None:
    with FakeServer(silent) as server:
        client = Client(server.hosts)
        with within(0.2 + SLACK), pytest.raises(NotSentError, match=r"within 0\.2 s"):
            client.connect(0.2)
        client.close()


def test_a_dead_server_among_three_is_passed_over() -> None:
    with FakeServer() as server:
        for seed in range(6):
            hosts = f"127.0.0.1:{refused_port()},{server.hosts},127.0.0.1:{refused_port()}"
            with within(1.0), Client(hosts, _seed=seed) as client:
                client.exists("/")


def test_ipv6() -> None:
    try:
        server = FakeServer(host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server, Client(server.hosts) as client:
        assert server.hosts.startswith("[::1]:")
        assert client.exists("/") is not None


# --- names ----------------------------------------------------------------------------------------


Addresses = list[tuple[int, Any]]


def named(*servers: FakeServer | int) -> Addresses:
    ports = [s if isinstance(s, int) else s.port for s in servers]
    return [(socket.AF_INET, ("127.0.0.1", port)) for port in ports]


def test_names_are_resolved_at_each_attempt() -> None:
    """A31: the addresses behind a name change, and the client follows."""
    with FakeServer() as one, FakeServer() as two:
        two.sessions = one.sessions
        asked: list[tuple[str, int]] = []
        now = one

        def resolver(host: str, port: int) -> Addresses:
            asked.append((host, port))
            return named(now)

        with Client("zoo.example:4711", _resolver=resolver) as client:
            for then in (two, one):
                now = then
                before = len(then.connections)
                for connection in one.connections + two.connections:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
                then.wait_for(lambda then=then, n=before: len(then.connections) > n)  # type: ignore[misc]
                client.connect()
                client.sync()
        assert set(asked) == {("zoo.example", 4711)}
        assert len(asked) >= 3


def test_every_address_of_a_name_is_tried() -> None:
    with FakeServer() as server:
        addresses = [
            (socket.AF_INET6, ("::1", refused_port(), 0, 0)),
            *named(refused_port(), refused_port(), server),
        ]
        with within(1.0), Client("zoo.example", _resolver=lambda host, port: addresses) as client:
            assert client.exists("/") is not None


def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    with unanswering_port() as port, FakeServer() as server:
        resolver = lambda host, port_: named(port, server)  # noqa: E731
        with within(6.0), Client("zoo.example", session_timeout=6.0, _resolver=resolver) as client:
            assert client.exists("/") is not None


def hangs_up(_: Connection) -> None:
    """It accepts and closes, as a proxy with nothing behind it does."""


@pytest.mark.parametrize("script", [hangs_up, silent])
def test_an_address_that_only_accepts_is_not_the_first_again(
    script: Callable[[Connection], None],
) -> None:
    addresses = [(1, "a"), (1, "b"), (1, "c")]
    seed = next(
        s for s in range(99) if HostList([("h", 1)], Random(s)).arrange(addresses) == addresses
    )
    with FakeServer(script) as bad, FakeServer(script) as worse, FakeServer() as server:
        resolver = lambda host, port: named(bad, worse, server)  # noqa: E731
        client = Client("zoo.example", session_timeout=1.0, _resolver=resolver, _seed=seed)
        with closing(client):
            client.connect(PATIENCE)
        assert [len(s.connections) for s in (bad, worse, server)] == [1, 1, 1]


def test_known_A48_clients_spread_over_the_addresses_of_one_name() -> None:
    """A resolver names the same one first for all of them."""
    with FakeServer() as one, FakeServer() as two, FakeServer() as three:
        resolver = lambda host, port: named(one, two, three)  # noqa: E731
        for seed in range(12):
            with Client("zoo.example", _resolver=resolver, _seed=seed) as client:
                client.connect(PATIENCE)
        assert all(2 <= len(server.connections) <= 6 for server in (one, two, three))


@pytest.mark.parametrize(
    "bad", ["zoo.example:1", "a..b:1", "x" * 64 + ".example:1", "nul\0byte:1", "snow\u2603:1"]
)
def test_a_name_that_cannot_be_resolved_costs_its_server_only(bad: str) -> None:
    def resolver(host: str, port: int) -> Addresses:
        host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with FakeServer() as server:
        for seed in range(3):
            hosts = f"{bad},{server.hosts}"
            with within(1.0), Client(hosts, _resolver=resolver, _seed=seed) as client:
                assert client.exists("/") is not None
    client = Client(bad, session_timeout=1.0, _resolver=resolver)
    with pytest.raises(NotSentError, match="cannot resolve"):
        client.connect()
    client.close()
    assert own_threads() == set()


class StuckResolver:
    """A resolver that does not come back until it is released, as one with a dead DNS server."""

    def __init__(self, *addresses: FakeServer | int) -> None:
        self.asked: list[str] = []
        self._release = threading.Event()
        self._addresses = named(*addresses)

    def __call__(self, host: str, port: int) -> Addresses:
        self.asked.append(host)
        assert self._release.wait(60)
        return self._addresses

    def __enter__(self) -> StuckResolver:
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()


def test_a_stuck_look_up_does_not_stop_a_close() -> None:
    """A31."""
    with StuckResolver() as resolver:
        client = Client("zoo.example", _resolver=resolver)
        call = client.pipeline.exists("/a")
        with within(CLOSE_BOUND):
            client.close()
        with pytest.raises(ClientClosedError):
            call.result()
        assert own_threads() <= {"zkwire-resolve"}


def test_a_stuck_look_up_of_one_server_leaves_the_others() -> None:
    with StuckResolver() as resolver, FakeServer() as server:
        for seed in range(3):
            hosts = f"zoo.example,{server.hosts}"
            with (
                within(5.0),
                Client(hosts, session_timeout=5.0, _resolver=resolver, _seed=seed) as client,
            ):
                assert client.exists("/") is not None


def test_stuck_look_ups_do_not_pile_up() -> None:
    """Each attempt asks again, but not while the last question is still unanswered."""
    with FakeServer() as server, StuckResolver(server) as resolver:
        client = Client("zoo.example", session_timeout=0.2, _resolver=resolver)
        for _ in range(3):
            with pytest.raises(NotSentError):
                client.connect(0.4)
        assert resolver.asked == ["zoo.example"]
        with resolver:
            pass
        client.connect(PATIENCE)
        client.close()


def test_a_look_up_that_outlasts_its_attempt_is_of_use_to_the_next() -> None:
    """Each ends only when the attempt at the other server has begun."""
    asked: list[str] = []
    gates = [threading.Event() for _ in range(100)]

    def resolver(host: str, port: int) -> Addresses:
        asked.append(host)
        gates[len(asked)].set()
        assert gates[len(asked) + 1].wait(PATIENCE)
        return named(server)

    with FakeServer() as server:
        with closing(Client("one,other", session_timeout=1.0, _resolver=resolver)) as client:
            client.connect(PATIENCE / 3)
        for gate in gates:
            gate.set()
    assert sorted(asked[:2]) == ["one", "other"]


def test_what_a_look_up_found_during_a_connection_is_not_used_after_it() -> None:
    with FakeServer() as server, StuckResolver(server) as resolver:
        hosts = f"zoo.example,{server.hosts}"
        servers, _ = parse_hosts(hosts)
        seed = next(s for s in range(99) if HostList(servers, Random(s)).next() == servers[0])
        with closing(Client(hosts, session_timeout=1.0, _resolver=resolver, _seed=seed)) as client:
            client.connect(PATIENCE)
            assert resolver.asked == ["zoo.example"]
            with resolver:
                pass
            poll("it ends", lambda: "zkwire-resolve" not in own_threads() or None, PATIENCE)
            server.connections[0].sock.shutdown(socket.SHUT_RDWR)
            server.wait_for(lambda: len(server.connections) > 1)
            assert resolver.asked == ["zoo.example"] * 2


def test_a_failure_that_is_noted_while_the_others_are_told() -> None:
    class Told(str):
        __slots__ = ()

        def __format__(self, spec: str) -> str:
            one._session.failures["another:1"] = "refused"
            return str(self)

    one = Client("127.0.0.1:1")
    one._session.failures.update({"one:1": Told("reset"), "other:1": "refused"})
    assert "(one:1: reset; other:1: refused)" in str(one._unreachable(1.0))
    one.close()


# --- a SASL mechanism that takes its time ---------------------------------------------------------


class Slow:
    """A mechanism that asks somebody else, and has nothing to say to the server."""

    def __init__(self) -> None:
        self.asked, self.answered = threading.Event(), threading.Event()

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        self.asked.set()
        assert self.answered.wait(PATIENCE)
        yield from ()


def test_a_slow_mechanism_holds_up_no_caller_when_the_connection_has_broken() -> None:
    """And what is asked meanwhile is for the next connection."""
    mechanism = Slow()
    with (
        FakeServer(lambda connection: connection.greet(), serve) as server,
        closing(Client(server.hosts, sasl=mechanism, session_timeout=60)) as client,
    ):
        early = client.pipeline.exists("/a")
        assert mechanism.asked.wait(PATIENCE)
        link = client._driver.current_connection
        assert link is not None
        while not link.closed_because:
            client._driver.wait(early, 0.01, lead=True)  # type: ignore[arg-type]
        asked = Background(lambda: client.pipeline.exists("/b"))
        try:
            late = asked.result(PAUSE)
        finally:
            mechanism.answered.set()
        assert early.result(PATIENCE) is None
        assert late.result(PATIENCE) is None


# --- time limits ----------------------------------------------------------------------------------


@contextmanager
def unanswering_port() -> Iterator[int]:
    """A port at which connects neither succeed nor fail: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextmanager
def nowhere(kind: str, **arguments: Any) -> Iterator[Client]:
    """A client that gets no answers, for one of the reasons there are."""
    with ExitStack() as stack:
        hosts = "zoo.example"
        if kind == "black hole":
            hosts = f"127.0.0.1:{stack.enter_context(unanswering_port())}"
        elif kind == "refused":
            hosts = f"127.0.0.1:{refused_port()}"
        elif kind == "silent accept":
            hosts = stack.enter_context(FakeServer(silent)).hosts
        elif kind == "silent session":
            hosts = stack.enter_context(FakeServer(mute)).hosts
        else:
            arguments["_resolver"] = stack.enter_context(StuckResolver())
        client = Client(hosts, **arguments)
        if kind == "silent session":
            client.connect(PATIENCE)
        try:
            yield client
        finally:
            client.close()


NOWHERE = ["black hole", "refused", "silent accept", "blocked resolver", "silent session"]


@pytest.mark.parametrize("kind", NOWHERE)
def test_a_timed_call_ends_at_its_deadline(kind: str) -> None:
    """A36, B26."""
    with nowhere(kind, operation_timeout=0.2) as client:
        calls: list[Callable[[], Any]] = [
            lambda: client.create("/a"),
            lambda: client.get_data("/a"),
            lambda: client.pipeline.delete("/a").result(0.2),
            lambda: client.pipeline.exists("/a").result(0),
        ]
        for call in calls:
            with within(0.2 + SLACK), pytest.raises(OperationTimeoutError) as caught:
                call()
            assert isinstance(caught.value, TimeoutError)
            assert caught.value.path == "/a"
        # From many threads at once: one of them reads, the others find the read role taken.
        with within(0.2 + 2 * SLACK):
            waiting = [Background(lambda: client.delete("/a")) for _ in range(16)]
            for one in waiting:
                with pytest.raises(OperationTimeoutError) as caught:
                    one.result()
                assert caught.value.maybe_applied == (kind == "silent session")


@pytest.mark.parametrize("kind", NOWHERE)
def test_an_untimed_call_ends_within_two_session_timeouts(kind: str) -> None:
    with nowhere(kind, session_timeout=0.5) as client:
        with within(1.0 + SLACK), pytest.raises(ZooKeeperError) as caught:
            client.create("/a")
        assert caught.value.maybe_applied == (kind == "silent session")


def test_a_call_that_was_given_up_unsent_is_never_sent() -> None:
    gate = threading.Event()

    def late(connection: Connection) -> None:
        assert gate.wait(PATIENCE)
        serve(connection)

    with FakeServer(late) as server:
        client = Client(server.hosts)
        given_up = client.pipeline.create("/given-up")
        with pytest.raises(OperationTimeoutError, match="withdrawn") as caught:
            given_up.result(0.05)
        assert not caught.value.maybe_applied
        with pytest.raises(NotSentError):
            given_up.result()
        gate.set()
        client.create("/wanted")
        client.close()
        assert [r.path for r in server.executed if r.op == "create"] == ["/wanted"]


def test_a_sent_call_that_was_given_up_keeps_its_place() -> None:
    gate = threading.Event()

    def late(connection: Connection) -> None:
        connection.greet()
        request = connection.request()
        assert gate.wait(PATIENCE)
        connection.answer(request)
        for request in connection.requests():
            connection.answer(request)

    with FakeServer(late) as server, Client(server.hosts) as client:
        first = client.pipeline.create("/a", b"first")
        server.wait_for(lambda: server.count("create"))
        with pytest.raises(OperationTimeoutError, match="stays in effect") as caught:
            first.result(0.05)
        assert caught.value.maybe_applied
        gate.set()
        assert client.get_data("/a").data == b"first"
        assert first.result() == "/a"


def test_giving_up_wakes_others_who_wait_for_the_same_call() -> None:
    # There is nothing to read from, so the other one sleeps.
    with nowhere("black hole", session_timeout=20) as client:
        call = client.pipeline.create("/a")
        waiting = Background(call.result)
        while not call._wakers:  # type: ignore[attr-defined]
            time.sleep(0)
        with pytest.raises(OperationTimeoutError):
            call.result(0.05)
        with within(SLACK), pytest.raises(NotSentError, match="given up"):
            waiting.result()


# --- the end --------------------------------------------------------------------------------------


def _state_connected(stack: ExitStack) -> Client:
    return _connected(stack, serve)


def _connected(stack: ExitStack, script: Callable[[Connection], None], **named_: Any) -> Client:
    client = Client(stack.enter_context(FakeServer(script)).hosts, **named_)
    client.connect()
    return client


def _never_used(stack: ExitStack) -> Client:
    return Client("127.0.0.1:1")


def _dialling(kind: str) -> Callable[[ExitStack], Client]:
    def make(stack: ExitStack) -> Client:
        client = stack.enter_context(nowhere(kind))
        client.pipeline.create("/a")
        return client

    return make


def _waiting(stack: ExitStack) -> Client:
    """Others wait for answers that do not come, one of them as the reader."""
    client = _connected(stack, mute)
    for _ in range(3):
        Background(lambda: client.create("/a"))
    client.pipeline.create("/b")
    return client


def _stuffed(stack: ExitStack) -> Client:
    """The server does not read, and the kernel takes no more."""
    client = _connected(stack, deaf)
    for _ in range(20):
        client.pipeline.set_data("/a", bytes(900_000))
    return client


def _disconnected(stack: ExitStack) -> Client:
    client = _connected(stack, lambda connection: connection.greet())
    with pytest.raises(ZooKeeperError):
        client.create("/a")
    return client


def _lost_server(stack: ExitStack) -> Client:
    server = FakeServer()
    client = Client(server.hosts)
    client.connect()
    server.close()
    return client


def _expired(stack: ExitStack) -> Client:
    server = stack.enter_context(FakeServer())
    client = Client(server.hosts)
    client.connect()
    server.expire(client.session_id)
    assert poll_state(client, State.EXPIRED)
    return client


def poll_state(client: Client, state: State) -> bool:
    """Wait until the client is in a state that nothing tells of."""
    deadline = time.monotonic() + PATIENCE
    while client.state is not state and time.monotonic() < deadline:
        time.sleep(0.001)
    return client.state is state


def _rejected(stack: ExitStack) -> Client:
    def reject(connection: Connection) -> None:
        connection.greet()
        connection.request()
        connection.send(reply(-4, error=-115))

    server = stack.enter_context(FakeServer(reject))
    client = Client(server.hosts, auth=[("digest", b"a:b")])
    with pytest.raises(AuthFailedError):
        client.connect()
    return client


def _closed(stack: ExitStack) -> Client:
    client = _state_connected(stack)
    client.close()
    return client


STATES: dict[str, Callable[[ExitStack], Client]] = {
    "never used": _never_used,
    "dialling a black hole": _dialling("black hole"),
    "looking a name up": _dialling("blocked resolver"),
    "refused": _dialling("refused"),
    "greeting": _dialling("silent accept"),
    "connected": _state_connected,
    "waiting for answers": _waiting,
    "stuffed": _stuffed,
    "disconnected": _disconnected,
    "server lost": _lost_server,
    "expired": _expired,
    "rejected": _rejected,
    "closed": _closed,
}


@pytest.mark.parametrize("state", STATES)
def test_close_from_every_state(state: str) -> None:
    """A38: within its bound, no thread left, and the descriptors are the fixture's to count."""
    with ExitStack() as stack:
        client = STATES[state](stack)
        with within(CLOSE_BOUND):
            client.close()
        assert own_threads() <= ({"zkwire-resolve"} if state == "looking a name up" else set())
        with within(0.1):
            client.close()
        assert_dead_at_once(client)


def assert_dead_at_once(client: Client) -> None:
    """A39: everything raises, at once."""
    expected = {
        State.CLOSED: ClientClosedError,
        State.EXPIRED: SessionExpiredError,
        State.AUTH_FAILED: AuthFailedError,
    }[client.state]
    good = {
        verb: {name: value for name, value, _ in arguments} for verb, arguments in ARGUMENTS.items()
    }
    for verb, arguments in good.items():
        for operations in (client, client.pipeline):
            with within(0.1), pytest.raises(expected) as caught:
                getattr(operations, verb)(**arguments)
            assert caught.value.path == arguments.get("path", caught.value.path)
            assert caught.value.op is not None
            assert not caught.value.maybe_applied
    with within(0.1), pytest.raises(expected):
        client.connect()
    with within(0.1), pytest.raises(expected), client:
        pass
    assert client.lease_remaining() == 0.0
    assert client.state.value in repr(client)


def test_close_ends_the_session_on_the_server(hosts: str, fresh_path: str) -> None:
    with Client(hosts) as observer:
        client = Client(hosts)
        client.create(fresh_path, ephemeral=True)
        watch = Watch()
        observer.exists(fresh_path, watch=watch)
        client.close()
        gone = watch.wait(PATIENCE)
        assert gone is not None
        assert gone.type == EventType.NODE_DELETED


def test_close_carries_out_what_was_asked_before(
    hosts: str, fresh_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A37: all of a pipeline is executed, and its session is gone."""
    monkeypatch.setattr("zkwire.net.client.CLOSE_SECONDS", PATIENCE)  # a pause is not to end it
    client = Client(hosts)
    client.create(fresh_path)
    replies = [client.pipeline.create(f"{fresh_path}/{n}") for n in range(100)]
    ephemeral = client.pipeline.create(f"{fresh_path}/e", ephemeral=True)
    client.close()
    assert [reply_.result() for reply_ in replies] == [f"{fresh_path}/{n}" for n in range(100)]
    assert ephemeral.result() == f"{fresh_path}/e"
    with Client(hosts) as observer:
        assert sorted(observer.get_children(fresh_path)) == sorted(str(n) for n in range(100))


@pytest.mark.parametrize("closers", [2, 8])
def test_close_from_many_threads_at_once(closers: int) -> None:
    """E9, and the session is ended properly: none of them cuts the other's request short."""
    with FakeServer() as server:
        for _ in range(20):
            client = Client(server.hosts)
            client.create("/e", ephemeral=True)
            barrier = threading.Barrier(closers)

            def close(client: Client = client, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(PATIENCE)
                client.close()

            with within(CLOSE_BOUND):
                for one in [Background(close) for _ in range(closers)]:
                    one.result()
            assert own_threads() == set()
            poll("the session is over", lambda: "/e" not in server.nodes or None, PATIENCE)
        assert server.count("close_session") == 20


def test_start_and_close_at_once(seed: int) -> None:
    """E9: eight threads use and close fresh clients; each call ends, each thread ends."""
    from random import Random

    rng = Random(seed)
    with FakeServer() as server:
        for _ in range(40):
            client = Client(server.hosts)
            barrier = threading.Barrier(8)
            closers = rng.sample(range(8), rng.randrange(1, 8))

            def act(
                number: int,
                client: Client = client,
                barrier: threading.Barrier = barrier,
                closers: list[int] = closers,
            ) -> None:
                barrier.wait(PATIENCE)
                if number in closers:
                    client.close()
                    return
                with suppress(ClientClosedError):
                    client.exists("/a")

            for one in [Background(lambda n=n: act(n)) for n in range(8)]:  # type: ignore[misc]
                one.result()
            client.close()
            assert own_threads() == set()


def test_close_while_a_callback_is_blocked() -> None:
    """A38: the close does not wait for it for long; what is called next raises."""
    entered, leave = threading.Event(), threading.Event()
    outcome: list[Exception] = []
    with FakeServer() as server:
        client = Client(server.hosts)

        def block(event: Event) -> None:
            entered.set()
            assert leave.wait(PATIENCE)
            try:
                client.exists("/a")
            except ClientClosedError as error:
                outcome.append(error)

        client.exists("/a", watch=block)
        client.create("/a")
        assert entered.wait(PATIENCE)
        with within(CLOSE_BOUND):
            client.close()
        leave.set()
        client.close()
    assert len(outcome) == 1


def test_close_ends_those_who_wait() -> None:
    with ExitStack() as stack:
        client = _connected(stack, mute)
        watch = Watch()
        calls = [client.pipeline.create("/a"), client.pipeline.exists("/a", watch=watch)]
        waiting = [Background(call.result) for call in calls]
        waiting += [Background(watch.wait), Background(client.pipeline.delete("/x").result)]
        with within(CLOSE_BOUND):
            client.close()
        errors = []
        for one in waiting:
            with pytest.raises(ClientClosedError) as caught:
                one.result()
            errors.append(caught.value)
        assert [e.maybe_applied for e in errors] == [True, False, False, True]
        assert [e.path for e in errors] == ["/a", "/a", None, "/x"]


@contextmanager
def having(link: connection.Connection, role: str) -> Iterator[None]:
    """Have a role on a connection."""
    setattr(link, role, link)
    yield
    setattr(link, role, None)


def test_close_where_the_caller_has_been_interrupted_in_the_middle() -> None:
    """E8: a signal handler may run while its thread holds any of the client's locks."""
    with FakeServer() as server:
        for hold in ("mutex", "reader", "writer"):
            client = Client(server.hosts)
            client.connect()
            pump = client._driver
            assert pump.current_connection is not None
            with (
                pump.mutex if hold == "mutex" else having(pump.current_connection, hold),
                within(CLOSE_BOUND),
            ):
                client.close()
            client.close()
            assert own_threads() == set()
            assert_dead_at_once(client)


def test_close_in_a_finalizer() -> None:
    """E8: the collector runs in any thread at any time; here in one that waits for an answer."""

    class Owner:
        def __init__(self, hosts: str) -> None:
            self.client = Client(hosts)
            self.client.connect()
            self.cycle = self

        def __del__(self) -> None:
            self.client.close()

    with FakeServer() as server:
        Owner(server.hosts)
        with within(CLOSE_BOUND):
            gc.collect()
        assert own_threads() == set()
        server.wait_for(lambda: server.count("close_session"))
        assert server.count("close_session") == 1


def collect(lock: AbstractContextManager[object]) -> None:
    """Have the collector run where the lock is taken."""
    with lock:
        gc.collect()


def test_a_watch_closed_in_a_finalizer() -> None:
    """E8: the collector may run it in the thread that has the client's state lock."""

    class Owner:
        def __init__(self, client: Client) -> None:
            self.watch = Watch()
            self.cycle = self
            client.exists("/a", watch=self.watch)

        def __del__(self) -> None:
            self.watch.close()

    with FakeServer() as server, Client(server.hosts) as client:
        Owner(client)
        Background(lambda: collect(client._driver.mutex)).result()
        poll("it is closed", lambda: client._driver.session.watch_count == 0 or None, 5.0)


def test_a_client_that_is_never_used_leaves_nothing() -> None:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    clients = [Client("127.0.0.1:1,zoo.example/chroot") for _ in range(100)]
    assert own_threads() == set()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1
    del clients
    gc.collect()


# --- idle -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["nobody", "a caller"])
def test_an_idle_client_does_nothing(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """The I/O thread turns for pings and their answers, whether it reads them or a caller does."""
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    script = serve if reader == "nobody" else mute_but_for_pings
    with FakeServer(script) as server, Client(server.hosts, session_timeout=0.9) as client:
        call = client.pipeline.exists("/a")
        if reader == "nobody":
            call.result()
        else:
            waiting = Background(call.result)
        server.wait_for(lambda: server.count("ping") >= 1)

        def turns_for_three_pings() -> int:
            before, pings = len(turns), server.count("ping")
            server.wait_for(lambda: server.count("ping") >= pings + 3)
            return len(turns) - before

        # One for the ping, and for its answer one, or two beside a caller who is faster; more, if
        # the machine has paused for so long that there is a new connection.
        undisturbed(turns_for_three_pings, 3 * 4)
        client.close()
        if reader == "a caller":
            with pytest.raises(ZooKeeperError):  # or with a connection that broke
                waiting.result()


def mute_but_for_pings(connection: Connection) -> None:
    connection.greet()
    for _ in connection.requests():
        connection.flush()


def test_a_search_for_a_server_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    client = Client(f"127.0.0.1:{refused_port()}", session_timeout=1.5)
    with pytest.raises(NotSentError):
        client.create("/a")
    client.close()
    assert len(turns) < 100


def test_a_full_kernel_does_not_make_it_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    turn = IOThread.turn

    def counted(self: IOThread, ready: Any) -> None:
        turns.append(time.monotonic())
        turn(self, ready)

    monkeypatch.setattr(IOThread, "turn", counted)
    with ExitStack() as stack:
        client = _stuffed(stack)
        with pytest.raises(OperationTimeoutError):
            client.pipeline.exists("/a").result(0.5)
        assert len(turns) < 200
        client.close()


def test_a_request_that_the_kernel_takes_in_pieces() -> None:
    """Its caller waits for the answer already; the I/O thread, asleep till then, sends the rest."""
    with FakeServer() as server, Client(server.hosts, session_timeout=90) as client:
        link = client._driver.current_connection
        assert link is not None
        link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = bytes(900_000)
        with within(5.0):  # a ping would wake it after 30 s
            client.create("/a", data)
        assert client.get_data("/a").data == data


def test_import_starts_nothing() -> None:
    import subprocess

    code = "import threading, zkwire; zkwire.Client; print(threading.active_count())"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")
