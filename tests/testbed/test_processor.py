"""The embedded server as a pure machine: handshake, frames, reply headers, the life of sessions.

What the differential test has found, and what it cannot generate, has a test with a name here or in
`test_processor_operations.py`.
"""

from __future__ import annotations

import struct

import pytest

from tests.support.embedded import Peer, Reply, Told, connected, make_processor
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
NO_NODE, NO_AUTH, NO_WATCHER, UNIMPLEMENTED, BAD_ARGUMENTS = -101, -102, -121, -6, -8
MARSHALLING, NODE_EXISTS, INCONSISTENCY, AUTH_FAILED = -5, -110, -2, -115
EPHEMERAL = 1


# --- the handshake --------------------------------------------------------------------------------


def test_a_new_session(peer: Peer) -> None:
    assert peer.greeting is not None
    assert peer.greeting.session_id != 0
    assert len(peer.greeting.passwd or b"") == 16
    assert peer.greeting.read_only is False
    assert peer.exists("/").zxid == 1, "opening a session is a transaction"
    old = Peer(make_processor()).connect(read_only=None)
    assert old.greeting is not None
    assert old.greeting.read_only is None, "an old client is answered without the flag"


@pytest.mark.parametrize(
    ("asked", "granted", "configured"),
    [
        *((1, 4000, None), (0, 4000, None), (-5, 4000, None), (4001, 4001, None)),
        *((100_000, 40_000, None), (5000, 1000, (0.1, 1.0))),
    ],
)
def test_timeouts_are_clamped_to_ticks(
    asked: int, granted: int, configured: tuple[float, float] | None
) -> None:
    peer = Peer(make_processor(tick=2.0, timeouts=configured)).connect(timeout=asked)
    assert peer.greeting is not None
    assert peer.greeting.time_out == granted


def test_a_client_that_has_seen_more_is_sent_away_silently() -> None:
    peer = Peer(make_processor()).connect(last_zxid=1)
    assert peer.ended
    assert peer.greeting is None


@pytest.mark.parametrize("what", ["unknown", "password"])
def test_gone_is_answered_with_zeros(what: str) -> None:
    first = connected()
    other = Peer(first.processor)
    session_id = 4711 if what == "unknown" else first.session_id
    other.connect(session_id=session_id, passwd=b"wrong")
    assert other.greeting == r.ConnectResponse(0, 0, 0, bytes(16), False)
    assert other.ended
    assert first.ended is (what == "password"), "the victim goes before the password is looked at"


@pytest.mark.parametrize("sent", [frame(b"\0\0"), b"abcd"], ids=["no record", "no word"])
def test_garbage_for_a_handshake_ends_the_connection(sent: bytes) -> None:
    peer = Peer(make_processor())
    peer.send(sent)
    assert peer.ended
    assert peer.connection.output == []


def test_reattaching_ends_the_old_connection_and_its_watches() -> None:
    first = connected()
    first.exists("/a", watch=True)
    second = first.again(timeout=5000)
    assert first.ended
    assert second.greeting is not None
    assert (second.session_id, second.greeting.time_out) == (first.session_id, 5000)
    assert second.create("/a").err == 0  # no event in front of it


# --- frames ---------------------------------------------------------------------------------------


LENGTHS = [struct.pack(">i", length) for length in (-1, -(2**31), 0xFFFFF + 1, 2**31 - 1)]


@pytest.mark.parametrize("sent", [*LENGTHS, frame(b""), frame(b"1234567")])
def test_a_bad_length_ends_the_connection_without_reply(sent: bytes, peer: Peer) -> None:
    """So does one in which there is no room for a header."""
    peer.send(sent)
    assert peer.ended
    assert peer.raw_frames() == []


def test_the_longest_frame_is_taken(peer: Peer) -> None:
    peer.create("/a")
    room = 0xFFFFF - 8 - len(r.SetDataRequest("/a", b"", -1).encode())
    assert peer.set("/a", bytes(room)).err == 0


