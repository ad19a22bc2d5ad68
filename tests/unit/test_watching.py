"""Persistent watches: what they hear, how they share a path, how they are given back."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    Script,
    Sent,
    armed,
    events,
    failure,
    reply_frame,
    script_in,
    types,
)
from zkwire.errors import UnimplementedError
from zkwire.jute import records as r
from zkwire.session.request import Request
from zkwire.session.watch import Watch
from zkwire.session.watch_table import BATCH_BYTES, WatchTable, ancestors
from zkwire.wire.model import Event, EventType, State
from zkwire.wire.ops import WatchKind
from zkwire.wire.paths import CONFIG_NODE

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REREAD = EventType.REREAD
PERSISTENT_GONE = EventType.PERSISTENT_WATCH_REMOVED
ALL_CHANGES = [CREATED, CHANGED, CHILDREN, DELETED]
DATA_TYPE, CHILD_TYPE, ANY = 2, 1, 3  # of a remove_watches request


def _removals(sent: list[Sent]) -> list[r.RemoveWatchesRequest]:
    return [one.read(r.RemoveWatchesRequest) for one in sent if one.name == "remove_watches"]


def _asks_for_a_watch(call: Request) -> bool:
    return r.ExistsRequest.decode(call.body).watch  # all reads look like this


# --- being set ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recursive", "mode"), [(False, 0), (True, 1)])
def test_an_added_watch_is_set_with_the_reply(recursive: bool, mode: int) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.call("add_watch", "/a", watch, recursive=recursive)
    (sent,) = script.flush()
    assert (sent.name, sent.read(r.AddWatchRequest)) == ("add_watch", r.AddWatchRequest("/a", mode))
    script.event(CHANGED, "/a")
    assert types(watch) == [], "that one came before it was set"
    script.answer(call)
    assert call.value() is watch
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


def test_an_added_callback_becomes_a_watch(script: Script) -> None:
    told = list[Event]()
    call = script.call("add_watch", "/a", told.append)
    script.answer(call)
    script.event(CHANGED, "/a")
    script.wake()
    assert [event.type for event in told] == [CHANGED]
    assert isinstance(call.value(), Watch)


@pytest.mark.parametrize("answered", [True, False], ids=["one by one", "pipelined"])
def test_a_callback_that_is_added_twice_is_one_watch(answered: bool, script: Script) -> None:
    told = list[Event]()
    first = script.call("add_watch", "/a", told.append)
    if answered:
        script.answer(first)
    second = script.call("add_watch", "/a", told.append)
    for call in (second,) if answered else (first, second):
        script.answer(call)
    assert second.value() is first.value()
    second.value().close()
    assert script.session.watch_count == 0
    script.event(CHANGED, "/a")
    script.wake()
    assert told == [], "who closes what was returned hears no more"


def test_a_refused_add_sets_nothing(script: Script, watch: Watch) -> None:
    call = script.call("add_watch", "/a", watch)
    script.answer(call, error=-6)
    assert failure(call) is UnimplementedError
    assert not armed(watch)
    assert script.session.watch_count == 0
    read = script.call("get_data", "/a", watch=Watch())
    assert _asks_for_a_watch(read), "nothing is expected any more"


def test_a_lost_add_sets_nothing(script: Script, watch: Watch) -> None:
    script.send("add_watch", "/a", watch)
    script.reconnect()
    assert not armed(watch)
    assert [sent.name for sent in script.sent] == ["connect"]
    script.call("add_watch", "/a", Watch(), recursive=True)  # no mix any more


def test_an_added_watch_closed_before_its_reply_leaves_the_server() -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.send("add_watch", "/a", watch)
    watch.close()
    assert script.names() == []
    script.answer(call)
    assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", ANY)]
    assert script.session.watch_count == 0


# --- what they hear -------------------------------------------------------------------------------


def test_a_persistent_watch_hears_of_everything_about_its_node(script: Script) -> None:
    watch = script.persistent("/a")
    for event in ALL_CHANGES * 2:
        script.event(event, "/a")
        script.event(event, "/a/b")
        script.event(event, "/")
    assert events(watch) == [Event(event, "/a", State.CONNECTED) for event in ALL_CHANGES * 2]
    assert armed(watch)


def test_a_recursive_watch_hears_of_all_nodes_below(script: Script) -> None:
    """But not of their children: it hears of each of those anyway."""
    watch = script.persistent("/a", recursive=True)
    for path in ["/a", "/a/b", "/a/b/c", "/", "/ab", "/b/a"]:
        for event in ALL_CHANGES:
            script.event(event, path)
    expected = [(e, p) for p in ["/a", "/a/b", "/a/b/c"] for e in ALL_CHANGES if e != CHILDREN]
    assert [(event.type, event.path) for event in events(watch)] == expected


def test_a_recursive_watch_on_the_root_hears_of_all_nodes(script: Script) -> None:
    watch = script.persistent("/", recursive=True)
    for path in ["/", "/a", "/a/b/c"]:
        script.event(CREATED, path)
    assert [event.path for event in events(watch)] == ["/", "/a", "/a/b/c"]


@pytest.mark.parametrize("path", ["", "a", "//", "a/b"])
def test_a_path_that_is_none_ends_the_way_up(path: str, script: Script) -> None:
    """A server would have to be broken to send one; it must not be followed forever."""
    assert list(ancestors(path))[-1] == "/"
    script.persistent("/", recursive=True)
    script.event(CREATED, path)
    assert script.session.broken is None


@pytest.mark.parametrize("event", [*EventType, 0, 8, 99, -(2**31)])
def test_unknown_events_concern_no_persistent_watch(event: int, script: Script) -> None:
    watch, recursive = script.persistent("/a"), script.persistent("/", recursive=True)
    script.event(event, "/a")
    assert (types(watch) != []) == (event in ALL_CHANGES)
    assert (types(recursive) != []) == (event in {CREATED, CHANGED, DELETED})
    assert script.session.broken is None


def test_one_event_frame_reaches_every_kind_of_watch_once(script: Script) -> None:
    """A server sends one for all that a connection has on a path."""
    data, child = script.watching("get_data", "/a"), script.watching("get_children", "/a")
    missing = script.watching_missing("/a")
    persistent, above = script.persistent("/a"), script.persistent("/", recursive=True)
    watches = [data, child, missing, persistent, above]
    script.event(DELETED, "/a")
    assert [types(watch) for watch in watches] == [[DELETED]] * 5
    script.event(CREATED, "/a")
    assert [types(watch) for watch in watches] == [[], [], [], [CREATED], [CREATED]]


def test_a_watch_that_is_set_in_several_ways_hears_of_a_change_once() -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    script.answer(script.call("add_watch", "/", watch, recursive=True))
    script.answer(script.call("add_watch", "/a", watch))
    script.answer(script.call("get_data", "/a", watch=watch))
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]
    assert armed(watch), "what is persistent goes on"
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


def test_a_persistent_watch_that_fires_spends_nothing_of_a_read() -> None:
    """One object may be both; what a read has set elsewhere is still set."""
    script, watch = script_in(State.CONNECTED), Watch()
    script.answer(script.call("add_watch", "/a", watch))
    script.answer(script.call("get_data", "/b", watch=watch))
    script.event(CHANGED, "/a")
    script.call("remove_watches", "/a")
    assert types(watch) == [CHANGED, PERSISTENT_GONE]
    assert armed(watch)
    script.event(CHANGED, "/b")
    assert types(watch) == [CHANGED]


@pytest.mark.parametrize(("sent", "seen"), [(0x123, 0x123), (1, 1), (-1, None), (0, None)])
def test_the_zxid_of_a_change_where_the_server_tells_it(sent: int, seen: int | None) -> None:
    """Servers from 3.9 on do; others, and those that catch up with changes, send -1."""
    script = script_in(State.CONNECTED)
    watch, persistent = script.watching("get_data", "/a"), script.persistent("/a")
    script.event(CHANGED, "/a", zxid=sent)
    for one in (watch, persistent):
        assert [event.zxid for event in events(one)] == [seen]


def test_the_zxid_of_an_event_is_not_the_last_one_seen(script: Script) -> None:
    """Only a reply's is: what is behind an event may not have been seen."""
    script.persistent("/a")
    before = script.session.last_zxid
    script.event(CHANGED, "/a", zxid=before + 1000)
    assert script.session.last_zxid == before


