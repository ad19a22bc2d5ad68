"""Both clients as their users see them: operations, replies, and what arguments are wrong."""

from __future__ import annotations

import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import zkwire
from tests.support.both_clients import Side, answer, done
from tests.support.fake_server import FakeServer, mute, silent
from tests.support.operation_samples import OPERATIONS, SAMPLES
from tests.support.server_control import free_port, poll
from zkwire import (
    ACL,
    OPEN_ACL_UNSAFE,
    Check,
    Client,
    Create,
    Delete,
    GetChildren,
    GetData,
    Id,
    SetData,
    State,
    Watch,
    ZooKeeperError,
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


def poll_state(client: Client, state: State) -> bool:
    """Wait until the client is in a state that nothing tells of."""
    with suppress(TimeoutError):
        poll("the state", lambda: client.state is state or None, PATIENCE)
    return client.state is state


# --- operations -----------------------------------------------------------------------------------


class Recorder:
    """What is called of it is returned: the name of the operation and its arguments."""

    def __getattr__(self, verb: str) -> Callable[..., tuple[str, Any, Any]]:
        return lambda *args, **kwargs: (verb, args, kwargs)


def script(root: str) -> list[tuple[str, Any, Any]]:
    """Every operation at least once, good and refused."""
    ask: Any = Recorder()
    calls = [
        ask.add_auth("digest", b"me:secret"),
        ask.ensure_path(f"{root}/a/b"),
        ask.create(f"{root}/n", b"one"),
        ask.create(f"{root}/n", b"one"),
        ask.create_with_stat(f"{root}/s-", b"x", sequential=True),
        ask.create(f"{root}/e", ephemeral=True),
        ask.set_data(f"{root}/n", b"two", 0),
        ask.set_data(f"{root}/n", b"two", 0),
        ask.get_data(f"{root}/n"),
        ask.exists(f"{root}/n"),
        ask.exists(f"{root}/none"),
        ask.get_data(f"{root}/none"),
        ask.get_children(f"{root}/none"),
        ask.get_children(root),
        ask.get_children_with_stat(root),
        ask.get_all_children_number(root),
        ask.get_ephemerals(root),
        ask.set_acl(f"{root}/n", zkwire.CREATOR_ALL_ACL),
        ask.get_acl(f"{root}/n"),
        ask.multi([Create(f"{root}/m", b"1"), SetData(f"{root}/m", b"2"), Check(root)]),
        ask.multi([Create(f"{root}/m", b"1"), SetData(f"{root}/m", b"2")]),
        ask.multi_read([GetData(f"{root}/m"), GetData(f"{root}/none")]),
        ask.add_watch(root, Watch(), recursive=True),
        ask.remove_watches(root),
        ask.remove_watches(root),
        ask.delete(f"{root}/n", 1),
        ask.delete(root),
        ask.delete_tree(root),
        ask.exists(root),
    ]
    for number, sample in enumerate(SAMPLES):
        path = f"{root}/{number}"
        calls += [ask.ensure_path(f"{path}/gone"), sample.call(ask, path)]
    return calls


def normal(value: Any, root: str) -> Any:
    """Without what differs between two roots and two moments."""
    match value:
        case ZooKeeperError():
            path = normal(value.path or "", root)
            return type(value).__name__, value.op, path, value.maybe_applied
        case zkwire.Stat():
            return value.version, value.aversion, value.data_length, value.num_children
        case Watch():
            return "a watch"
        case str():
            return value.replace(root, "ROOT")
        case list() | tuple():
            items = [normal(item, root) for item in value]
            return sorted(items) if all(isinstance(i, str) for i in items) else items
    return value


async def test_each_way_to_ask_has_the_same_results(whole: str, fresh_path: str) -> None:
    """A script of every operation: with each client, and with the pipeline."""
    seen = []
    for number, side in enumerate([Side(""), Side(""), Side("Async")]):
        root, results = f"{fresh_path}-{number}", []
        async with side.opened(whole) as client:
            for verb, arguments, named in script(root):
                kept = number == 1 and verb in OPERATIONS
                try:
                    asked = getattr(client.pipeline if kept else client, verb)(*arguments, **named)
                    result = await (answer(asked) if kept else done(asked))
                except ZooKeeperError as error:
                    result = error
                results.append((verb, normal(result, root)))
        seen.append(results)
    assert seen[0] == seen[1]
    assert seen[0] == seen[2]
    assert ("create", "ROOT/n") in seen[0]
    for refused in (
        ("NodeExistsError", "create", "ROOT/n", False),
        ("BadVersionError", "set_data", "ROOT/n", False),
        ("NotEmptyError", "delete", "ROOT", False),
        ("NoNodeError", "get_data", "ROOT/none", False),
        ("NoNodeError", "get_children", "ROOT/none", False),
    ):
        assert (refused[1], refused) in seen[0]


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
    *bad(ValueError, "this client's send_limit is", "/" + "a" * SEND_LIMIT),
    *bad(ValueError, "end with '/'", "/a/"),
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


def refused_port() -> int:
    """A port that nobody listens on; below the range from which clients' own ports are taken."""
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


NOWHERE = ["black hole", "refused", "silent accept", "blocked resolver", "silent session"]


@contextmanager
def nowhere(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Servers that give no answers, for one of the reasons there are; options of the client."""
    with ExitStack() as stack:
        if kind == "black hole":
            yield f"127.0.0.1:{stack.enter_context(unanswering_port())}", {}
        elif kind == "refused":
            yield f"127.0.0.1:{refused_port()}", {}
        elif kind == "blocked resolver":
            yield "zoo.example", {"_resolver": stack.enter_context(StuckResolver())}
        else:
            script = silent if kind == "silent accept" else mute
            yield stack.enter_context(FakeServer(script)).hosts, {}
