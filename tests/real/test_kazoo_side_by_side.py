"""kazoo and zkwire on one real server: the same calls have the same effects.

Locks and other recipes on one path are in `test_kazoo_neighbours`.

A script is carried out twice, by each client below a root of its own. What is normalised: zxids
count from the root's creation, the session that owns an ephemeral node is "own", times are left
out. Everything else must be equal, down to the zxids: a request too many would show.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Protocol

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import Backend, ZooKeeperServer, poll
from zkwire import Client, Event, ServerError
from zkwire.jute import records

SESSION_SECONDS = 15.0
RANDOM_STEPS = 400
ANY = -1  # version


@pytest.fixture(scope="module")
def server(backend: Backend) -> Iterator[ZooKeeperServer]:
    """One that nobody else uses, for sessions that end elsewhere would move the zxids."""
    with backend.standalone() as server:
        yield server


class Clients:
    """Clients of both kinds, all closed with the test."""

    def __init__(self, kazoo: Any, exit_stack: ExitStack) -> None:
        self._kazoo = kazoo
        self._exit = exit_stack

    def zkwire(self, server: ZooKeeperServer) -> Client:
        return self._exit.enter_context(Client(server.hosts, session_timeout=SESSION_SECONDS))

    def kazoo(self, server: ZooKeeperServer) -> Any:
        made = self._kazoo.client.KazooClient(server.hosts, timeout=SESSION_SECONDS)
        self._exit.callback(made.close)
        self._exit.callback(made.stop)
        made.start(PATIENCE)
        return made


@pytest.fixture
def clients(kazoo: Any) -> Iterator[Clients]:
    before = set(threading.enumerate())
    with ExitStack() as exit_stack:
        yield Clients(kazoo, exit_stack)
    poll("the clients' threads end", lambda: set(threading.enumerate()) <= before or None, PATIENCE)


# --- two clients with one face --------------------------------------------------------------------

Stat = tuple[int, ...]
Seen = Callable[[str, str], None]


class Side(Protocol):
    """A client as the script knows it; a stat is the eleven numbers of the wire."""

    name: str
    error: type[Exception]

    @property
    def client(self) -> Any: ...
    def session(self) -> int: ...
    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str: ...
    def create2(self, path: str, data: bytes) -> tuple[str, Stat]: ...
    def delete(self, path: str, version: int) -> None: ...
    def set(self, path: str, data: bytes, version: int) -> Stat: ...
    def exists(self, path: str, seen: Seen | None = None) -> Stat | None: ...
    def get(self, path: str, seen: Seen | None = None) -> tuple[bytes, Stat]: ...
    def children(self, path: str, seen: Seen | None = None) -> list[str]: ...
    def children2(self, path: str) -> tuple[list[str], Stat]: ...


def numbers(stat: records.Stat) -> Stat:
    """zkwire's stat in kazoo's order, each number fetched by its name."""
    return (
        *(stat.czxid, stat.mzxid, stat.ctime, stat.mtime),
        *(stat.version, stat.cversion, stat.aversion, stat.ephemeral_owner),
        *(stat.data_length, stat.num_children, stat.pzxid),
    )


class ZkwireSide:
    name = "zkwire"
    error: type[Exception] = ServerError

    def __init__(self, client: Client) -> None:
        self.client = client

    def session(self) -> int:
        return self.client.session_id

    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        return self.client.create(path, data, ephemeral=ephemeral, sequential=sequential)

    def create2(self, path: str, data: bytes) -> tuple[str, Stat]:
        created, stat = self.client.create_with_stat(path, data)
        return created, numbers(stat)

    def delete(self, path: str, version: int) -> None:
        self.client.delete(path, version)

    def set(self, path: str, data: bytes, version: int) -> Stat:
        return numbers(self.client.set_data(path, data, version))

    def exists(self, path: str, seen: Seen | None = None) -> Stat | None:
        stat = self.client.exists(path, watch=self._watch(seen))
        return None if stat is None else numbers(stat)

    def get(self, path: str, seen: Seen | None = None) -> tuple[bytes, Stat]:
        data, stat = self.client.get_data(path, watch=self._watch(seen))
        return data, numbers(stat)

    def children(self, path: str, seen: Seen | None = None) -> list[str]:
        return self.client.get_children(path, watch=self._watch(seen))

    def children2(self, path: str) -> tuple[list[str], Stat]:
        names, stat = self.client.get_children_with_stat(path)
        return names, numbers(stat)

    @staticmethod
    def _watch(seen: Seen | None) -> Callable[[Event], None] | None:
        if seen is None:
            return None
        return lambda event: seen(KAZOO_NAMES[event.type], event.path)


KAZOO_NAMES = {-1: "NONE", 1: "CREATED", 2: "DELETED", 3: "CHANGED", 4: "CHILD"}


class KazooSide:
    name = "kazoo"

    def __init__(self, client: Any) -> None:
        from kazoo.exceptions import ZookeeperError

        self.client = client
        self.error = ZookeeperError

    def session(self) -> int:
        session_id, _ = self.client.client_id
        return int(session_id)

    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        return str(self.client.create(path, data, ephemeral=ephemeral, sequence=sequential))

    def create2(self, path: str, data: bytes) -> tuple[str, Stat]:
        created, stat = self.client.create(path, data, include_data=True)
        return created, tuple(stat)

    def delete(self, path: str, version: int) -> None:
        self.client.delete(path, version)

    def set(self, path: str, data: bytes, version: int) -> Stat:
        return tuple(self.client.set(path, data, version))

    def exists(self, path: str, seen: Seen | None = None) -> Stat | None:
        stat = self.client.exists(path, watch=self._watch(seen))
        return None if stat is None else tuple(stat)

    def get(self, path: str, seen: Seen | None = None) -> tuple[bytes, Stat]:
        data, stat = self.client.get(path, watch=self._watch(seen))
        return data, tuple(stat)

    def children(self, path: str, seen: Seen | None = None) -> list[str]:
        return list(self.client.get_children(path, watch=self._watch(seen)))

    def children2(self, path: str) -> tuple[list[str], Stat]:
        names, stat = self.client.get_children(path, include_data=True)
        return names, tuple(stat)

    @staticmethod
    def _watch(seen: Seen | None) -> Callable[[Any], None] | None:
        return None if seen is None else lambda event: seen(event.type, event.path)


SIDES: dict[str, Callable[[Any], Side]] = {"kazoo": KazooSide, "zkwire": ZkwireSide}


@pytest.fixture
def sides(clients: Clients, server: ZooKeeperServer) -> tuple[Side, Side]:
    return KazooSide(clients.kazoo(server)), ZkwireSide(clients.zkwire(server))


@pytest.fixture
def root(sides: tuple[Side, Side], fresh_path: str) -> Iterator[str]:
    """A prefix of both sides' roots; what they leave below is deleted."""
    yield fresh_path
    for side in sides:
        with suppress(side.error):
            for path in reversed(everything_below(side, fresh_path + side.name)):
                side.delete(path, ANY)


