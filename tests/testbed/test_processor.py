"""The embedded server as a pure machine, what it can be asked to be, and its tree of nodes.

What it answers to requests is compared with what real servers have answered, see `recorded.py`;
further here is what no random request brings about.
"""

from __future__ import annotations

import struct

import pytest

from tests.support.embedded import Peer, Reply, connected, make_processor
from tests.testbed import recorded
from zkwire import Client, ServerError
from zkwire.errors import InvalidACLError, NodeExistsError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.record import Record
from zkwire.testing.server.credentials import Credentials
from zkwire.testing.server.rules import DELETE_CONTAINER, Rules, Version
from zkwire.testing.server.server import Ensemble, Server
from zkwire.testing.server.tree import CONTAINER, DataTree, NewNode, adjusted, ttl_owner
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, Perms
from zkwire.wire.paths import LAST_SEQUENCE

UNIMPLEMENTED, MARSHALLING, BAD_ARGUMENTS, NO_QUORUM = -6, -5, -8, -13
NO_NODE, NO_AUTH, BAD_VERSION, NOT_EMPTY = -101, -102, -103, -111
AUTH_FAILED, NOT_READ_ONLY, DISABLED, THROTTLED = -115, -119, -123, -127
CONFIG = "/zookeeper/config"
EPHEMERAL = 1
GREETING = frame(r.ConnectRequest(0, 0, 10_000, 0, bytes(16), True).encode())


# --- the handshake --------------------------------------------------------------------------------


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


# --- frames ---------------------------------------------------------------------------------------


LENGTHS = [struct.pack(">i", length) for length in (-1, -(2**31), 0xFFFFF + 1, 2**31 - 1)]


@pytest.mark.parametrize("sent", [*LENGTHS, frame(b""), frame(b"1234567")])
def test_bad_length_ends_the_connection_without_reply(sent: bytes, peer: Peer) -> None:
    """So does one in which there is no room for a header."""
    peer.send(sent)
    assert peer.ended
    assert peer.raw_frames() == []


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


def test_nothing_is_carried_out_or_sent_after_the_end(peer: Peer) -> None:
    create = struct.pack(">ii", 2, ops.CREATE.opcode)
    create += r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()
    peer.send(frame(struct.pack(">ii", 1, ops.CLOSE_SESSION.opcode)) + frame(create))
    peer.connection.send(b"late")
    assert len(peer.raw_frames()) == 1
    assert "/a" not in peer.processor.state.tree.nodes


# --- sessions -------------------------------------------------------------------------------------


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


def test_node_of_a_null_path_is_none(peer: Peer) -> None:
    """A watch of it is taken, and its connection goes on."""
    peer.ask(ops.ADD_WATCH, body=b"\xff\xff\xff\xff" + bytes(4))
    peer.ask(ops.ADD_WATCH, body=b"\xff\xff\xff\xff\0\0\0\1")
    peer.ask(ops.GET_DATA, body=b"\xff\xff\xff\xff\0")
    codes = [reply.err for reply in peer.received() if isinstance(reply, Reply)]
    assert codes == [0, MARSHALLING, MARSHALLING]
    assert peer.create("/a").err == peer.delete("/a").err == 0


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", recorded.VERSIONS)
def test_embedded_server_answers_as_recorded_from_real_ones(version: Version) -> None:
    for name in recorded.CONVERSATIONS:
        recorded.replay(version, name)


# --- older servers --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.4", "3.5", "3.6", "3.7", "3.8", "3.9"])
def test_what_a_version_does_not_know(version: str) -> None:
    line = [int(number) for number in version.split(".")]
    unknown = {code for code, op in ops.OPS.items() if [*op.release[:2]] > line}
    processor = make_processor(version=version)
    for opcode in sorted(set(ops.OPS) - {ops.PING.opcode, ops.CHECK.opcode}):
        peer = Peer(processor).connect()
        peer.send(frame(struct.pack(">ii", 7, opcode)))
        refused = r.ReplyHeader(7, -1, UNIMPLEMENTED).encode() in peer.raw_frames()
        assert refused == (opcode in unknown), opcode
        assert peer.ended or opcode not in unknown


def test_from_39_on_anybody_may_delete_a_container_as_the_server_does() -> None:
    peer = connected(version="3.9")
    peer.create("/a", acl=(r.ACL(1, r.Id("world", "anyone")),))
    peer.create("/b")
    peer.create("/b/c")
    peer.create("/e", EPHEMERAL)
    expected = {"/a": 0, "/a/x": NO_NODE, "/b": NOT_EMPTY, "/e": BAD_VERSION}
    expected |= dict.fromkeys(("/", "/zookeeper", "bad", ""), BAD_ARGUMENTS)
    assert {p: peer.call(DELETE_CONTAINER, r.SyncRequest(p)).err for p in expected} == expected
    assert peer.exists("/a").err == NO_NODE


