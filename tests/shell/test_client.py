"""Both clients as their users see them: operations, replies, and what arguments are wrong."""

from __future__ import annotations

import inspect
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from tests.support.both_clients import Side, asking, both, done, entered
from tests.support.fake_server import FakeServer, mute, silent
from tests.support.operation_samples import OPERATIONS
from tests.support.recipe_samples import RECIPES, kind_of, made
from tests.support.server_control import free_port, poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    AsyncClient,
    Check,
    Client,
    Create,
    Delete,
    GetChildren,
    GetData,
    Id,
    MultiLock,
    SequentialLock,
    SetData,
    State,
    Supervisor,
    Watch,
)
from zkwire.jute.frames import SEND_LIMIT
from zkwire.operations import Operations
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


def all_ended(name: str = "zkwire", *, but: str = "") -> None:
    """Wait for the ends of these threads: a close waits for them only so long."""

    def ended() -> bool | None:
        return all(not t.startswith(name) or t == but for t in own_threads()) or None

    poll("its threads end", ended, PATIENCE)


# --- wrong arguments ------------------------------------------------------------------------------

Wrong = list[tuple[Any, type[Exception], str]]


def bad(error: type[Exception], message: str, *values: Any) -> Wrong:
    """Values that are refused with this error, which says so."""
    return [(value, error, message) for value in values]


