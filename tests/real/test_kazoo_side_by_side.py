"""kazoo and zkwire on one server, the embedded one or a real one: both do, read and hear the same.

The calls of both are compared one by one in `test_from_kazoo`; locks and other recipes on one path
are in `test_kazoo_neighbours`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.lock_helpers import PATIENCE
from tests.support.server_control import Backend, poll
from zkwire import ChildrenAndStat, Client, DataAndStat, PathAndStat, ServerError, Stat
from zkwire.testing import Ensemble, Server

TIMEOUT = 15.0
ANY = -1  # version
KAZOO_NAMES = {-1: "NONE", 1: "CREATED", 2: "DELETED", 3: "CHANGED", 4: "CHILD"}


class Side(NamedTuple):
    """A client with kazoo's methods: what it is, its errors, what it calls each of them."""

    client: Any
    error: type[Exception]
    names: dict[str, str]

    def do(self, method: str, path: str, *arguments: object, **more: Any) -> Any:
        """What it returns, in kazoo's form; -1 and the like, the code, if it is refused."""
        if "watch" in more:
            told = more["watch"]
            more["watch"] = lambda event: told(KAZOO_NAMES.get(event.type, event.type), event.path)
        if "sequence" in more and self.names:
            more["sequential"] = more.pop("sequence")
        try:
            return as_kazoo_has_it(
                getattr(self.client, self.names.get(method, method))(path, *arguments, **more)
            )
        except self.error as error:
            return error.code  # type: ignore[attr-defined]


def as_kazoo_has_it(result: Any) -> Any:
    """Stats as the eleven numbers, each of zkwire's fetched by its name; names in their order."""
    if isinstance(result, Stat):
        return (
            *(result.czxid, result.mzxid, result.ctime, result.mtime),
            *(result.version, result.cversion, result.aversion, result.ephemeral_owner),
            *(result.data_length, result.num_children, result.pzxid),
        )
    if type(result).__name__ == "ZnodeStat":
        return tuple(result)
    if isinstance(result, DataAndStat | ChildrenAndStat | PathAndStat | tuple):
        return tuple(as_kazoo_has_it(each) for each in result)
    if isinstance(result, list):
        return sorted(result)
    return None if result is True else result  # kazoo's way to say "done"


@pytest.fixture(params=["embedded", "real"])
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "embedded":
        with Server() as embedded:
            yield embedded.hosts
    else:
        backend: Backend = request.getfixturevalue("backend")
        with backend.standalone() as server:
            yield server.hosts


@pytest.fixture
def sides(kazoo: Any, hosts: str) -> Iterator[tuple[Side, Side]]:
    before = set(threading.enumerate())
    theirs = kazoo.client.KazooClient(hosts, timeout=TIMEOUT)
    with Client(hosts, session_timeout=TIMEOUT) as ours:
        theirs.start(PATIENCE)
        yield (
            Side(theirs, kazoo.exceptions.ZookeeperError, {}),
            Side(ours, ServerError, {"get": "get_data", "set": "set_data"}),
        )
        theirs.stop()
        theirs.close()
    poll("the clients' threads end", lambda: set(threading.enumerate()) <= before or None, PATIENCE)


Step = tuple[Any, ...]
EPHEMERAL, SEQUENCE = {"ephemeral": True}, {"sequence": True}
WRITES: list[Step] = [
    ("create", "", b"root"),
    ("create", "/a", b"x"),
    ("create", "/a", b"y"),  # is there
    ("create", "/no/b", b""),  # no parent
    ("create", "/b", b"\0\xff"),
    ("create", "/a/s-", b"", SEQUENCE),
    ("create", "/a/", b"only digits", SEQUENCE),
    ("create", "/a/e-", b"", SEQUENCE | EPHEMERAL),
    ("create", "/a/e", b"mine", EPHEMERAL),
    ("create", "/a/e/c", b""),  # below an ephemeral node
    ("create", "/a/größe 日", b""),
    ("set", "/a", b"12", ANY),
    ("set", "/a", b"123", 1),
    ("set", "/a", b"1234", 1),  # is at 2
    ("set", "/no", b"", ANY),
    ("set", "/a", b"z" * 500_000, 2),
    ("set", "/a", b"", ANY),
    ("delete", "/a", ANY),  # has children
    ("delete", "/a/e", 1),  # is at 0
    ("delete", "/a/e", 0),
    ("delete", "/a/e", ANY),  # is gone
    ("create", "/a/s-", b"", SEQUENCE),
    ("delete", "/b", ANY),
    ("create", "/b", b"again", EPHEMERAL),
]


