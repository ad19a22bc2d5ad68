"""The embedded server as a pure machine: what each operation answers, and whom it tells.

The tree's own rules are in `test_tree.py`.
"""

from __future__ import annotations

import pytest

from tests.support.embedded import Peer, Reply, Told, connected, multi_body
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.server.credentials import digest_id
from zkwire.testing.server.tree import CONTAINER, adjusted
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType, Perms

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED
NO_NODE, NO_AUTH, NO_WATCHER, UNIMPLEMENTED, BAD_ARGUMENTS = -101, -102, -121, -6, -8
MARSHALLING, NODE_EXISTS, INCONSISTENCY, AUTH_FAILED = -5, -110, -2, -115
EPHEMERAL = 1


# --- creates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "flags", "ttl", "code"),
    [
        (ops.CREATE, 4, None, 0),  # a plain node: the opcode makes a container
        (ops.CREATE, 5, None, BAD_ARGUMENTS),
        (ops.CREATE, 7, None, BAD_ARGUMENTS),
        (ops.CREATE, -1, None, BAD_ARGUMENTS),
        (ops.CREATE_CONTAINER, 0, None, 0),
        (ops.CREATE_TTL, 5, 1, 0),
        (ops.CREATE_TTL, 6, 2**40 - 1, 0),
        (ops.CREATE_TTL, 5, 2**40, BAD_ARGUMENTS),
        (ops.CREATE_TTL, 5, 0, BAD_ARGUMENTS),
        (ops.CREATE_TTL, 0, 1, BAD_ARGUMENTS),
        (ops.CREATE_TTL, 0, -1, BAD_ARGUMENTS),  # a real server would die
    ],
)
def test_flags(op: ops.Op, flags: int, ttl: int | None, code: int, peer: Peer) -> None:
    request = (
        r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, flags)
        if ttl is None
        else r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, flags, ttl)
    )
    assert peer.call(op, request).err == code
    reapable = ["/a0000000000"] if flags == 6 else ["/a"]
    lives = op is ops.CREATE_TTL and code == 0
    assert peer.processor.state.tree.reapable(2**62) == (reapable if lives else [])


def test_ttl_switched_off() -> None:
    peer = connected(extended_types=False)
    request = r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 5, 1000)
    assert peer.call(ops.CREATE_TTL, request).err == UNIMPLEMENTED
    assert not peer.ended


def test_a_create2_answers_with_the_stat() -> None:
    peer = connected(epoch=1.0)
    reply = peer.call(ops.CREATE2, r.CreateRequest("/a", b"xyz", OPEN_ACL_UNSAFE, EPHEMERAL))
    stat = r.Stat(2, 2, 1000, 1000, 0, 0, 0, peer.session_id, 3, 0, 2)
    assert reply.body == r.Create2Response("/a", stat)


# --- watches --------------------------------------------------------------------------------------


def test_the_event_precedes_the_reply_of_the_write_that_caused_it(peer: Peer) -> None:
    other = Peer(peer.processor).connect()
    for who in (peer, other):
        who.exists("/a", watch=True)
    peer.ask(ops.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))
    assert peer.received() == [Told(CREATED, "/a"), Reply(2, 3, 0, r.CreateResponse("/a"))]
    assert other.received() == [Told(CREATED, "/a")]
    other.set("/a")
    assert peer.received() == [], "once"
    peer.exists("/b", watch=True)
    other.create("/b")
    told = r.ReplyHeader(-1, -1, 0).encode() + r.WatcherEvent(1, 3, "/b").encode()
    assert peer.raw_frames() == [told], "without a zxid"


def test_a_delete_is_one_event_for_data_and_child_watch(peer: Peer) -> None:
    peer.create("/a")
    peer.get("/a", watch=True)
    peer.children("/a", watch=True)
    peer.children("/", watch=True)
    peer.ask(ops.DELETE, r.DeleteRequest("/a", -1))
    told = [got for got in peer.received() if isinstance(got, Told)]
    assert told == [Told(DELETED, "/a"), Told(CHILDREN, "/")]


def test_a_refused_read_leaves_no_watch_but_exists_does(peer: Peer) -> None:
    peer.get("/a", watch=True)
    peer.children("/a", watch=True)
    assert len(peer.processor.state.watchers) == 0
    peer.exists("/a", watch=True)
    assert len(peer.processor.state.watchers) == 1