@pytest.mark.parametrize(
    ("version", "users"), [("3.4", "ann anyone u v w a"), ("3.8", "ann a w v u anyone")]
)
def test_acl_keeps_its_order_and_who_asks_stands_as_in_java(version: str, users: str) -> None:
    """As 3.4.14, 3.6.2, 3.8.0 and 3.9.5 were seen to do."""
    peer = connected(version=version)
    for secret in (b"u:p", b"v:p", b"w:p", b"alice:x"):
        peer.call(ops.AUTH, r.AuthPacket(0, "digest", secret))
    ann, anyone = r.ACL(1, r.Id("digest", "ann:hash")), r.ACL(1, r.Id("world", "anyone"))
    peer.create("/a", acl=(ann, r.ACL(31, r.Id("auth", "")), anyone, ann))
    acl = peer.call(ops.GET_ACL, r.GetACLRequest("/a")).body.acl
    long = {"ann:hash": "ann", "anyone": "anyone"}
    assert [long.get(one.id.id, one.id.id[0]) for one in acl] == users.split()


def test_ttl_can_be_switched_off() -> None:
    peer = connected(extended_types=False)
    request = r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 5, 1000)
    assert peer.call(ops.CREATE_TTL, request).err == UNIMPLEMENTED
    assert not peer.ended


@pytest.mark.parametrize("name", ["extended_types", "read_only", "local_sessions", "reconfig"])
def test_an_option_that_is_no_bool_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False, not 'no'"):
        Server(**{name: "no"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"unknown version '3\.3'"):
        Rules(version="3.3")  # type: ignore[arg-type]


# --- read-only ------------------------------------------------------------------------------------


WRITES: list[tuple[ops.Op, Record]] = [
    (ops.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)),
    (ops.CREATE2, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)),
    (ops.CREATE_CONTAINER, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 4)),
    (ops.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 5, 1)),
    (ops.DELETE, r.DeleteRequest("/a", -1)),
    (ops.SET_DATA, r.SetDataRequest("/a", b"", -1)),
    (ops.SET_ACL, r.SetACLRequest("/a", OPEN_ACL_UNSAFE, -1)),
    (ops.RECONFIG, r.ReconfigRequest(None, None, None, -1)),
    (ops.MULTI, r.MultiHeader(-1, True, -1)),
    (ops.CHECK, r.CheckVersionRequest("/a", -1)),
    (DELETE_CONTAINER, r.SyncRequest("/a")),
    (ops.SYNC, r.SyncRequest("/")),
]


def test_without_a_quorum_there_are_reads_and_watches_and_no_writes() -> None:
    peer = Peer(make_processor(read_only=True)).connect(read_only=True)
    for op, record in WRITES:
        assert peer.call(op, record)[1:] == (0, NOT_READ_ONLY, b"")
    assert peer.get("/", watch=True).err == 0
    assert peer.exists("/a", watch=True).err == NO_NODE
    assert sorted(peer.children("/", watch=True).body.children) == ["zookeeper"]
    assert peer.call(ops.ADD_WATCH, r.AddWatchRequest("/", 1)).err == 0
    assert peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"u:p")).err == 0
    again = Peer(peer.processor)
    assert peer.greeting is not None
    again.connect(session_id=peer.session_id, passwd=peer.greeting.passwd or b"", read_only=True)
    assert again.session_id == peer.session_id
    assert again.call(ops.CLOSE_SESSION) == Reply(1, 0, 0, b"")
    assert again.ended


def test_the_way_to_read_only_and_back() -> None:
    processor = make_processor(tick=2.0)
    owner = Peer(processor).connect(timeout=4000)
    owner.create("/a", EPHEMERAL)
    owner.call(ops.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 4))
    owner.create("/c/a")
    owner.delete("/c/a")
    processor.set_read_only(True, 1.0, 0)
    processor.set_read_only(True, 1.0, 0)
    assert owner.ended
    assert owner.greeting is not None
    passwd = owner.greeting.passwd or b""
    refused = Peer(processor, now=1.0)
    refused.connect(session_id=owner.session_id, passwd=passwd, read_only=True)
    assert refused.ended
    assert refused.greeting is None, "a global session is sent away without a word"
    reader = Peer(processor, now=1.0).connect(read_only=True)
    processor.advance(100.0)
    assert reader.ended, "a local session can expire"
    late = Peer(processor, now=100.0).connect(read_only=True)
    assert late.exists("/a").err == 0, "a global one cannot"
    processor.set_read_only(False, 105.0, 0)
    assert late.ended
    gone = late.again(now=105.0)
    assert gone.session_id == 0, "a local session ends with its server"
    processor.advance(109.9)
    assert "/a" in processor.state.tree.nodes, "the new leader counts from its start"
    assert "/c" in processor.state.tree.nodes, "nobody removes containers without a quorum"
    processor.advance(110.0)
    assert "/a" not in processor.state.tree.nodes
    processor.advance(170.0)
    assert "/c" not in processor.state.tree.nodes


