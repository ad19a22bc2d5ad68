"""Watches, persistent ones too: which request sets which, what fires it, and how they end."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    NO_AUTH,
    STAT,
    TIMEOUT,
    Script,
    Sent,
    armed,
    events,
    failure,
    reply_frame,
    script_in,
    types,
)
from zkwire.errors import NotSentError, NoWatcherError, OutcomeUnknownError
from zkwire.jute import records as r
from zkwire.jute.records import RemoveWatchesRequest
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType, State, WatchType
from zkwire.wire.paths import CONFIG_NODE

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED

# What fires the watch of each read.
OF_DATA, OF_CHILDREN = {CREATED, DELETED, CHANGED}, {DELETED, CHILDREN}
KINDS: dict[str, set[EventType]] = {
    **dict.fromkeys(("get_data", "exists", "exists, missing"), OF_DATA),
    **dict.fromkeys(("get_children", "get_children_with_stat"), OF_CHILDREN),
}
UNKNOWN_TYPES = [-2, -1, 0, 5, 6, 7, 8, 99, 2**31 - 1, -(2**31)]


def _watching(script: Script, kind: str, path: str = "/a") -> Watch:
    if kind == "exists, missing":
        return script.watching_missing(path)
    return script.watching(kind, path)


def _restored_lists(script: Script) -> list[tuple[str, ...]]:
    """The data, exist and child paths that a new connection sets again."""
    script.reconnect()
    requests = [sent.set_watches() for sent in script.sent if sent.name == "set_watches"]
    assert len(requests) <= 1
    return [paths for request in requests for paths in request[1:]]


def _removals(sent: list[Sent]) -> list[RemoveWatchesRequest]:
    return [one.read(RemoveWatchesRequest) for one in sent if one.name == "remove_watches"]


@pytest.mark.parametrize("event", [CREATED, DELETED, CHANGED, CHILDREN, *UNKNOWN_TYPES])
@pytest.mark.parametrize("kind", KINDS)
def test_known_A42_every_event_fires_the_watches_it_concerns(kind: str, event: int) -> None:
    script = script_in(State.CONNECTED)
    watch, elsewhere = _watching(script, kind), _watching(script, kind, "/elsewhere")
    for path in ("/a", "", "/nobody"):
        script.event(event, path)
    fired = event in KINDS[kind]
    assert [event[:3] for event in events(watch)] == [(event, "/a", State.CONNECTED)] * fired
    assert armed(watch) == (not fired)
    assert armed(elsewhere)
    assert script.session.broken is None


def test_the_same_watch_set_twice_is_one(script: Script, watch: Watch) -> None:
    for kinds, change in ((["get_data"] * 3, CHANGED), (["get_data", "get_children"], DELETED)):
        for kind in kinds:
            script.answer(script.call(kind, "/a", watch=watch))
        assert _restored_lists(script)[0] == ("/a",)
        script.event(change, "/a")
        assert types(watch) == [change]
        with pytest.raises(RuntimeError):
            watch.wait(0)


def test_a_guard_that_is_refused_fires(script: Script) -> None:
    """Nobody watches the node, and only an answer can say whose it is."""
    guard = Watch()
    script.answer(script.guard("/a", guard), error=NO_AUTH)
    assert types(guard) == [EventType.CHILD_WATCH_REMOVED]


def test_a_covered_read_that_is_given_up_keeps_its_cover_no_longer(script: Script) -> None:
    persistent = script.persistent("/a")
    call = script.call("get_data", "/a", watch=Watch())
    persistent.close()
    assert script.session.withdraw(call)
    assert script.names() == ["remove_watches"]


def test_a_guard_that_finds_another_node_in_the_place_of_its_own_fires(script: Script) -> None:
    guard = Watch()
    other = script.watching("get_children", "/a")
    script.answer(script.guard("/a", guard, czxid=1 + STAT.czxid))
    assert types(guard) == [DELETED]
    assert armed(other)


@pytest.mark.parametrize("written", [None, 0, -118])
def test_a_lost_connection_keeps_an_early_watch(written: int | None) -> None:
    """Or one that a server has refused because the session has moved."""
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.guard("/a", watch)
    script.flush()
    if written == -118:
        script.answer(call, error=-118)
    script.lose(written)
    if written != -118:
        assert failure(call) is (OutcomeUnknownError if written is None else NotSentError)
    assert armed(watch)
    script.connect()
    assert script.sent[1].set_watches().child_watches == ("/a",)
    assert script.sent[2].name == "get_children2"
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]


def test_known_A43_data_and_children_are_left_separately(script: Script) -> None:
    leaving, staying = _watching(script, "get_data"), _watching(script, "get_children")
    leaving.close()
    assert _removals(script.flush()) == [RemoveWatchesRequest("/a", 2)]
    script.event(CHILDREN, "/a")
    assert types(staying) == [CHILDREN]


@pytest.mark.parametrize("sent", [True, False])
def test_a_watch_taken_back_before_its_read_is_answered_leaves_others_alone(sent: bool) -> None:
    """And hears nothing."""
    script, told = script_in(State.CONNECTED), list[Event]()
    staying, watch = script.watching("get_data", "/a"), Watch(told.append)
    call = script.call("get_data", "/a", watch=watch)
    if sent:
        script.flush()
    watch.close()
    script.answer(call)
    assert script.names() == []
    script.event(CHANGED, "/a")
    script.wake()
    assert (types(staying), told) == ([CHANGED], [])


ALL_CHANGES = [CREATED, CHANGED, CHILDREN, DELETED]


REREAD, PERSISTENT_GONE = EventType.REREAD, EventType.PERSISTENT_WATCH_REMOVED
DATA_GONE, CHILD_GONE = EventType.DATA_WATCH_REMOVED, EventType.CHILD_WATCH_REMOVED


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


@pytest.mark.parametrize("at", ["/a", "/"])
def test_a_recursive_watch_hears_of_all_nodes_below(at: str, script: Script) -> None:
    """But not of their children: it hears of each of those anyway."""
    watch, paths = script.persistent(at, recursive=True), ["/a", "/a/b", "/a/b/c"]
    others = ["/", "/ab", "/b/a"]
    for path in paths + others:
        for event in ALL_CHANGES:
            script.event(event, path)
    told = paths if at == "/a" else paths + others
    expected = [(e, p) for p in told for e in ALL_CHANGES if e != CHILDREN]
    assert [(event.type, event.path) for event in events(watch)] == expected


def test_the_configuration_is_outside_every_chroot(watch: Watch) -> None:
    script = Script(chroot="/app")
    script.connect()
    for call in (script.call("get_config"), script.call("get_config", watch=watch)):
        asked = r.GetDataRequest.decode(call.body)
        assert asked == r.GetDataRequest(CONFIG_NODE, call.watch is watch)
        script.answer(call)
    script.event(CHANGED, "/app" + CONFIG_NODE)
    assert armed(watch)
    script.event(CHANGED, CONFIG_NODE)
    assert events(watch) == [Event(CHANGED, CONFIG_NODE, State.CONNECTED)]
    script.persistent("/a")
    with pytest.raises(RuntimeError, match=r"^/a cannot"):  # the caller's path
        script.call("add_watch", "/a", Watch(), recursive=True)


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
    """Each may hide something; who waits for the state and then reads is not told afterwards."""
    watches = {path: script.persistent(path, recursive=path == "/r") for path in ("/a", "/b", "/r")}
    once = script.watching("get_data", "/d")
    for _ in range(2):
        script.lose()
        script.log_when_ready(script.session.change, "usable")
        script.log_when_ready(watches["/a"], "read again")
        script.connect()
        assert script.wake() == ["read again", "usable"]
        for path, watch in watches.items():
            assert events(watch) == [Event(REREAD, path, State.CONNECTED)]
            assert armed(watch)
    assert types(once) == []


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("verb", ["get_data", "exists"])
def test_a_read_behind_an_add_that_is_not_answered_is_refused(recursive: bool, verb: str) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.send("add_watch", "/a", Watch(), recursive=recursive)
    with pytest.raises(RuntimeError, match="has not been answered"):
        script.call(verb, "/a", watch=watch)
    assert script.names() == []
    assert repr(watch).startswith("<Watch 0 armed")
    assert script.session.queued == 0
    script.call(verb, "/a")
    script.send(verb, "/b", watch=Watch())
    script.answer(call)


@pytest.mark.parametrize("guarding", [False, True])
@pytest.mark.parametrize("recursive", [False, True])
def test_a_removal_does_not_overtake_a_read_that_asked_for_its_watch(
    guarding: bool, recursive: bool, script: Script, watch: Watch
) -> None:
    """It would take the watch away on the server before its reply is here."""
    cover = script.persistent("/a", recursive=recursive)
    if guarding:
        call = script.guard("/a", watch)
    else:
        call = script.call("get_children_with_stat", "/a", watch=watch)
    script.flush()
    cover.close()
    assert script.names() == []
    script.answer(call, r.GetChildren2Response((), STAT), zxid=0x777)
    _, again = script.flush()
    assert again.set_watches() == r.SetWatches(0x777, (), (), ("/a",))


GONE = {"data": DATA_GONE, "missing": DATA_GONE, "child": CHILD_GONE, "persistent": PERSISTENT_GONE}


@pytest.mark.parametrize(
    ("which", "gone"),
    [
        (WatchType.DATA, {"data", "missing"}),
        (WatchType.CHILDREN, {"child"}),
        (WatchType.PERSISTENT, {"persistent"}),
        (WatchType.ANY, set(GONE)),
        (WatchType.PERSISTENT_RECURSIVE, set()),
    ],
)
def test_removing_by_type(which: WatchType, gone: set[str], script: Script) -> None:
    watches = {
        "data": script.watching("get_data", "/a"),
        "missing": script.watching_missing("/a"),
        "child": script.watching("get_children", "/a"),
        "persistent": script.persistent("/a"),
    }
    call = script.call("remove_watches", "/a", which)
    for sent in script.flush():
        script.serve(sent)
    assert failure(call) is (None if gone else NoWatcherError)
    for name, watch in watches.items():
        assert types(watch) == [GONE[name]] * (name in gone)
        assert armed(watch) == (name not in gone)
        if name in gone:
            with pytest.raises(RuntimeError, match="not set"):
                watch.wait(0)
    assert script.session.watch_count == len(watches) - len(gone)


def test_known_A1_A2_A5_watches_come_back_until_they_have_fired_once(script: Script) -> None:
    """Even when the connection that sets them again breaks before that is answered."""
    watches = {kind: _watching(script, kind, f"/{kind}") for kind in KINDS}
    script.greet_again()
    assert script.names() == ["set_watches"]
    for _ in range(2):
        lists = _restored_lists(script)
        assert list(map(set, lists)) == [
            {"/get_data", "/exists"},
            {"/exists, missing"},
            {"/get_children", "/get_children_with_stat"},
        ]
    for kind, watch in watches.items():
        script.event(DELETED, f"/{kind}")
        assert types(watch) == [DELETED]
    assert _restored_lists(script) == []


def test_known_A3_A41_what_comes_before_the_answer_to_set_watches(script: Script) -> None:
    gone, staying = script.watching("get_data", "/a"), script.watching("get_data", "/b")
    script.greet_again()
    call = script.call("create", "/c")
    assert script.names() == ["set_watches"]
    script.event(DELETED, "/a")
    script.feed(reply_frame(-8, 0x7FFF))
    assert (types(gone), types(staying), call.ready) == ([DELETED], [], False)
    script.answer(call)
    assert failure(call) is None


def test_known_A7_A9_only_replies_to_calls_raise_the_last_zxid(script: Script) -> None:
    script.watching("get_data", "/a")
    script.answer(script.call("sync"), zxid=0x9876)
    script.event(CHANGED, "/b", zxid=0x99999)
    for _ in range(2):
        script.advance(TIMEOUT / 3)
        script.pong()
    script.greet_again()
    script.feed(reply_frame(script.flush()[0].xid, 0x99999))
    assert script.state.usable
    script.lose()
    assert script.reach()[0].connect_request().last_zxid_seen == 0x9876