def everything_below(side: Side, path: str) -> list[str]:
    """A node and all below it, parents first."""
    found, left = [], deque([path])
    while left:
        found.append(left.popleft())
        left.extend(f"{found[-1]}/{name}" for name in sorted(side.children(found[-1])))
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


def random_script(rng: random.Random) -> list[Step]:
    """Few paths, so that most steps meet what earlier ones have done."""
    paths = ["/a", "/b", "/a/a", "/a/b", "/a/b/c", "/b/s-0000000000", "/a/s-0000000003"]
    script: list[Step] = [("create2", "", b"")]
    for _ in range(RANDOM_STEPS):
        path, data = rng.choice(paths), rng.randbytes(rng.randrange(5))
        version = rng.choice((ANY, ANY, 0, 1, 2))
        script.append(
            rng.choice(
                (
                    ("create", path, data, rng.random() < 0.3, False),
                    ("create", path[:2] + "/s-", data, rng.random() < 0.3, True),
                    ("create2", path, data),
                    ("set", path, data, version),
                    ("delete", path, version),
                    ("exists", path),
                    ("get", path),
                    ("children", path),
                    ("children2", path),
                )
            )
        )
    return script


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
            result = getattr(side, name)(root + path, *arguments)
        except side.error as error:
            seen.append((name, path, "refused", error.code))  # type: ignore[attr-defined]
            continue
        if normal is None:
            normal = Normal(root, result[1][0], side.session())
        seen.append((name, path, normal.of(result)))
    return seen