def test_without_local_sessions_a_server_refuses_in_an_odd_form() -> None:
    peer = Peer(make_processor(read_only=True, local_sessions=False))
    peer.send(GREETING)
    (raw,) = peer.raw_frames()
    assert raw == r.ReplyHeader(0, 0, NOT_READ_ONLY).encode()
    assert not peer.ended
    peer.ask(ops.EXISTS, r.ExistsRequest("/", False))
    assert peer.received() == [], "nothing more is read"


# --- any error ------------------------------------------------------------------------------------


def test_next_request_can_be_refused_with_any_code() -> None:
    with Server() as server, Client(server.hosts) as client:
        for code in (-2, -7, -13, -14, -118, -125, THROTTLED, -9999):
            server.refuse_next("create", code, nth=2)
            assert client.exists("/a") is None
            client.create("/a")
            with pytest.raises(ServerError) as caught:
                client.create("/b")
            assert caught.value.code == code
            client.delete("/a")
        server.refuse_next("create", -125)
        server.clear()
        client.create("/a")
        for op, nth in (("connect", 1), ("nothing", 1), ("create", 0)):
            with pytest.raises(ValueError, match=r"unknown operation|counts from 1"):
                server.refuse_next(op, -1, nth=nth)


def test_refused_request_keeps_the_session() -> None:
    peer = connected(tick=2.0)
    body = r.RequestHeader(9, ops.EXISTS.opcode).encode()
    peer.processor.refuse(peer.connection, body, THROTTLED, 9.0, close=False)
    assert peer.received() == [Reply(9, 1, THROTTLED, b"")]
    peer.processor.advance(19.9)
    assert not peer.ended
    peer.processor.refuse(peer.connection, b"short", THROTTLED, 19.9, close=False)
    assert peer.ended


# --- configuration --------------------------------------------------------------------------------


def test_an_ensemble_names_its_members() -> None:
    with Ensemble(3) as ensemble:
        lines = (ensemble.tree.node(CONFIG).data or b"").decode().splitlines()
        assert lines == [
            *[
                f"server.{n}=127.0.0.1:2888:3888:participant;127.0.0.1:{server.port}"
                for n, server in enumerate(ensemble.servers, 1)
            ],
            "version=0",
        ]
        assert ensemble.tree.node(CONFIG).version == -1
        ensemble.set_config(b"other")
        ensemble.servers[0].stop()
        ensemble.servers[0].start()
        assert ensemble.tree.node(CONFIG).data == b"other"


def as_super(members: int = 3) -> Peer:
    peer = connected(members=members, reconfig=True, super_password="magic")
    peer.processor.set_members({n: f"h{n}:1:2:participant;h{n}:3" for n in range(1, members + 1)})
    peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"super:magic"))
    return peer


@pytest.mark.parametrize(
    ("joining", "leaving", "members", "version", "code"),
    [
        (None, "3", None, 7, BAD_VERSION),
        (None, "2,3", None, -1, BAD_ARGUMENTS),  # too few are left
        (None, None, "server.1=h:1:2;3,server.2=g:1:2:observer;3", -1, BAD_ARGUMENTS),
        ("server.4=h4", None, None, -1, BAD_ARGUMENTS),
        ("server.4=h4:1:2", None, None, -1, BAD_ARGUMENTS),  # without the client's port
        (None, "three", None, -1, MARSHALLING),
        (None, "0_3", None, -1, MARSHALLING),  # Java's parseInt takes no "_"
        (None, None, "server.8=h:1:2;3,server.9=g:1:2;3", -1, NO_QUORUM),
    ],
)
def test_reconfigurations_that_are_refused(
    joining: str | None, leaving: str | None, members: str | None, version: int, code: int
) -> None:
    request = r.ReconfigRequest(joining, leaving, members, version)
    assert as_super().call(ops.RECONFIG, request).err == code


def test_who_may_reconfigure_and_where() -> None:
    request = r.ReconfigRequest(None, "3", None, -1)
    assert connected(members=3).call(ops.RECONFIG, request).err == DISABLED
    alone = connected(reconfig=True)
    assert alone.call(ops.RECONFIG, request).err == UNIMPLEMENTED
    assert not alone.ended
    stranger = Peer(as_super().processor).connect()
    assert stranger.call(ops.RECONFIG, request).err == NO_AUTH


# --- connections without a session ----------------------------------------------------------------


