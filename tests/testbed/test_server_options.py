"""What an embedded server can be asked to be: old, read-only, strict, reconfigured, refusing."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.support.embedded import Peer, Reply, Told, connected, make_processor
from zkwire.jute import records as r
from zkwire.jute.frames import FrameSplitter, frame
from zkwire.jute.record import Record
from zkwire.testing.server.loop import VirtualClock
from zkwire.testing.server.rules import DELETE_CONTAINER, Rules
from zkwire.testing.server.server import Ensemble, Member, Server
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType

UNIMPLEMENTED, NOT_READ_ONLY, REQUIRE_AUTH, AUTH_FAILED = -6, -119, -124, -115
NO_AUTH, BAD_VERSION, BAD_ARGUMENTS, NO_QUORUM, DISABLED = -102, -103, -8, -13, -123
NOT_EMPTY, INVALID_ACL = -111, -114
MARSHALLING, THROTTLED, SESSION_EXPIRED, NO_NODE = -5, -127, -112, -101
CONFIG = "/zookeeper/config"
EPHEMERAL = 1
SECONDS = 30.0
GREETING = frame(r.ConnectRequest(0, 0, 10_000, 0, bytes(16), True).encode())


class Raw:
    """A session over TCP, without a client."""

    def __init__(self, server: Server | Member) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), SECONDS)
        self.socket.sendall(GREETING)
        self._splitter = FrameSplitter()
        self._frames: list[bytes] = []
        greeting = self.frame()
        self.greeting = r.ConnectResponse.decode(greeting) if greeting else None

    def frame(self) -> bytes:
        """The next frame; nothing at the end of the connection."""
        while not self._frames:
            data = self.socket.recv(65536)
            if not data:
                return b""
            self._frames += [c[at:end] for c, at, end in self._splitter.feed(data)]
        return self._frames.pop(0)

    def ask(self, op: ops.Op, record: Record | None = None) -> r.ReplyHeader:
        self.send(op, record)
        return self.reply()

    def send(self, op: ops.Op, record: Record | None = None) -> None:
        body = b"" if record is None else record.encode()
        self.socket.sendall(frame(r.RequestHeader(1, op.opcode).encode() + body))

    def reply(self) -> r.ReplyHeader:
        return r.ReplyHeader.unpack(self.frame())[0]

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def word(server: Server | Member, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as connection:
        connection.sendall(text)
        return b"".join(iter(lambda: connection.recv(65536), b""))


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


@pytest.mark.parametrize("version", ["3.4", "3.8"])
def test_before_39_a_check_alone_is_answered_only_if_it_fails(version: str) -> None:
    """It is a transaction in either case, and other requests are answered."""
    peer = connected(version=version)
    for path, number, codes in (
        ("/", -1, []),
        ("/", 7, [BAD_VERSION]),
        ("/none", -1, [NO_NODE]),
        ("none", -1, [BAD_ARGUMENTS]),
    ):
        before = peer.processor.state.tree.zxid
        peer.ask(ops.CHECK, r.CheckVersionRequest(path, number))
        assert [got.err for got in peer.received() if isinstance(got, Reply)] == codes
        assert peer.exists("/").zxid == before + 1
    peer.ask(ops.CHECK, body=b"\xff\xff\xff\xff\0\0\0\0")
    peer.ask(ops.CHECK)
    codes = [got.err for got in peer.received() if isinstance(got, Reply)]
    assert codes == [BAD_ARGUMENTS, MARSHALLING]


@pytest.mark.parametrize(
    ("version", "err", "ends"),
    [("3.4", UNIMPLEMENTED, True), ("3.5", BAD_ARGUMENTS, False), ("3.8", BAD_ARGUMENTS, False)],
)
def test_before_39_nobody_may_delete_a_container_as_the_server_does(
    version: str, err: int, ends: bool
) -> None:
    peer = connected(version=version)
    before = peer.processor.state.tree.zxid
    peer.ask(DELETE_CONTAINER, body=b"/a")
    (reply,) = peer.received()
    assert isinstance(reply, Reply)
    assert (reply.err, peer.ended) == (err, ends)
    assert peer.processor.state.tree.zxid == before + (not ends)


def test_from_39_on_anybody_may_delete_a_container_as_the_server_does() -> None:
    peer = connected(version="3.9")
    peer.create("/a", acl=(r.ACL(1, r.Id("world", "anyone")),))
    peer.create("/b")
    peer.create("/b/c")
    peer.create("/e", EPHEMERAL)
    codes = {"/a": 0, "/a/x": NO_NODE, "/b": NOT_EMPTY, "/e": BAD_VERSION, "/": BAD_ARGUMENTS}
    codes |= {"/zookeeper": BAD_ARGUMENTS, "bad": BAD_ARGUMENTS, "": BAD_ARGUMENTS}
    assert {p: peer.call(DELETE_CONTAINER, r.SyncRequest(p)).err for p in codes} == codes
    assert peer.exists("/a").err == NO_NODE


SINGLE: dict[ops.Op, Record] = {
    ops.CREATE: r.CreateRequest("/a", b"x", OPEN_ACL_UNSAFE, 0),
    ops.DELETE: r.DeleteRequest("/a", -1),
    ops.SET_DATA: r.SetDataRequest("/a", b"x", -1),
    ops.SET_ACL: r.SetACLRequest("/a", OPEN_ACL_UNSAFE, -1),
}
NAMELESS = {
    ops.CREATE: MARSHALLING,
    ops.DELETE: MARSHALLING,
    ops.SET_DATA: BAD_ARGUMENTS,
    ops.SET_ACL: BAD_ARGUMENTS,
}


@pytest.mark.parametrize("version", ["3.4", "3.8", "3.9"])
def test_the_zxid_of_what_cannot_be_read(version: str) -> None:
    """As 3.4.14, 3.8.0 and 3.9.5 do it; a reconfig that is none takes no zxid anywhere."""
    peer = connected(version=version, reconfig=True)
    tree = peer.processor.state.tree

    def taken(op: ops.Op, body: bytes) -> tuple[int, int]:
        before = tree.zxid
        peer.ask(op, body=body)
        (reply,) = peer.received()
        assert isinstance(reply, Reply)
        assert reply.zxid == tree.zxid
        return reply.err, tree.zxid - before

    for op, record in SINGLE.items():
        request = record.encode()
        for end in range(len(request)):
            assert taken(op, request[:end]) == (MARSHALLING, int(version != "3.9"))
        nameless = b"\xff\xff\xff\xff" + request[4 + len("/a") :]
        assert taken(op, nameless) == (NAMELESS[op], 1)
    for op in (ops.CREATE, ops.SET_ACL):
        request = SINGLE[op].encode().replace(b"\0\0\0\6anyone", b"\xff\xff\xff\xff")
        assert taken(op, request) == (MARSHALLING, 1)
    assert taken(ops.MULTI, b"") == (MARSHALLING, 1)
    if version != "3.4":
        assert taken(ops.RECONFIG, b"") == (MARSHALLING, 0)


@pytest.mark.parametrize("read_only", [False, True])
def test_from_39_on_a_check_alone_is_unknown(read_only: bool) -> None:
    """Without a quorum, too, where writes that are known are refused."""
    peer = Peer(make_processor(version="3.9", read_only=read_only)).connect(read_only=read_only)
    peer.ask(ops.CHECK, r.CheckVersionRequest("/", -1))
    assert peer.received() == [Reply(1, -1, UNIMPLEMENTED, b"")]
    assert peer.ended


def test_from_39_on_lists_know_ipv6_and_exists_needs_permission() -> None:
    ipv6, secret = (r.ACL(31, r.Id("ip", "::/0")),), (r.ACL(30, r.Id("world", "anyone")),)
    for version, known, seen in (("3.8", INVALID_ACL, 0), ("3.9", 0, NO_AUTH)):
        peer = connected(version=version)
        assert peer.create("/ip", acl=ipv6).err == known
        peer.create("/a", acl=secret)
        assert peer.exists("/a").err == seen
        assert peer.exists("/b").err == NO_NODE


def test_further_unknown_opcodes() -> None:
    peer = connected(unknown_opcodes={ops.SASL.opcode, ops.PING.opcode})
    assert peer.call(ops.SASL, r.GetSASLRequest(b"")) == Reply(1, -1, UNIMPLEMENTED, b"")
    assert peer.ended
    again = peer.again()
    assert again.session_id == peer.session_id
    again.ask(ops.PING)
    assert again.ended


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


def test_without_a_quorum_only_those_who_ask_for_it_get_in() -> None:
    processor = make_processor(read_only=True)
    for flag in (False, None):
        peer = Peer(processor).connect(read_only=flag)
        assert peer.ended
        assert peer.greeting is None
    peer = Peer(processor).connect(read_only=True)
    assert peer.greeting is not None
    assert peer.greeting.read_only is True
    assert processor.state.tree.zxid == 0, "a local session is no transaction"


@pytest.mark.parametrize(("op", "record"), WRITES)
def test_without_a_quorum_there_are_no_writes(op: ops.Op, record: Record) -> None:
    peer = Peer(make_processor(read_only=True)).connect(read_only=True)
    peer.ask(op, record)
    assert peer.received() == [Reply(1, 0, NOT_READ_ONLY, b"")]
    assert not peer.ended


def test_without_a_quorum_there_are_reads_and_watches() -> None:
    peer = Peer(make_processor(read_only=True)).connect(read_only=True)
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


def test_a_local_session_is_known_to_its_own_server_only() -> None:
    peer = Peer(make_processor(read_only=True, members=2)).connect(read_only=True)
    assert peer.greeting is not None
    other = Peer(peer.processor, member=1)
    other.connect(session_id=peer.session_id, passwd=peer.greeting.passwd or b"", read_only=True)
    assert other.greeting == r.ConnectResponse(0, 0, 0, bytes(16), True)
    assert peer.exists("/").err == 0, "nothing has happened to it"


def test_without_local_sessions_a_server_refuses_in_an_odd_form() -> None:
    peer = Peer(make_processor(read_only=True, local_sessions=False))
    peer.send(GREETING)
    (raw,) = peer.raw_frames()
    assert raw == r.ReplyHeader(0, 0, NOT_READ_ONLY).encode()
    assert not peer.ended
    peer.ask(ops.EXISTS, r.ExistsRequest("/", False))
    assert peer.received() == [], "nothing more is read"


def test_one_member_loses_its_quorum() -> None:
    with Ensemble(3, version="3.5") as ensemble:
        first, second, _ = ensemble.servers
        assert word(first, b"srvr").startswith(b"Zookeeper version: 3.5.")
        with Raw(first) as writer, Raw(second) as cut:
            second.set_read_only(True)
            assert cut.frame() == b""
            assert word(second, b"isro") == b"ro"
            assert b"Mode: read-only\n" in word(second, b"srvr")
            assert word(first, b"isro") == b"rw"
            with Raw(second) as reader:
                assert reader.greeting is not None
                assert reader.greeting.read_only is True
                assert reader.ask(ops.SYNC, r.SyncRequest("/")).err == NOT_READ_ONLY
                assert reader.ask(ops.EXISTS, r.ExistsRequest("/a", True)).err == NO_NODE
                create = r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)
                assert writer.ask(ops.CREATE, create).err == 0
                assert reader.reply().xid == ops.NOTIFICATION_XID
                second.set_read_only(False)
                assert reader.frame() == b""
            assert word(second, b"isro") == b"rw"


@pytest.mark.parametrize("kind", [Server, Ensemble])
def test_all_of_them_lose_it(kind: type[Server] | type[Ensemble]) -> None:
    with kind(read_only=True) as service:
        server = service if isinstance(service, Server) else service.servers[2]
        assert word(server, b"isro") == b"ro"
        service.set_read_only(False)
        assert word(server, b"isro") == b"rw"
        service.set_read_only(True)
        with Raw(server) as reader:
            assert reader.greeting is not None
            assert reader.greeting.read_only is True


# --- credentials ----------------------------------------------------------------------------------


def test_a_strict_server_wants_credentials_first() -> None:
    peer = connected(enforce_auth=("digest",))
    assert peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"u:p")).err == 0
    assert peer.exists("/").err == 0
    other = Peer(peer.processor).connect()
    other.ask(ops.PING)
    assert other.received() == [Reply(1, 0, REQUIRE_AUTH, b"")]
    assert other.ended
    assert other.again().session_id == other.session_id, "the session lives on"


def test_super_may_do_everything() -> None:
    peer = connected(super_password="magic")
    peer.create("/a", acl=(r.ACL(0, r.Id("world", "anyone")),))
    assert peer.get("/a").err == NO_AUTH
    assert peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"super:magic")).err == 0
    assert peer.get("/a").err == 0
    schemes = [info.auth_scheme for info in peer.call(ops.WHO_AM_I).body.client_info]
    assert schemes == ["digest", "super", "ip"]  # in the order of Java's set
    peer.create("/b", acl=(r.ACL(31, r.Id("auth", "")),))
    stored = peer.call(ops.GET_ACL, r.GetACLRequest("/b")).body.acl
    assert [entry.id.scheme for entry in stored] == ["digest"]


# --- any error ------------------------------------------------------------------------------------


def test_the_next_request_can_be_refused_with_any_code() -> None:
    create = r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)
    with Server() as server, Raw(server) as one:
        for code in (-2, -7, -13, -14, -118, -125, THROTTLED, -9999):
            server.refuse_next("create", code, nth=2)
            assert one.ask(ops.EXISTS, r.ExistsRequest("/a", False)).err == NO_NODE
            assert one.ask(ops.CREATE, create).err == 0
            assert one.ask(ops.CREATE, create) == r.ReplyHeader(1, server.tree.zxid, code)
            assert one.ask(ops.DELETE, r.DeleteRequest("/a", -1)).err == 0
        server.refuse_next("create", -125)
        server.clear()
        assert one.ask(ops.CREATE, create).err == 0


def test_behind_some_codes_the_connection_ends() -> None:
    peer = connected(tick=2.0)
    body = r.RequestHeader(9, ops.EXISTS.opcode).encode()
    peer.processor.refuse(peer.connection, body, THROTTLED, 9.0, close=False)
    assert peer.received() == [Reply(9, 1, THROTTLED, b"")]
    peer.processor.advance(19.9)
    assert not peer.ended, "a refused request keeps the session"
    peer.processor.refuse(peer.connection, b"short", THROTTLED, 19.9, close=False)
    assert peer.ended
    with Server() as server:
        for code, close, ends in (
            (SESSION_EXPIRED, None, True),
            (AUTH_FAILED, None, True),
            (REQUIRE_AUTH, None, True),
            (AUTH_FAILED, False, False),
            (THROTTLED, True, True),
        ):
            with Raw(server) as one:
                server.refuse_next("get_data", code, close=close)
                ask = r.GetDataRequest("/", False)
                assert one.ask(ops.GET_DATA, ask).err == code
                if ends:
                    assert one.frame() == b""
                else:
                    assert one.ask(ops.GET_DATA, ask).err == 0
        for op, nth in (("connect", 1), ("nothing", 1), ("create", 0)):
            with pytest.raises(ValueError, match=r"unknown operation|counts from 1"):
                server.refuse_next(op, -1, nth=nth)


# --- configuration --------------------------------------------------------------------------------


def test_a_server_alone_has_no_configuration() -> None:
    with Server() as server, Raw(server) as one:
        one.send(ops.GET_DATA, r.GetDataRequest(CONFIG, True))
        assert r.GetDataResponse.decode(one.frame(), 16).data == b""
        server.set_config(b"server.1=x:1:2:participant;y:3\nversion=2a")
        event = one.frame()
        assert r.WatcherEvent.decode(event, 16) == r.WatcherEvent(3, 3, CONFIG)
        one.send(ops.GET_DATA, r.GetDataRequest(CONFIG, False))
        data, stat = r.GetDataResponse.decode(one.frame(), 16)
        assert data.endswith(b"version=2a")
        assert (stat.version, stat.mzxid) == (-1, server.tree.zxid)


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


def test_reconfiguring() -> None:
    peer = as_super()
    peer.get(CONFIG, watch=True)
    peer.ask(ops.RECONFIG, r.ReconfigRequest("server.4=h4:1:2:observer;3", "3", None, 0))
    event, reply = peer.received()
    assert event == Told(EventType.NODE_DATA_CHANGED, CONFIG)
    assert isinstance(reply, Reply)
    text = (
        b"server.1=h1:1:2:participant;h1:3\nserver.2=h2:1:2:participant;h2:3\n"
        b"server.4=h4:1:2:observer;0.0.0.0:3\nversion=2"
    )
    assert reply.body.data == text
    assert (reply.zxid, reply.body.stat.mzxid, reply.body.stat.version) == (2, 2, -1)
    whole = "server.1=h1:1:2;3,server.2=h2:1:2:participant;h2:3"
    again = peer.call(ops.RECONFIG, r.ReconfigRequest(None, None, whole, 2))
    assert again.body.data.splitlines()[0] == b"server.1=h1:1:2:participant;0.0.0.0:3"


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


def test_and_so_over_tcp() -> None:
    clock = VirtualClock(start=100.0)
    with (
        Server(now=clock, handshake_timeout=1.0) as server,
        socket.create_connection(("127.0.0.1", server.port), SECONDS) as silent,
    ):
        assert word(server, b"ruok") == b"imok", "accepted one after the other"
        clock.advance(0.9)
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
        clock.advance(1.1)
        silent.settimeout(SECONDS)
        assert silent.recv(1) == b""
