"""The states of a session: every way from one to the next, and that an end is an end for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.scripted import (
    SESSION_ID,
    TERMINAL,
    TIMEOUT,
    Claim,
    Script,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    welcome_frame,
)
from zkwire.errors import (
    AuthFailedError,
    ClientClosedError,
    OutcomeUnknownError,
    SessionExpiredError,
    ZooKeeperError,
)
from zkwire.session.states import TRANSITIONS
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import Event, EventType, State, session_name

EDGES = {
    State.NOT_STARTED: {"start", "close"},
    State.CONNECTING: {"dialled", "lost", "close"},
    State.HANDSHAKE: {"usable", "usable read-only", "lost", "expire", "reject", "close"},
    State.CONNECTED: {"lost", "expire", "reject", "close"},
    State.CONNECTED_READ_ONLY: {"lost", "expire", "reject", "close"},
    State.DISCONNECTED: {"start", "close"},
    State.EXPIRED: set[str](),
    State.AUTH_FAILED: set[str](),
    State.CLOSED: set[str](),
}
LEADS_TO = {
    "start": State.CONNECTING,
    "dialled": State.HANDSHAKE,
    "usable": State.CONNECTED,
    "usable read-only": State.CONNECTED_READ_ONLY,
    "lost": State.DISCONNECTED,
    "expire": State.EXPIRED,
    "reject": State.AUTH_FAILED,
    "close": State.CLOSED,
}
ENDED_WITH: dict[State, type[ZooKeeperError]] = {
    State.EXPIRED: SessionExpiredError,
    State.AUTH_FAILED: AuthFailedError,
    State.CLOSED: ClientClosedError,
}


# --- the table ------------------------------------------------------------------------------------


def _start(script: Script) -> None:
    if script.state is State.NOT_STARTED:
        script.session.start(script.now)
    else:
        script.now = script.session.act_at
        script.session.on_deadline(script.now)


def _expire(script: Script) -> None:
    if script.state is State.HANDSHAKE:
        script.gone()
    else:
        if script.oldest is None:
            script.send("exists", "/probe")
        assert script.oldest is not None
        script.answer(script.oldest, error=-112)


def _reject(script: Script) -> None:
    if script.state is State.HANDSHAKE:
        script.session.add_auth("digest", b"u:p")
        script.welcome()
    script.feed(reply_frame(ops.AUTH_XID, 0, -115))


TAKE: dict[str, Callable[[Script], None]] = {
    "start": _start,
    "dialled": lambda script: script.session.connection_made(script.now),
    "usable": lambda script: script.welcome(),
    "usable read-only": lambda script: script.welcome(read_only=True),
    "lost": lambda script: script.lose(),
    "expire": _expire,
    "reject": _reject,
    "close": lambda script: script.session.closed(),
}


def test_the_table_has_an_entry_for_each_edge_and_no_other() -> None:
    assert {state: set(entries) for state, entries in TRANSITIONS.items()} == EDGES


@pytest.mark.parametrize(
    ("state", "by"), [(state, by) for state, entries in EDGES.items() for by in sorted(entries)]
)
def test_every_edge_leads_where_its_name_says(state: State, by: str) -> None:
    script = script_in(state)
    TAKE[by](script)
    assert script.state is LEADS_TO[by]


@pytest.mark.parametrize("state", State)
def test_the_change_is_ready_when_calls_go_out_at_once_or_never_will(state: State) -> None:
    change = script_in(state).session.change
    assert change.ready == (state in {State.CONNECTED, State.CONNECTED_READ_ONLY, *TERMINAL})


def test_a_session_has_its_id_until_the_end(script: Script) -> None:
    assert script.session.session_id == SESSION_ID
    script.session.closed()
    assert script.session.session_id == SESSION_ID


def test_a_session_is_named_as_in_the_logs_of_servers() -> None:
    assert session_name(-1) == "0xffffffffffffffff"
    assert session_name(SESSION_ID) == "0x1000000000000007"


# --- the end --------------------------------------------------------------------------------------

STIMULI: dict[str, Callable[[Script], object]] = {
    "a welcome": lambda script: script.feed(welcome_frame()),
    "a new welcome": lambda script: script.feed(welcome_frame(session_id=5)),
    "gone": lambda script: script.gone(),
    "an event": lambda script: script.event(1, "/a"),
    "a reply": lambda script: script.feed(reply_frame(1)),
    "an expiry": lambda script: script.feed(reply_frame(1, 1, -112)),
    "an auth failure": lambda script: script.feed(reply_frame(ops.AUTH_XID, 0, -115)),
    "garbage": lambda script: script.feed(b"\xff" * 64),
    "a loss": lambda script: script.lose(),
    "a made connection": lambda script: script.session.connection_made(script.now),
    "time": lambda script: script.session.on_deadline(script.now + 100 * TIMEOUT),
    "credentials": lambda script: script.session.add_auth("digest", b"u:p"),
    "a close": lambda script: script.session.close(script.now),
    "a local close": lambda script: script.session.closed(),
    "a forgotten watch": lambda script: script.session.forget_watch(Watch()),
}


@pytest.mark.parametrize("stimulus", STIMULI)
@pytest.mark.parametrize("state", TERMINAL)
def test_nothing_leaves_a_terminal_state(state: State, stimulus: str) -> None:
    script = script_in(state)
    STIMULI[stimulus](script)
    assert script.state is state
    assert script.session.next_deadline() is None
    assert script.session.target is None


@pytest.mark.parametrize("state", TERMINAL)
def test_nothing_is_sent_once_the_session_is_over(state: State, script: Script) -> None:
    script.send("exists", "/sent")
    script.call("create", "/queued")
    script.jump(TIMEOUT / 3)
    script.session.on_deadline(script.now)  # a ping
    script.session.add_auth("digest", b"u:p")
    assert script.oldest is not None
    _end(script, state)
    script.session.add_auth("digest", b"u:p")
    assert not script.session.has_output
    assert script.session.data_to_send(script.now) == b""
    assert (script.session.queued, script.session.unanswered) == (0, 0)


def _end(script: Script, state: State) -> None:
    by = {State.EXPIRED: "expire", State.AUTH_FAILED: "reject", State.CLOSED: "close"}[state]
    TAKE[by](script)
    assert script.state is state


@pytest.mark.parametrize("state", [State.EXPIRED, State.CLOSED])
def test_nothing_is_sent_to_a_server_that_does_not_know_the_session(state: State) -> None:
    script = script_in(State.CONNECTED)
    script.session.add_auth("digest", b"u:p")
    if state is State.CLOSED:
        script.session.close(script.now)
    script.lose()
    assert not script.session.has_output
    script.greet(session_id=0)
    assert script.state is state
    assert not script.session.has_output


@pytest.mark.parametrize("state", TERMINAL)
def test_known_A39_a_submit_after_the_end_raises_at_once(state: State) -> None:
    script = script_in(state)
    with pytest.raises(ENDED_WITH[state]) as raised:
        script.call("exists", "/a")
    assert (raised.value.op, raised.value.path) == ("exists", "/a")


@pytest.mark.parametrize("state", TERMINAL)
def test_the_end_ends_every_call_once(state: State, script: Script) -> None:
    calls = [script.call("create", "/sent"), script.call("get_data", "/sent")]
    script.flush()
    calls += [script.call("create", "/queued"), script.call("exists", "/queued")]
    for number, call in enumerate(calls):
        script.log_when_ready(call, f"call {number}")
    _end(script, state)
    assert script.wake() == ["call 0", "call 1", "call 2", "call 3"]
    assert {failure(call) for call in calls} == {ENDED_WITH[state]}
    script.session.closed()
    script.lose()
    assert script.wake() == []


@pytest.mark.parametrize("state", [State.AUTH_FAILED, State.CLOSED])
def test_only_a_change_that_was_sent_may_have_been_applied_at_the_end(state: State) -> None:
    script = script_in(State.CONNECTED)
    sent, read = script.call("create", "/sent"), script.call("get_data", "/read")
    script.flush()
    queued = script.call("create", "/queued")
    _end(script, state)
    assert (maybe_applied(sent), maybe_applied(read), maybe_applied(queued)) == (True, False, False)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("state", TERMINAL)
def test_the_end_ends_a_watch_whose_read_is_under_way(state: State, sent: bool) -> None:
    script, watch = script_in(State.CONNECTED), Watch()
    script.send("exists", "/probe")
    script.call("get_data", "/a", watch=watch)
    if sent:
        script.flush()
    script.log_when_ready(watch, "ended")
    _end(script, state)
    assert script.wake() == ["ended"]
    with pytest.raises(ENDED_WITH[state]):
        watch.wait(0)


@pytest.mark.parametrize("state", TERMINAL)
def test_a_callback_is_told_once_how_the_session_ended(state: State, script: Script) -> None:
    told: list[Event] = []
    watch = Watch(told.append)
    script.answer(script.call("get_data", "/a", watch=watch))
    script.answer(script.call("get_children", "/a", watch=watch))
    script.send("get_data", "/b", watch=watch)
    _end(script, state)
    script.wake()
    assert told == [Event(EventType.NONE, "", state)]


@pytest.mark.parametrize("state", TERMINAL)
def test_the_end_tells_every_hold_once(state: State, script: Script) -> None:
    held, released = Claim(), Claim()
    script.session.hold(held)
    script.session.hold(released)
    script.session.unhold(released)
    _end(script, state)
    script.session.on_deadline(script.now + 100 * TIMEOUT)
    script.session.closed()
    assert len(held.told) == 1
    assert not released.lost


@pytest.mark.parametrize("state", TERMINAL)
def test_a_hold_on_a_session_that_is_over_is_lost_at_once(state: State) -> None:
    script = script_in(state)
    claim = Claim(log=script.log)
    script.session.hold(claim)
    assert claim.lost
    script.session.on_deadline(script.now + TIMEOUT)
    assert len(claim.told) == 1
    assert script.session.take_callbacks() != []


# --- close ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["not started", "connecting", "handshake"])
def test_a_session_that_no_server_knows_is_closed_at_once(step: str) -> None:
    script = Script()
    if step != "not started":
        script.session.start(script.now)
    if step == "handshake":
        script.dial()
    waiting = script.call("exists", "/a")
    assert script.session.close(script.now) is None
    assert script.state is State.CLOSED
    assert failure(waiting) is ClientClosedError


@pytest.mark.parametrize("state", [State.CONNECTED, State.CONNECTED_READ_ONLY])
def test_close_ends_with_the_answer_of_the_server(state: State) -> None:
    script = script_in(state)
    call = script.close()
    assert script.names() == ["close_session"]
    assert script.state is state
    script.answer(call)
    assert script.state is State.CLOSED
    assert failure(call) is None


@pytest.mark.parametrize("state", TERMINAL)
def test_there_is_nothing_to_close_in_a_session_that_is_over(state: State) -> None:
    assert script_in(state).session.close(0.0) is None


@pytest.mark.parametrize("state", [state for state in State if not state.terminal])
def test_known_A38_a_local_close_ends_the_session_from_every_state(state: State) -> None:
    script = script_in(state)
    call = script.call("create", "/a")
    script.session.closed()
    assert script.state is State.CLOSED
    assert failure(call) is ClientClosedError


def test_known_A37_close_comes_behind_the_calls_that_are_queued(script: Script) -> None:
    calls = [script.call("create", f"/{number}") for number in range(100)]
    closing = script.close()
    assert script.names() == ["create"] * 100 + ["close_session"]
    for call in [*calls, closing]:
        script.answer(call)
    assert {failure(call) for call in calls} == {None}
    assert script.state is State.CLOSED


def test_known_A37_calls_that_the_close_has_overtaken_are_reported(script: Script) -> None:
    calls = [script.call("create", f"/{number}") for number in range(5)]
    script.flush()
    script.session.close(script.now)
    script.answer(calls[0])
    script.lose()
    assert [failure(call) for call in calls] == [None, *[OutcomeUnknownError] * 4]
    script.greet()
    assert script.names() == ["close_session"]


@pytest.mark.parametrize("found", [0, SESSION_ID + 1], ids=["gone", "foreign"])
def test_the_lost_answer_to_a_close_and_no_such_session_mean_closed(
    found: int, script: Script
) -> None:
    call, claim = script.close(), Claim()
    script.session.hold(claim)
    assert claim.lost
    script.flush()
    script.lose()
    assert not call.ready
    script.greet(session_id=found)
    assert script.state is State.CLOSED
    assert failure(call) is None


def test_a_close_whose_answer_was_lost_is_sent_again_to_a_session_that_lives() -> None:
    script = script_in(State.CONNECTED)
    call = script.close()
    script.flush()
    script.reconnect()
    assert [sent.name for sent in script.sent] == ["connect", "close_session"]
    script.answer(call)
    assert script.state is State.CLOSED


@pytest.mark.parametrize("state", [State.CONNECTED, State.DISCONNECTED])
def test_nothing_can_be_submitted_behind_a_close(state: State) -> None:
    script = script_in(state)
    script.session.close(script.now)
    with pytest.raises(ClientClosedError):
        script.call("exists", "/a")
    with pytest.raises(ClientClosedError):
        script.session.close(script.now)


# --- at a moment when it means nothing ------------------------------------------------------------


def test_a_mechanism_that_answers_too_late_is_not_heard(script: Script) -> None:
    script.session.sasl_token(b"late")
    script.session.sasl_done(script.now)
    script.session.sasl_failed("late")
    assert script.state is State.CONNECTED
    assert not script.session.has_output


def test_a_server_that_hangs_up_on_a_login_may_have_refused_it() -> None:
    """ZooKeeper 3.4 does so; a network that fails says nothing of the password."""
    script = Script(sasl=True)
    for why, said in [("the server closed it", True), ("no route to host", False)]:
        script.dial()
        script.welcome()
        script.session.sasl_token(b"proof")
        script.flush()
        script.lose(why=why)
        assert script.session.last_failure.partition(" and ")[0].endswith(why)
        assert (
            "perhaps the user name or the password is wrong" in script.session.last_failure
        ) is said


def test_a_session_knows_whether_anything_is_held() -> None:
    script, claim = script_in(State.CONNECTED), Claim()
    script.session.hold(claim)
    assert script.session.lease_holders
    script.session.unhold(claim)
    assert not script.session.lease_holders
