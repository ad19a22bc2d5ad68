"""Persistent watches: what they hear, how they share a path, how they end."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
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
from zkwire.errors import NoWatcherError
from zkwire.jute import records as r
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import BATCH_BYTES
from zkwire.wire.model import Event, EventType, State, WatchType
from zkwire.wire.paths import CONFIG_NODE

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
REREAD, PERSISTENT_GONE = EventType.REREAD, EventType.PERSISTENT_WATCH_REMOVED
DATA_GONE, CHILD_GONE = EventType.DATA_WATCH_REMOVED, EventType.CHILD_WATCH_REMOVED
ALL_CHANGES = [CREATED, CHANGED, CHILDREN, DELETED]
ANY = 3  # of a remove_watches request


def _removals(sent: list[Sent]) -> list[r.RemoveWatchesRequest]:
    return [one.read(r.RemoveWatchesRequest) for one in sent if one.name == "remove_watches"]


def _asks_for_a_watch(call: Request) -> bool:
    return r.ExistsRequest.decode(call.body).watch  # all reads look like this


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
    for _ in range(2):
        script.event(CHANGED, "/a")
        script.wake()
        assert [event.type for event in told] == [CHANGED], "who closes it hears no more"
        second.value().close()
    assert script.session.watch_count == 0


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


@pytest.mark.parametrize("event", [*EventType, 0, 8, 99, -(2**31)])
@pytest.mark.parametrize(("zxid", "seen"), [(0x123, 0x123), (1, 1), (-1, None), (0, None)])
def test_which_events_a_persistent_watch_hears_and_with_which_zxid(
    event: int, zxid: int, seen: int | None, script: Script
) -> None:
    """Servers from 3.9 on tell it; others, and those that catch up with changes, send -1."""
    watch, recursive = script.persistent("/a"), script.persistent("/", recursive=True)
    once = script.watching("get_data", "/a")
    script.event(event, "/a", zxid=zxid)
    assert [one.zxid for one in events(watch)] == [seen] * (event in ALL_CHANGES)
    for other in (recursive, once):
        assert [one.zxid for one in events(other)] == [seen] * (
            event in {CREATED, CHANGED, DELETED}
        )
    assert script.session.broken is None


def test_the_configuration_is_outside_every_chroot(watch: Watch) -> None:
    script = Script(chroot="/app")
    script.connect()
    call = script.call("get_config", watch=watch)
    (sent,) = script.flush()
    assert sent.read(r.GetDataRequest) == r.GetDataRequest(CONFIG_NODE, True)
    script.answer(call)
    script.event(CHANGED, "/app" + CONFIG_NODE)
    assert armed(watch)
    script.event(CHANGED, CONFIG_NODE)
    assert events(watch) == [Event(CHANGED, CONFIG_NODE, State.CONNECTED)]
    script.persistent("/a")
    with pytest.raises(RuntimeError, match=r"^/a cannot"):  # the caller's path
        script.call("add_watch", "/a", Watch(), recursive=True)


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


COVERED = [
    *((False, verb) for verb in ("get_data", "exists", "get_children", "get_children_with_stat")),
    *((True, verb) for verb in ("get_data", "exists")),
]


@pytest.mark.parametrize(("recursive", "verb"), COVERED)
def test_a_read_on_a_covered_path_asks_for_no_watch_and_has_one(recursive: bool, verb: str) -> None:
    """Up to 3.8 asking for one would end the persistent watch."""
    script = script_in(State.CONNECTED)
    persistent, watch = script.persistent("/a", recursive=recursive), Watch()
    call = script.call(verb, "/a", watch=watch)
    assert not _asks_for_a_watch(call)
    script.answer(call)
    assert armed(watch)
    change = CHILDREN if verb.startswith("get_children") else CHANGED
    for _ in range(2):
        script.event(change, "/a")
    assert types(watch) == [change]
    assert types(persistent) == [change] * 2
    closed = script.watching(verb, "/a")
    closed.close()
    assert script.names() == [], "the server knows of none"
    assert armed(persistent)


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
    if answered:  # what was refused is not expected, so the server is told of this end
        call.value().close()
        assert _removals(script.flush()) == [r.RemoveWatchesRequest("/a", ANY)]
        script.call("add_watch", "/a", watch, recursive=not first)


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


def test_a_covered_read_that_is_given_up_keeps_its_cover_no_longer(script: Script) -> None:
    persistent = script.persistent("/a")
    call = script.call("get_data", "/a", watch=Watch())
    persistent.close()
    assert script.session.withdraw(call)
    assert script.names() == ["remove_watches"]


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
    assert _asks_for_a_watch(call) == recursive
    script.flush()
    cover.close()
    assert script.names() == []
    script.answer(call, r.GetChildren2Response((), STAT), zxid=0x777)
    _, again = script.flush()
    assert again.set_watches() == r.SetWatches(0x777, (), (), ("/a",))
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]


GONE = {
    "data": DATA_GONE,
    "missing": DATA_GONE,
    "child": CHILD_GONE,
    "persistent": PERSISTENT_GONE,
}


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
