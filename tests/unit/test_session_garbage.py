"""From a dialled connection to a usable one, and bytes that are not ZooKeeper's protocol."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from tests.support.scripted import (
    ANSWERS,
    GONE,
    PASSWD,
    SESSION_ID,
    Claim,
    Script,
    Sent,
    armed,
    event_frame,
    failure,
    maybe_applied,
    reply_frame,
    script_in,
    types,
    usable_again,
    welcome_frame,
)
from zkwire import errors
from zkwire.errors import AuthFailedError
from zkwire.jute.frames import frame
from zkwire.jute.records import AuthPacket, GetDataResponse, GetSASLRequest, SetSASLResponse
from zkwire.session.session import FIRST_SEARCH_PAUSE, LONGEST_SEARCH_PAUSE
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import BATCH_BYTES
from zkwire.wire import ops
from zkwire.wire.model import EventType, State

DELETED = EventType.NODE_DELETED


NO_SERVER = "this is not a ZooKeeper server; it "
# What a greeting must not be, and what is told of it.
GARBAGE = {
    "text": (b"HTTP/1.1 400 Bad Request\r\n\r\n", NO_SERVER + "answered HTTP"),
    "four letters": (b"This ZooKeeper instance is not currently serving requests\n", NO_SERVER),
    "no body": (frame(b""), NO_SERVER),
    "one byte": (frame(b"\0"), NO_SERVER),
    "35 bytes": (frame(welcome_frame()[4:39]), NO_SERVER),
    "38 bytes": (frame(welcome_frame()[4:] + b"\0"), NO_SERVER),
    "a long password": (frame(welcome_frame()[4:20] + b"\x7f\xff\xff\xff" + bytes(17)), NO_SERVER),
    "a negative one": (frame(welcome_frame()[4:20] + b"\xff\xff\xff\xfe" + bytes(17)), NO_SERVER),
    "a negative length": (struct.pack(">i", -1), NO_SERVER),
    "the greatest length": (struct.pack(">i", 2**31 - 1), NO_SERVER),
    "TLS": (
        bytes.fromhex("15030300020250"),
        "the server expects TLS on this port: tls=ssl.create_default_context()",
    ),
    "an event": (event_frame(1, "/a"), NO_SERVER),
    "a length of text": (b"SSH-2.0-OpenSSH\r\n", NO_SERVER + "answered b'SSH-2.0-OpenSSH\\r\\n'"),
    "a length that no greeting has": (struct.pack(">i", 2000), NO_SERVER),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_known_A51_a_greeting_that_is_none_is_named_and_costs_one_connection(garbage: str) -> None:
    script = script_in(State.HANDSHAKE)
    data, says = GARBAGE[garbage]
    script.feed(data)
    assert script.state is State.HANDSHAKE
    assert says in (script.session.broken or "")
    assert script.drop_if_broken()
    script.connect()
    assert script.session.session_id == SESSION_ID


@pytest.mark.parametrize(
    "answer",
    [
        GONE,
        welcome_frame(timeout=0),
        welcome_frame(timeout=-1),
        welcome_frame(session_id=0),
        welcome_frame(session_id=0, passwd=None, read_only=None),
    ],
)
def test_a_session_that_the_server_does_not_know_has_expired(answer: bytes) -> None:
    script = script_in(State.HANDSHAKE)
    call = script.call("create", "/a")
    script.feed(answer)
    assert script.state is State.EXPIRED
    assert failure(call) is errors.SessionExpiredError


def test_known_A33_a_foreign_session_on_reconnect_means_expired(script: Script) -> None:
    watch, claim = script.watching("get_data", "/a"), Claim()
    script.session.hold(claim)
    script.lose()
    script.greet(session_id=SESSION_ID + 1)
    assert script.state is State.EXPIRED
    assert claim.lost
    assert not armed(watch)
    assert script.session.session_id == SESSION_ID


def test_known_A40_the_queue_follows_when_all_before_it_is_answered(script: Script) -> None:
    script.session.add_auth("digest", b"u:p")
    script.session.add_auth("digest", b"v:p")
    script.watching("get_data", "/a")
    script.lose()
    script.call("create", "/a")
    script.log_when_ready(script.session.change, "usable")
    script.greet()
    assert script.names() == ["auth", "auth", "set_watches"]
    for xid in [ops.AUTH_XID, ops.AUTH_XID, ops.SET_WATCHES_XID]:
        assert script.state is State.HANDSHAKE
        assert script.names() == []
        assert script.wake() == []
        script.feed(reply_frame(xid))
    assert script.state is State.CONNECTED
    assert script.wake() == ["usable"]
    assert script.names() == ["create"]


def test_a_refused_set_watches_costs_the_connection_and_no_watch(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    script.lose()
    script.greet()
    script.flush()
    script.feed(reply_frame(ops.SET_WATCHES_XID, 0, -5))
    assert script.state is State.HANDSHAKE
    assert script.drop_if_broken()
    script.connect()
    assert _set_again(script.sent) == {"/a"}
    assert armed(watch)


def _set_again(sent: list[Sent]) -> set[str]:
    """All paths that the set_watches among these frames name."""
    requests = [one.set_watches() for one in sent if one.name == "set_watches"]
    return {path for request in requests for paths in request[1:] for path in paths}


def test_known_A4_ten_thousand_watches_are_set_again_in_pieces(script: Script) -> None:
    """A path longer than a piece goes alone."""
    verbs, watches = ["get_data", "get_children", "exists"], list[Watch]()
    for number in range(10_000):
        path = f"/{number:07}".ljust(110, "ä" if number % 2 else "x")
        watches.append(script.watching(verbs[number % 3], path))
    long = "/" + "x" * (BATCH_BYTES + 1)
    watches.append(script.watching("get_data", long))
    script.answer(script.call("sync"), zxid=0x9876)
    script.greet_again()
    pieces = [sent.set_watches() for sent in script.flush()]
    assert {piece.relative_zxid for piece in pieces} == {0x9876}
    assert len([piece for piece in pieces if piece[1:] == ((long,), (), ())]) == 1
    paths = [[path for paths in piece[1:] for path in paths] for piece in pieces]
    sizes = [sum(4 + len(path.encode()) for path in some) for some in paths if some != [long]]
    assert max(sizes) <= BATCH_BYTES == 128 * 1024
    assert len([size for size in sizes if size < BATCH_BYTES - 300]) <= 2
    for _ in pieces:
        assert script.state is State.HANDSHAKE
        script.feed(reply_frame(ops.SET_WATCHES_XID, 0x99999))
    assert script.state is State.CONNECTED
    every = {path for some in paths for path in some}
    assert len(every) == len(watches)
    for path in every:
        script.event(DELETED, path)
    assert {len(types(watch)) for watch in watches} == {1}


def _last_zxid_seen(script: Script) -> int:
    script.lose()
    seen = script.reach()[0].connect_request().last_zxid_seen
    script.welcome()
    script.restore()
    return seen


@pytest.mark.parametrize("zxid", [-1, 0, -(2**63)])
def test_known_A8_no_reply_turns_the_last_zxid_back(zxid: int, script: Script) -> None:
    script.answer(script.call("exists", "/a"), zxid=zxid)
    assert _last_zxid_seen(script) == 0
    script.answer(script.call("exists", "/a"), zxid=6)
    script.answer(script.call("exists", "/a"), error=-6, zxid=zxid)
    assert _last_zxid_seen(script) == 6


LAST_XID = 2**31 - 1


@pytest.mark.parametrize("xid", [1, 3, LAST_XID, 0, -3, -5, -9, -(2**31)])
def test_known_A11_an_unexpected_xid_costs_one_connection(xid: int, script: Script) -> None:
    script.answer(script.call("exists", "/answered"))
    call = script.send("create", "/a")
    assert call.xid == 2
    script.feed(reply_frame(xid, 7))
    assert script.session.broken is not None
    assert not call.ready
    script.lose()
    assert failure(call) is errors.GarbledError
    assert maybe_applied(call)
    assert usable_again(script)


@pytest.mark.parametrize(
    "length",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        *(frame(bytes(size)) for size in (0, 1, 15, 16)),
        struct.pack(">i", 2**31 - 1),
        b"HTTP/1.1 200 OK",
    ],
)
def test_known_A12_a_bad_frame_length_costs_one_connection(length: bytes, script: Script) -> None:
    call = script.send("create", "/a")
    script.feed(length)
    assert script.session.broken is not None
    script.lose()
    assert call.ready
    assert usable_again(script)


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0\x7fdata", ANSWERS[ops.GET_DATA].encode() + b"\0", bytes(71)],  # type: ignore[union-attr]
    ids=["empty", "cut short", "a byte too many", "too short"],
)
def test_known_A14_an_unreadable_reply_ends_its_call_and_the_connection(body: bytes) -> None:
    script = script_in(State.CONNECTED)
    call, other = script.call("get_data", "/a"), script.call("create", "/b")
    script.flush()
    script.log_when_ready(call, "call")
    script.feed(reply_frame(call.xid, 1, 0, body))
    assert failure(call) is errors.ProtocolError
    assert script.session.broken is not None
    script.lose()
    assert failure(call) is errors.ProtocolError
    assert failure(other) is errors.GarbledError
    assert script.wake() == ["call"]
    assert usable_again(script)


@pytest.mark.parametrize("verb", ["create", "delete"])  # too short, and not empty
def test_an_unreadable_reply_to_a_change_may_have_been_applied(verb: str, script: Script) -> None:
    call = script.send(verb, "/a")
    script.feed(reply_frame(call.xid, 1, 0, b"\0"))
    assert failure(call) is errors.ProtocolError
    assert maybe_applied(call)
    assert script.session.broken is not None


def test_known_A16_a_reply_over_the_limit_ends_its_own_call_definitely() -> None:
    script = Script(receive_limit=200)
    script.connect()
    before, big, behind = (script.call("get_data", f"/{number}") for number in range(3))
    script.flush()
    script.feed(script.reply_to(before))
    script.log_when_ready(big, "big")
    script.feed(script.reply_to(big, GetDataResponse(bytes(200), ANSWERS[ops.EXISTS].stat)))  # type: ignore[union-attr]
    assert failure(before) is None
    assert failure(big) is errors.ReplyTooLargeError
    assert not behind.ready
    script.lose()
    assert failure(big) is errors.ReplyTooLargeError
    assert issubclass(failure(behind) or Exception, errors.OutcomeUnknownError)
    assert script.wake() == ["big"]
    assert usable_again(script)


def _peak(script: Script, *chunks: bytes) -> int:
    tracemalloc.start()
    try:
        for chunk in chunks:
            script.feed(chunk)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_known_A15_what_a_peer_claims_costs_no_memory(script: Script) -> None:
    assert _peak(script, struct.pack(">i", 60 * 1024 * 1024) + bytes(1000)) < 64 * 1024


def test_known_A15_what_comes_behind_garbage_costs_no_memory(script: Script) -> None:
    script.feed(struct.pack(">i", -1))
    chunk = struct.pack(">i", 60 * 1024 * 1024) + bytes(10_000)
    assert _peak(script, *[chunk] * 200) < 200_000


# --- before the first request: credentials, SASL, read-only servers, resumed sessions -------------

ACCEPTED = reply_frame(ops.AUTH_XID)
REJECTED = reply_frame(ops.AUTH_XID, 0, -115)
OTHER_ID = 0x2000_0000_0000_0001


def _secrets(sent: list[Sent]) -> list[bytes | None]:
    return [one.read(AuthPacket).auth for one in sent if one.name == "auth"]


def test_known_A17_an_authentication_cut_short_is_sent_once_by_the_next(script: Script) -> None:
    call = script.send("add_auth", "digest", b"u:p")
    script.session.add_auth("digest", b"v:p")
    for _ in range(2):
        script.lose()
        assert not call.ready
        script.greet()
        assert _secrets(script.flush()) == [b"u:p", b"v:p"]
        assert not script.state.usable
    script.feed(ACCEPTED * 2)
    assert call.value() is None
    assert script.state.usable


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