# --- chroot ---------------------------------------------------------------------------------------


def _below(chroot: str = "/app") -> Script:
    script = Script(chroot=chroot)
    script.connect()
    return script


def test_persistent_watches_below_a_chroot() -> None:
    script, watch, tree = _below(), Watch(), Watch()
    call = script.call("add_watch", "/a", watch)
    whole = script.call("add_watch", "/", tree, recursive=True)
    first, second = script.flush()
    assert first.read(r.AddWatchRequest).path == "/app/a"
    assert second.read(r.AddWatchRequest).path == "/app"
    script.answer(call)
    script.answer(whole)
    for path in ["/app/a", "/app", "/a", "/application", "/"]:
        script.event(CHANGED, path)
    assert [event.path for event in events(watch)] == ["/a"]
    assert [event.path for event in events(tree)] == ["/a", "/"]
    script.reconnect()
    assert script.sent[1].set_watches2()[4:] == (("/app/a",), ("/app",))
    assert [(event.type, event.path) for event in events(watch)] == [(REREAD, "/a")]


def test_the_configuration_stands_outside_of_every_chroot() -> None:
    script, watch = _below(), Watch()
    call = script.call("get_config", watch=watch)
    (sent,) = script.flush()
    assert sent.read(r.GetDataRequest) == r.GetDataRequest(CONFIG_NODE, True)
    script.answer(call)
    script.event(CHANGED, "/app" + CONFIG_NODE)
    assert armed(watch)
    script.event(CHANGED, CONFIG_NODE)
    assert events(watch) == [Event(CHANGED, CONFIG_NODE, State.CONNECTED)]


