"""docs/how-to/from-kazoo.md: each row of each table runs with both libraries."""

from __future__ import annotations

import builtins
import inspect
import logging
import ssl
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import kazoo.client
import kazoo.exceptions
import kazoo.recipe
import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, make_acl

import zkwire
from tests.real.kazoo_page import PAGE, PARTS, ROWS, SIDES, page
from tests.support.lock_helpers import PATIENCE, Running
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import ACL, Client, Id, Stat
from zkwire.errors import error_for
from zkwire.testing import break_connection

PLAIN = ("differs", "around", "later", "options", "recipes")
EACH = [(part, index) for part in PLAIN for index in range(len(ROWS[part]))]
UNNAMED = {"TreeNode", "TreeEvent", "NodeData", "PartitionState", "PatientChildrenWatch"}


class Seen:
    """Calls of this, and what they were given."""

    def __init__(self) -> None:
        self._called = threading.Event()
        self.first: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> None:
        if not self._called.is_set():
            self.first = arguments
            self._called.set()

    def wait(self) -> tuple[Any, ...]:
        assert self._called.wait(PATIENCE)
        return self.first


def in_thread(function: Any) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(PATIENCE)


def run(code: str, names: dict[str, Any]) -> Any:
    """What the last expression or statement gives."""
    *before, last = code.split("; ")
    exec("\n".join(before), names)
    try:
        compiled = compile(last, "row", "eval")
    except SyntaxError:
        exec(last, names)
        return None
    return eval(compiled, names)


def outcome(code: str, names: dict[str, Any], gives: str | None) -> None:
    """Run the code of a row; it must give what the row says."""
    if gives is not None and gives.startswith("raises "):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the row says which
            run(code, names)
        assert type(caught.value).__name__ == gives.partition(" ")[2]
        return
    result = run(code, names)
    if gives is not None:
        assert result == eval(gives, names), code


def names_of_kazoo() -> dict[str, Any]:
    modules = ("barrier", "cache", "counter", "election", "lease", "lock", "partitioner", "party",
               "queue", "watchers")  # fmt: skip
    names: dict[str, Any] = {"kazoo": kazoo, "KazooClient": KazooClient, "make_acl": make_acl}
    for module in modules:
        exec(f"from kazoo.recipe.{module} import *", names)
    return names | {
        "SequentialThreadingHandler": SequentialThreadingHandler,
        "CREATOR_ALL_ACL": CREATOR_ALL_ACL,
    }


def names_of_zkwire() -> dict[str, Any]:
    return {name: getattr(zkwire, name) for name in zkwire.__all__} | {"zkwire": zkwire}


@pytest.mark.since("3.5")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("part", "index"), EACH, ids=[f"{p}-{i}" for p, i in EACH])
def test_each_row_gives_what_it_says(
    part: str, index: int, side: str, zookeeper: ZooKeeperServer, fresh_path: str
) -> None:
    row = ROWS[part][index]
    hosts = zookeeper.hosts
    zk, zk2 = KazooClient(hosts), KazooClient(hosts)
    with Client(hosts) as client, Client(hosts) as client2:
        names = names_of_kazoo() if side == "kazoo" else names_of_zkwire()
        names |= {"path": f"{fresh_path}/{side}", "hosts": hosts, "later": [], "ssl": ssl,
                  "port": int(hosts.rpartition(":")[2]), "in_thread": in_thread, "Seen": Seen,
                  "logging": logging, "timedelta": timedelta,
                  "break_connection": break_connection, "poll": poll}  # fmt: skip
        names |= {"zk": zk, "zk2": zk2} if side == "kazoo" else {"client": client,
                  "client2": client2}  # fmt: skip

        def starts(function: Any) -> Any:
            """Begin to acquire a lock beside one that is held; what is returned waits for that."""
            queued = Running(function)
            parent = f"{fresh_path}/{side}"
            poll("it is queued", lambda: len(client.get_children(parent)) > 1 or None, PATIENCE)
            return lambda: queued.result(PATIENCE)

        names["starts"] = starts
        client.create(fresh_path)
        try:
            if side == "kazoo":
                zk2.start(60)
                zk.start(60)
            exec("\n".join(row.get("before", {}).get(side, "").split("; ")), names)
            outcome(row[side], names, row.get("gives", {}).get(side))
            assert eval(row.get("after", {}).get(side, "True"), names)
        finally:
            for kazoos in (zk, zk2):
                kazoos.stop()
                kazoos.close()
            for made in names.values():
                if isinstance(made, Client):
                    made.close()
            with Client(hosts) as sweeper:
                sweeper.delete_tree(fresh_path)


