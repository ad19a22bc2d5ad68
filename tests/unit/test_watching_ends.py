"""How persistent watches end: closed, removed, covered by others; and the guards of locks."""

from __future__ import annotations

import pytest

from tests.support.scripted import NO_AUTH, NO_NODE, STAT, Script, armed, failure, script_in, types
from tests.unit.test_watching import (
    ANY,
    CHANGED,
    CHILD_TYPE,
    DATA_TYPE,
    DELETED,
    PERSISTENT_GONE,
    _asks_for_a_watch,
    _removals,
)
from zkwire.errors import NoWatcherError
from zkwire.jute import records as r
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType, State, WatchType

DATA_GONE, CHILD_GONE = EventType.DATA_WATCH_REMOVED, EventType.CHILD_WATCH_REMOVED


# --- closing what covers --------------------------------------------------------------------------


@pytest.mark.parametrize("recursive", [False, True])
def test_what_is_left_on_a_path_is_set_again(recursive: bool, script: Script) -> None:
    """Only a removal of all kinds takes a persistent watch away on every server."""
    data, missing = script.watching("get_data", "/a"), script.watching_missing("/a")
    persistent = script.persistent("/a", recursive=recursive)
    zxid = script.session.last_zxid
    persistent.close()
    removal, again = script.flush()
    assert removal.read(r.RemoveWatchesRequest) == r.RemoveWatchesRequest("/a", ANY)
    assert again.set_watches() == r.SetWatches(zxid, ("/a",), ("/a",), ())
    assert again.xid > 0, "-8 is for the beginning of a connection"
    script.serve(removal)
    script.serve(again)
    script.event(CHANGED, "/a")
    assert types(data) == types(missing) == [CHANGED]


def test_child_watches_that_are_left_are_set_again_too(script: Script) -> None:
    persistent = script.persistent("/a")
    child = script.watching("get_children", "/a")
    persistent.close()
    _, again = script.flush()
    assert again.set_watches()[1:] == ((), (), ("/a",))
    assert armed(child)


def test_nothing_is_set_again_where_nothing_is_left(script: Script) -> None:
    script.watching("get_data", "/b")
    script.persistent("/a").close()
    assert script.names() == ["remove_watches"]


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


def test_a_cover_is_removed_when_the_reads_under_way_are_answered(
    script: Script, watch: Watch
) -> None:
    """Then it is known what to set again: as of the reply, whose next change it has not seen."""
    call, _ = _closed_cover(script, "get_data")
    assert script.names() == []
    script.answer(call, zxid=0x777)
    removal, again = script.flush()
    assert removal.read(r.RemoveWatchesRequest) == r.RemoveWatchesRequest("/a", ANY)
    assert again.set_watches() == r.SetWatches(0x777, ("/a",), (), ())


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


@pytest.mark.parametrize("recursive", [False, True])
def test_a_new_persistent_watch_takes_a_closed_ones_place(
    recursive: bool, script: Script, watch: Watch
) -> None:
    """Up to 3.8 the last request wins, so nothing may come behind the add."""
    call, watch = _closed_cover(script, "get_data")
    add = script.call("add_watch", "/a", Watch(), recursive=recursive)
    assert script.names() == ["add_watch"]
    script.answer(call)
    script.answer(add)
    assert script.names() == []
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


def test_a_child_watch_that_the_new_recursive_one_does_not_cover_is_set_again() -> None:
    script = script_in(State.CONNECTED)
    read, _ = _closed_cover(script, "get_children")
    add = script.send("add_watch", "/a", Watch(), recursive=True)
    script.answer(read, zxid=0x777)
    assert script.names() == []
    script.answer(add, zxid=0x888)
    (again,) = script.flush()
    assert again.set_watches() == r.SetWatches(0x888, (), (), ("/a",))


def test_a_cover_closed_without_a_connection_needs_no_request(script: Script, watch: Watch) -> None:
    persistent = script.persistent("/a")
    data = script.watching("get_data", "/a")
    script.lose()
    persistent.close()
    call = script.call("get_data", "/a", watch=watch)
    assert _asks_for_a_watch(call)
    script.connect()
    assert [sent.name for sent in script.sent] == ["connect", "set_watches", "get_data"]
    assert armed(data)


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


def test_a_removal_that_is_lost_has_no_effect_to_ask_for(script: Script) -> None:
    script.persistent("/a")
    call = script.send("remove_watches", "/a")
    script.reconnect()
    error = call.error()
    assert error is not None
    assert not error.maybe_applied
    assert [sent.name for sent in script.sent] == ["connect"]


def test_a_read_under_way_is_not_removed(script: Script, watch: Watch) -> None:
    there = script.watching("get_data", "/a")
    read = script.call("get_data", "/a", watch=watch)
    call = script.call("remove_watches", "/a", WatchType.DATA)
    assert call.ready, "the server keeps it for the read"
    script.flush()
    script.answer(read)
    assert types(there) == [DATA_GONE]
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


def test_a_callback_hears_of_its_removal(script: Script) -> None:
    told = list[Event]()
    script.answer(script.call("add_watch", "/a", told.append))
    script.call("remove_watches", "/a")
    script.wake()
    assert told == [Event(PERSISTENT_GONE, "/a", State.CONNECTED)]


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
