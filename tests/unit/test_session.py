"""The states of a session, and what becomes of a call: sent once, answered, ended exactly once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.support.operation_samples import SAMPLES
from tests.support.scripted import (
    ANSWERS,
    TERMINAL,
    TIMEOUT,
    Script,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    usable_again,
    welcome_frame,
)
from zkwire import errors
from zkwire.errors import AuthFailedError, ClientClosedError, SessionExpiredError, ZooKeeperError
from zkwire.jute.records import ACL, SetSASLResponse
from zkwire.net.listeners import attach
from zkwire.operations.multi import Create
from zkwire.session.request import Request
from zkwire.session.waitable import Watch
from zkwire.wire import ops
from zkwire.wire.model import Credentials, Perms, State, digest_id

ENDED_WITH: dict[State, type[ZooKeeperError]] = {
    State.EXPIRED: SessionExpiredError,
    State.AUTH_FAILED: AuthFailedError,
    State.CLOSED: ClientClosedError,
}


@pytest.mark.parametrize("state", State)
def test_the_change_is_ready_when_calls_go_out_at_once_or_never_will(state: State) -> None:
    change = script_in(state).session.change
    assert change.ready == (state in {State.CONNECTED, State.CONNECTED_READ_ONLY, *TERMINAL})


def test_the_log_warns_once_of_each_outage(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(servers=2)
    session, now = script.session, lambda: script.now
    attach(SimpleNamespace(session=session, name="c", dispatch=script.dispatch, now=now), None)
    session.start(script.now)
    for _ in range(2):  # before the first connection, and after it
        for seconds, lines in ((TIMEOUT - 1, 0), (TIMEOUT, 1), (100 * TIMEOUT, 0)):
            script.advance(seconds)
            script.wake()
            assert caplog.text.count("WARNING") == caplog.text.count("(last: server:") == lines
            caplog.clear()
        script.connect()
        script.lose()


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


@pytest.mark.parametrize("state", TERMINAL)
def test_known_A39_a_submit_after_the_end_raises_at_once(state: State) -> None:
    script = script_in(state)
    with pytest.raises(ENDED_WITH[state]) as raised:
        script.call("exists", "/a")
    assert (raised.value.op, raised.value.path) == ("exists", "/a")


@pytest.mark.parametrize("closed", [False, True])
def test_only_a_change_that_was_sent_may_have_been_applied_at_the_end(closed: bool) -> None:
    script = script_in(State.CONNECTED)
    sent, read = script.call("create", "/sent"), script.call("get_data", "/read")
    script.flush()
    queued = script.call("create", "/queued")
    if closed:
        script.session.closed()
    else:
        script.feed(reply_frame(ops.AUTH_XID, 0, -115))
    assert (maybe_applied(sent), maybe_applied(read), maybe_applied(queued)) == (True, False, False)


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
    script.lose()
    script.reach()
    script.session.sasl_failed("a server without a proof")
    assert "without a proof" in str(script.session.ending())


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


@pytest.mark.parametrize("state", [State.CONNECTED, State.DISCONNECTED])
def test_nothing_can_be_submitted_behind_a_close(state: State) -> None:
    script = script_in(state)
    script.session.close(script.now)
    with pytest.raises(ClientClosedError):
        script.call("exists", "/a")
    with pytest.raises(ClientClosedError):
        script.session.close(script.now)


LAST_XID = 2**31 - 1


def test_known_A18_xids_rise_from_one_over_all_connections(script: Script) -> None:
    xids = []
    for _ in range(3):
        xids += [script.send("exists", "/a").xid for _ in range(4)]
        script.reconnect()
    assert xids == list(range(1, 13))


def test_known_A19_the_xid_behind_the_last_one_is_one() -> None:
    script = Script(first_xid=LAST_XID - 2)
    script.connect()
    calls = [script.call("exists", f"/{number}") for number in range(5)]
    assert [sent.xid for sent in script.flush()] == [LAST_XID - 2, LAST_XID - 1, LAST_XID, 1, 2]
    for call in calls:
        script.answer(call)
    assert {failure(call) for call in calls} == {None}


def test_known_A20_no_request_ever_has_the_xid_zero() -> None:
    script = Script(first_xid=LAST_XID)
    script.connect()
    script.call("exists", "/a")
    script.session.close(script.now)
    assert [sent.xid for sent in script.flush()] == [LAST_XID, 1]


ENDING = {-112, -115, -118, -124}


def test_known_A13_every_error_code_ends_its_call_and_no_more(script: Script) -> None:
    for code in {*range(-150, 0), 1, 42, 2**31 - 1, -(2**31), -999} - ENDING:
        call = script.call("set_data", "/a", b"")
        script.answer(call, error=code)
        assert failure(call) is errors.SERVER_ERRORS.get(code, errors.ServerError), code
        error = call.error()
        assert isinstance(error, errors.ServerError)
        assert (error.code, error.op, error.path) == (code, "set_data", "/a")
        assert error.maybe_applied == (code in {-4, -5, -7, -122}), "some execute it later"
    assert script.state is State.CONNECTED
    assert script.session.broken is None


def test_known_A34_a_moved_session_costs_the_connection(script: Script) -> None:
    head, other = script.call("create", "/a"), script.call("create", "/b")
    script.flush()
    script.feed(script.reply_to(head, error=-118) + script.reply_to(other))
    assert script.session.broken is not None
    assert script.state is State.CONNECTED
    assert failure(head) is errors.SessionMovedError
    assert not other.ready
    script.lose()
    assert failure(other) is errors.OutcomeUnknownError
    assert usable_again(script)


@pytest.mark.parametrize(
    "state", [State.NOT_STARTED, State.CONNECTING, State.HANDSHAKE, State.DISCONNECTED]
)
def test_known_A36_calls_wait_for_a_server_no_longer_than_a_session_timeout(state: State) -> None:
    script = script_in(state)
    first = script.call("create", "/a")
    if state is State.NOT_STARTED:
        script.session.start(script.now)
    script.advance(1.0)
    second = script.call("create", "/b")
    script.log_when_ready(first, "first")
    script.log_when_ready(second, "second")
    script.advance(TIMEOUT - 1.001)
    assert script.wake() == []
    script.advance(0.001)
    assert script.wake() == ["first"]
    assert failure(first) is errors.NotSentError
    assert not maybe_applied(first)
    script.advance(1.0)
    assert script.wake() == ["second"]


# --- a call that is sent alone --------------------------------------------------------------------


def test_a_watch_that_is_refused_is_for_submit_to_refuse(script: Script) -> None:
    script.persistent("/a")
    call = Request(ops.ADD_WATCH, "/a", b"", None, Watch(), "/a", ops.WatchKind.RECURSIVE)
    assert script.session.send_alone(call, script.now) == b""
    assert not script.session.unanswered
    with pytest.raises(RuntimeError, match="a persistent and a recursive watch"):
        script.session.submit(call, script.now)


# --- what is traced: nothing secret ---------------------------------------------------------------

SECRET = b"hunter2"


def test_a_sasl_exchange_is_shown_without_its_tokens() -> None:
    script = Script(sasl=True)
    frames = script.traced()
    script.greet()
    script.session.sasl_token(SECRET)
    (sent,) = script.flush()
    script.feed(reply_frame(sent.xid, 0, 0, SetSASLResponse(SECRET).encode()))
    told = [(frame.sent, frame.op, frame.xid) for frame in frames[2:]]
    assert told == [(True, "sasl", 1), (False, "sasl", 1)]
    assert "hunter2" not in repr(frames)


def test_nothing_secret_is_in_any_frame() -> None:
    """Every operation, with the secret wherever data or credentials may be."""
    script = Script(resume=Credentials(7, SECRET + bytes(9)), chroot="/app")
    frames = script.traced()
    acl = [ACL(Perms.ALL, digest_id("user", SECRET.decode()))]
    script.call("create", "/a", SECRET, acl)
    script.call("create_with_stat", "/a", SECRET)
    script.call("set_data", "/a", SECRET)
    script.call("set_acl", "/a", acl)
    script.call("multi", [Create("/a", SECRET)])
    script.call("add_auth", "digest", b"user:" + SECRET)
    for sample in SAMPLES:
        if sample.op is not ops.REMOVE_WATCHES:
            sample.call(script._ask, "/a")
    script.greet(session_id=7, passwd=SECRET + bytes(9))
    script.restore()
    script.flush()
    for call in script.calls:
        if call.sent and call.op in ANSWERS:
            script.answer(call)
        elif call.sent:
            script.answer(call, error=-102)
    assert len({frame.op for frame in frames}) > 15
    assert "/app" not in repr(frames), "a path is the caller's, without the chroot"
    assert "hunter2" not in repr(frames)
    assert SECRET.hex() not in repr(frames)
    assert ops.AUTH.name in {frame.op for frame in frames}
