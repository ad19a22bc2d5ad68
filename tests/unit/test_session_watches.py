"""Watches: which read sets which, which event fires which, and who else must hear of it."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    NO_AUTH,
    NO_NODE,
    STAT,
    TIMEOUT,
    Script,
    Sent,
    armed,
    event_frame,
    events,
    failure,
    reply_frame,
    script_in,
    types,
)
from zkwire.errors import NotSentError, OutcomeUnknownError
from zkwire.jute.records import (
    ExistsRequest,
    GetChildren2Request,
    GetDataRequest,
    RemoveWatchesRequest,
)
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType, State

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED

DATA_TYPE, CHILD_TYPE = 2, 1  # of a remove_watches request


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


# --- what fires what ------------------------------------------------------------------------------

FIRES: dict[str, set[int]] = {
    "get_data": {CREATED, DELETED, CHANGED},
    "exists": {CREATED, DELETED, CHANGED},
    "exists, missing": {CREATED, DELETED, CHANGED},
    "get_children": {DELETED, CHILDREN},
    "get_children_with_stat": {DELETED, CHILDREN},
}
UNKNOWN_TYPES = [-2, -1, 0, 5, 6, 7, 8, 99, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("event", [CREATED, DELETED, CHANGED, CHILDREN, *UNKNOWN_TYPES])
@pytest.mark.parametrize("kind", FIRES)
def test_known_A42_every_event_fires_the_watches_it_concerns(kind: str, event: int) -> None:
    script = script_in(State.CONNECTED)
    watch, elsewhere = _watching(script, kind), _watching(script, kind, "/elsewhere")
    script.event(event, "/a")
    expected = [Event(EventType(event), "/a", State.CONNECTED)] if event in FIRES[kind] else []
    assert events(watch) == expected
    assert armed(watch) == (not expected)
    assert armed(elsewhere)
    assert script.session.broken is None


def test_an_event_for_nobody_is_harmless(script: Script) -> None:
    script.event(CHANGED, "/nobody")
    script.event(CHANGED, "")
    assert script.session.broken is None


def test_the_end_of_a_node_fires_a_watch_once_though_it_is_set_twice(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    script.answer(script.call("get_children", "/a", watch=watch))
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]
    with pytest.raises(RuntimeError):
        watch.wait(0)


def test_the_same_watch_set_twice_is_one(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    for _ in range(3):
        script.answer(script.call("get_data", "/a", watch=watch))
    assert _restored_lists(script) == [("/a",), (), ()]
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]
    with pytest.raises(RuntimeError):
        watch.wait(0)


# --- what sets what -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [NO_NODE, NO_AUTH, -5, -999])
@pytest.mark.parametrize("verb", ["get_data", "get_children", "get_children_with_stat"])
def test_a_refused_read_sets_no_watch(verb: str, code: int, script: Script, watch: Watch) -> None:
    script.send(verb, "/a", watch=watch)
    script.log_when_ready(watch, "not set")
    script.answer(script.calls[-1], error=code)
    assert script.wake() == ["not set"]
    assert not armed(watch)
    assert _restored_lists(script) == []


@pytest.mark.parametrize("code", [NO_AUTH, -5, -999])
def test_a_refused_exists_sets_no_watch_unless_the_node_is_missing(code: int) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    script.answer(script.call("exists", "/a", watch=watch), error=code)
    assert not armed(watch)
    assert _restored_lists(script) == []


def test_an_exists_waits_for_the_end_of_a_node_or_for_its_beginning(script: Script) -> None:
    script.watching("exists", "/present")
    script.watching_missing("/missing")
    assert _restored_lists(script) == [("/present",), ("/missing",), ()]


def test_a_read_that_is_lost_sets_no_watch(script: Script, watch: Watch) -> None:
    call = script.send("get_data", "/a", watch=watch)
    script.log_when_ready(watch, "not set")
    assert _restored_lists(script) == []
    assert failure(call) is OutcomeUnknownError
    assert script.wake() == ["not set"]


def test_an_unreadable_reply_sets_no_watch_and_leaves_no_trace(
    script: Script, watch: Watch
) -> None:
    call = script.send("get_data", "/a", watch=watch)
    script.feed(reply_frame(call.xid, 1, 0, b"\0"))
    assert not armed(watch)
    assert _restored_lists(script) == []
    _is_the_last_to_leave(script, script.watching("get_data", "/a"))


def _is_the_last_to_leave(script: Script, watch: Watch) -> None:
    script.flush()
    script.session.forget_watch(watch)
    assert script.names() == ["remove_watches"]


# --- the order of the wire ------------------------------------------------------------------------


def test_a_reply_that_shows_a_change_comes_behind_the_event_of_that_change(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    read = script.send("get_data", "/a")
    fired_before: list[bool] = []
    read._add_waker(lambda: fired_before.append(not armed(watch)))
    script.log_when_ready(watch, "event")
    script.log_when_ready(read, "reply")
    script.feed(event_frame(CHANGED, "/a") + script.reply_to(read))
    assert script.wake() == ["event", "reply"]
    assert fired_before == [True]


def test_an_event_before_the_reply_is_not_for_the_watch_that_the_reply_sets() -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.call("get_data", "/a", watch=watch)
    script.feed(event_frame(CHANGED, "/a") + script.reply_to(call))
    assert armed(watch)
    assert types(watch) == []


# --- early watches --------------------------------------------------------------------------------


def test_an_early_watch_is_set_before_its_read_is_answered(script: Script, watch: Watch) -> None:
    call = script.guard("/a", watch)
    script.flush()
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]
    script.answer(call, error=NO_NODE)
    assert types(watch) == []


def test_a_guard_that_is_given_up_leaves_nothing_behind(script: Script, watch: Watch) -> None:
    """The guard of every lock that is held for a moment only."""
    for _ in range(3):
        assert script.session.withdraw(script.guard("/a", watch))
    assert script.session._watches._to_repeat == []
    script.lose()
    script.connect()
    assert "get_children2" not in [sent.name for sent in script.sent]


def test_an_early_watch_on_a_missing_node_fires_alone() -> None:
    script, early = script_in(State.CONNECTED), Watch()
    other = script.watching("get_children", "/a")
    missing = script.watching_missing("/a")
    call = script.guard("/a", early)
    script.flush()
    script.log_when_ready(early, "fired")
    script.answer(call, error=NO_NODE)
    assert script.wake() == ["fired"]
    assert events(early) == [Event(DELETED, "/a", State.CONNECTED)]
    assert armed(other)
    assert armed(missing)
    assert _restored_lists(script) == [(), ("/a",), ("/a",)]


def test_a_guard_that_finds_another_node_in_the_place_of_its_own_fires(script: Script) -> None:
    guard = Watch()
    other = script.watching("get_children", "/a")
    script.answer(script.guard("/a", guard, czxid=1 + STAT.czxid))
    assert types(guard) == [DELETED]
    assert armed(other)


def test_a_guard_that_is_refused_fires(script: Script) -> None:
    """Nobody watches the node, and only an answer can say whose it is."""
    guard = Watch()
    script.answer(script.guard("/a", guard), error=NO_AUTH)
    assert types(guard) == [EventType.CHILD_WATCH_REMOVED]


@pytest.mark.parametrize("code", [-122, -127])
def test_a_guard_that_a_busy_server_refuses_is_asked_again(code: int, script: Script) -> None:
    guard = Watch()
    script.answer(script.guard("/a", guard), error=code)
    (again,) = script.flush()
    script.serve(again, error=code)
    assert armed(guard)
    (again,) = script.flush()
    assert again.read(GetChildren2Request) == GetChildren2Request("/a", True)
    script.serve(again, error=NO_NODE)
    assert types(guard) == [DELETED]


def test_a_guard_of_a_session_that_has_moved_is_asked_again_on_the_next_connection() -> None:
    script, guard = script_in(State.CONNECTED), Watch()
    script.answer(script.guard("/a", guard), error=-118)
    assert armed(guard)
    script.reconnect()
    assert "get_children2" in [sent.name for sent in script.sent]


def test_a_guard_that_is_not_needed_any_more_is_not_asked_again(script: Script) -> None:
    guard = Watch()
    call = script.guard("/a", guard)
    script.flush()
    script.session.forget_watch(guard, tell=False)
    script.answer(call, error=-127)
    assert script.flush() == []


@pytest.mark.parametrize("written", [None, 0])
def test_a_lost_connection_keeps_an_early_watch(written: int | None) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    call = script.guard("/a", watch)
    script.flush()
    script.lose(written)
    assert failure(call) is (OutcomeUnknownError if written is None else NotSentError)
    assert armed(watch)
    script.connect()
    assert script.sent[1].set_watches().child_watches == ("/a",)
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]


def test_an_early_watch_outlives_a_read_that_waited_in_vain() -> None:
    script, watch = script_in(State.DISCONNECTED), Watch()
    call = script.guard("/a", watch)
    script.advance(TIMEOUT)
    assert failure(call) is NotSentError
    assert armed(watch)
    script.connect()
    assert script.sent[1].set_watches().child_watches == ("/a",)


# --- watches taken back ---------------------------------------------------------------------------


def _removal(sent: list[Sent]) -> list[RemoveWatchesRequest]:
    return [one.read(RemoveWatchesRequest) for one in sent if one.name == "remove_watches"]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("get_data", DATA_TYPE),
        ("exists", DATA_TYPE),
        ("exists, missing", DATA_TYPE),
        ("get_children", CHILD_TYPE),
        ("get_children_with_stat", CHILD_TYPE),
    ],
)
def test_the_last_watcher_to_leave_tells_the_server(kind: str, number: int, script: Script) -> None:
    watch = _watching(script, kind)
    watch.close()
    assert _removal(script.flush()) == [RemoveWatchesRequest("/a", number)]
    assert _restored_lists(script) == []


@pytest.mark.parametrize("first", ["get_data", "exists", "exists, missing"])
@pytest.mark.parametrize("second", ["get_data", "exists", "exists, missing"])
def test_known_A43_a_watch_that_another_needs_stays_on_the_server(first: str, second: str) -> None:
    script = script_in(State.CONNECTED)
    leaving, staying = _watching(script, first), _watching(script, second)
    leaving.close()
    assert script.names() == []
    script.event(CHANGED, "/a")
    assert types(staying) == [CHANGED]


def test_known_A43_data_and_children_are_left_separately(script: Script) -> None:
    leaving, staying = _watching(script, "get_data"), _watching(script, "get_children")
    leaving.close()
    assert _removal(script.flush()) == [RemoveWatchesRequest("/a", DATA_TYPE)]
    script.event(CHILDREN, "/a")
    assert types(staying) == [CHILDREN]


def test_a_watch_taken_back_while_the_session_closes_needs_no_call(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    script.session.close(script.now)
    script.session.forget_watch(watch)
    assert script.names() == ["close_session"]


@pytest.mark.parametrize("sent", [True, False])
def test_a_watch_taken_back_before_its_read_is_answered_hears_nothing(sent: bool) -> None:
    script, told = script_in(State.CONNECTED), list[Event]()
    watch = Watch(told.append)
    call = script.call("get_data", "/a", watch=watch)
    if sent:
        script.flush()
    watch.close()
    script.answer(call)
    script.event(CHANGED, "/a")
    script.wake()
    assert told == []


def test_a_watch_taken_back_before_its_read_is_answered_leaves_others_alone() -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    staying = script.watching("get_data", "/a")
    call = script.send("get_data", "/a", watch=watch)
    watch.close()
    script.answer(call)
    assert script.names() == []
    script.event(CHANGED, "/a")
    assert types(staying) == [CHANGED]


def test_a_refused_removal_is_just_a_refusal(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    script.session.forget_watch(watch)
    (removal,) = script.flush()
    script.feed(reply_frame(removal.xid, script.zxid, -121))
    assert script.session.broken is None
    assert not script.session.unanswered


def test_a_watch_forgotten_by_this_side_alone_stays_on_the_server(script: Script) -> None:
    """What a client that detaches, or whose server no longer matters, asks for."""
    watch = script.watching("get_data", "/a")
    script.session.forget_watch(watch, tell=False)
    assert script.names() == []
    assert script.session.watch_count == 0
    script.watching("get_data", "/b").close()
    assert _removal(script.flush()) == [RemoveWatchesRequest("/b", DATA_TYPE)]


# --- chroot ---------------------------------------------------------------------------------------


def _below(chroot: str = "/app") -> Script:
    script = Script(chroot=chroot)
    script.connect()
    return script


def test_requests_name_the_whole_path() -> None:
    script = _below()
    script.call("exists", "/a")
    script.call("get_data", "/")
    first, second = script.flush()
    assert first.read(ExistsRequest).path == "/app/a"
    assert second.read(GetDataRequest).path == "/app"


def test_an_event_outside_the_chroot_concerns_nobody_below_it() -> None:
    script = _below()
    watch = script.watching("get_data", "/a")
    for path in ["/a", "/ap", "/application/a", "/app/app/a"]:
        script.event(CHANGED, path)
    assert armed(watch)


def test_a_watch_that_is_closed_while_it_is_being_restored_is_taken_back(script: Script) -> None:
    """The server has been told to keep it; nobody would want its event, and it wakes a waiter."""
    watch = script.watching("get_data", "/a")
    kept = script.watching("get_data", "/b")
    script.lose()
    script.greet()
    [restoring] = script.flush()
    assert restoring.name == "set_watches"
    script.close_watch(watch)
    again = script.call("get_data", "/a", watch=Watch())
    assert not script.flush(), "before the answer nothing goes out"
    script.serve(restoring)
    assert script.names() == ["remove_watches", "get_data"], "in this order: the new one stays"
    assert script.sent[-2].read(RemoveWatchesRequest).path == "/a"
    assert armed(kept)
    assert not again.ready


def test_what_was_closed_while_it_was_restored_is_forgotten_with_the_connection() -> None:
    script = script_in(State.CONNECTED)
    watch = script.watching("get_data", "/a")
    script.lose()
    script.greet()
    script.flush()
    script.close_watch(watch)
    script.lose()
    script.connect()
    assert script.names() == []
    assert [sent.name for sent in script.sent] == ["connect"]
