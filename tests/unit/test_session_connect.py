"""From a dialled connection to a usable one, and what a broken one takes with it."""

from __future__ import annotations

import struct

import pytest

from tests.support.scripted import (
    GONE,
    SESSION_ID,
    Claim,
    Script,
    Sent,
    armed,
    event_frame,
    failure,
    reply_frame,
    script_in,
    types,
    welcome_frame,
)
from zkwire.errors import SessionExpiredError
from zkwire.jute.frames import frame
from zkwire.session.waitable import Watch
from zkwire.session.watch_table import BATCH_BYTES
from zkwire.wire import ops
from zkwire.wire.model import EventType, State

AUTH_U_P = bytes.fromhex("0000001dfffffffc00000064000000000000000664696765737400000003753a70")
CHANGED, DELETED = EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (welcome_frame(read_only=None), State.CONNECTED),
        (welcome_frame(read_only=False), State.CONNECTED),
        (welcome_frame(read_only=True), State.CONNECTED_READ_ONLY),
        (GONE, State.EXPIRED),
        (reply_frame(0, 0, -119), State.HANDSHAKE),
    ],
)
def test_an_answer_may_come_byte_by_byte(answer: bytes, state: State) -> None:
    for sizes in ([], [1] * len(answer)):
        script = script_in(State.HANDSHAKE)
        script.feed(answer, sizes)
        assert script.state is state
        refused = "is read-only and" in (script.session.broken or "")
        assert refused == (state is State.HANDSHAKE)


def test_a_refusal_instead_of_a_greeting_means_try_another_server() -> None:
    for before in (False, True):
        script = Script(servers=2)
        if before:
            script.connect()
            script.lose()
        script.reach()
        refused_by = script.session.server
        script.feed(reply_frame(0, 0, -7 if before else -119))
        assert script.state is State.HANDSHAKE
        says = "error code -7" if before else "localSessionsEnabled=true"
        assert says in (script.session.broken or "")
        assert script.drop_if_broken()
        script.connect()
        assert script.session.server != refused_by


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
    "a length of text": (
        b"SSH-2.0-OpenSSH\r\n",
        NO_SERVER + "answered b'SSH-2.0-OpenSSH\\r\\n'",
    ),
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
    assert failure(call) is SessionExpiredError


def test_known_A33_a_foreign_session_on_reconnect_means_expired(script: Script) -> None:
    watch, claim = script.watching("get_data", "/a"), Claim()
    script.session.hold(claim)
    script.lose()
    script.greet(session_id=SESSION_ID + 1)
    assert script.state is State.EXPIRED
    assert claim.lost
    assert not armed(watch)
    assert script.session.session_id == SESSION_ID


def test_credentials_byte_by_byte(script: Script) -> None:
    script.session.add_auth("digest", b"u:p")
    assert script.session.data_to_send(script.now) == AUTH_U_P


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


def test_known_A17_credentials_cut_short_leave_nothing_behind() -> None:
    for answered in range(3):
        script = Script()
        for number in range(3):
            script.session.add_auth("digest", b"u:%d" % number)
        script.greet()
        script.flush()
        script.feed(reply_frame(ops.AUTH_XID) * answered)
        script.reconnect()
        assert [sent.name for sent in script.sent] == ["connect", "auth", "auth", "auth"]
        for number in range(20):
            call = script.call("create", f"/{number}")
            script.answer(call)
            assert failure(call) is None


def test_known_A3_answers_to_set_watches_never_meet_the_queue(script: Script) -> None:
    data, child = script.watching("get_data", "/a"), script.watching("get_children", "/a")
    for _ in range(50):
        script.lose()
        call = script.call("get_data", "/a", watch=data)
        script.greet()
        script.flush()
        script.event(CHANGED, "/a")
        script.event(EventType.NODE_CHILDREN_CHANGED, "/a")
        script.feed(reply_frame(ops.SET_WATCHES_XID, -1))
        assert script.names() == ["get_data"]
        script.answer(call)
        script.answer(script.call("get_children", "/a", watch=child))
        assert failure(call) is None
    assert types(data) == [CHANGED] * 50
    assert types(child) == [EventType.NODE_CHILDREN_CHANGED] * 50


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


