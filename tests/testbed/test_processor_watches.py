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


# --- whom they tell -------------------------------------------------------------------------------


def test_a_persistent_watch_stays() -> None:
    watcher, doer = watcher_and_doer()
    assert add(watcher, "/a", PERSISTENT).body == r.ErrorResponse(0)
    doer.create("/a")
    doer.set("/a")
    doer.set("/a")
    doer.create("/a/b")
    doer.delete("/a/b")
    doer.delete("/a")
    doer.create("/a")
    kinds = [CREATED, CHANGED, CHANGED, CHILDREN, CHILDREN, DELETED, CREATED]
    assert told(watcher) == [Told(kind, "/a") for kind in kinds]


def test_a_recursive_watch_sees_all_below_and_no_changed_children() -> None:
    watcher, doer = watcher_and_doer()
    add(watcher, "/a", RECURSIVE)
    for path in ("/a", "/a/b", "/ab"):
        doer.create(path)
    doer.set("/a/b")
    doer.delete("/a/b")
    assert told(watcher) == [
        Told(CREATED, "/a"),
        Told(CREATED, "/a/b"),
        Told(CHANGED, "/a/b"),
        Told(DELETED, "/a/b"),
    ]


def test_the_root_sees_everything() -> None:
    watcher, doer = watcher_and_doer()
    add(watcher, "/", RECURSIVE)
    doer.create("/a")
    doer.create("/a/b")
    assert told(watcher) == [Told(CREATED, "/a"), Told(CREATED, "/a/b")]


def test_one_event_for_all_watches_of_a_connection() -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    add(watcher, "/", RECURSIVE)
    add(watcher, "/a", PERSISTENT)
    watcher.children("/a", watch=True)
    doer.delete("/a")
    assert told(watcher) == [Told(DELETED, "/a")]


def test_a_standard_watch_below_a_recursive_one_still_hears_of_children() -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    add(watcher, "/", RECURSIVE)
    watcher.children("/a", watch=True)
    doer.create("/a/b")
    assert told(watcher) == [Told(CREATED, "/a/b"), Told(CHILDREN, "/a")]


def test_the_end_of_a_session_is_told() -> None:
    watcher, doer = watcher_and_doer()
    add(watcher, "/", RECURSIVE)
    add(watcher, "/", PERSISTENT)  # the last call wins
    doer.create("/a", EPHEMERAL)
    doer.ask(ops.CLOSE_SESSION)
    assert told(watcher) == [Told(CHILDREN, "/"), Told(CHILDREN, "/")]


def test_only_those_who_may_read_are_told() -> None:
    watcher, doer = watcher_and_doer()
    add(watcher, "/", RECURSIVE)
    doer.create("/a", acl=(r.ACL(Perms.ALL & ~Perms.READ, r.Id("world", "anyone")),))
    doer.set("/a")
    doer.create("/b")
    assert told(watcher) == [Told(CREATED, "/b")]


def test_a_mode_that_there_is_not() -> None:
    watcher, _ = watcher_and_doer()
    assert add(watcher, "/a", 2).err == add(watcher, "/a", -1).err == MARSHALLING
    assert add(watcher, "no path", PERSISTENT).err == 0
    assert len(watcher.processor.state.watchers) == 2, "in both tables"


# --- how modes meet -------------------------------------------------------------------------------


def test_up_to_38_a_read_ends_persistence_on_its_own_side() -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    add(watcher, "/a", PERSISTENT)
    watcher.get("/a", watch=True)
    doer.set("/a")
    doer.set("/a")
    doer.create("/a/b")
    doer.delete("/a/b")
    assert told(watcher) == [Told(CHANGED, "/a"), Told(CHILDREN, "/a"), Told(CHILDREN, "/a")]


def test_up_to_38_an_overwritten_recursive_watch_lives_on_for_deletes() -> None:
    """Found by the differential test: a recursive watch stands in the child table, too."""
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    add(watcher, "/a", RECURSIVE)
    watcher.get("/a", watch=True)
    doer.create("/a/b")
    doer.delete("/a/b")
    assert told(watcher) == [Told(DELETED, "/a/b")]


@pytest.mark.parametrize(
    ("modes", "events"),
    [
        ((PERSISTENT, RECURSIVE), [Told(CREATED, "/a/b")]),
        ((RECURSIVE, PERSISTENT), [Told(CHILDREN, "/a")]),
    ],
)
def test_up_to_38_the_last_mode_wins(modes: tuple[int, int], events: list[Told]) -> None:
    watcher, doer = watcher_and_doer()
    doer.create("/a")
    for mode in modes:
        add(watcher, "/a", mode)
    doer.create("/a/b")
    assert told(watcher) == events


def test_from_39_modes_are_apart() -> None:
    watcher, doer = watcher_and_doer(version="3.9")
    doer.create("/a")
    add(watcher, "/a", RECURSIVE)
    add(watcher, "/a", PERSISTENT)
    watcher.get("/a", watch=True)
    doer.create("/a/b")
    doer.set("/a")
    doer.set("/a")
    assert told(watcher) == [
        Told(CREATED, "/a/b"),
        Told(CHILDREN, "/a"),
        Told(CHANGED, "/a"),
        Told(CHANGED, "/a"),
    ]
    assert remove(watcher, "/a", OF_PERSISTENT) == 0
    doer.create("/a/c")
    assert told(watcher) == [Told(CREATED, "/a/c")]
    assert remove(watcher, "/a", OF_RECURSIVE) == 0
    assert remove(watcher, "/a", ANY) == NO_WATCHER


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


def test_persistent_watches_end_with_their_connection() -> None:
    watcher, doer = watcher_and_doer()
    add(watcher, "/a", PERSISTENT)
    add(watcher, "/", RECURSIVE)
    again = watcher.again()
    assert len(watcher.processor.state.watchers) == 0
    doer.create("/a")
    assert told(again) == []
