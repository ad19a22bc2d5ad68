"""The embedded server's watches that stay: whom they tell, how their modes meet, how they end.

The differential test compares all of it with 3.8.0; what it has taught has a name here.  What 3.9
does differently is from its source.
"""

from __future__ import annotations

import pytest

from tests.support.embedded import Peer, Received, Reply, Told, connected
from zkwire.jute import records as r
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
PERSISTENT, RECURSIVE = 0, 1
OF_CHILDREN, OF_DATA, ANY, OF_PERSISTENT, OF_RECURSIVE = 1, 2, 3, 4, 5
NO_WATCHER, MARSHALLING = -121, -5
EPHEMERAL = 1


def add(peer: Peer, path: str, mode: int) -> Reply:
    return peer.call(ops.ADD_WATCH, r.AddWatchRequest(path, mode))


def has(peer: Peer, path: str, kind: int) -> int:
    return peer.call(ops.CHECK_WATCHES, r.CheckWatchesRequest(path, kind)).err


def remove(peer: Peer, path: str, kind: int) -> int:
    return peer.call(ops.REMOVE_WATCHES, r.RemoveWatchesRequest(path, kind)).err


def watcher_and_doer(**options: str) -> tuple[Peer, Peer]:
    watcher = connected(**options)
    return watcher, Peer(watcher.processor).connect()


def told(peer: Peer) -> list[Received]:
    return peer.received()


# --- whom they tell, and how their modes meet -----------------------------------------------------

EVENTS = {"created": CREATED, "deleted": DELETED, "changed": CHANGED, "children": CHILDREN}
NOBODY_READS = (r.ACL(Perms.ALL & ~Perms.READ, r.Id("world", "anyone")),)
STORIES: dict[str, tuple[str, str, str]] = {
    "a persistent watch stays": (
        "3.8",
        "P /a; create /a; set /a; set /a; create /a/b; delete /a/b; delete /a; create /a",
        "created /a, changed /a, changed /a, children /a, children /a, deleted /a, created /a",
    ),
    "a recursive watch sees all below and no changed children": (
        "3.8",
        "R /a; create /a; create /a/b; create /ab; set /a/b; delete /a/b",
        "created /a, created /a/b, changed /a/b, deleted /a/b",
    ),
    "the root sees everything": ("3.8", "R /; create /a; create /a/b", "created /a, created /a/b"),
    "one event for all watches of a connection": (
        "3.8",
        "create /a; R /; P /a; C /a; delete /a",
        "deleted /a",
    ),
    "a standard watch below a recursive one still hears of children": (
        "3.8",
        "create /a; R /; C /a; create /a/b",
        "created /a/b, children /a",
    ),
    "the end of a session is told, and the last mode wins": (
        "3.8",
        "R /; P /; ephemeral /a; close /",
        "children /, children /",
    ),
    "only those who may read are told": ("3.8", "R /; secret /a; set /a; create /b", "created /b"),
    "up to 3.8 a read ends persistence on its own side": (
        "3.8",
        "create /a; P /a; D /a; set /a; set /a; create /a/b; delete /a/b",
        "changed /a, children /a, children /a",
    ),
    # Found by the differential test: a recursive watch stands in the child table, too.
    "up to 3.8 an overwritten recursive watch lives on for deletes": (
        "3.8",
        "create /a; R /a; D /a; create /a/b; delete /a/b",
        "deleted /a/b",
    ),
    "up to 3.8 recursive behind persistent wins": (
        "3.8",
        "create /a; P /a; R /a; create /a/b",
        "created /a/b",
    ),
    "up to 3.8 persistent behind recursive wins": (
        "3.8",
        "create /a; R /a; P /a; create /a/b",
        "children /a",
    ),
    "from 3.9 on modes are apart": (
        "3.9",
        "create /a; R /a; P /a; D /a; create /a/b; set /a; set /a",
        "created /a/b, children /a, changed /a, changed /a",
    ),
    "a watch of a connection that is gone": ("3.8", "P /a; R /; again /; create /a", ""),
}


def perform(watcher: Peer, doer: Peer, what: str, path: str) -> Peer:
    """One step: P, R, D and C are watches (of data and children once); else what the doer does."""
    if what in ("P", "R"):
        assert add(watcher, path, PERSISTENT if what == "P" else RECURSIVE).err == 0
    elif what in ("D", "C"):
        (watcher.get if what == "D" else watcher.children)(path, watch=True)
    elif what in ("ephemeral", "secret"):
        doer.create(path, EPHEMERAL) if what == "ephemeral" else doer.create(path, 0, NOBODY_READS)
    elif what == "close":
        doer.ask(ops.CLOSE_SESSION)
    elif what == "again":
        watcher = watcher.again()
        assert len(watcher.processor.state.watchers) == 0
    else:
        getattr(doer, what)(path)
    return watcher


@pytest.mark.parametrize(("version", "story", "events"), STORIES.values(), ids=STORIES)
def test_whom_a_watch_tells(version: str, story: str, events: str) -> None:
    watcher, doer = watcher_and_doer(version=version)
    for step in story.split("; "):
        watcher = perform(watcher, doer, *step.split())
    expected = [event.split() for event in events.split(", ") if event]
    assert told(watcher) == [Told(EVENTS[kind], path) for kind, path in expected]