def test_known_A5_watches_survive_cuts_around_their_restoration(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    script.lose()
    script.dial()  # cut before the welcome
    script.lose()
    script.greet()  # before set_watches
    script.lose(written=0)
    script.greet()  # before its answer
    script.flush()
    script.lose()
    script.connect()  # right behind it
    script.reconnect()
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


@pytest.mark.parametrize("verb", ["get_data", "exists", "get_children", "get_children_with_stat"])
def test_known_A1_every_watch_survives_the_connection(verb: str, script: Script) -> None:
    watch = script.watching(verb, "/a")
    script.reconnect()
    assert _set_again(script.sent) == {"/a"}
    script.event(DELETED, "/a")
    assert types(watch) == [DELETED]


def test_known_A2_a_watch_fires_once_however_often_it_was_set_again(script: Script) -> None:
    watch = script.watching("get_data", "/a")
    for _ in range(5):
        script.reconnect()
        assert [sent.name for sent in script.sent] == ["connect", "set_watches"]
    script.event(CHANGED, "/a")
    assert types(watch) == [CHANGED]


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


def test_known_A9_a_connect_request_names_the_highest_zxid_of_all_replies(script: Script) -> None:
    for zxid in [5, 3, 9, 7]:
        script.answer(script.call("exists", "/a"), zxid=zxid)
    assert _last_zxid_seen(script) == 9
    script.answer(script.call("exists", "/a"), zxid=8)
    assert _last_zxid_seen(script) == 9
    script.answer(script.call("delete", "/a"), error=-101, zxid=77)
    assert _last_zxid_seen(script) == 77, "a refusal counts"


def test_known_A8_only_replies_to_requests_count_for_the_last_zxid(script: Script) -> None:
    script.watching("get_data", "/a")
    script.answer(script.call("exists", "/a"), zxid=0x500)
    script.session.add_auth("digest", b"u:p")
    script.greet_again()
    script.flush()
    script.feed(event_frame(3, "/b", zxid=0x999))
    for xid in (ops.AUTH_XID, ops.SET_WATCHES_XID, ops.PING_XID):
        script.feed(reply_frame(xid, 0x999))
    assert script.state.usable
    assert _last_zxid_seen(script) == 0x500


@pytest.mark.parametrize("zxid", [-1, 0, -(2**63)])
def test_known_A8_no_reply_turns_the_last_zxid_back(zxid: int, script: Script) -> None:
    script.answer(script.call("exists", "/a"), zxid=zxid)
    assert _last_zxid_seen(script) == 0
    script.answer(script.call("exists", "/a"), zxid=6)
    script.answer(script.call("exists", "/a"), error=-6, zxid=zxid)
    assert _last_zxid_seen(script) == 6


def test_known_A7_an_event_does_not_hide_what_the_next_one_would_have_told(script: Script) -> None:
    first, second = script.watching("get_data", "/1"), script.watching("get_data", "/2")
    set_at = script.zxid
    script.feed(event_frame(3, "/1", zxid=set_at + 2))  # /2 was changed at set_at + 1 or + 2
    script.lose()
    script.greet()
    assert script.flush()[0].set_watches().relative_zxid == set_at
    script.event(CHANGED, "/2")
    assert (len(types(first)), len(types(second))) == (1, 1)


def test_failures_say_which_server_and_why() -> None:
    script = Script(servers=2)
    for why in ("refused", "reset", "no route"):
        script.dial()
        script.lose(why=why)
    assert script.session.last_failure == "server:1: no route"
    assert script.session.failures == {"server:1": "no route", "server:2": "reset"}
    script.connect()
    assert script.session.failures == {}