def test_byte_by_byte() -> None:
    peer = Peer(make_processor())
    request = r.ConnectRequest(0, 0, 4000, 0, bytes(16), False).encode()
    for byte in frame(request) + frame(struct.pack(">ii", -2, 11)):
        peer.send(bytes([byte]))
    assert len(peer.raw_frames()) == 2
    at_once = Peer(make_processor())
    at_once.send(frame(request) + frame(struct.pack(">ii", -2, 11)))
    assert len(at_once.raw_frames()) == 2


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (b"ruok", b"imok"),
        (b"isro", b"rw"),
        (b"dump", b"dump is not executed because it is not in the whitelist.\n"),
    ],
)
def test_four_letter_words(word: bytes, answer: bytes) -> None:
    peer = Peer(make_processor())
    peer.send(word[:1])
    peer.send(word[1:])
    assert peer.connection.take_output() == answer
    assert peer.ended


def test_srvr_names_the_mode() -> None:
    for members, member, mode in ((1, 0, b"standalone"), (3, 0, b"leader"), (3, 1, b"follower")):
        peer = Peer(make_processor(members=members), member=member)
        peer.send(b"srvr")
        text = peer.connection.take_output()
        assert b"Mode: " + mode + b"\n" in text
        assert b"Zxid: 0x0\n" in text
        assert b"Node count: 5\n" in text


# --- replies --------------------------------------------------------------------------------------


def test_refused_writes_take_a_zxid_and_reads_none(peer: Peer) -> None:
    assert peer.create("/a").zxid == 2
    assert peer.create("/a")[1:3] == (3, NODE_EXISTS)
    assert peer.exists("/b")[1:3] == (3, NO_NODE)
    assert peer.call(ops.SYNC, r.SyncRequest("/nowhere"))[1:] == (3, 0, r.SyncResponse("/nowhere"))


def test_a_body_that_cannot_be_read_takes_a_zxid_and_keeps_the_connection(peer: Peer) -> None:
    peer.ask(ops.CREATE, body=b"\0\0\0\x05/a")
    (reply,) = peer.received()
    assert reply[:3] == (1, 2, MARSHALLING)
    assert peer.exists("/").err == 0


def test_a_ping_is_answered_under_its_own_xid(peer: Peer) -> None:
    peer.send(frame(struct.pack(">ii", 99, ops.PING.opcode)))
    (raw,) = peer.raw_frames()
    assert r.ReplyHeader.decode(raw) == r.ReplyHeader(-2, 1, 0)


def test_a_null_path_is_a_bad_path_where_paths_are_looked_at_first(peer: Peer) -> None:
    """Found by the differential test."""
    for op, record in (
        (ops.SET_DATA, r.SetDataRequest("", b"", -1)),
        (ops.SET_ACL, r.SetACLRequest("", OPEN_ACL_UNSAFE, -1)),
        (ops.DELETE, r.DeleteRequest("", -1)),
    ):
        peer.ask(op, body=b"\xff\xff\xff\xff" + record.encode()[4:])
    codes = [got.err for got in peer.received() if isinstance(got, Reply)]
    assert codes == [BAD_ARGUMENTS, BAD_ARGUMENTS, MARSHALLING]


def test_a_client_that_creates_its_session_again_is_greeted_again(peer: Peer) -> None:
    """No client does; as on real servers of 3.4.14 to 3.9.5 the session has that time then."""
    (session,) = peer.processor.state.sessions
    peer.send(frame(struct.pack(">iii", 7, -10, 1)))
    (raw,) = peer.raw_frames()
    answer = r.ConnectResponse.decode(raw)
    assert (answer.session_id, answer.time_out) == (session.session_id, session.timeout)
    peer.send(frame(struct.pack(">ii", 7, -10)))
    assert [reply.err for reply in peer.received() if isinstance(reply, Reply)] == [MARSHALLING]
    peer.send(frame(struct.pack(">iii", 7, -10, 1)))
    peer.processor.advance(peer.processor.state.sessions.tick / 1000)
    assert peer.ended


@pytest.mark.parametrize("opcode", [0, 10, -1, -12, 2**31 - 1, -(2**31)])
def test_an_unknown_operation_ends_the_connection_not_the_session(opcode: int, peer: Peer) -> None:
    peer.send(frame(struct.pack(">ii", 7, opcode)))
    (raw,) = peer.raw_frames()
    assert r.ReplyHeader.decode(raw) == r.ReplyHeader(7, -1, UNIMPLEMENTED)
    assert peer.ended
    assert peer.again().session_id == peer.session_id