BAD_PATHS = [
    *bad(TypeError, "path must be a str", None, b"/a", 7),
    *bad(ValueError, "start with '/'", "", "a"),
    *bad(ValueError, "empty name", "/a//b", "//a"),
    *bad(ValueError, "'.' or '..'", "/a/./b", "/.."),
    *bad(ValueError, "U+1F600", "/\U0001f600"),
    *bad(ValueError, "U+0000", "/a\0b"),
    *bad(ValueError, "U+001F", "/a\x1f"),
    *bad(ValueError, "U+007F", "/\x7f"),
    *bad(ValueError, "U+D800", "/\ud800"),
    *bad(ValueError, "U+FFF0", "/\ufff0"),
    *bad(ValueError, "end with '/'", "/a/"),
    *bad(ValueError, "this client's send_limit is", "/" + "a" * SEND_LIMIT),
]
BAD_DATA = [
    *bad(TypeError, "use .encode()", "text"),
    *bad(TypeError, "data must be bytes", bytearray(b"x"), memoryview(b"x"), 7),
    *bad(ValueError, "this client's send_limit is", bytes(SEND_LIMIT)),
]
BAD_VERSIONS = [
    *bad(TypeError, "version must be an int", None, "1", 1.0, True),
    *bad(ValueError, "-1 (any) or 0 to", -2, 2**31),
]
WORLD: Any = Id("world", "anyone")
NOBODY: Any = ("world", "anyone")
UNSENT: Any = (Id("world", None), Id(b"world", "anyone"))  # type: ignore[arg-type]
BAD_ACLS = [
    *bad(TypeError, "list or tuple of ACL", "world:anyone:r"),
    *bad(TypeError, "list or tuple of ACL, not ACL; put it into a list", OPEN_ACL_UNSAFE[0]),
    *bad(TypeError, "list or tuple of ACL, not bool; ephemeral=... and so on have names", True),
    *bad(ValueError, "not be empty", [], ()),
    *bad(TypeError, "acl must hold", [None], [(31, WORLD)], [ACL(31, NOBODY)]),
    *bad(TypeError, "must be str", *([ACL(31, identity)] for identity in UNSENT)),
    *bad(ValueError, "0 to 31", *([ACL(perms, WORLD)] for perms in ("r", 32, -1))),  # type: ignore[arg-type]
]
BAD_WATCHES = bad(TypeError, "a Watch or a callable", 7, True, "watch", Watch, 0, b"", [])
# Never to be tried on a real server: one that got a wrong TTL would end for good.
BAD_TTLS = [
    *bad(TypeError, "ttl must be a number", "1", True),
    *bad(ValueError, "ttl must be 0.001", 0, 0.0009, -1, 2**40 / 1000, float("nan"), float("inf")),
]
BAD_OPERATIONS = [
    *bad(TypeError, "not iterable", None, 7),
    *bad(TypeError, "not an operation", [None]),
    *bad(TypeError, "not an operation such as Create(path, data)", ["/a"]),
    *bad(TypeError, "must be a list, also of one", Create("/a")),
]
TEXT: Any = "text"
BAD_WRITES = [
    *bad(ValueError, "get_data cannot be part", [GetData("/a")]),
    *bad(ValueError, "get_children cannot be part", [Create("/a"), GetChildren("/a")]),
    *bad(ValueError, "start with '/'", [Create("a")]),
    *bad(TypeError, "use .encode()", [Create("/a", TEXT)]),
    *bad(ValueError, "not be empty", [Create("/a", b"", [])]),
    *bad(TypeError, "True or False", [Create("/a", ephemeral=TEXT)]),
    *bad(ValueError, "ttl must be 0.001", [Create("/a", ttl=0)]),
    *bad(ValueError, "not two of them", [Create("/a", ttl=1, ephemeral=True)]),
    *bad(ValueError, "-1 (any) or 0 to", [Check("/a", -2)]),
    *bad(ValueError, "root cannot be deleted", [Delete("/")]),
    *bad(TypeError, "version must be an int", [SetData("/a", b"", True)]),
    *bad(ValueError, "client's send_limit is", [SetData("/a", bytes(SEND_LIMIT // 2))] * 3),
]
BAD_READS = [
    *bad(ValueError, "create cannot be part", [Create("/a")]),
    *bad(ValueError, "check cannot be part", [GetData("/a"), Check("/a")]),
    *bad(ValueError, "end with '/'", [GetData("/a/")]),
    *bad(ValueError, "cannot set a watch", [GetData("/a", watch=print)]),
]
BAD_FLAGS = [
    *bad(TypeError, "must be True or False, not 'no'", "no"),
    *bad(TypeError, "must be True or False, not None", None),
    *bad(TypeError, "must be True or False", 1),
]
SERVER = "server.1=h:1:2;3"

# Each parameter: its name, a good argument, and which ways there are to get it wrong.
Argument = tuple[str, Any, Wrong]
PARAMETERS: list[Argument] = [
    ("path", "/a", BAD_PATHS),
    ("data", b"", BAD_DATA),
    ("version", -1, BAD_VERSIONS),
    ("watch", None, BAD_WATCHES),
    ("acl", [*OPEN_ACL_UNSAFE], BAD_ACLS),
    ("ttl", None, BAD_TTLS),
    *((name, False, BAD_FLAGS) for name in ("ephemeral", "sequential", "container", "recursive")),
    ("which", 3, bad(ValueError, "not a valid WatchType", 0, 6, -1, "any", None)),
    ("scheme", "digest", bad(TypeError, "scheme must be a str", b"a", None, 7)),
    (
        "secret",
        b"a:b",
        [
            *bad(TypeError, "secret must be bytes", "a:b", None, 7, bytearray(b"a:b")),
            *bad(ValueError, "this client's send_limit is", bytes(SEND_LIMIT)),
        ],
    ),
    (
        "prefix",
        "/",
        [
            *bad(TypeError, "prefix must be a str", None, b"/a"),
            *bad(ValueError, "must start with '/'", "", "a"),
        ],
    ),
    (
        "members",
        [SERVER],
        [
            *bad(TypeError, "servers must be a list of str", SERVER, [1]),
            *bad(ValueError, "either members, or joining or leaving", None),
        ],
    ),
    ("joining", None, bad(ValueError, "either members, or joining", [SERVER])),
    ("leaving", None, bad(ValueError, "either members, or joining", ["1"])),
]
# Those of one operation that differ.
OWN_PARAMETERS: dict[str, Argument] = {
    "delete": ("path", "/a", [*BAD_PATHS, *bad(ValueError, "root cannot be deleted", "/")]),
    "set_acl": ("acl", [*OPEN_ACL_UNSAFE], BAD_ACLS + bad(TypeError, "list or tuple of ACL", None)),
    "multi": ("operations", [], BAD_OPERATIONS + BAD_WRITES),
    "multi_read": ("operations", [], BAD_OPERATIONS + BAD_READS),
    "add_watch": ("watch", print, BAD_WATCHES + bad(TypeError, "a Watch or a callable", None)),
    "reconfig": ("version", -1, bad(ValueError, "version must be", "1", None, -2, 2**63)),
}


def arguments_of(operation: str) -> list[Argument]:
    """What is tried for each of its parameters, in their order."""
    known = {argument[0]: argument for argument in PARAMETERS}
    if own := OWN_PARAMETERS.get(operation):
        known[own[0]] = own
    names = inspect.signature(getattr(Operations, operation)).parameters
    return [known[name] for name in names if name != "self"]


ARGUMENTS = {operation: arguments_of(operation) for operation in sorted(OPERATIONS)}


# --- where there is no answer ---------------------------------------------------------------------


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


NOWHERE = ["black hole", "refused", "silent accept", "blocked resolver", "silent session"]


@contextmanager
def nowhere(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Servers that give no answers, for one of the reasons there are; options of the client."""
    with ExitStack() as stack:
        if kind == "black hole":
            yield f"127.0.0.1:{stack.enter_context(unanswering_port())}", {}
        elif kind == "refused":
            yield f"127.0.0.1:{free_port()}", {}
        elif kind == "blocked resolver":
            yield "zoo.example", {"_resolver": stack.enter_context(StuckResolver())}
        else:
            script = silent if kind == "silent accept" else mute
            yield stack.enter_context(FakeServer(script)).hosts, {}


@both
async def test_a_wrong_argument_is_refused_and_nothing_sent(side: Side, fake: FakeServer) -> None:
    tried = 0
    async with side.opened(fake.hosts) as client:
        for verb, arguments in ARGUMENTS.items():
            good = {name: value for name, value, _ in arguments}
            for name, _, wrongs in arguments:
                for value, error, message in wrongs:
                    for operations in (client, asking(client)):
                        with pytest.raises(error) as caught:
                            getattr(operations, verb)(**{**good, name: value})
                        assert message in str(caught.value), (verb, name, value)
                        tried += 1
        await done(client.exists("/marker"))
        # Numbers leave no gap: nothing was sent, nor given a number, nor kept for later.
        assert [(r.xid, r.op) for r in fake.received] == [(1, "exists")]
        assert client.state is State.CONNECTED
    assert tried == 2 * sum(len(wrongs) for row in ARGUMENTS.values() for *_, wrongs in row)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "MultiLock"])
def test_a_recipe_with_a_wrong_argument_is_not_made(name: str) -> None:
    client: Any = Client(HOSTS)
    taken = inspect.signature(kind_of(name, client)).parameters
    root = bad(ValueError, "the root cannot be", *("/" if "acl" in taken else ""))
    wrongs = {"path": BAD_PATHS[:-1] + root, "acl": BAD_ACLS, "data": BAD_DATA[:-1]}
    for parameter in wrongs.keys() & taken.keys():
        for value, error, message in wrongs[parameter]:
            with pytest.raises(error, match=re.escape(message)):
                made(name, client, **{"path": "/a", parameter: value})
    assert not client._driver.services


def test_the_longest_request_is_sent_and_one_byte_more_is_not(
    client: Client, fresh_path: str
) -> None:
    client.create(fresh_path)
    # Behind the length: xid, opcode, path, data, version.
    room = SEND_LIMIT - 4 - 4 - (4 + len(fresh_path)) - 4 - 4
    client.set_data(fresh_path, bytes(room))
    assert len(client.get_data(fresh_path).data) == room
    with pytest.raises(ValueError, match=f"{SEND_LIMIT + 1} bytes"):
        client.set_data(fresh_path, bytes(room + 1))


def test_watches_of_others_and_closed_ones_are_refused(fake: FakeServer) -> None:
    with Client(fake.hosts) as one, Client(fake.hosts) as two:
        foreign, closed = Watch(), Watch()
        one.exists("/a", watch=foreign)
        one.exists("/b", watch=closed)
        closed.close()
        fake.wait_for(lambda: fake.count("remove_watches"))
        before = len(fake.received)
        for verb in ("exists", "get_data", "get_children", "get_children_with_stat"):
            with pytest.raises(ValueError, match="another client"):
                getattr(two, verb)("/a", watch=foreign)
            with pytest.raises(ValueError, match="closed"):
                getattr(one, verb)("/a", watch=closed)
        assert len(fake.received) == before


NAN, INFINITE = float("nan"), float("inf")
PAIRS = "auth must be a list or tuple"
WRONG_OPTIONS = {
    "hosts": [
        *bad(TypeError, "hosts must be a str", None, ["a:1"], b"a:1"),
        *bad(ValueError, "names no server", ""),
        *bad(ValueError, "without a name", "a,:1", ":2181"),
        *bad(ValueError, "bad port", "a:", "a:0", "a:65536", "a:http", "a:-1"),
        *bad(ValueError, "[address]:port", "::1:2181"),
        *bad(ValueError, "bad address", "[::1"),
        *bad(ValueError, "write commas between servers", "a:1;b:1", "a b:1"),
        *bad(ValueError, "hosts has no scheme", "zk://a:1"),
        *bad(ValueError, "empty name", "a/b//c"),
        *bad(ValueError, "is the chroot: path must not end with '/'", "a/b/"),
    ],
    "session_timeout": [
        *bad(TypeError, "session_timeout must be a number", None, "10", True),
        *bad(ValueError, "session_timeout must be a number", NAN),
        *bad(ValueError, "session_timeout must be 0.001", 0, INFINITE),
        *bad(ValueError, "session_timeout must be 0.001", timedelta(0), timedelta(days=25)),
        *bad(ValueError, "session_timeout must not be negative", -1.0, timedelta(-1)),
        *bad(ValueError, "not 10000: 10000 milliseconds are 10; for a longer", 10000),
    ],
    "observer": bad(TypeError, "observer must be an Observer", print),
    "lease_margin": [
        *bad(TypeError, "lease_margin must be a number", None, "1"),
        *bad(ValueError, "lease_margin must not be negative", -1),
        *bad(ValueError, "at most a fifth of session_timeout, 10.0 s", 2.1),
    ],
    "operation_timeout": [
        *bad(TypeError, "operation_timeout must be a number", "1", False),
        *bad(ValueError, "operation_timeout must not be negative", -0.1),
        *bad(ValueError, "operation_timeout must be a number", NAN),
        *bad(ValueError, "operation_timeout is out of the range", 10**400),
    ],
    "receive_limit": [
        *bad(TypeError, "receive_limit must be an int", "1", None, 1e6),
        *bad(ValueError, "receive_limit must be", 0, -1, 2**31),
    ],
    "send_limit": [
        *bad(TypeError, "send_limit must be an int", True),
        *bad(ValueError, "send_limit must be 1024 to", 1023, 2**31),
    ],
    "read_only": [
        *bad(TypeError, "read_only must be True or False, not 'no'", "no"),
        *bad(TypeError, "read_only must be True or False, not 0", 0),
    ],
    "default_acl": [
        *bad(TypeError, "default_acl", None, OPEN_ACL_UNSAFE[0], "world:anyone", [("world", "a")]),
        *bad(ValueError, "default_acl must not be empty", []),
    ],
    "shuffle_hosts": bad(TypeError, "shuffle_hosts must be True or False", "no"),
    "follow_reconfig": bad(TypeError, "follow_reconfig must be True or False", "no"),
    "auth": [
        *bad(TypeError, PAIRS, None, "digest", ("digest", b"a:b"), [("digest",)]),
        *bad(TypeError, PAIRS, [("digest", "a:SECRET")], [(b"digest", b"a:SECRET")]),
        *bad(TypeError, 'such as [digest_auth("user", "password")]', [("digest", "a:SECRET")]),
        *bad(ValueError, "auth cannot be sent", [("\udc80", b"SECRET")]),
        *bad(ValueError, "the request has", [("digest", b"SECRET" * SEND_LIMIT)]),
    ],
}


@both
@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_a_client_with_a_wrong_argument_is_not_made(side: Side, option: str) -> None:
    for value, error, message in WRONG_OPTIONS[option]:
        with pytest.raises(error) as caught:
            side.Client(**{"hosts": "127.0.0.1:1", option: value})
        assert message in str(caught.value)
        assert "SECRET" not in str(caught.value)
    assert own_threads() == set()


@both
async def test_known_A52_a_session_of_more_than_an_hour_has_a_unit(side: Side) -> None:
    with pytest.raises(ValueError, match="10000 milliseconds are 10"):
        side.Client("h", session_timeout=10_000)
    with Server(timeouts=(4.0, 10_000.0)) as server:
        for timeout in (timedelta(hours=2), timedelta(seconds=5), 3600):
            async with side.opened(server.hosts, session_timeout=timeout) as client:
                assert timeout in (client.session_timeout, timedelta(0, client.session_timeout))


@pytest.mark.parametrize("wrong", ["1", True, -1, -0.001, NAN, 10**400, [1]], ids=repr)
async def test_a_wrong_timeout_is_refused(wrong: Any, fake: FakeServer) -> None:
    error = TypeError if isinstance(wrong, str | bool | list) else ValueError
    message = r"^timeout (must|is out)"
    with Client(fake.hosts) as client:
        answered = client.pipeline.exists("/a")
        answered.result()
        watch = Watch()
        client.exists("/a", watch=watch)
        lock = SequentialLock(client, "/lock")
        for wait in (
            *(client.connect, client.pipeline.exists("/b").result, answered.result),
            *(watch.wait, lock.acquire, lock.lost.wait, MultiLock(lock).lost.wait),
        ):
            with pytest.raises(error, match=message):
                wait(wrong)
    async with AsyncClient(fake.hosts) as other:
        with pytest.raises(error, match=message):
            await other.connect(wrong)


# --- arguments that do not exist ------------------------------------------------------------------


def every(client: Client | AsyncClient) -> dict[str, Any]:
    """One of each public class that has methods."""
    prefix = "Async" if isinstance(client, AsyncClient) else ""
    found = {prefix + name: made(name, client, "/path") for name in RECIPES}
    lock = found[prefix + "ReadWriteLock"]
    return {
        **found,
        type(client).__name__: client,
        f"{prefix}Lease": found[prefix + "Semaphore"].lease(),
        f"{prefix}ReadLock": lock.read,
        f"{prefix}WriteLock": lock.write,
    }


@both
async def test_an_unknown_argument_names_the_public_method(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        for public, thing in every(client).items():
            for name in dir(type(thing)):
                if name.startswith("_") or not inspect.isfunction(getattr(type(thing), name)):
                    continue
                message = re.escape(f"{public}.{name}() got an unexpected keyword")
                with pytest.raises(TypeError, match=message):
                    getattr(thing, name)(no_such_argument=1)


# --- members of enumerations ----------------------------------------------------------------------


class Place(str, Enum):  # noqa: UP042 - a StrEnum is formatted as its value
    """Names as a user keeps them, of which a library must take the value."""

    LOCK = "/lock"


@both
async def test_a_member_of_an_enumeration_is_a_str(side: Side, server: Server) -> None:
    async with side.opened(server.hosts) as client:
        await done(client.create(Place.LOCK))
        async with entered(side.SequentialLock(client, Place.LOCK)) as lock:
            assert lock.node.startswith("/lock/")


HOSTS = "127.0.0.1:1"  # nothing is started


def test_an_option_without_a_name_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="the port belongs into hosts"):
        Client("127.0.0.1", 2181)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Supervisor|Client"):
        Supervisor(HOSTS, port=3)  # type: ignore[call-arg]