def tree(reader: Side, owner: Side, root: str) -> list[Any]:
    """All nodes that ``owner`` has made, as ``reader`` sees them."""
    paths = everything_below(reader, root)
    normal = Normal(root, reader.get(root)[1][0], owner.session())
    return [(normal.of(path), normal.of(reader.get(path))) for path in paths]


def assert_same_effects(sides: tuple[Side, Side], root: str, script: list[Step]) -> list[Any]:
    kazoo, zkwire = sides
    theirs = carry_out(kazoo, root + kazoo.name, script)
    ours = carry_out(zkwire, root + zkwire.name, script)
    for step, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"step {step}, {script[step]}"
    made = tree(kazoo, kazoo, root + kazoo.name)
    assert tree(zkwire, kazoo, root + kazoo.name) == made
    assert tree(zkwire, zkwire, root + zkwire.name) == made
    assert tree(kazoo, zkwire, root + zkwire.name) == made
    return ours


@pytest.mark.since("3.5")
def test_the_same_script(sides: tuple[Side, Side], root: str) -> None:
    seen = assert_same_effects(sides, root, SCRIPT)
    refusals = {step[-1] for step in seen if step[2] == "refused"}
    assert refusals == {-101, -103, -108, -110, -111}


@pytest.mark.since("3.5")
def test_a_random_script(sides: tuple[Side, Side], root: str, seed: int) -> None:
    assert_same_effects(sides, root, random_script(random.Random(seed)))


def test_both_read_the_same_numbers(sides: tuple[Side, Side], root: str) -> None:
    """Nothing normalised: the whole stat of one node, times and session included."""
    kazoo, zkwire = sides
    for side in sides:
        path = root + side.name
        side.create(path, b"x", False, False)
        for change in range(3):
            side.create(f"{path}/e-", b"", True, True)
            side.set(path, b"y" * change, change)
        for node in everything_below(side, path):
            assert kazoo.get(node) == zkwire.get(node)
            assert kazoo.exists(node) == zkwire.exists(node)
            assert sorted(kazoo.children(node)) == sorted(zkwire.children(node))


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
    side.create(root, b"", False, False)
    side.create(root + "/signal", b"", False, False)
    parts = []
    for watches, steps in WATCHED:
        # In one queue with the others, so whatever comes before it has come when it comes.
        seen: deque[tuple[str, str, str]] = deque()
        told = threading.Event()
        for read, path in watches:
            with suppress(side.error):
                getattr(side, read)(root + path, note_as(f"{read} {path}", root, seen))
        for name, path, *arguments in steps:
            with suppress(side.error):
                getattr(side, name)(root + path, *arguments)
        side.get(root + "/signal", lambda *_, told=told: told.set())
        side.set(root + "/signal", b"", ANY)
        assert told.wait(PATIENCE), f"{side.name} does not hear of {steps}"
        # Which of the watches of one event is called first is nobody's promise.
        parts.append(sorted(seen))
    return parts


def note_as(label: str, root: str, seen: deque[tuple[str, str, str]]) -> Seen:
    return lambda kind, path: seen.append((label, kind, path.removeprefix(root)))


def test_watches_see_the_same_events(sides: tuple[Side, Side], root: str) -> None:
    theirs, ours = (watch_events(side, root + side.name) for side in sides)
    for part, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"part {part}, {WATCHED[part]}"
    kinds = {kind for part in ours for _, kind, _ in part}
    assert kinds == {"CREATED", "DELETED", "CHANGED", "CHILD"}
