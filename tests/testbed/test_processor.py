"""The embedded server as a pure machine: handshake, frames, time, members, and text that is none.

What it answers to requests, `test_recorded.py` compares with what real servers have answered; here
is what no random request brings about.
"""

from __future__ import annotations

import struct

import pytest

from tests.support.embedded import Peer, Reply, Told, connected, make_processor
from zkwire import Client
from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.testing import Server
from zkwire.testing.server import java
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType, Perms

DELETED = EventType.NODE_DELETED
NO_NODE, UNIMPLEMENTED, MARSHALLING, AUTH_FAILED = -101, -6, -5, -115
EPHEMERAL = 1


# --- the handshake --------------------------------------------------------------------------------


def test_new_session_is_a_transaction_with_a_password(peer: Peer) -> None:
    assert peer.greeting is not None
    assert peer.greeting.session_id != 0
    assert len(peer.greeting.passwd or b"") == 16
    assert peer.greeting.read_only is False
    assert peer.exists("/").zxid == 1
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


@pytest.mark.parametrize("sent", [frame(b"\0\0"), b"abcd", None], ids=["record", "word", "ahead"])
def test_refused_handshake_ends_the_connection_without_a_word(sent: bytes | None) -> None:
    """No record, no four-letter word, and a client that has seen more than the server."""
    peer = Peer(make_processor())
    if sent is None:
        peer.connect(last_zxid=1)
    else:
        peer.send(sent)
    assert peer.ended
    assert peer.greeting is None
    assert peer.connection.output == []


@pytest.mark.parametrize("what", ["unknown", "password"])
def test_session_that_is_gone_is_answered_with_zeros(what: str) -> None:
    first = connected()
    other = Peer(first.processor)
    session_id = 4711 if what == "unknown" else first.session_id
    other.connect(session_id=session_id, passwd=b"wrong")
    assert other.greeting == r.ConnectResponse(0, 0, 0, bytes(16), False)
    assert other.ended
    assert first.ended is (what == "password"), "the victim goes before the password is looked at"


def test_connection_that_is_lost_takes_its_watches(peer: Peer) -> None:
    peer.exists("/a", watch=True)
    peer.children("/", watch=True)
    assert len(peer.processor.state.watchers) == 2
    peer.again()
    assert peer.ended
    assert len(peer.processor.state.watchers) == 0


# --- frames ---------------------------------------------------------------------------------------


LENGTHS = [struct.pack(">i", length) for length in (-1, -(2**31), 0xFFFFF + 1, 2**31 - 1)]


@pytest.mark.parametrize("sent", [*LENGTHS, frame(b""), frame(b"1234567")])
def test_bad_length_ends_the_connection_without_reply(sent: bytes, peer: Peer) -> None:
    """So does one in which there is no room for a header."""
    peer.send(sent)
    assert peer.ended
    assert peer.raw_frames() == []


def test_longest_frame_is_taken(peer: Peer) -> None:
    peer.create("/a")
    room = 0xFFFFF - 8 - len(r.SetDataRequest("/a", b"", -1).encode())
    assert peer.set("/a", bytes(room)).err == 0


@pytest.mark.parametrize("size", [1, 1000])
def test_stream_means_the_same_in_whatever_pieces(size: int) -> None:
    peer = Peer(make_processor())
    request = r.ConnectRequest(0, 0, 4000, 0, bytes(16), False).encode()
    stream = frame(request) + frame(struct.pack(">ii", -2, 11)) + frame(struct.pack(">ii", 99, 11))
    for at in range(0, len(stream), size):
        peer.send(stream[at : at + size])
    _, *pongs = peer.raw_frames()
    pong = r.ReplyHeader(-2, 1, 0)
    assert [r.ReplyHeader.decode(raw) for raw in pongs] == [pong, pong], "whatever its xid was"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (b"ruok", b"imok"),
        (b"isro", b"rw"),
        (b"dump", b"dump is not executed because it is not in the whitelist.\n"),
    ],
)
def test_four_letter_word_is_answered_and_ends(word: bytes, answer: bytes) -> None:
    peer = Peer(make_processor())
    peer.send(word[:1])
    peer.send(word[1:])
    assert peer.connection.take_output() == answer
    assert peer.ended


@pytest.mark.parametrize(
    ("members", "member", "mode"), [(1, 0, b"standalone"), (3, 0, b"leader"), (3, 1, b"follower")]
)
def test_srvr_names_the_mode(members: int, member: int, mode: bytes) -> None:
    peer = Peer(make_processor(members=members), member=member)
    peer.send(b"srvr")
    text = peer.connection.take_output()
    for line in (b"Mode: " + mode, b"Zxid: 0x0", b"Node count: 5"):
        assert line + b"\n" in text


