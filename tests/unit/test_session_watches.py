"""Watches: which read sets which, which event fires which, and who else must hear of it."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    NO_AUTH,
    NO_NODE,
    STAT,
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
from zkwire.jute.records import GetChildren2Request, RemoveWatchesRequest
from zkwire.session.waitable import Watch
from zkwire.wire.model import Event, EventType, State

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
DATA_KINDS = [kind for kind in KINDS if KINDS[kind] is OF_DATA]
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


@pytest.mark.parametrize("code", [NO_NODE, NO_AUTH, -5, -999, None])
@pytest.mark.parametrize("verb", ["exists", "get_data", "get_children", "get_children_with_stat"])
def test_a_read_that_fails_sets_no_watch(
    verb: str, code: int | None, script: Script, watch: Watch
) -> None:
    """But that of exists for a missing node; without a code the reply cannot be read."""
    if (verb, code) == ("exists", NO_NODE):
        return
    call = script.send(verb, "/a", watch=watch)
    script.log_when_ready(watch, "not set")
    if code is None:
        script.feed(reply_frame(call.xid, 1, 0, b"\0"))
    else:
        script.answer(call, error=code)
    assert script.wake() == ["not set"]
    assert not armed(watch)
    assert _restored_lists(script) == []
    script.watching(verb, "/a").close()
    assert script.names() == ["remove_watches"], "nothing else is expected"


def test_an_exists_waits_for_the_end_of_a_node_or_for_its_beginning(script: Script) -> None:
    script.watching("exists", "/present")
    script.watching_missing("/missing")
    assert _restored_lists(script) == [("/present",), ("/missing",), ()]


def test_events_and_replies_keep_the_order_of_the_wire(script: Script, watch: Watch) -> None:
    """A reply that shows a change comes behind its event, which is not for a watch set later."""
    before = script.watching("get_data", "/a")
    read = script.send("get_data", "/a", watch=watch)
    fired_before: list[bool] = []
    read._add_waker(lambda: fired_before.append(not armed(before)))
    script.log_when_ready(before, "event")
    script.log_when_ready(read, "reply")
    script.feed(event_frame(CHANGED, "/a") + script.reply_to(read))
    assert script.wake() == ["event", "reply"]
    assert fired_before == [True]
    assert armed(watch)


def test_a_guard_that_is_given_up_leaves_nothing_behind(script: Script, watch: Watch) -> None:
    """The guard of every lock that is held for a moment only."""
    for _ in range(3):
        assert script.session.withdraw(script.guard("/a", watch))
    assert script.session._watches._to_repeat == []
    script.reconnect()
    assert "get_children2" not in [sent.name for sent in script.sent]


@pytest.mark.parametrize("told", [True, False], ids=["event", "answer"])
def test_a_guard_fires_once_by_an_event_or_by_its_answer(told: bool, script: Script) -> None:
    guard, other = Watch(), script.watching("get_children", "/a")
    missing = script.watching_missing("/a")
    call = script.guard("/a", guard)
    script.flush()
    script.log_when_ready(guard, "fired")
    if told:
        script.event(DELETED, "/a")
    script.answer(call, error=NO_NODE)
    assert script.wake() == ["fired"]
    assert events(guard) == [Event(DELETED, "/a", State.CONNECTED)]
    assert (armed(other), armed(missing)) == (not told, not told)


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
    """While it is needed."""
    guard = Watch()
    script.answer(script.guard("/a", guard), error=code)
    for error in (code, NO_NODE):
        assert armed(guard)
        (again,) = script.flush()
        assert again.read(GetChildren2Request) == GetChildren2Request("/a", True)
        script.serve(again, error=error)
    assert types(guard) == [DELETED]
    call = script.guard("/a", guard)
    script.flush()
    script.session.forget_watch(guard, tell=False)
    script.answer(call, error=code)
    assert script.flush() == []


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


def test_a_refused_removal_is_just_a_refusal(script: Script) -> None:
    script.watching("get_data", "/a").close()
    (removal,) = script.flush()
    script.serve(removal, error=-121)
    assert script.session.broken is None
    assert not script.session.unanswered


@pytest.mark.parametrize("first", DATA_KINDS)
@pytest.mark.parametrize("second", DATA_KINDS)
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


def test_a_watch_forgotten_by_this_side_alone_stays_on_the_server(script: Script) -> None:
    """What a client that detaches, or whose server no longer matters, asks for."""
    watch = script.watching("get_data", "/a")
    script.session.forget_watch(watch, tell=False)
    assert script.names() == []
    assert script.session.watch_count == 0
    script.watching("get_data", "/b").close()
    assert _removals(script.flush()) == [RemoveWatchesRequest("/b", 2)]