def test_an_event_is_kept_from_those_who_may_not_read(peer: Peer) -> None:
    other = Peer(peer.processor).connect()
    other.exists("/a", watch=True)
    acl = (r.ACL(Perms.ALL & ~Perms.READ, r.Id("world", "anyone")),)
    peer.create("/a", acl=acl)
    assert other.received() == []
    for watch in (other.exists, other.children):
        watch("/", watch=True)
    assert len(peer.processor.state.watchers) == 2
    peer.processor.lost(other.connection)
    assert len(peer.processor.state.watchers) == 0, "they end with their connection"


def test_set_watches_catches_up(peer: Peer) -> None:
    for path in ("/same", "/changed", "/gone", "/parent", "/childless"):
        peer.create(path)
    seen = peer.exists("/").zxid
    peer.set("/changed")
    peer.delete("/gone")
    peer.create("/parent/child")
    peer.ask(
        ops.SET_WATCHES,
        r.SetWatches(
            seen,
            ("/same", "/changed", "/gone", "/childless"),  # the last one was changed then
            ("/same", "/absent"),
            ("/parent", "/gone", "/childless"),
        ),
    )
    *told, reply = peer.received()
    assert told == [
        Told(CHANGED, "/changed"),
        Told(DELETED, "/gone"),
        Told(CREATED, "/same"),
        Told(CHILDREN, "/parent"),
        Told(DELETED, "/gone"),
    ]
    assert isinstance(reply, Reply)
    assert reply.err == 0
    assert len(peer.processor.state.watchers) == 4  # /same, /absent and /childless twice


# --- credentials ----------------------------------------------------------------------------------


def test_authentication(peer: Peer) -> None:
    assert peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"u:p"))[:3] == (1, 0, 0)
    infos = peer.call(ops.WHO_AM_I).body.client_info
    assert infos == (r.ClientInfo("ip", "127.0.0.1"), r.ClientInfo("digest", "u"))
    peer.create("/a", acl=(r.ACL(Perms.ALL, r.Id("auth", "")),))
    stored = peer.call(ops.GET_ACL, r.GetACLRequest("/a")).body.acl
    assert stored == (r.ACL(Perms.ALL, r.Id("digest", digest_id(b"u:p"))),)
    other = Peer(peer.processor).connect()
    assert other.get("/a").err == NO_AUTH
    assert other.exists("/a").err == 0  # 3.8 lets anybody


def test_an_unknown_scheme_ends_the_connection(peer: Peer) -> None:
    assert peer.call(ops.AUTH, r.AuthPacket(0, "world", b"anyone"))[:3] == (1, 0, AUTH_FAILED)
    assert peer.ended


# --- multi ----------------------------------------------------------------------------------------


def created(path: str, flags: int = 0) -> tuple[ops.Op, r.CreateRequest]:
    return ops.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, flags)


def slot(opcode: int, err: int = 0) -> bytes:
    return r.MultiHeader(opcode, False, err).encode()


END = r.MultiHeader(-1, True, -1).encode()


def test_a_multi_is_one_transaction_and_later_operations_see_earlier_ones(peer: Peer) -> None:
    peer.children("/", watch=True)
    peer.ask(
        ops.MULTI,
        body=multi_body(
            created("/a"),
            created("/a/b"),
            (ops.CHECK, r.CheckVersionRequest("/a", 0)),
            (ops.DELETE, r.DeleteRequest("/a/b", 0)),
        ),
    )
    told, reply = peer.received()
    assert told == Told(CHILDREN, "/")
    assert isinstance(reply, Reply)
    assert reply[:3] == (2, 2, 0)
    paths = [r.CreateResponse(path).encode() for path in ("/a", "/a/b")]
    assert reply.body == slot(1) + paths[0] + slot(1) + paths[1] + slot(13) + slot(2) + END


def test_a_refused_multi_changes_nothing_and_says_who_was_it(peer: Peer) -> None:
    peer.create("/x")
    peer.exists("/a", watch=True)
    reply = peer.multi(created("/a"), created("/x"), created("/b"))
    codes = (0, NODE_EXISTS, INCONSISTENCY)
    parts = [slot(-1, code) + r.ErrorResponse(code).encode() for code in codes]
    assert reply == Reply(3, 3, 0, b"".join(parts) + END)
    assert peer.exists("/a").err == NO_NODE
    stat = peer.exists("/").body
    assert (stat.cversion, stat.pzxid) == (0, 2)


