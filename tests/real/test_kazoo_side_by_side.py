"""kazoo and zkwire on one server, the embedded one or a real one: the same calls, the same effects.

Locks and other recipes on one path are in `test_kazoo_neighbours`.

A script is carried out twice, by each client below a root of its own. What is normalised: zxids
count from the root's creation, the session that owns an ephemeral node is "own", times are left
out. Everything else must be equal, down to the zxids: a request too many would show.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import Backend, poll
from zkwire import ChildrenAndStat, Client, DataAndStat, PathAndStat, ServerError
from zkwire.jute import records
from zkwire.testing import Ensemble, Server

SESSION_SECONDS = 15.0
ANY = -1  # version


@pytest.fixture(scope="module", params=["embedded", "real"])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that nobody else uses, for sessions that end elsewhere would move the zxids."""
    if request.param == "embedded":
        with Server() as embedded:
            yield embedded.hosts
    else:
        backend: Backend = request.getfixturevalue("backend")
        with backend.standalone() as server:
            yield server.hosts


# --- two clients with one face --------------------------------------------------------------------

Stat = tuple[int, ...]
Seen = Callable[[str, str], None]
KAZOO_NAMES = {-1: "NONE", 1: "CREATED", 2: "DELETED", 3: "CHANGED", 4: "CHILD"}


class Side(NamedTuple):
    """A client as the script knows it: what it does for each name of an operation."""

    name: str
    client: Any
    error: type[Exception]
    session: int
    calls: dict[str, Callable[..., Any]]
    watch: Callable[[Seen], Callable[[Any], None]]

    def do(self, operation: str, path: str, *arguments: object, seen: Seen | None = None) -> Any:
        """What it returns; a stat is the eleven numbers of the wire."""
        watched = {} if seen is None else {"watch": self.watch(seen)}
        result = self.calls[operation](path, *arguments, **watched)
        if type(result) is tuple or isinstance(result, DataAndStat | ChildrenAndStat | PathAndStat):
            return result[0], numbers(result[1])
        return None if result is True else numbers(result)  # kazoo's way to say "done"


def numbers(result: Any) -> Any:
    """A stat in kazoo's order, each number of zkwire's fetched by its name; else the same."""
    if not isinstance(result, records.Stat):
        return tuple(result) if type(result).__name__ == "ZnodeStat" else result
    return (
        *(result.czxid, result.mzxid, result.ctime, result.mtime),
        *(result.version, result.cversion, result.aversion, result.ephemeral_owner),
        *(result.data_length, result.num_children, result.pzxid),
    )