def test_whoever_does_not_ask_for_a_session_is_sent_away() -> None:
    processor = make_processor(tick=2.0)
    processor.advance(0.0)
    silent = processor.connect(now=3.0)
    half = Peer(processor, now=3.0)
    half.send(GREETING[:20])
    served = Peer(processor).connect(timeout=40_000)
    assert processor.next_deadline == 20.0
    processor.advance(19.9)
    assert not silent.ended
    processor.advance(20.0)
    assert silent.ended
    assert half.ended
    assert not served.ended
    assert processor.next_deadline == 42.0


# --- the tree -------------------------------------------------------------------------------------

ANYBODY = Credentials()


class Garden:
    """A tree in which each operation is a transaction, at the time of its zxid."""

    def __init__(self) -> None:
        self.tree = DataTree()

    def create(self, path: str, *, owner: int = 0, sequential: bool = False) -> str:
        self.tree.begin(self.tree.zxid + 1000)
        new = NewNode(path, b"data", OPEN_ACL_UNSAFE, owner, sequential)
        return self.tree.create(new, ANYBODY)[0]

    def delete(self, path: str) -> None:
        self.tree.begin(self.tree.zxid + 1000)
        self.tree.delete(path, -1, ANYBODY)

    def stat(self, path: str) -> r.Stat:
        return self.tree.node(path).stat()


@pytest.fixture
def garden() -> Garden:
    return Garden()


def test_counter_sticks_at_its_end_and_pzxid_with_it(garden: Garden) -> None:
    garden.create("/a")
    garden.tree.node("/a").created = LAST_SEQUENCE
    before = garden.stat("/a")
    assert garden.create("/a/x", sequential=True) == "/a/x2147483647"
    with pytest.raises(NodeExistsError):
        garden.create("/a/x", sequential=True)
    assert garden.stat("/a").pzxid == before.pzxid
    assert before.cversion == -2  # 2 * (2**31 - 1), in 32 bits


# --- nodes that a server removes ------------------------------------------------------------------


def test_containers_and_old_nodes_are_removed(garden: Garden) -> None:
    garden.create("/never-used", owner=CONTAINER)
    garden.create("/used", owner=CONTAINER)
    garden.create("/used/a")
    garden.create("/old", owner=ttl_owner(50))  # at 1003
    tree = garden.tree
    assert tree.reapable(1053) == []
    assert tree.reapable(1054) == ["/old"]
    garden.delete("/used/a")
    assert tree.reapable(0) == ["/used"]
    tree.remove("/used")
    assert tree.reapable(0) == []


@pytest.mark.parametrize("number", [b"5_0", b" 5", b"many"])
def test_statistics_that_cannot_be_read_stay(number: bytes) -> None:
    """ZooKeeper 3.8.0 was seen to end the connection of who then creates a node there."""
    assert adjusted(b"count=" + number, 1, 1) == b"count=" + number


# --- access lists ---------------------------------------------------------------------------------


# What 3.9.5 does with each, for clients at ::1 and 127.0.0.1; 3.8.0 refuses all of them.
IPV6 = {
    "::1": True,
    "0:0:0:0:0:0:0:01": True,
    "::1/128": True,
    "::2/126": True,
    "::/0": True,
    "::1/+064": True,
    "-0::+1": True,
    "::2/127": False,
    "8000::/1": False,
    "::ffff:7f00:1": False,  # 127.0.0.1
    "2001:DB8::1": False,
    "0:0:0:0:0:0:0::": False,
    "::-1": False,
}
NO_IPV6 = [
    *("::1%lo", "[::1]", "::ffff:127.0.0.1", "::1/129", "::1/-1", "::1/", "::g", "::fffff", ":1"),
    *("1:2:3:4:5:6:7:8:9", "::0:0:0:0:0:0:0:1", "1::2::3", "1:::2", "::1/64/64", "::1 ", "/64"),
]


@pytest.mark.parametrize("expression", [*IPV6, *NO_IPV6])
def test_ipv6_from_39_on(expression: str) -> None:
    acl = (r.ACL(Perms.READ, r.Id("ip", expression)),)
    with pytest.raises(InvalidACLError):
        ANYBODY.expand(acl)
    rules = Rules(version="3.9")
    new = Credentials("::1", rules)
    if expression in IPV6:
        assert new.expand(acl) == acl
        assert new.allows(acl, Perms.READ) is IPV6[expression]
        assert not Credentials("127.0.0.1", rules).allows(acl, Perms.READ)
    else:
        with pytest.raises(InvalidACLError):
            new.expand(acl)
    assert not Credentials("::1").allows(acl, Perms.READ)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a0b:1%eth0", "fe80:0:0:0:0:0:a0b:1%eth0"),
    ],
)
def test_address_is_shown_as_java_writes_it(address: str, shown: str) -> None:
    credentials = Credentials(address)
    credentials.authenticate("digest", b"u:p")
    assert credentials.client_infos() == (r.ClientInfo("ip", shown), r.ClientInfo("digest", "u"))