def test_an_empty_multi_is_a_transaction(peer: Peer) -> None:
    assert peer.multi() == Reply(1, 2, 0, END)


def test_a_multi_with_a_read_cannot_be_read(peer: Peer) -> None:
    assert peer.multi(created("/a"), (ops.GET_DATA, r.GetDataRequest("/", False)))[1:] == (
        2,
        MARSHALLING,
        b"",
    )
    assert peer.exists("/a").err == NO_NODE


@pytest.mark.parametrize(
    ("op", "flags", "answered", "owner"),
    [
        (ops.CREATE, 4, 15, True),
        (ops.CREATE_CONTAINER, 4, 15, True),
        (ops.CREATE_CONTAINER, 0, 1, False),
        (ops.CREATE2, 0, 1, False),  # ZOOKEEPER-4026, mended in 3.8.2
        (ops.CREATE2, 4, 15, True),
    ],
)
def test_within_a_multi_the_flags_decide(
    op: ops.Op, flags: int, answered: int, owner: bool, peer: Peer
) -> None:
    """Found by the differential test: Op.Create looks at the flags, not at the opcode."""
    reply = peer.multi((op, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, flags)))
    assert r.MultiHeader.unpack(reply.body)[0].type == answered
    assert (peer.processor.state.tree.node("/a").owner != 0) is owner


@pytest.mark.parametrize(("op", "owner"), [(ops.CREATE2, 0), (ops.CREATE_CONTAINER, CONTAINER)])
def test_a_newer_server_answers_as_the_opcode_in_a_multi_says(op: ops.Op, owner: int) -> None:
    """Found by the differential test, as the three below."""
    peer = connected(version="3.9")
    reply = peer.multi((op, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)))
    header, at = r.MultiHeader.unpack(reply.body)
    assert header.type == ops.CREATE2.opcode
    assert r.Create2Response.unpack(reply.body, at)[0].stat.czxid == 2
    assert peer.processor.state.tree.node("/a").owner == owner


@pytest.mark.parametrize(
    ("flags", "acl", "zxids"), [(-1, OPEN_ACL_UNSAFE, 1), (5, OPEN_ACL_UNSAFE, 0), (0, None, 0)]
)
def test_a_newer_server_reads_no_multi_with_an_odd_create(
    flags: int, acl: tuple[r.ACL, ...] | None, zxids: int
) -> None:
    peer = connected(version="3.9")
    tree = peer.processor.state.tree
    before = tree.zxid
    reply = peer.multi((ops.CREATE, r.CreateRequest("/a", b"", acl, flags)))
    assert (reply.err, reply.body, tree.zxid) == (MARSHALLING, b"", before + zxids)


def test_within_a_multi_a_ttl_without_its_mode_is_lost(peer: Peer) -> None:
    """Found by the differential test, as the one above."""
    request = r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 0, 1000)
    reply = peer.multi((ops.CREATE_TTL, request))
    assert r.MultiHeader.unpack(reply.body)[0].type == ops.CREATE.opcode
    bare = r.CreateRequest("/b", b"", OPEN_ACL_UNSAFE, 5)
    assert peer.multi((ops.CREATE, bare)).err == MARSHALLING


# --- other reads ----------------------------------------------------------------------------------


def test_ephemerals_are_the_sessions_own_and_the_prefix_is_characters(peer: Peer) -> None:
    other = Peer(peer.processor).connect()
    for path in ("/a", "/ab", "/b"):
        peer.create(path, EPHEMERAL)
    other.create("/c", EPHEMERAL)

    def ask(prefix: str | None) -> list[str]:
        reply = peer.call(ops.GET_EPHEMERALS, r.GetEphemeralsRequest(prefix))
        return sorted(reply.body.ephemerals)

    assert ask("/a") == ["/a", "/ab"]
    assert ask(None) == ask("") == ask("/") == ["/a", "/ab", "/b"]