# --- calls: the same effect -----------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A result of either client, without what must differ: zxids, times, classes."""
    if isinstance(value, Stat):
        return value.version, value.data_length, value.num_children, bool(value.ephemeral_owner)
    if isinstance(value, ZnodeStat):
        return value.version, value.data_length, value.numChildren, bool(value.ephemeralOwner)
    if isinstance(value, ACL | kazoo.security.ACL):
        return int(value.perms), value.id.scheme, value.id.id
    if isinstance(value, list):
        return sorted(map(plain, value), key=str)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return None if value is True else value  # kazoo's way to say "done"


def tree(client: Client, top: str) -> dict[str, bytes]:
    return {path[len(top) :]: client.get_data(path).data for path in client.walk(top)}


@pytest.mark.since("3.5")
def test_each_call_does_the_same(
    zookeeper: ZooKeeperServer, observer: Client, fresh_path: str
) -> None:
    tops = [f"{fresh_path}/{name}" for name in SIDES]
    for top in tops:
        observer.ensure_path(top)
    events: list[Any] = []
    zk = KazooClient(zookeeper.hosts + tops[0])
    zk.start(60)
    try:
        with Client(zookeeper.hosts + tops[1]) as client:
            theirs = names_of_kazoo() | {"zk": zk, "seen": events}
            ours = names_of_zkwire() | {"client": client, "Id": Id, "seen": events}
            for row in ROWS["calls"]:
                theirs_is, ours_is = run(row["kazoo"], theirs), run(row["zkwire"], ours)
                if ours_is is not None:
                    assert plain(ours_is) == plain(theirs_is), row
                observer.sync(fresh_path)
                assert tree(observer, tops[0]) == tree(observer, tops[1]), row
            poll("both watches fire", lambda: len(events) == 2 or None, 60.0)
    finally:
        zk.stop()
        zk.close()
    assert {type(event) for event in events} == {WatchedEvent, zkwire.Event}
    assert {event.path for event in events} == {"/a"}


# --- exceptions, and that nothing is left out -----------------------------------------------------


def test_each_exception_and_option_of_kazoo_has_a_row() -> None:
    rows, classes = ROWS["exceptions"], kazoo.exceptions.EXCEPTIONS
    for code in dict(classes):
        error = error_for(code, "get_data", "/a")
        if type(error) is not zkwire.ServerError:  # a code of which servers know nothing
            assert type(error).__name__ == rows[classes[code].__name__][0], code
    theirs = {v.__name__ for v in vars(kazoo.exceptions).values() if inspect.isclass(v)}
    assert set(rows) == theirs - {"defaultdict"} | {KazooTimeoutError.__name__}
    for ours, _ in rows.values():
        assert ours in zkwire.__all__ or hasattr(builtins, ours)
    options = set(inspect.signature(KazooClient.__init__).parameters) - {"self", "kwargs"}
    shown = "".join(row["kazoo"] for row in ROWS["options"])
    assert {option for option in options if f"{option}=" not in shown} == set()


def test_each_recipe_and_method_of_kazoo_has_a_row() -> None:
    shown = " ".join(row["kazoo"] for part in PARTS for row in ROWS[part])
    notes = " ".join(row.get("note", "") for row in ROWS["recipes"])
    files = Path(kazoo.recipe.__path__[0]).glob("*.py")
    recipes = {
        name
        for file in files
        for name, value in vars(__import__(f"kazoo.recipe.{file.stem}", fromlist=["x"])).items()
        if inspect.isclass(value) and value.__module__ == f"kazoo.recipe.{file.stem}"
    }
    missing = {r for r in recipes if r[0] != "_" and "Base" not in r and f"{r}(" not in shown}
    assert {name for name in missing if f"`{name}`" not in notes} == UNNAMED


def test_the_page_is_written_from_the_rows() -> None:
    assert PAGE.read_text() == page()
