"""The states of a session: every way from one to the next, and that an end is an end for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.scripted import (
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
from zkwire.wire.model import Event, EventType, State

ENDED_WITH: dict[State, type[ZooKeeperError]] = {
    State.EXPIRED: SessionExpiredError,
    State.AUTH_FAILED: AuthFailedError,
    State.CLOSED: ClientClosedError,
}


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
        script.answer(script.oldest or script.send("exists", "/probe"), error=-112)


def _reject(script: Script) -> None:
    if script.state is State.HANDSHAKE:
        script.session.add_auth("digest", b"u:p")
        script.welcome()
    script.feed(reply_frame(ops.AUTH_XID, 0, -115))


TAKE: dict[str, tuple[State, Callable[[Script], None]]] = {
    "start": (State.CONNECTING, _start),
    "dialled": (State.HANDSHAKE, lambda script: script.session.connection_made(script.now)),
    "usable": (State.CONNECTED, lambda script: script.welcome()),
    "usable read-only": (State.CONNECTED_READ_ONLY, lambda script: script.welcome(read_only=True)),
    "lost": (State.DISCONNECTED, lambda script: script.lose()),
    "expire": (State.EXPIRED, _expire),
    "reject": (State.AUTH_FAILED, _reject),
    "close": (State.CLOSED, lambda script: script.session.closed()),
}
EDGES = [(state, by) for state, entries in TRANSITIONS.items() for by in entries]


@pytest.mark.parametrize(("state", "by"), EDGES)
def test_every_edge_leads_where_its_name_says(state: State, by: str) -> None:
    assert len(EDGES) == 21
    script = script_in(state)
    leads_to, take = TAKE[by]
    take(script)
    assert script.state is leads_to


@pytest.mark.parametrize("state", State)
def test_the_change_is_ready_when_calls_go_out_at_once_or_never_will(state: State) -> None:
    change = script_in(state).session.change
    assert change.ready == (state in {State.CONNECTED, State.CONNECTED_READ_ONLY, *TERMINAL})


STIMULI: list[Callable[[Script], object]] = [
    lambda script: script.feed(welcome_frame()),
    lambda script: script.feed(welcome_frame(session_id=5)),
    lambda script: script.gone(),
    lambda script: script.event(1, "/a"),
    lambda script: script.feed(reply_frame(1)),
    lambda script: script.feed(reply_frame(1, 1, -112)),
    lambda script: script.feed(reply_frame(ops.AUTH_XID, 0, -115)),
    lambda script: script.feed(b"\xff" * 64),
    lambda script: script.lose(),
    lambda script: script.session.connection_made(script.now),
    lambda script: script.session.on_deadline(script.now + 100 * TIMEOUT),
    lambda script: script.session.add_auth("digest", b"u:p"),
    lambda script: script.session.closed(),
    lambda script: script.session.forget_watch(Watch()),
]


@pytest.mark.parametrize("state", TERMINAL)
def test_nothing_leaves_a_terminal_state(state: State) -> None:
    for stimulus in STIMULI:
        script = script_in(state)
        stimulus(script)
        assert script.session.close(0.0) is None
        assert script.state is state
        assert script.session.next_deadline() is None
        assert script.session.target is None


def _end(script: Script, state: State) -> None:
    _, take = next(way for way in TAKE.values() if way[0] is state)
    take(script)
    assert script.state is state


@pytest.mark.parametrize("state", TERMINAL)
def test_known_A39_a_submit_after_the_end_raises_at_once(state: State) -> None:
    script = script_in(state)
    with pytest.raises(ENDED_WITH[state]) as raised:
        script.call("exists", "/a")
    assert (raised.value.op, raised.value.path) == ("exists", "/a")


@pytest.mark.parametrize("state", TERMINAL)
def test_the_end_tells_everybody_once(state: State, script: Script) -> None:
    """Calls and watches, sent or not, callbacks and holds; who comes later hears at once."""
    told: list[Event] = []
    called, held, released = Watch(told.append), Claim(), Claim()
    script.answer(script.call("get_data", "/a", watch=called))
    script.answer(script.call("get_children", "/a", watch=called))
    for claim in (held, released):
        script.session.hold(claim)
    script.session.unhold(released)
    assert script.session.lease_holders
    waiting = [Watch(), Watch()]
    calls = [script.call("create", "/sent"), script.call("get_data", "/a", watch=waiting[0])]
    script.flush()
    calls += [script.call("create", "/queued"), script.call("exists", "/a", watch=waiting[1])]
    for number, one in enumerate([*calls, *waiting]):
        script.log_when_ready(one, str(number))
    _end(script, state)
    assert sorted(script.wake()) == [str(number) for number in range(6)]
    assert {failure(call) for call in calls} == {ENDED_WITH[state]}
    for watch in waiting:
        with pytest.raises(ENDED_WITH[state]):
            watch.wait(0)
    script.session.on_deadline(script.now + 100 * TIMEOUT)
    script.session.closed()
    script.lose()
    assert script.wake() == []
    assert told == [Event(EventType.NONE, "", state)]
    assert (len(held.told), released.lost) == (1, False)
    late = Claim(log=script.log)
    script.session.hold(late)
    assert script.wake() == ["claim"]
    assert len(late.told) == 1


@pytest.mark.parametrize("state", [State.AUTH_FAILED, State.CLOSED])
def test_only_a_change_that_was_sent_may_have_been_applied_at_the_end(state: State) -> None:
    script = script_in(State.CONNECTED)
    sent, read = script.call("create", "/sent"), script.call("get_data", "/read")
    script.flush()
    queued = script.call("create", "/queued")
    _end(script, state)
    assert (maybe_applied(sent), maybe_applied(read), maybe_applied(queued)) == (True, False, False)


@pytest.mark.parametrize("steps", range(3))
def test_a_session_that_no_server_knows_is_closed_at_once(steps: int) -> None:
    script = Script()
    if steps:
        script.session.start(script.now)
    if steps > 1:
        script.dial()
    waiting = script.call("exists", "/a")
    assert script.session.close(script.now) is None
    assert script.state is State.CLOSED
    assert failure(waiting) is ClientClosedError


def test_what_comes_too_late_from_a_mechanism_is_not_heard(script: Script) -> None:
    """Nothing is sent; each connection has a token of its own."""
    script.session.sasl_token(b"late")
    script.session.sasl_done(script.now)
    script.session.sasl_failed("late")
    assert script.state is State.CONNECTED
    assert script.session.data_to_send(script.now) == b""
    first = script.session.connection
    assert script.session.connection is first
    script.reconnect()
    assert script.session.connection is not first


@pytest.mark.parametrize("state", [state for state in State if not state.terminal])
def test_known_A38_a_local_close_ends_the_session_from_every_state(state: State) -> None:
    script = script_in(state)
    call = script.call("create", "/a")
    script.session.closed()
    assert script.state is State.CLOSED
    assert failure(call) is ClientClosedError


@pytest.mark.parametrize("state", [State.CONNECTED, State.CONNECTED_READ_ONLY])
def test_known_A37_close_comes_behind_the_calls_that_are_queued(state: State) -> None:
    script = script_in(state)
    calls = [script.call("create", f"/{number}") for number in range(100)]
    calls.append(script.close())
    assert script.names() == ["create"] * 100 + ["close_session"]
    for call in calls:
        assert script.state is state
        script.answer(call)
    assert {failure(call) for call in calls} == {None}
    assert script.state is State.CLOSED


def test_known_A37_calls_that_the_close_has_overtaken_are_reported(script: Script) -> None:
    """The close itself is sent again."""
    calls = [script.call("create", f"/{number}") for number in range(5)]
    closing, claim = script.close(), Claim()
    script.session.hold(claim)
    assert claim.lost, "nothing is held any more"
    script.flush()
    script.answer(calls[0])
    script.lose()
    assert [failure(call) for call in calls] == [None, *[OutcomeUnknownError] * 4]
    script.greet()
    assert script.names() == ["close_session"]
    script.answer(closing)
    assert script.state is State.CLOSED


@pytest.mark.parametrize("state", [State.CONNECTED, State.DISCONNECTED])
def test_nothing_can_be_submitted_behind_a_close(state: State) -> None:
    script = script_in(state)
    script.session.close(script.now)
    with pytest.raises(ClientClosedError):
        script.call("exists", "/a")
    with pytest.raises(ClientClosedError):
        script.session.close(script.now)


def test_a_server_that_hangs_up_on_a_login_may_have_refused_it() -> None:
    """ZooKeeper 3.4 does so; a network that fails says nothing of the password."""
    script = Script(sasl=True)
    for why, said in [("the server closed it", True), ("no route to host", False)]:
        script.dial()
        script.welcome()
        script.session.sasl_token(b"proof")
        script.flush()
        script.lose(why=why)
        failed = script.session.last_failure
        assert failed.partition(" and ")[0].endswith(why)
        assert ("perhaps the user name or the password is wrong" in failed) is said
