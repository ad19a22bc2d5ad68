"""The blocking client as its users see it: operations, arguments, watches, limits, the end."""

from __future__ import annotations

import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.fake_server import Connection, FakeServer, mute, silent
from tests.support.lock_helpers import Running
from tests.support.operation_samples import OPERATIONS
from tests.support.server_control import poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    BadVersionError,
    Check,
    Client,
    Create,
    Delete,
    Event,
    EventType,
    GetChildren,
    GetData,
    Id,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ServerError,
    SetData,
    State,
    Watch,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.operations import Operations

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


def all_ended(name: str = "zkwire", *, but: str = "") -> None:
    """Wait for the ends of these threads: a close waits for them only so long."""

    def ended() -> bool | None:
        return all(not t.startswith(name) or t == but for t in own_threads()) or None

    poll("its threads end", ended, PATIENCE)


def seen(watch: Watch) -> Event:
    """The watch's event, without the zxid that servers tell from 3.9 on."""
    event = watch.wait(PATIENCE)
    assert event is not None
    return Event(event.type, event.path, event.state)


# --- operations -----------------------------------------------------------------------------------


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


@pytest.mark.since("3.5")
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


@pytest.mark.since("3.5")
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


@pytest.mark.since("3.5")
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


BAD_PATHS: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "path must be a str"),
    (b"/a", TypeError, "path must be a str"),
    (7, TypeError, "path must be a str"),
    ("", ValueError, "start with '/'"),
    ("a", ValueError, "start with '/'"),
    ("/a//b", ValueError, "empty name"),
    ("//a", ValueError, "empty name"),
    ("/\U0001f600", ValueError, "U+1F600"),
    ("/a/./b", ValueError, "'.' or '..'"),
    ("/..", ValueError, "'.' or '..'"),
    ("/a\0b", ValueError, "U+0000"),
    ("/a\x1f", ValueError, "U+001F"),
    ("/\x7f", ValueError, "U+007F"),
    ("/\ud800", ValueError, "U+D800"),
    ("/\ufff0", ValueError, "U+FFF0"),
    ("/" + "a" * SEND_LIMIT, ValueError, "this client's send_limit is"),
]
ENDS_IN_SLASH: list[tuple[Any, type[Exception], str]] = [("/a/", ValueError, "end with '/'")]
BAD_DATA: list[tuple[Any, type[Exception], str]] = [
    ("text", TypeError, "use .encode()"),
    (bytearray(b"x"), TypeError, "data must be bytes"),
    (memoryview(b"x"), TypeError, "data must be bytes"),
    (7, TypeError, "data must be bytes"),
    (bytes(SEND_LIMIT), ValueError, "this client's send_limit is"),
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
    (0, TypeError, "a Watch or a callable"),
    (b"", TypeError, "a Watch or a callable"),
    ([], TypeError, "a Watch or a callable"),
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
    ([Create("/a", ephemeral="no")], TypeError, "True or False"),  # type: ignore[arg-type]
    ([Create("/a", ttl=0)], ValueError, "ttl must be 0.001"),
    ([Create("/a", ttl=1, ephemeral=True)], ValueError, "not two of them"),
    ([Check("/a", -2)], ValueError, "-1 (any) or 0 to"),
    ([Delete("/")], ValueError, "root cannot be deleted"),
    ([SetData("/a", b"", True)], TypeError, "version must be an int"),
    ([SetData("/a", bytes(SEND_LIMIT // 2))] * 3, ValueError, "this client's send_limit is"),
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
    (None, ValueError, "either members, or joining or leaving"),
]

FLAGS = ("ephemeral", "sequential", "container", "recursive")
BAD_FLAGS: list[tuple[Any, type[Exception], str]] = [
    ("no", TypeError, "must be True or False, not 'no'"),
    (1, TypeError, "must be True or False"),
    (None, TypeError, "must be True or False, not None"),
]

# Each parameter: its name, a good argument, and which ways there are to get it wrong.
Argument = tuple[str, Any, list[tuple[Any, type[Exception], str]]]
PARAMETERS: list[Argument] = [
    ("path", "/a", BAD_PATHS + ENDS_IN_SLASH),
    ("data", b"", BAD_DATA),
    ("version", -1, BAD_VERSIONS),
    ("watch", None, BAD_WATCHES),
    ("acl", [*OPEN_ACL_UNSAFE], BAD_ACLS),
    ("ttl", None, BAD_TTLS),
    *((name, False, BAD_FLAGS) for name in FLAGS),
    ("which", 3, [(w, ValueError, "not a valid WatchType") for w in (0, 6, -1, "any", None)]),
    ("scheme", "digest", [(w, TypeError, "scheme must be a str") for w in (b"a", None, 7)]),
    (
        "secret",
        b"a:b",
        [
            *((w, TypeError, "secret must be bytes") for w in ("a:b", None, 7, bytearray(b"a:b"))),
            (bytes(SEND_LIMIT), ValueError, "this client's send_limit is"),
        ],
    ),
    (
        "prefix",
        "/",
        [
            *((w, TypeError, "prefix must be a str") for w in (None, b"/a")),
            *((w, ValueError, "must start with '/'") for w in ("", "a")),
        ],
    ),
    ("members", ["server.1=h:1:2;3"], BAD_SERVERS),
    ("joining", None, [(["server.1=h:1:2;3"], ValueError, "either members, or joining")]),
    ("leaving", None, [(["1"], ValueError, "either members, or joining")]),
]
# Those of one operation that differ.
OWN_PARAMETERS: dict[str, list[Argument]] = {
    "delete": [
        ("path", "/a", [*BAD_PATHS, *ENDS_IN_SLASH, ("/", ValueError, "root cannot be deleted")])
    ],
    "set_acl": [
        ("acl", [*OPEN_ACL_UNSAFE], [*BAD_ACLS, (None, TypeError, "list or tuple of ACL")])
    ],
    "multi": [("operations", [], BAD_OPERATIONS + BAD_WRITES)],
    "multi_read": [("operations", [], BAD_OPERATIONS + BAD_READS)],
    "add_watch": [("watch", print, [*BAD_WATCHES, (None, TypeError, "a Watch or a callable")])],
    "reconfig": [
        ("version", -1, [(v, ValueError, "version must be") for v in ("1", None, -2, 2**63)])
    ],
}


def arguments_of(operation: str) -> list[Argument]:
    """What is tried for each of its parameters, in their order."""
    known = {argument[0]: argument for argument in PARAMETERS + OWN_PARAMETERS.get(operation, [])}
    names = inspect.signature(getattr(Operations, operation)).parameters
    return [known[name] for name in names if name != "self"]


ARGUMENTS = {operation: arguments_of(operation) for operation in sorted(OPERATIONS)}


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


def test_calls_made_before_the_connection_wait_for_it_in_order(fake: FakeServer) -> None:
    client = Client(fake.hosts)
    replies = [client.pipeline.create(f"/{n}") for n in range(50)]
    assert client.exists("/49") is not None
    assert [reply_.result() for reply_ in replies] == [f"/{n}" for n in range(50)]
    client.close()
    assert [r.path for r in fake.executed if r.op == "create"] == [f"/{n}" for n in range(50)]


def late(gate: threading.Event) -> Callable[[Connection], None]:
    """A script that answers the first request once the gate is open."""

    def script(connection: Connection) -> None:
        connection.greet()
        request = connection.request()
        assert gate.wait(PATIENCE)
        connection.answer(request)
        for request in connection.requests():
            connection.answer(request)

    return script


def test_two_threads_may_wait_for_one_reply() -> None:
    gate = threading.Event()

    with FakeServer(late(gate)) as server, Client(server.hosts) as client:
        one = client.pipeline.exists("/a")
        waiting = [Running(one.result) for _ in range(4)]
        server.wait_for(lambda: server.count("exists"))
        gate.set()
        assert [w.result() for w in waiting] == [None] * 4


def refused_port() -> int:
    """A port that nobody listens on; below the range from which clients' own ports are taken."""
    from tests.support.server_control import free_port

    return free_port()


Addresses = list[tuple[int, Any]]


def named(*servers: FakeServer | int) -> Addresses:
    ports = [s if isinstance(s, int) else s.port for s in servers]
    return [(socket.AF_INET, ("127.0.0.1", port)) for port in ports]


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


def poll_state(client: Client, state: State) -> bool:
    """Wait until the client is in a state that nothing tells of."""
    deadline = time.monotonic() + PATIENCE
    while client.state is not state and time.monotonic() < deadline:
        time.sleep(0.001)
    return client.state is state