def test_the_refusal_of_an_unknown_operation_overtakes(peer: Peer) -> None:
    peer.ask(ops.EXISTS, r.ExistsRequest("/", False))
    peer.ask(ops.Op("unheard_of", 999, None, None))
    refusal, reply = peer.received()
    assert refusal == Reply(2, -1, UNIMPLEMENTED, b"")
    assert isinstance(reply, Reply)
    assert (reply.xid, reply.err) == (1, 0)


def test_nothing_is_carried_out_or_sent_behind_the_end(peer: Peer) -> None:
    create = struct.pack(">ii", 2, ops.CREATE.opcode)
    create += r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()
    peer.send(frame(struct.pack(">ii", 1, ops.CLOSE_SESSION.opcode)) + frame(create))
    peer.connection.send(b"late")
    assert len(peer.raw_frames()) == 1
    assert "/a" not in peer.processor.state.tree.nodes


# --- sessions -------------------------------------------------------------------------------------


def test_expiry_is_rounded_up_to_the_next_tick() -> None:
    processor = make_processor(tick=2.0)
    peer = Peer(processor, now=1.0).connect(timeout=4000)
    peer.create("/a", EPHEMERAL)
    assert processor.next_deadline == 0.0
    processor.advance(1.0)
    assert processor.next_deadline == 6.0
    peer.processor.lost(peer.connection)
    peer = peer.again(now=1.0, timeout=4000)
    assert peer.exists("/a").err == 0, "a lost connection does not end the session"
    processor.advance(5.999)
    assert not peer.ended
    zxid = processor.state.tree.zxid
    processor.advance(6.0)
    assert peer.ended
    assert "/a" not in processor.state.tree.nodes
    assert processor.state.tree.zxid == zxid + 1


def test_at_the_boundary_a_whole_tick_is_added() -> None:
    processor = make_processor(tick=2.0)
    processor.advance(0.0)
    Peer(processor, now=2.0).connect(timeout=4000)
    assert processor.next_deadline == 8.0


def test_any_request_keeps_the_session() -> None:
    processor = make_processor(tick=2.0)
    peer = Peer(processor).connect(timeout=4000)
    peer.now = 5.0
    peer.exists("/")
    processor.advance(9.9)
    assert len(processor.state.sessions) == 1
    processor.advance(10.0)
    assert len(processor.state.sessions) == 0


def test_closing_tells_the_others_and_then_answers(peer: Peer) -> None:
    other = Peer(peer.processor).connect()
    peer.create("/a", EPHEMERAL)
    other.exists("/a", watch=True)
    peer.exists("/a", watch=True)
    peer.ask(ops.CLOSE_SESSION)
    assert peer.received() == [Told(DELETED, "/a"), Reply(3, 4, 0, b"")]
    assert peer.ended
    assert other.received() == [Told(DELETED, "/a")]
    assert peer.again().session_id == 0


def test_moving_to_another_member() -> None:
    processor = make_processor(members=3)
    old = Peer(processor).connect()
    old.create("/a", EPHEMERAL)
    new = old.again(member=1)
    assert new.session_id == old.session_id
    assert old.exists("/a").err == 0, "the old connection can read"
    old.ask(ops.SET_DATA, r.SetDataRequest("/a", b"late", -1))
    assert old.raw_frames() == [], "SessionMoved is not told"
    assert old.ended
    assert new.get("/a").body.data == b""
    back = old.again(member=0)
    assert back.set("/a").err == 0
    new.ask(ops.SYNC, r.SyncRequest("/"))
    assert new.ended
    second = old.again(member=1)
    assert processor.expire(old.session_id, 0.0)
    assert back.ended
    assert second.ended
    assert not processor.expire(old.session_id, 0.0)


def test_containers_are_reaped(peer: Peer) -> None:
    peer.call(ops.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 4))
    peer.create("/c/a")
    peer.delete("/c/a")
    peer.exists("/c", watch=True)
    peer.processor.advance(0.0)
    assert peer.received() == [Told(DELETED, "/c")]
