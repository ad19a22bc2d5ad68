"""What becomes of a call: sent once and in order, answered by its reply, ended exactly once."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    NO_NODE,
    TIMEOUT,
    Script,
    event_frame,
    failure,
    maybe_applied,
    script_in,
    usable_again,
)
from zkwire import errors
from zkwire.session.request import SEND_BATCH, Request
from zkwire.wire import ops
from zkwire.wire.model import State

LAST_XID = 2**31 - 1


def test_known_A18_xids_rise_from_one_over_all_connections(script: Script) -> None:
    xids = []
    for _ in range(3):
        for _ in range(4):
            script.call("exists", "/a")
        xids += [sent.xid for sent in script.flush()]
        script.reconnect()
    assert xids == list(range(1, 13))


def test_known_A18_a_request_has_no_xid_before_it_is_handed_out(script: Script) -> None:
    first, second = script.call("exists", "/1"), script.call("exists", "/2")
    assert script.session.withdraw(first)
    assert [sent.xid for sent in script.flush()] == [1]
    assert second.xid == 1


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


def test_much_is_handed_out_in_pieces_of_whole_frames(script: Script) -> None:
    for number in range(10):
        script.call("set_data", f"/{number}", bytes(100_000))
    sizes = []
    while script.session.has_output:
        sizes.append(len(script.session.data_to_send(script.now)))
    assert sum(sizes) > 1_000_000
    assert max(sizes) < SEND_BATCH + 100_100
    assert len(sizes) == 4


def test_no_node_is_an_answer_to_exists_alone(script: Script) -> None:
    exists, data = script.call("exists", "/a"), script.call("get_data", "/a")
    assert not exists.ready
    assert exists.error() is None
    with pytest.raises(RuntimeError):
        exists.value()
    script.answer(exists, error=NO_NODE)
    script.answer(data, error=NO_NODE)
    assert exists.value() is None
    assert failure(data) is errors.SERVER_ERRORS[NO_NODE]


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


@pytest.mark.parametrize("code", sorted(ENDING))
def test_known_A13_the_codes_about_the_session_end_their_call_as_well(code: int) -> None:
    """And missing credentials the session."""
    script = script_in(State.CONNECTED)
    call, other = script.call("create", "/a"), script.call("create", "/b")
    script.flush()
    script.answer(call, error=code)
    assert failure(call) is type(errors.error_for(code, None, None))
    if code in {-115, -124}:
        assert script.state is State.AUTH_FAILED
        assert failure(call) is failure(other) is errors.AuthFailedError
        told = "requires an authentication that this client has not given" in str(other.error())
        assert told == (code == -124)


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


def test_wakers_come_out_once_and_in_the_order_of_the_wire(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    first, second = script.call("exists", "/1"), script.call("exists", "/2")
    script.flush()
    script.log_when_ready(second, "second")
    script.log_when_ready(watch, "event")
    script.log_when_ready(first, "first")
    script.log_when_ready(first, "first again")
    script.feed(script.reply_to(first) + event_frame(2, "/a") + script.reply_to(second))
    assert script.wake() == ["first", "first again", "event", "second"]
    script.session.closed()
    assert script.wake() == []


def _batch(script: Script) -> list[Request]:
    calls = [
        script.call("create", "/a", b"x" * 20),
        script.call("exists", "/b"),
        script.call("set_data", "/c", b"y" * 7),
        script.call("delete", "/d"),
        script.call("sync"),
    ]
    script.flush()
    return calls


def test_a_call_was_sent_when_the_kernel_took_its_last_byte_and_not_before(script: Script) -> None:
    before = script.written
    ends = [call.end for call in _batch(script)]
    assert ends[-1] == script.written
    for written in range(before, script.written + 1):
        again = script_in(State.CONNECTED)
        calls = _batch(again)
        again.lose(written, why="reset by peer")
        expected = [
            errors.OutcomeUnknownError if end <= written else errors.NotSentError for end in ends
        ]
        assert [failure(call) for call in calls] == expected, written
    assert [maybe_applied(call) for call in calls] == [True, False, True, True, False]
    change, read, *_ = calls
    assert "may have been executed" in str(change.error())
    assert "reset by peer" in str(read.error())
    assert "repeat it freely" in str(read.error())


def test_known_B3_nothing_is_sent_twice(script: Script) -> None:
    sent = script.send("create", "/a")
    queued = script.call("create", "/b")
    script.lose(script.written + 10_000)
    assert (failure(sent), failure(queued)) == (errors.OutcomeUnknownError, errors.NotSentError)
    script.connect()
    assert [sent.name for sent in script.sent] == ["connect"]


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


@pytest.mark.parametrize("granted", [TIMEOUT / 5, TIMEOUT * 5])
def test_calls_wait_for_the_timeout_that_was_granted(granted: float) -> None:
    """Those that were queued before it was, too; so nobody ends behind his time."""
    script = Script()
    early = script.call("create", "/a"), script.call("add_auth", "digest", b"u:p")
    script.greet(timeout=granted)
    script.lose()
    script.advance(granted / 4)
    late = script.call("create", "/b"), script.call("add_auth", "digest", b"a:b")
    for calls, rest in ((early, granted * 3 / 4), (late, granted / 4 - 0.001)):
        script.advance(rest - 0.001)
        assert [call.ready for call in calls] == [False, False]
        script.advance(0.002)
        assert [failure(call) for call in calls] == [errors.NotSentError, errors.NotSentError]
        assert all(f"for {granted:.1f} s" in str(call.error()) for call in calls)


def test_a_call_is_given_up_once() -> None:
    script = script_in(State.DISCONNECTED)
    call = script.call("create", "/a")
    assert [script.session.withdraw(call) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("order", [1, -1], ids=["first to last", "last to first"])
def test_many_that_are_given_up_are_no_costlier_than_their_number(order: int) -> None:
    class Counted(Request):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return self is other

        __hash__ = object.__hash__

    script = script_in(State.DISCONNECTED)
    calls = [Counted(ops.EXISTS) for _ in range(100)]
    for call in calls:
        script.session.submit(call, script.now)
    for call in calls[::order]:
        assert script.session.withdraw(call)
    assert Counted.compared <= len(calls)