def test_children_with_the_stat_and_their_number(peer: Peer) -> None:
    for path in ("/a", "/a/b", "/a/b/c"):
        peer.create(path)
    reply = peer.call(ops.GET_CHILDREN2, r.GetChildren2Request("/a", False))
    assert reply.body.children == ("b",)
    assert reply.body.stat.num_children == 1
    number = peer.call(ops.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/a"))
    assert number.body.total_number == 2


def test_multi_read(peer: Peer) -> None:
    peer.create("/a")
    peer.ask(
        ops.MULTI_READ,
        body=multi_body(
            (ops.GET_CHILDREN, r.GetChildrenRequest("/a", False)),
            (ops.GET_DATA, r.GetDataRequest("/none", False)),
        ),
    )
    (reply,) = peer.received()
    assert isinstance(reply, Reply)
    expected = slot(8) + r.GetChildrenResponse(()).encode()
    expected += slot(-1, NO_NODE) + r.ErrorResponse(NO_NODE).encode() + END
    assert reply[1:] == (2, 0, expected)


@pytest.mark.parametrize(("reads", "body"), [(0, END), (1, b"")])
def test_a_multi_read_of_writes_cannot_be_read(reads: int, body: bytes, peer: Peer) -> None:
    """Found by the differential test: of writes alone the answer has been begun."""
    parts: list[tuple[ops.Op, Record]] = [(ops.GET_DATA, r.GetDataRequest("/", False))] * reads
    peer.ask(ops.MULTI_READ, body=multi_body(*parts, (ops.DELETE, r.DeleteRequest("/a", -1))))
    assert peer.received() == [Reply(1, 1, MARSHALLING, body)]


AUTH, ANN = r.ACL(Perms.ALL, r.Id("auth", "")), r.ACL(Perms.READ, r.Id("digest", "ann:hash"))
ANYONE = r.ACL(Perms.READ, r.Id("world", "anyone"))


@pytest.mark.parametrize(
    ("version", "users"), [("3.4", "ANN anyone u v w a"), ("3.8", "ANN a w v u anyone")]
)
def test_an_acl_keeps_its_order_and_who_asks_stands_as_in_java(version: str, users: str) -> None:
    """As 3.4.14, 3.6.2, 3.8.0 and 3.9.5 were seen to do."""
    peer = connected(version=version)
    for secret in (b"u:p", b"v:p", b"w:p", b"alice:x"):
        peer.call(ops.AUTH, r.AuthPacket(0, "digest", secret))
    peer.create("/a", acl=(ANN, AUTH, ANYONE, ANN))
    acl = peer.call(ops.GET_ACL, r.GetACLRequest("/a")).body.acl
    names = {"ann:hash": "ANN", "anyone": "anyone"}
    assert [names.get(one.id.id, one.id.id[0]) for one in acl] == users.split()


def test_hashes_are_for_those_who_may_change_the_list(peer: Peer) -> None:
    everyone = r.ACL(Perms.READ, r.Id("world", "anyone"))
    peer.create("/a", acl=(everyone, r.ACL(Perms.ALL, r.Id("digest", digest_id(b"ann:secret")))))
    shown = peer.call(ops.GET_ACL, r.GetACLRequest("/a")).body.acl
    assert [entry.id.id for entry in shown] == ["anyone", "ann:x"]


def test_of_quotas_within_each_other_the_innermost_counts(peer: Peer) -> None:
    for path in ("/q", "/q/a"):
        peer.create(path)
        for name in ("", "/zookeeper_limits", "/zookeeper_stats"):
            peer.create(f"/zookeeper/quota{path}{name}")
    peer.create("/q/a/x")
    counted = [
        peer.get(f"/zookeeper/quota{path}/zookeeper_stats").body.data for path in ("/q", "/q/a")
    ]
    assert counted == [b"count=2,bytes=0", b"count=2,bytes=0"]


@pytest.mark.parametrize("number", [b"5_0", b" 5", b"many"])
def test_statistics_that_cannot_be_read_stay(number: bytes) -> None:
    assert adjusted(b"count=" + number, 1, 1) == b"count=" + number


def test_the_configuration_is_for_reading(peer: Peer) -> None:
    stat = peer.exists("/zookeeper/config").body
    assert (stat.version, stat.aversion) == (0, -1)
    assert peer.set("/zookeeper/config").err == NO_AUTH
    assert peer.get("/zookeeper/config").body.data == b""
