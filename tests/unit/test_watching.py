"""Persistent watches: what they hear, how they share a path, how they end; guards of locks."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    NO_AUTH,
    NO_NODE,
    STAT,
    Script,
    Sent,
    armed,
    events,
    failure,
    reply_frame,
    script_in,
    types,
)
from zkwire.errors import NoWatcherError, UnimplementedError
from zkwire.jute import records as r
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import BATCH_BYTES, WatchTable
from zkwire.wire.model import Event, EventType, State, WatchType
from zkwire.wire.ops import WatchKind
from zkwire.wire.paths import CONFIG_NODE

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REREAD, PERSISTENT_GONE = EventType.REREAD, EventType.PERSISTENT_WATCH_REMOVED
DATA_GONE, CHILD_GONE = EventType.DATA_WATCH_REMOVED, EventType.CHILD_WATCH_REMOVED
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


def test_an_added_watch_closed_before_its_reply_leaves_the_server() -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.send("add_watch", "/a", watch)
    watch.close()
    assert script.names() == []
    script.answer(call)
    assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", ANY)]
    assert script.session.watch_count == 0


# --- what they hear -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("event", [*EventType, 0, 8, 99, -(2**31)])
def test_unknown_events_concern_no_persistent_watch(event: int, script: Script) -> None:
    watch, recursive = script.persistent("/a"), script.persistent("/", recursive=True)
    script.event(event, "/a")
    assert (types(watch) != []) == (event in ALL_CHANGES)
    assert (types(recursive) != []) == (event in {CREATED, CHANGED, DELETED})
    assert script.session.broken is None


@pytest.mark.parametrize(("sent", "seen"), [(0x123, 0x123), (1, 1), (-1, None), (0, None)])
def test_the_zxid_of_a_change_where_the_server_tells_it(sent: int, seen: int | None) -> None:
    """Servers from 3.9 on do; others, and those that catch up with changes, send -1."""
    script = script_in(State.CONNECTED)
    watch, persistent = script.watching("get_data", "/a"), script.persistent("/a")
    script.event(CHANGED, "/a", zxid=sent)
    for one in (watch, persistent):
        assert [event.zxid for event in events(one)] == [seen]


# --- chroot ---------------------------------------------------------------------------------------


def _below(chroot: str = "/app") -> Script:
    script = Script(chroot=chroot)
    script.connect()
    return script


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


def test_to_read_again_is_said_before_the_session_is_usable(script: Script) -> None:
    """Who waits for the state and then reads must not be told to read again afterwards."""
    watch = script.persistent("/a")
    script.lose()
    script.log_when_ready(script.session.change, "usable")
    script.log_when_ready(watch, "read again")
    script.connect()
    assert script.wake() == ["read again", "usable"]


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


# --- closing what covers --------------------------------------------------------------------------


def test_a_covered_watch_that_is_closed_tells_nobody(script: Script) -> None:
    persistent = script.persistent("/a")
    script.watching("get_data", "/a").close()
    script.watching("get_children", "/a").close()
    assert script.names() == []
    assert armed(persistent)


def _closed_cover(script: Script, verb: str) -> tuple[Request, Watch]:
    """A read, and its watch, which a persistent one has covered that is closed by now."""
    persistent, watch = script.persistent("/a"), Watch()
    call = script.send(verb, "/a", watch=watch)
    persistent.close()
    return call, watch


def test_a_covered_read_of_a_missing_node_is_set_again_as_such(
    script: Script, watch: Watch
) -> None:
    call, _ = _closed_cover(script, "exists")
    script.answer(call, error=NO_NODE, zxid=0x777)
    _, again = script.flush()
    assert again.set_watches() == r.SetWatches(0x777, (), ("/a",), ())


@pytest.mark.parametrize("code", [NO_NODE, NO_AUTH])
def test_a_covered_read_that_fails_is_not_set_again(
    code: int, script: Script, watch: Watch
) -> None:
    call, watch = _closed_cover(script, "get_data")
    script.answer(call, error=code)
    assert script.names() == ["remove_watches"]
    assert not armed(watch)


def test_a_covered_read_that_is_given_up_keeps_its_cover_no_longer(script: Script) -> None:
    persistent = script.persistent("/a")
    call = script.call("get_data", "/a", watch=Watch())
    persistent.close()
    assert script.session.withdraw(call)
    assert script.names() == ["remove_watches"]


def test_a_removal_does_not_overtake_a_read_that_asked_for_its_watch() -> None:
    """It would take the watch away on the server before its reply is here."""
    script, watch = script_in(State.CONNECTED), Watch()
    tree = script.persistent("/a", recursive=True)
    call = script.call("get_children", "/a", watch=watch)
    assert _asks_for_a_watch(call)
    script.flush()
    tree.close()
    assert script.names() == []
    script.answer(call, zxid=0x777)
    _, again = script.flush()
    assert again.set_watches() == r.SetWatches(0x777, (), (), ("/a",))


# --- remove_watches -------------------------------------------------------------------------------


def _everywhere(script: Script) -> dict[str, Watch]:
    """A watch of each kind on "/a", and a recursive one on "/r"."""
    return {
        "data": script.watching("get_data", "/a"),
        "missing": script.watching_missing("/a"),
        "child": script.watching("get_children", "/a"),
        "persistent": script.persistent("/a"),
    }


REMOVES: list[tuple[WatchType, dict[str, EventType]]] = [
    (WatchType.DATA, {"data": DATA_GONE, "missing": DATA_GONE}),
    (WatchType.CHILDREN, {"child": CHILD_GONE}),
    (WatchType.PERSISTENT, {"persistent": PERSISTENT_GONE}),
    (
        WatchType.ANY,
        {
            "data": DATA_GONE,
            "missing": DATA_GONE,
            "child": CHILD_GONE,
            "persistent": PERSISTENT_GONE,
        },
    ),
    (WatchType.PERSISTENT_RECURSIVE, {}),
]


@pytest.mark.parametrize(("which", "gone"), REMOVES)
def test_removing_by_type(which: WatchType, gone: dict[str, EventType], script: Script) -> None:
    watches = _everywhere(script)
    call = script.call("remove_watches", "/a", which)
    for sent in script.flush():
        script.serve(sent)
    assert failure(call) is (None if gone else NoWatcherError)
    for name, watch in watches.items():
        assert types(watch) == ([gone[name]] if name in gone else [])
        if name in gone:
            with pytest.raises(RuntimeError, match="not set"):
                watch.wait(0)
        else:
            assert armed(watch)
    assert script.session.watch_count == len(watches) - len(gone)


def test_removing_recursive_watches(script: Script) -> None:
    tree, child = script.persistent("/a", recursive=True), script.watching("get_children", "/a")
    call = script.call("remove_watches", "/a", WatchType.PERSISTENT_RECURSIVE)
    removal, again = script.flush()
    assert removal.read(r.RemoveWatchesRequest).type == ANY, "older servers know no other"
    assert again.set_watches().child_watches == ("/a",)
    assert types(tree) == [PERSISTENT_GONE]
    assert armed(child)
    script.serve(removal)
    assert call.ready
    assert call.value() is None


@pytest.mark.parametrize(
    ("verb", "which", "number"),
    [("get_data", WatchType.DATA, DATA_TYPE), ("get_children", WatchType.CHILDREN, CHILD_TYPE)],
)
def test_removing_all_of_one_kind_tells_the_server_so(
    verb: str, which: WatchType, number: int, script: Script
) -> None:
    watches = [script.watching(verb, "/a") for _ in range(2)]
    call = script.call("remove_watches", "/a", which)
    assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", number)]
    assert not call.ready, "before the server has done it"
    script.answer(call)
    assert call.value() is None
    assert [len(types(watch)) for watch in watches] == [1, 1]


def test_what_a_persistent_watch_covers_is_removed_here_alone(script: Script) -> None:
    """Up to 3.8 a removal of data watches would take half of the persistent one away."""
    persistent, data = script.persistent("/a"), script.watching("get_data", "/a")
    call = script.call("remove_watches", "/a", WatchType.DATA)
    assert call.ready
    assert call.value() is None
    assert script.names() == []
    assert types(data) == [DATA_GONE]
    assert armed(persistent)


@pytest.mark.parametrize("which", WatchType)
def test_removing_what_is_not_there_is_refused_without_a_frame(which: WatchType) -> None:
    script = script_in(State.CONNECTED)
    elsewhere = script.persistent("/b")
    call = script.call("remove_watches", "/a", which)
    assert script.names() == []
    assert failure(call) is NoWatcherError
    assert armed(elsewhere)


@pytest.mark.parametrize("state", [State.DISCONNECTED, State.CONNECTING, State.HANDSHAKE])
def test_removing_without_a_connection_is_done_at_once(state: State, script: Script) -> None:
    """A new connection is not told of them, so there is nothing to wait for."""
    watch = script.persistent("/a")
    script.lose()
    if state is State.CONNECTING:
        script.advance(script.session.act_at - script.now)
    elif state is State.HANDSHAKE:
        script.dial()
    assert script.state is state
    call = script.call("remove_watches", "/a")
    assert call.ready
    assert call.value() is None
    assert types(watch) == [PERSISTENT_GONE]
    if state is not State.HANDSHAKE:
        script.dial()
    script.flush()
    script.welcome()
    assert script.state.usable
    assert script.names() == []


# --- guards of locks ------------------------------------------------------------------------------


@pytest.mark.parametrize("recursive", [False, True])
def test_a_guard_on_a_watched_path_still_fires(recursive: bool, script: Script) -> None:
    guard = Watch()
    persistent = script.persistent("/a", recursive=recursive)
    call = script.guard("/a", guard)
    script.flush()
    persistent.close()
    script.answer(call, r.GetChildren2Response((), STAT))
    _, again = script.flush()
    assert again.set_watches().child_watches == ("/a",)
    script.event(DELETED, "/a")
    assert types(guard) == [DELETED]
