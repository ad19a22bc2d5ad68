"""docs/how-to/from-kazoo.md: each of its calls runs on both clients, and does the same on both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kazoo.recipe
import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import make_acl

import zkwire
from tests.support.server_control import ZooKeeperServer, poll
from zkwire import ACL, Client, Id, Perms, Stat

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "from-kazoo.md").read_text()
PARTS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
ROWS = re.findall(r"^\| `(.*?)` \| `(.*?)` \|", PARTS[2], re.MULTILINE)


def result_of(code: str, names: dict[str, Any]) -> Any:
    """What the last expression gives."""
    *before, last = code.replace("\\|", "|").split("; ")
    exec("\n".join(before), names)
    return eval(last, names)


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
    tops = [f"{fresh_path}/{name}" for name in ("kazoo", "zkwire")]
    for top in tops:
        observer.ensure_path(top)
    events: list[Any] = []
    zk = KazooClient(zookeeper.hosts + tops[0])
    zk.start(60)
    try:
        with Client(zookeeper.hosts + tops[1]) as client:
            theirs = {"zk": zk, "make_acl": make_acl, "seen": events}
            ours = {"client": client, "ACL": ACL, "Perms": Perms, "Id": Id, "seen": events}
            assert len(ROWS) == 21
            for kazoos, zkwires in ROWS:
                theirs_is, ours_is = result_of(kazoos, theirs), result_of(zkwires, ours)
                if ours_is is not None:
                    assert plain(ours_is) == plain(theirs_is), kazoos
                observer.sync(fresh_path)
                assert tree(observer, tops[0]) == tree(observer, tops[1]), kazoos
            poll("both watches fire", lambda: len(events) == 2 or None, 60.0)
    finally:
        zk.stop()
        zk.close()
    assert {type(event) for event in events} == {WatchedEvent, zkwire.Event}
    assert {event.path for event in events} == {"/a"}


def test_each_name_exists() -> None:
    """In the other tables: classes of kazoo on the left, public names of zkwire on the right."""
    for part in PARTS[3:5]:
        for left, right in re.findall(r"^\| (.*?) \| (.*?) \|", part, re.MULTILINE)[2:]:
            for name in re.findall(r"\b([A-Z]\w+)(?:\(|`|\.)", right):
                assert name in zkwire.__all__ or hasattr(zkwire.State, name), name
            if part.startswith("Recipes"):
                assert not set(re.findall(r"\b([A-Z][a-z]\w+)(?:\(|`)", left)) - set(RECIPES)


RECIPES = re.findall(
    r"^class (\w+)",
    "\n".join(file.read_text() for file in Path(kazoo.recipe.__path__[0]).glob("*.py")),
    re.MULTILINE,
)