def test_a_refusal_names_the_callers_path() -> None:
    script = _below()
    script.persistent("/a")
    with pytest.raises(RuntimeError, match=r"^/a cannot"):
        script.call("add_watch", "/a", Watch(), recursive=True)


# --- a new connection -----------------------------------------------------------------------------


def test_persistent_watches_are_set_again_by_a_request_of_their_own(script: Script) -> None:
    script.watching("get_data", "/d")
    script.watching_missing("/e")
    script.watching("get_children", "/c")
    script.persistent("/p")
    script.persistent("/r", recursive=True)
    zxid = script.session.last_zxid
    script.reconnect()
    lists = (("/d",), ("/e",), ("/c",), ("/p",), ("/r",))
    assert script.sent[1].set_watches2() == r.SetWatches2(zxid, *lists)
    assert script.sent[1].xid == -8


def test_without_a_persistent_watch_the_old_request_is_used(script: Script) -> None:
    """A server before 3.6 closes the connection when it sees the new one, forever."""
    script.watching("get_data", "/d")
    watch = script.persistent("/p")
    watch.close()
    script.reconnect()
    assert script.sent[1].set_watches().data_watches == ("/d",)


def test_of_many_pieces_only_those_with_persistent_watches_need_the_new_request() -> None:
    script, long = script_in(State.CONNECTED), "/" + "x" * (BATCH_BYTES // 2)
    for number in range(3):
        script.watching("get_data", f"{long}{number}")
    script.persistent(f"{long}p")
    script.persistent(f"{long}r", recursive=True)
    script.greet_again()
    names = [sent.name for sent in script.flush()]
    assert names == ["set_watches"] * 3 + ["set_watches2"] * 2
    for _ in names:
        assert not script.state.usable, "before all pieces are answered"
        script.feed(reply_frame(-8))
    assert script.state.usable


def test_persistent_watches_come_last() -> None:
    """Up to 3.8 the last request about a path decides what kind of watch the server keeps."""
    table, watch = WatchTable(), Watch()
    for kind in reversed(WatchKind):
        table.add(kind, "/a" if kind is not WatchKind.RECURSIVE else "/r", watch)
    (batch,) = table.batches()
    assert batch == (["/a"], ["/a"], ["/a"], ["/a"], ["/r"])


def test_a_child_watch_is_set_again_behind_a_recursive_one(script: Script) -> None:
    """Up to 3.8 ``add_watch`` writes both tables, but does not send what the child watch needs."""
    script.watching("get_children", "/c")
    child = script.watching("get_children", "/a")
    script.persistent("/a", recursive=True)
    (again,) = script.flush()
    assert again.set_watches() == r.SetWatches(script.zxid, (), (), ("/a",))
    script.serve(again)
    script.reconnect()
    first, second = script.sent[1:]
    assert first.set_watches2()[1:] == ((), (), ("/c",), (), ("/a",))
    assert second.set_watches().child_watches == ("/a",)
    script.event(CHILDREN, "/a")
    assert types(child) == [CHILDREN]


def test_a_reconnect_tells_persistent_watches_to_read_again(script: Script) -> None:
    """What happened meanwhile the server does not tell; each reconnect may hide something."""
    one, other = script.persistent("/a"), script.persistent("/b")
    tree, once = script.persistent("/r", recursive=True), script.watching("get_data", "/d")
    for _ in range(2):
        script.reconnect()
        assert events(one) == [Event(REREAD, "/a", State.CONNECTED)]
        assert events(other) == [Event(REREAD, "/b", State.CONNECTED)]
        assert events(tree) == [Event(REREAD, "/r", State.CONNECTED)]
    assert types(once) == []
    assert armed(one)


def test_a_first_connection_hides_nothing() -> None:
    script, watch = Script(), Watch()
    call = script.call("add_watch", "/a", watch)
    script.connect()
    script.answer(call)
    assert types(watch) == []


def test_a_watch_on_two_paths_is_told_of_both(script: Script, watch: Watch) -> None:
    script.answer(script.call("add_watch", "/a", watch))
    script.answer(script.call("add_watch", "/b", watch, recursive=True))
    script.reconnect()
    assert [(event.type, event.path) for event in events(watch)] == [(REREAD, "/a"), (REREAD, "/b")]


def test_to_read_again_is_said_before_the_session_is_usable(script: Script) -> None:
    """Who waits for the state and then reads must not be told to read again afterwards."""
    watch = script.persistent("/a")
    script.lose()
    script.log_when_ready(script.session.change, "usable")
    script.log_when_ready(watch, "read again")
    script.connect()
    assert script.wake() == ["read again", "usable"]


def test_what_the_server_catches_up_with_comes_before_to_read_again(script: Script) -> None:
    watch = script.persistent("/a")
    script.greet_again()
    script.flush()
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]
    script.feed(reply_frame(-8))
    script.event(CHANGED, "/a")
    assert types(watch) == [REREAD, CHANGED]


