"""What comes before the first request: credentials, SASL, read-only servers, resumed sessions."""

from __future__ import annotations

import pytest

from tests.support.scripted import (
    PASSWD,
    SESSION_ID,
    TIMEOUT,
    Script,
    Sent,
    failure,
    reply_frame,
    script_in,
    types,
)
from zkwire.errors import AuthFailedError, NotSentError
from zkwire.jute.frames import frame
from zkwire.jute.records import AuthPacket, GetSASLRequest, SetSASLResponse
from zkwire.session.hosts import FIRST_SEARCH_PAUSE, LONGEST_SEARCH_PAUSE
from zkwire.wire import ops
from zkwire.wire.model import Credentials, EventType, State

ACCEPTED = reply_frame(ops.AUTH_XID)
REJECTED = reply_frame(ops.AUTH_XID, 0, -115)
OTHER_ID = 0x2000_0000_0000_0001


def _secrets(sent: list[Sent]) -> list[bytes | None]:
    return [one.read(AuthPacket).auth for one in sent if one.name == "auth"]


def test_authentications_are_answered_in_their_order_before_older_requests(script: Script) -> None:
    """Servers answer them at once, so the answers are not matched with the line of requests."""
    older = script.call("exists", "/a")
    calls = [script.call("add_auth", "digest", b"u:%d" % number) for number in range(3)]
    younger = script.call("exists", "/b")
    packets = [one.read(AuthPacket) for one in script.flush() if one.name == "auth"]
    assert packets == [AuthPacket(0, "digest", b"u:%d" % number) for number in range(3)]
    for number in range(3):
        assert [call.ready for call in calls] == [n < number for n in range(3)]
        script.feed(ACCEPTED)
    assert calls[2].value() is None
    assert not older.ready
    script.answer(older)
    script.answer(younger)
    assert failure(younger) is None


def test_a_lost_connection_leaves_an_authentication_to_the_next(script: Script) -> None:
    call = script.send("add_auth", "digest", b"u:p")
    script.lose()
    assert not call.ready
    script.greet()
    assert _secrets(script.flush()) == [b"u:p"]
    assert not script.state.usable
    script.feed(ACCEPTED)
    assert call.value() is None
    assert script.state.usable


@pytest.mark.parametrize("connected", [False, True])
def test_an_authentication_waits_for_a_connection_no_longer_than_a_session_timeout(
    connected: bool,
) -> None:
    """However many attempts fail meanwhile.  The credential stays."""
    script = script_in(State.CONNECTED if connected else State.DISCONNECTED)
    call = script.call("add_auth", "digest", b"u:p")
    if connected:
        script.flush()
        script.lose()
    begun = script.now
    while script.now < begun + 2 * TIMEOUT and not call.ready:
        script.advance(0.5)
        if script.session.target is not None:
            script.session.connection_lost(script.now, 0, "refused")
    assert failure(call) is NotSentError
    assert script.now == pytest.approx(begun + TIMEOUT)
    assert "was not sent" in str(call.error())
    script.connect()
    assert _secrets(script.sent) == [b"u:p"]


def test_a_rejection_ends_the_session_and_names_the_scheme_alone(script: Script) -> None:
    other = script.call("create", "/a")
    call = script.send("add_auth", "odd", b"hunter2")
    script.feed(REJECTED)
    assert script.state is State.AUTH_FAILED
    for one in (call, other):
        assert failure(one) is AuthFailedError
        assert "'odd'" in str(one.error())
        assert "hunter2" not in str(one.error())
    with pytest.raises(AuthFailedError, match="'odd'"):
        script.call("exists", "/a")


def test_an_authentication_cannot_be_given_up() -> None:
    script = script_in(State.DISCONNECTED)
    call = script.call("add_auth", "digest", b"u:p")
    assert not script.session.withdraw(call)
    script.connect()
    assert call.value() is None


def _with_sasl() -> Script:
    script = Script(sasl=True)
    script.reach()
    return script


def _answer(xid: int, token: bytes | None) -> bytes:
    return reply_frame(xid, 0, 0, SetSASLResponse(token).encode())


def test_a_sasl_exchange() -> None:
    script = _with_sasl()
    assert script.session.challenge is None
    script.welcome()
    assert script.session.challenge == b"", "the client begins"
    seen = []
    for number, answer in enumerate([b"challenge", b"proof", None]):
        script.session.sasl_token(b"token %d" % number)
        assert script.session.challenge is None, "there is nothing to answer now"
        (sent,) = script.flush()
        assert (sent.name, sent.read(GetSASLRequest).token) == ("sasl", b"token %d" % number)
        seen.append(sent.xid)
        script.feed(_answer(sent.xid, answer))
        assert script.session.challenge == (answer or b"")
        assert script.state is State.HANDSHAKE
    assert seen == [1, 2, 3]
    script.session.sasl_done(script.now)
    assert script.state is State.CONNECTED
    assert script.session.challenge is None
    call = script.send("exists", "/a")
    assert call.xid == 4, "one line of xids"
    script.feed(_answer(3, b"twice"))
    assert script.session.broken is not None
    script.greet_again()
    assert script.session.challenge == b"", "an exchange of its own"
    script.feed(_answer(1, b"not asked for"))
    assert script.session.broken is not None