def zkwire_side(client: Client) -> Side:
    def create(path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        return client.create(path, data, ephemeral=ephemeral, sequential=sequential)

    calls: dict[str, Callable[..., Any]] = {
        "create": create,
        "create2": client.create_with_stat,
        "delete": client.delete,
        "set": client.set_data,
        "exists": client.exists,
        "get": client.get_data,
        "children": client.get_children,
        "children2": client.get_children_with_stat,
    }
    return Side(
        "zkwire", client, ServerError, client.session_id, calls,
        lambda seen: lambda event: seen(KAZOO_NAMES[event.type], event.path),
    )  # fmt: skip


def kazoo_side(client: Any, error: type[Exception]) -> Side:
    def create(path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        return str(client.create(path, data, ephemeral=ephemeral, sequence=sequential))

    calls: dict[str, Callable[..., Any]] = {
        "create": create,
        "create2": partial(client.create, include_data=True),
        "delete": client.delete,
        "set": client.set,
        "exists": client.exists,
        "get": client.get,
        "children": client.get_children,
        "children2": partial(client.get_children, include_data=True),
    }
    return Side(
        "kazoo", client, error, client.client_id[0], calls,
        lambda seen: lambda event: seen(event.type, event.path),
    )  # fmt: skip


Sides = tuple[Side, Side]


@pytest.fixture
def sides(kazoo: Any, hosts: str) -> Iterator[Sides]:
    before = set(threading.enumerate())
    theirs = kazoo.client.KazooClient(hosts, timeout=SESSION_SECONDS)
    with Client(hosts, session_timeout=SESSION_SECONDS) as ours:
        ours.connect()
        theirs.start(PATIENCE)
        yield kazoo_side(theirs, kazoo.exceptions.ZookeeperError), zkwire_side(ours)
        theirs.stop()
        theirs.close()
    poll("the clients' threads end", lambda: set(threading.enumerate()) <= before or None, PATIENCE)


@pytest.fixture
def root(sides: Sides, fresh_path: str) -> Iterator[str]:
    """A prefix of both sides' roots; what they leave below is deleted."""
    yield fresh_path
    for side in sides:
        with suppress(side.error):
            for path in reversed(everything_below(side, fresh_path + side.name)):
                side.do("delete", path, ANY)


def everything_below(side: Side, path: str) -> list[str]:
    """A node and all below it, parents first."""
    found, left = [], deque([path])
    while left:
        found.append(left.popleft())
        left.extend(f"{found[-1]}/{name}" for name in sorted(side.do("children", found[-1])))
    return found


# --- operations -----------------------------------------------------------------------------------

# The name of an operation of Side, a path below the root, further arguments.
Step = tuple[Any, ...]

SCRIPT: list[Step] = [
    ("create2", "", b"root"),
    ("create", "/a", b"x", False, False),
    ("create", "/a", b"y", False, False),  # is there
    ("create", "/no/b", b"", False, False),  # no parent
    ("create2", "/b", b"\0\xff"),
    ("create2", "/b", b""),  # is there
    ("create", "/a/s-", b"", False, True),
    ("create", "/a/", b"only digits", False, True),
    ("create", "/a/e-", b"", True, True),
    ("create", "/a/e", b"mine", True, False),
    ("create", "/a/e/c", b"", False, False),  # below an ephemeral node
    ("create", "/a/größe 日", b"", False, False),
    ("exists", "/a/größe 日"),
    ("exists", "/a/e"),
    ("exists", "/no"),
    ("get", "/a"),
    ("get", "/a/e"),
    ("get", "/no"),
    ("set", "/a", b"12", ANY),
    ("set", "/a", b"123", 1),
    ("set", "/a", b"1234", 1),  # is at 2
    ("set", "/no", b"", ANY),
    ("set", "/a", b"z" * 500_000, 2),
    ("get", "/a"),
    ("set", "/a", b"", ANY),
    ("get", "/a"),
    ("delete", "/a", ANY),  # has children
    ("delete", "/a/e", 1),  # is at 0
    ("delete", "/a/e", 0),
    ("delete", "/a/e", ANY),  # is gone
    ("children", "/a"),
    ("children", "/b"),
    ("children", "/no"),
    ("children2", "/a"),
    ("children2", ""),
    ("children2", "/no"),
    ("create", "/a/s-", b"", False, True),
    ("delete", "/b", ANY),
    ("create", "/b", b"again", True, False),
    ("get", "/b"),
    ("exists", ""),
]


class Normal:
    """What one side sees, in a form that can be compared with the other side's."""

    def __init__(self, root: str, base: int, session: int) -> None:
        self._root = root
        self._base = base
        self._session = session

    def of(self, result: Any) -> Any:
        match result:
            case str():
                return result.removeprefix(self._root)
            case list():
                return sorted(result)
            case (first, tuple() as stat):
                return self.of(first), self.stat(stat)
            case tuple():
                return self.stat(result)
        return result

    def stat(self, stat: Stat) -> dict[str, object]:
        czxid, mzxid, _, _, version, cversion, aversion, owner, length, children, pzxid = stat
        return {
            "zxids": [zxid - self._base for zxid in (czxid, mzxid, pzxid)],
            "versions": [version, cversion, aversion],
            "owner": "own" if owner == self._session else owner,
            "sizes": [length, children],
        }


def carry_out(side: Side, root: str, script: list[Step]) -> list[Any]:
    """What each step of the script returns or is refused with; the first one makes the root."""
    normal = None
    seen: list[Any] = []
    for name, path, *arguments in script:
        try:
            result = side.do(name, root + path, *arguments)
        except side.error as error:
            seen.append((name, path, "refused", error.code))  # type: ignore[attr-defined]
            continue
        if normal is None:
            normal = Normal(root, result[1][0], side.session)
        seen.append((name, path, normal.of(result)))
    return seen


@pytest.mark.since("3.5")
def test_the_same_script(sides: Sides, root: str) -> None:
    kazoo, zkwire = sides
    theirs, ours = (carry_out(side, root + side.name, SCRIPT) for side in sides)
    for step, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"step {step}, {SCRIPT[step]}"
    assert {step[-1] for step in ours if step[2] == "refused"} == {-101, -103, -108, -110, -111}
    for side in sides:  # nothing normalised: the whole stat of a node, times and session included
        for node in everything_below(side, root + side.name):
            for read in ("get", "exists"):
                assert kazoo.do(read, node) == zkwire.do(read, node)
            assert sorted(kazoo.do("children", node)) == sorted(zkwire.do("children", node))


# --- watches --------------------------------------------------------------------------------------

# Which reads set a watch, on which paths, and what is then done.
WATCHED: list[tuple[list[tuple[str, str]], list[Step]]] = [
    ([("exists", "/a")], [("create", "/a", b"", False, False), ("set", "/a", b"once", ANY)]),
    ([("exists", "/a")], [("set", "/a", b"", ANY), ("delete", "/a", ANY)]),
    ([("exists", "/a"), ("get", "/a")], [("create", "/a", b"", False, False)]),  # get is refused
    ([("get", "/a"), ("exists", "/a"), ("children", "/a")], [("set", "/a", b"", ANY)]),
    ([("children", "/a"), ("children", "")], [("create", "/a/b", b"", True, False)]),
    ([("get", "/a"), ("children", "/a")], [("set", "/a/b", b"", ANY)]),
    (
        [("get", "/a/b"), ("children", "/a/b"), ("children", "/a"), ("get", "/a")],
        [("delete", "/a/b", ANY)],
    ),
    ([("children", "/a"), ("children", "")], [("delete", "/a", 7), ("delete", "/a", ANY)]),
    ([("exists", "/s-0000000002")], [("create", "/s-", b"", False, True)] * 2),
]


def watch_events(side: Side, root: str) -> list[Any]:
    """For each part of the script, the events that its watches have seen until its end."""
    side.do("create", root, b"", False, False)
    side.do("create", root + "/signal", b"", False, False)
    parts = []
    for watches, steps in WATCHED:
        # In one queue with the others, so whatever comes before it has come when it comes.
        seen: deque[tuple[str, str, str]] = deque()
        told = threading.Event()
        for read, path in watches:
            with suppress(side.error):
                side.do(read, root + path, seen=note_as(f"{read} {path}", root, seen))
        for name, path, *arguments in steps:
            with suppress(side.error):
                side.do(name, root + path, *arguments)
        side.do("get", root + "/signal", seen=lambda *_, told=told: told.set())
        side.do("set", root + "/signal", b"", ANY)
        assert told.wait(PATIENCE), f"{side.name} does not hear of {steps}"
        # Which of the watches of one event is called first is nobody's promise.
        parts.append(sorted(seen))
    return parts


def note_as(label: str, root: str, seen: deque[tuple[str, str, str]]) -> Seen:
    return lambda kind, path: seen.append((label, kind, path.removeprefix(root)))


def test_watches_see_the_same_events(sides: Sides, root: str) -> None:
    theirs, ours = (watch_events(side, root + side.name) for side in sides)
    for part, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"part {part}, {WATCHED[part]}"
    kinds = {kind for part in ours for _, kind, _ in part}
    assert kinds == {"CREATED", "DELETED", "CHANGED", "CHILD"}


def test_kazoo_moves_to_another_server_of_an_embedded_ensemble(kazoo: Any) -> None:
    with Ensemble(3) as ensemble:
        client = kazoo.client.KazooClient(ensemble.hosts)
        client.start(PATIENCE)
        try:
            assert client.server_version() == (3, 8, 0)  # by `envi`
            session_id, _ = client.client_id
            client.create("/a", ephemeral=True)
            member = ensemble.server_for_session(session_id)
            assert member is not None
            member.stop()
            assert client.retry(client.exists, "/a").ephemeralOwner == session_id
        finally:
            client.stop()
            client.close()