def write(side: Side, root: str, step: Step) -> Any:
    method, path, *arguments = step
    more = arguments.pop() if isinstance(arguments[-1], dict) else {}
    return side.do(method, root + path, *arguments, **more)


def everything_below(side: Side, path: str) -> Iterator[str]:
    yield path
    for name in side.do("get_children", path):
        yield from everything_below(side, f"{path}/{name}")


@pytest.mark.since("3.5")
def test_each_write_of_one_is_the_same_for_the_other(
    sides: tuple[Side, Side], fresh_path: str
) -> None:
    """Which of them writes changes with each step; in the second tree the other one begins."""
    outcomes = []
    for number, writers in enumerate((sides, sides[::-1])):
        root, seen = f"{fresh_path}{number}", list[Any]()
        for at, step in enumerate(WRITES):
            found = write(writers[at % 2], root, step)
            whole = isinstance(found, int) or found is None  # a stat has zxids and times
            seen.append(found.removeprefix(root) if isinstance(found, str) else whole and found)
            for path in [*everything_below(sides[0], root), f"{root}/no"]:
                for method in ("get", "exists", "get_children"):
                    theirs, ours = (side.do(method, path) for side in sides)
                    assert ours == theirs, (step, method, path)
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    codes = {code for code in seen if type(code) is int}
    assert codes == {-101, -103, -108, -110, -111}


# Which reads set a watch, on which paths, and what is then done.
WATCHED: list[tuple[list[tuple[str, str]], list[Step]]] = [
    ([("exists", "/a")], [("create", "/a", b""), ("set", "/a", b"once", ANY)]),
    ([("exists", "/a")], [("set", "/a", b"", ANY), ("delete", "/a", ANY)]),
    ([("exists", "/a"), ("get", "/a")], [("create", "/a", b"")]),  # get is refused
    ([("get", "/a"), ("exists", "/a"), ("get_children", "/a")], [("set", "/a", b"", ANY)]),
    ([("get_children", "/a"), ("get_children", "")], [("create", "/a/b", b"", EPHEMERAL)]),
    ([("get", "/a"), ("get_children", "/a")], [("set", "/a/b", b"", ANY)]),
    (
        [("get", "/a/b"), ("get_children", "/a/b"), ("get_children", "/a"), ("get", "/a")],
        [("delete", "/a/b", ANY)],
    ),
    (
        [("get_children", "/a"), ("get_children", "")],
        [("delete", "/a", 7), ("delete", "/a", ANY)],
    ),
    ([("exists", "/s-0000000002")], [("create", "/s-", b"", SEQUENCE)] * 2),
]


def events(side: Side, root: str) -> list[list[tuple[str, str, str]]]:
    """For each part of the script, the events that its watches have seen until its end."""
    for path in (root, f"{root}/signal"):
        side.do("create", path, b"")
    parts = []
    for watches, steps in WATCHED:
        # In one queue with the others, so whatever comes before it has come when it comes.
        seen: list[tuple[str, str, str]] = []
        told = threading.Event()

        for method, path in watches:
            label = f"{method} {path}"
            side.do(
                method, root + path,
                watch=lambda kind, at, label=label, seen=seen: seen.append(
                    (label, kind, at.removeprefix(root))
                ),
            )  # fmt: skip
        for step in steps:
            write(side, root, step)
        side.do("get", f"{root}/signal", watch=lambda *_, told=told: told.set())
        side.do("set", f"{root}/signal", b"", ANY)
        assert told.wait(PATIENCE), f"nothing is heard of {steps}"
        parts.append(sorted(seen))  # which of the watches of one event is first is open
    return parts


def test_watches_see_the_same_events(sides: tuple[Side, Side], fresh_path: str) -> None:
    theirs, ours = (events(side, f"{fresh_path}{n}") for n, side in enumerate(sides))
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