@pytest.mark.parametrize(
    "answer",
    [
        _answer(77, b"of something that was not asked for"),
        reply_frame(1),  # without a body
        frame(b"abc"),  # without a header
        reply_frame(1, 0, -5),  # a fault of the server's, which says nothing of the password
    ],
)
def test_garbage_in_the_exchange_costs_the_connection_only(answer: bytes) -> None:
    script = _with_sasl()
    script.welcome()
    script.session.sasl_token(b"token")
    script.flush()
    script.feed(answer)
    assert script.session.broken is not None
    assert not script.state.terminal


def test_nothing_else_is_sent_before_the_mechanism_is_satisfied(script: Script) -> None:
    script.session._identity.sasl = True
    script.watching("get_data", "/a")
    script.session.add_auth("digest", b"u:p")
    script.flush()
    script.greet_again()
    script.call("exists", "/b")
    script.session.add_auth("digest", b"v:p")
    assert script.names() == []
    script.advance(TIMEOUT / 3)
    assert script.names() == []
    script.session.sasl_token(b"token")
    (sent,) = script.flush()
    assert sent.name == "sasl"
    script.feed(_answer(sent.xid, b"proof"))
    assert script.names() == []
    script.session.sasl_done(script.now)
    assert script.names() == ["auth", "auth", "set_watches"]
    script.feed(ACCEPTED * 2 + reply_frame(ops.SET_WATCHES_XID))
    assert script.names() == ["exists"]


@pytest.mark.parametrize("by_server", [False, True])
def test_a_rejected_exchange_ends_the_session(by_server: bool) -> None:
    """As does one whose server the mechanism does not believe."""
    script = _with_sasl()
    call = script.call("exists", "/a")
    script.welcome()
    script.session.sasl_token(b"hunter2")
    (sent,) = script.flush()
    if by_server:
        script.feed(reply_frame(sent.xid, 0, -115))
    else:
        script.session.sasl_failed("the proof is wrong")
    assert script.state is State.AUTH_FAILED
    assert failure(call) is AuthFailedError
    assert ("SASL" if by_server else "the proof is wrong") in str(call.error())
    assert "hunter2" not in str(call.error())


def _read_only(servers: int = 3) -> Script:
    """A session that has only ever seen a server that has lost the ensemble."""
    script = Script(servers=servers, read_only=True)
    script.connect(read_only=True)
    return script


def test_the_search_begins_after_a_tenth_of_a_second_and_slows_down() -> None:
    script = _read_only()
    pauses, asked = list[float](), list[int]()
    for _ in range(14):
        answered = script.now
        while script.session.asking is None:
            due = script.session.next_deadline()
            assert due is not None
            script.advance(due - script.now)
            script.pong()
        asked.append(script.session.asking[1])
        pauses.append(round(script.now - answered, 3))
        script.session.answered(b"ro" if len(asked) % 2 else b"", script.now)
        assert script.session.asking is None
    doubling = [FIRST_SEARCH_PAUSE * 2**number for number in range(10)]
    assert pauses == pytest.approx([*doubling, *[LONGEST_SEARCH_PAUSE] * 4])
    assert asked[:4] == [2, 3, 1, 2], "it goes round"


def test_moving_to_a_read_write_server() -> None:
    """With a new session: the old one is known to the read-only server alone.  Watches stay."""
    script = _read_only()
    watch = script.watching("get_data", "/a")
    script.advance(FIRST_SEARCH_PAUSE)
    asked = script.session.asking
    script.session.answered(b"rw", script.now)
    assert script.drop_if_broken()
    script.dial()
    assert script.session.server == asked
    (sent,) = script.flush()
    request = sent.connect_request()
    assert (request.session_id, request.passwd) == (0, bytes(16))
    script.welcome(session_id=OTHER_ID)
    assert [one.name for one in script.restore()] == ["set_watches"]
    assert script.state is State.CONNECTED
    assert script.session.session_id == OTHER_ID
    script.event(EventType.NODE_DATA_CHANGED, "/a")
    assert types(watch) == [EventType.NODE_DATA_CHANGED]
    script.advance(1.0)
    assert script.session.asking is None
    script.lose()
    assert script.reach()[0].connect_request().session_id == OTHER_ID


@pytest.mark.parametrize("found", [SESSION_ID, OTHER_ID])
def test_a_real_session_stays_what_it_is_on_a_read_only_server(found: int) -> None:
    """Its nodes and locks live on; a new session in its place would be a silent expiry."""
    script = Script(servers=2, read_only=True)
    script.connect()
    assert script.sent[0].connect_request().read_only
    script.greet_again(session_id=found, read_only=True)
    if found == OTHER_ID:
        assert script.state is State.EXPIRED
        return
    assert script.state is State.CONNECTED_READ_ONLY
    script.lose()
    request = script.reach()[0].connect_request()
    assert (request.session_id, request.passwd) == (SESSION_ID, PASSWD)


def test_a_resumed_session_shows_its_id_and_password() -> None:
    script = Script(resume=Credentials(OTHER_ID, b"p" * 16))
    assert script.session.session_id == OTHER_ID
    request = script.reach()[0].connect_request()
    assert (request.session_id, request.passwd) == (OTHER_ID, b"p" * 16)
    assert request.last_zxid_seen == 0
    script.welcome(session_id=OTHER_ID, passwd=b"p" * 16)
    assert script.state is State.CONNECTED
    assert script.session.credentials == Credentials(OTHER_ID, b"p" * 16)


@pytest.mark.parametrize("found", [0, SESSION_ID])
def test_a_session_is_resumed_or_gone_but_never_another(found: int) -> None:
    script = Script(resume=Credentials(OTHER_ID, b"p" * 16))
    script.greet(session_id=found)
    assert script.state is State.EXPIRED