# --- requests that no client makes ----------------------------------------------------------------


def test_client_that_creates_its_session_again_is_greeted_again(peer: Peer) -> None:
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
def test_unknown_operation_ends_the_connection_not_the_session(opcode: int, peer: Peer) -> None:
    """Its refusal overtakes the answers before it."""
    peer.ask(ops.EXISTS, r.ExistsRequest("/", False))
    peer.send(frame(struct.pack(">ii", 7, opcode)))
    refusal, answer = peer.received()
    assert refusal == Reply(7, -1, UNIMPLEMENTED, b"")
    assert isinstance(answer, Reply)
    assert (answer.xid, answer.err) == (1, 0)
    assert peer.ended
    assert peer.again().session_id == peer.session_id


@pytest.mark.parametrize("scheme", [b"\0\0\0\5world", b"\xff\xff\xff\xff"], ids=["world", "null"])
def test_unknown_scheme_ends_the_connection(scheme: bytes, peer: Peer) -> None:
    peer.ask(ops.AUTH, body=bytes(4) + scheme + b"\0\0\0\1x")
    assert peer.received() == [Reply(1, 0, AUTH_FAILED, b"")]
    assert peer.ended


def test_children_come_in_the_same_order_in_each_run(peer: Peer) -> None:
    names = tuple(f"{number:x}" for number in range(20))
    for path in ("/a", *(f"/a/{name}" for name in names)):
        peer.create(path)
    assert peer.children("/a").body.children == names


def test_nothing_is_carried_out_or_sent_after_the_end(peer: Peer) -> None:
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


def test_expiry_at_the_boundary_takes_a_whole_tick_more() -> None:
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


def test_session_moves_to_another_member() -> None:
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


# --- text -----------------------------------------------------------------------------------------

SMILE = "\U0001f600"
CESU_8 = b"\xed\xa0\xbd\xed\xb8\x80"
ANYONE = r.ACL(1, r.Id("world", "anyone"))
STAT = r.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def test_characters_beyond_ffff_leave_as_two_surrogates(peer: Peer) -> None:
    peer.call(ops.AUTH, r.AuthPacket(0, "digest", f"{SMILE}:p".encode()))
    peer.create("/a", acl=(r.ACL(Perms.ALL, r.Id("digest", f"{SMILE}:x")), ANYONE))
    for op, record in (
        (ops.SYNC, r.SyncRequest(f"/{SMILE}")),
        (ops.GET_ACL, r.GetACLRequest("/a")),
        (ops.WHO_AM_I, None),
        (ops.SET_WATCHES, r.SetWatches(0, (f"/{SMILE}",), (), ())),
    ):
        peer.ask(op, record)
        raw = peer.raw_frames()[0]
        assert CESU_8 in raw
        assert SMILE.encode() not in raw


@pytest.mark.parametrize(
    "record",
    [
        r.GetACLResponse((r.ACL(5, r.Id("digest", f"a{SMILE}b")), ANYONE), STAT),
        r.WatcherEvent(1, 3, f"/{SMILE}{SMILE}"),
        r.WhoAmIResponse((r.ClientInfo("ip", "\xe9\uffff"),)),
    ],
)
def test_text_written_as_java_does_is_read_by_a_client(record: Record) -> None:
    assert type(record).decode(java.write(record)) == record


def test_client_of_the_embedded_server_joins_surrogates() -> None:
    name = r.Id("digest", f"{SMILE}:x")
    with Server() as server, Client(server.hosts) as client:
        client.create("/a", acl=(r.ACL(Perms.ALL, name), *OPEN_ACL_UNSAFE))
        assert client.get_acl("/a").acl[0].id == name
        client.add_auth("digest", f"{SMILE}:p".encode())
        assert client.who_am_i()[-1].user == SMILE


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0\2/", struct.pack(">i", -2), b"\xff" * 4])
def test_record_that_cannot_be_read_raises(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        java.read(r.SyncRequest, body)
    with pytest.raises(ProtocolError):
        java.read(r.CreateRequest, b"\0\0\0\2/\xff" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(7))


def test_node_of_a_null_path_is_none(peer: Peer) -> None:
    """A watch of it is taken, and its connection goes on."""
    peer.ask(ops.ADD_WATCH, body=b"\xff\xff\xff\xff" + bytes(4))
    peer.ask(ops.ADD_WATCH, body=b"\xff\xff\xff\xff\0\0\0\1")
    peer.ask(ops.GET_DATA, body=b"\xff\xff\xff\xff\0")
    codes = [reply.err for reply in peer.received() if isinstance(reply, Reply)]
    assert codes == [0, MARSHALLING, MARSHALLING]
    assert peer.create("/a").err == peer.delete("/a").err == 0