def test_a_mode_that_there_is_not() -> None:
    watcher, _ = watcher_and_doer()
    assert add(watcher, "/a", PERSISTENT).body == r.ErrorResponse(0)
    assert add(watcher, "/a", 2).err == add(watcher, "/a", -1).err == MARSHALLING
    assert add(watcher, "no path", PERSISTENT).err == 0
    assert len(watcher.processor.state.watchers) == 4, "in both tables"


def test_from_39_an_event_names_its_transaction_and_a_missed_one_none() -> None:
    watcher, doer = watcher_and_doer(version="3.9")
    add(watcher, "/a", PERSISTENT)
    zxid = doer.create("/a").zxid
    (raw,) = watcher.raw_frames()
    assert r.ReplyHeader.unpack(raw)[0] == r.ReplyHeader(-1, zxid, 0)
    watcher.ask(ops.SET_WATCHES, r.SetWatches(0, ("/a",), (), ()))
    assert r.ReplyHeader.unpack(watcher.raw_frames()[0])[0] == r.ReplyHeader(-1, -1, 0)


# --- removing and looking -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [PERSISTENT, RECURSIVE])
def test_up_to_38_removing_one_side_strips_it_of_all_modes(mode: int) -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    add(watcher, "/a", mode)
    assert remove(watcher, "/a", OF_DATA) == 0
    assert remove(watcher, "/a", OF_DATA) == NO_WATCHER
    doer.set("/a")
    assert told(watcher) == []
    doer.delete("/a")
    assert told(watcher) == [Told(DELETED, "/a")], "the child side is left"
    assert remove(watcher, "/a", ANY) == 0
    assert len(watcher.processor.state.watchers) == 0


def test_from_39_on_each_mode_is_removed_by_itself() -> None:
    watcher, doer = watcher_and_doer(version="3.9")
    doer.create("/b")
    add(watcher, "/b", RECURSIVE)
    add(watcher, "/b", PERSISTENT)
    assert remove(watcher, "/b", OF_PERSISTENT) == 0
    doer.create("/b/c")
    assert told(watcher) == [Told(CREATED, "/b/c")]
    assert remove(watcher, "/b", OF_RECURSIVE) == 0
    assert remove(watcher, "/b", ANY) == NO_WATCHER


def test_from_39_removing_takes_one_shot_watches_only() -> None:
    watcher, doer = watcher_and_doer(version="3.9")
    doer.create("/a")
    add(watcher, "/a", PERSISTENT)
    assert remove(watcher, "/a", OF_DATA) == NO_WATCHER
    watcher.get("/a", watch=True)
    assert has(watcher, "/a", OF_DATA) == has(watcher, "/a", OF_PERSISTENT) == 0
    assert has(watcher, "/a", OF_RECURSIVE) == NO_WATCHER
    assert remove(watcher, "/a", OF_DATA) == 0
    doer.set("/a")
    assert told(watcher) == [Told(CHANGED, "/a")]


@pytest.mark.parametrize("kind", [0, OF_PERSISTENT, OF_RECURSIVE, 6])
def test_up_to_38_there_are_three_types(kind: int) -> None:
    watcher, _ = watcher_and_doer()
    assert remove(watcher, "/a", kind) == has(watcher, "/a", kind) == MARSHALLING


def test_removing_is_about_the_own_connection_and_up_to_38_looking_is_not() -> None:
    """WatchManager.containsWatcher of 3.8.0 does not ask whose watch it is."""
    watcher, other = watcher_and_doer()
    watcher.exists("/a", watch=True)
    assert has(other, "/a", ANY) == has(other, "/a", OF_DATA) == 0
    assert has(other, "/a", OF_CHILDREN) == NO_WATCHER
    assert remove(other, "/a", ANY) == NO_WATCHER
    assert remove(watcher, "/a", OF_CHILDREN) == NO_WATCHER
    assert remove(watcher, "/a", OF_DATA) == 0
    assert has(watcher, "/a", ANY) == NO_WATCHER


def test_from_39_looking_is_about_the_own_connection() -> None:
    watcher, other = watcher_and_doer(version="3.9")
    watcher.exists("/a", watch=True)
    assert has(other, "/a", ANY) == NO_WATCHER
    assert has(watcher, "/a", ANY) == 0


def test_looking_for_watches_of_what_is_no_path() -> None:
    """3.8.0 walks up from the path to the root, and stumbles on its way (PathParentIterator)."""
    watcher, _ = watcher_and_doer()
    for path in ("", "x", "a/b"):
        add(watcher, path, PERSISTENT)
    assert has(watcher, "", ANY) == NO_WATCHER
    assert has(watcher, "x", ANY) == MARSHALLING, "though there is one"
    assert has(watcher, "a/b", ANY) == 0
    assert has(watcher, "a/c", ANY) == NO_WATCHER
    add(watcher, "/", RECURSIVE)
    assert has(watcher, "a/c", ANY) == MARSHALLING


# --- coming back ----------------------------------------------------------------------------------


def test_set_watches2_sets_persistent_ones_without_a_word() -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    seen = doer.create("/b").zxid
    doer.set("/a")
    lists = (("/a",), (), (), ("/a", "/b"), ("/b",))
    watcher.ask(ops.SET_WATCHES2, r.SetWatches2(seen, *lists))
    event, reply = watcher.received()
    assert event == Told(CHANGED, "/a")
    assert isinstance(reply, Reply)
    assert reply.err == 0
    doer.set("/a")
    doer.create("/b/c")
    assert told(watcher) == [Told(CHANGED, "/a"), Told(CREATED, "/b/c")], "recursive came last"