def test_a_connection_that_is_not_finished_tells_nobody_to_read_again(script: Script) -> None:
    watch = script.persistent("/a")
    script.greet_again()
    script.flush()
    script.lose()
    assert types(watch) == []
    script.connect()
    assert types(watch) == [REREAD]


# --- several watches on one path ------------------------------------------------------------------


COVERED: list[tuple[bool, str]] = [
    (False, "get_data"),
    (False, "exists"),
    (False, "get_children"),
    (False, "get_children_with_stat"),
    (True, "get_data"),
    (True, "exists"),
]
FIRED_BY = {
    "get_data": CHANGED,
    "exists": CHANGED,
    "get_children": CHILDREN,
    "get_children_with_stat": CHILDREN,
}


@pytest.mark.parametrize(("recursive", "verb"), COVERED)
def test_a_read_on_a_covered_path_asks_for_no_watch_and_has_one(recursive: bool, verb: str) -> None:
    """Up to 3.8 asking for one would end the persistent watch."""
    script = script_in(State.CONNECTED)
    persistent, watch = script.persistent("/a", recursive=recursive), Watch()
    call = script.call(verb, "/a", watch=watch)
    assert not _asks_for_a_watch(call)
    script.answer(call)
    assert armed(watch)
    for _ in range(2):
        script.event(FIRED_BY[verb], "/a")
    assert types(watch) == [FIRED_BY[verb]]
    assert types(persistent) == [FIRED_BY[verb]] * (
        0 if verb.startswith("get_ch") and recursive else 2
    )


@pytest.mark.parametrize("verb", ["get_children", "get_children_with_stat"])
def test_a_recursive_watch_does_not_cover_a_child_watch(verb: str, script: Script) -> None:
    script.persistent("/a", recursive=True)
    assert _asks_for_a_watch(script.call(verb, "/a", watch=Watch()))


@pytest.mark.parametrize("path", ["/a/b", "/", "/b"])
def test_only_the_very_path_is_covered(path: str, script: Script) -> None:
    """Modes are kept by path: a watch below a recursive one disturbs nobody."""
    script.persistent("/a", recursive=True)
    assert _asks_for_a_watch(script.call("get_data", path, watch=Watch()))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_persistent_and_recursive_on_one_path_are_refused(first: bool, answered: bool) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.send("add_watch", "/a", Watch(), recursive=first)
    if answered:
        script.answer(call)
    with pytest.raises(RuntimeError, match="/a cannot have"):
        script.call("add_watch", "/a", watch, recursive=not first)
    _leaves_nothing_behind(script, watch)


@pytest.mark.parametrize(("recursive", "verb"), COVERED)
def test_a_read_behind_an_add_that_is_not_answered_is_refused(recursive: bool, verb: str) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.send("add_watch", "/a", Watch(), recursive=recursive)
    with pytest.raises(RuntimeError, match="has not been answered"):
        script.call(verb, "/a", watch=watch)
    _leaves_nothing_behind(script, watch)
    script.call(verb, "/a")
    script.send(verb, "/b", watch=Watch())
    script.answer(call)


def _leaves_nothing_behind(script: Script, watch: Watch) -> None:
    assert script.names() == []
    assert watch.ready
    assert repr(watch).startswith("<Watch 0 armed")
    assert script.session.queued == 0


def test_a_refused_mix_is_not_expected(script: Script) -> None:
    """Else the server would never be told to forget the watch that is there."""
    persistent = script.persistent("/a")
    with pytest.raises(RuntimeError):
        script.call("add_watch", "/a", Watch(), recursive=True)
    persistent.close()
    assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", ANY)]
    script.call("add_watch", "/a", Watch(), recursive=True)


def test_two_of_a_kind_share_a_path(script: Script) -> None:
    one, other = script.persistent("/a"), script.persistent("/a")
    script.event(CHANGED, "/a")
    assert types(one) == types(other) == [CHANGED]
    one.close()
    assert script.names() == [], "the other one needs it"
    script.event(CHANGED, "/a")
    assert types(other) == [CHANGED]
    other.close()
    assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", ANY)]
