"""What an embedded server can be asked to be: old, read-only, strict, reconfigured, refusing."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.support.differential_sides import RealLink
from tests.support.embedded import Peer, Reply, Told, connected, make_processor
from zkwire import Client, NotReadOnlyError, ServerError, Watch
from zkwire.jute import records as r
from zkwire.jute.frames import frame
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


def word(server: Server | Member, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as connection:
        connection.sendall(text)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def codes(peer: Peer) -> list[int]:
    """Of the replies that have come."""
    return [got.err for got in peer.received() if isinstance(got, Reply)]


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
    for path, number, answered in (
        ("/", -1, []),
        ("/", 7, [BAD_VERSION]),
        ("/none", -1, [NO_NODE]),
        ("none", -1, [BAD_ARGUMENTS]),
    ):
        before = peer.processor.state.tree.zxid
        peer.ask(ops.CHECK, r.CheckVersionRequest(path, number))
        assert codes(peer) == answered
        assert peer.exists("/").zxid == before + 1
    peer.ask(ops.CHECK, body=b"\xff\xff\xff\xff\0\0\0\0")
    peer.ask(ops.CHECK)
    assert codes(peer) == [BAD_ARGUMENTS, MARSHALLING]


@pytest.mark.parametrize(("version", "err"), [("3.4", UNIMPLEMENTED), ("3.5", BAD_ARGUMENTS)])
def test_before_39_nobody_may_delete_a_container_as_the_server_does(version: str, err: int) -> None:
    peer = connected(version=version)
    before = peer.processor.state.tree.zxid
    peer.ask(DELETE_CONTAINER, body=b"/a")
    assert codes(peer) == [err]
    assert peer.ended is (version == "3.4")
    assert peer.processor.state.tree.zxid == before + (version != "3.4")


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


def test_further_unknown_opcodes() -> None:
    peer = connected(unknown_opcodes={ops.SASL.opcode, ops.PING.opcode})
    assert peer.call(ops.SASL, r.GetSASLRequest(b"")) == Reply(1, -1, UNIMPLEMENTED, b"")
    assert peer.ended
    again = peer.again()
    assert again.session_id == peer.session_id
    again.ask(ops.PING)
    assert again.ended


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
        cut = RealLink("127.0.0.1", second.port)
        assert len(cut.exchange(GREETING, 1)) == 1
        second.set_read_only(True)
        assert cut.exchange(b"", None) == [b""]
        cut.close()
        assert word(second, b"isro") == b"ro"
        assert b"Mode: read-only\n" in word(second, b"srvr")
        assert word(first, b"isro") == b"rw"
        with Client(first.hosts) as writer, Client(second.hosts, read_only=True) as reader:
            with pytest.raises(NotReadOnlyError):
                reader.sync("/")
            watch = Watch()
            assert reader.exists("/a", watch=watch) is None
            writer.create("/a")
            assert watch.wait(SECONDS) is not None
            second.set_read_only(False)
            assert word(second, b"isro") == b"rw"


@pytest.mark.parametrize("kind", [Server, Ensemble])
def test_all_of_them_lose_it(kind: type[Server] | type[Ensemble]) -> None:
    with kind(read_only=True) as service:
        server = service if isinstance(service, Server) else service.servers[2]
        for now in (True, False, True):
            service.set_read_only(now)
            assert word(server, b"isro") == (b"ro" if now else b"rw")


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


@pytest.mark.parametrize(
    ("code", "close", "ends"),
    [
        *((SESSION_EXPIRED, None, True), (AUTH_FAILED, None, True), (REQUIRE_AUTH, None, True)),
        *((AUTH_FAILED, False, False), (THROTTLED, True, True), (THROTTLED, None, False)),
    ],
)
def test_connection_ends_after_some_codes(code: int, close: bool | None, ends: bool) -> None:
    ask = frame(r.RequestHeader(1, ops.PING.opcode).encode())
    ask += frame(r.RequestHeader(2, ops.WHO_AM_I.opcode).encode())
    with Server() as server:
        server.refuse_next("ping", code, close=close)
        link = RealLink("127.0.0.1", server.port)
        link.exchange(GREETING, 1)
        refused, after = link.exchange(ask, 2)
        link.close()
    assert r.ReplyHeader.unpack(refused)[0].err == code
    assert (after == b"") is ends


# --- configuration --------------------------------------------------------------------------------


def test_server_alone_has_no_configuration() -> None:
    with Server() as server, Client(server.hosts) as client:
        watch = Watch()
        assert client.get_data(CONFIG, watch=watch).data == b""
        server.set_config(b"server.1=x:1:2:participant;y:3\nversion=2a")
        event = watch.wait(SECONDS)
        assert event is not None
        assert (event.type, event.path) == (EventType.NODE_DATA_CHANGED, CONFIG)
        data, stat = client.get_data(CONFIG)
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
