"""What the embedded server makes of text that is none, of null, and of lengths that are none.

All of it is as a real server has it, found by asking one; `test_differential.py` asks it again.
"""

from __future__ import annotations

import struct

import pytest

from tests.support.embedded import Peer, Reply, Told, connected
from zkwire import Client
from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing import Server
from zkwire.testing.server import java
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE, EventType, Perms

NO_NODE, INVALID_ACL, MARSHALLING, BAD_ARGUMENTS, AUTH_FAILED = -101, -114, -5, -8, -115
NULL = b"\xff\xff\xff\xff"
SMILE = "\U0001f600"
CESU_8 = b"\xed\xa0\xbd\xed\xb8\x80"
ANYONE = r.Id("world", "anyone")
STAT = r.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def text(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def ask(peer: Peer, op: ops.Op, body: bytes) -> Reply:
    peer.ask(op, body=body)
    reply = peer.received()[-1]
    assert isinstance(reply, Reply)
    return reply


def acl(*ids: bytes) -> bytes:
    """The list of entries with these ids."""
    return struct.pack(">i", len(ids)) + b"".join(struct.pack(">i", Perms.ALL) + i for i in ids)


# --- ill-formed text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"/\xff\xfe", "/\ufffd\ufffd"),
        (b"/\xed\xa0\x80", "/\ufffd"),  # half a pair is one character
        (b"/\xf0\x9f\x98", "/\ufffd"),
        (b"/\xc3", "/\ufffd"),
        (b"/\xc3\xa9", "/\xe9"),
        (b"/\xf0\x9f\x98\x80", "/" + SMILE),
    ],
)
def test_ill_formed_text_is_replaced(data: bytes, read: str) -> None:
    body = text(data)
    request, at = java.read(r.SyncRequest, b"head" + body + b"tail", 4)
    assert (request.path, at) == (read, 4 + len(body))


def test_a_path_that_is_no_text_is_none_for_a_node(peer: Peer) -> None:
    path = text(b"/\xff")
    for op in (ops.EXISTS, ops.GET_DATA, ops.GET_CHILDREN, ops.GET_CHILDREN2):
        assert ask(peer, op, path + b"\1").err == NO_NODE
    assert ask(peer, ops.GET_ACL, path).err == NO_NODE
    assert ask(peer, ops.CREATE, path + text(b"") + acl(ANYONE.encode()) + bytes(4)).err == -8
    assert ask(peer, ops.SET_DATA, path + text(b"") + NULL).err == BAD_ARGUMENTS
    assert ask(peer, ops.SYNC, path).body.path == "/\ufffd"
    assert ask(peer, ops.ADD_WATCH, path + bytes(4)).err == 0
    assert ask(peer, ops.REMOVE_WATCHES, path + struct.pack(">i", 3)).err == 0
    peer.ask(ops.SET_WATCHES, body=bytes(8) + struct.pack(">i", 1) + path + bytes(8))
    assert peer.received()[0] == Told(EventType.NODE_DELETED, "/\ufffd")


# --- characters beyond U+FFFF ---------------------------------------------------------------------


def test_they_leave_as_two_surrogates(peer: Peer) -> None:
    peer.call(ops.AUTH, r.AuthPacket(0, "digest", f"{SMILE}:p".encode()))
    entries = (r.ACL(Perms.ALL, r.Id("digest", f"{SMILE}:x")), r.ACL(Perms.ALL, ANYONE))
    peer.create("/a", acl=entries)
    watches = r.SetWatches(0, (f"/{SMILE}",), (), ())
    for op, record in (
        (ops.SYNC, r.SyncRequest(f"/{SMILE}")),
        (ops.GET_ACL, r.GetACLRequest("/a")),
        (ops.WHO_AM_I, None),
        (ops.SET_WATCHES, watches),
    ):
        peer.ask(op, record)
        raw = peer.raw_frames()[0]
        assert CESU_8 in raw
        assert SMILE.encode() not in raw


@pytest.mark.parametrize(
    "record",
    [
        r.GetACLResponse((r.ACL(5, r.Id("digest", f"a{SMILE}b")), r.ACL(1, ANYONE)), STAT),
        r.WatcherEvent(1, 3, f"/{SMILE}{SMILE}"),
        r.WhoAmIResponse((r.ClientInfo("ip", "\xe9\uffff"),)),
    ],
)
def test_a_client_reads_what_is_written_so(record: Record) -> None:
    assert type(record).decode(java.write(record)) == record


def test_a_client_of_the_embedded_server_joins_them() -> None:
    name = r.Id("digest", f"{SMILE}:x")
    with Server() as server, Client(server.hosts) as client:
        client.create("/a", acl=(r.ACL(Perms.ALL, name), *OPEN_ACL_UNSAFE))
        assert client.get_acl("/a").acl[0].id == name
        client.add_auth("digest", f"{SMILE}:p".encode())
        assert client.who_am_i()[-1].user == SMILE


# --- null, and counts below it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "name", "code"),
    [
        (text(b"auth"), NULL, INVALID_ACL),
        (NULL, text(b"x"), INVALID_ACL),
        (NULL, NULL, INVALID_ACL),
        (text(b"nobody's"), NULL, INVALID_ACL),
        (text(b"world"), NULL, MARSHALLING),
        (text(b"digest"), NULL, MARSHALLING),
        (text(b"ip"), NULL, MARSHALLING),
    ],
)
def test_an_id_with_a_null(scheme: bytes, name: bytes, code: int) -> None:
    body = text(b"/a") + text(b"") + acl(scheme + name) + bytes(4)
    assert ask(connected(), ops.CREATE, body).err == code


def test_auth_stands_for_whoever_it_is_whatever_its_id_is(peer: Peer) -> None:
    peer.call(ops.AUTH, r.AuthPacket(0, "digest", b"u:p"))
    body = text(b"/a") + text(b"") + acl(text(b"auth") + NULL) + bytes(4)
    assert ask(peer, ops.CREATE, body).err == 0
    (entry,) = peer.call(ops.GET_ACL, r.GetACLRequest("/a")).body.acl
    assert entry.id.id.startswith("u:")


def test_null_is_a_scheme_that_nobody_knows(peer: Peer) -> None:
    peer.ask(ops.AUTH, body=bytes(4) + NULL + text(b"x"))
    assert peer.received() == [Reply(1, 0, AUTH_FAILED, b"")]
    assert peer.ended


def test_null_paths(peer: Peer) -> None:
    peer.ask(ops.SYNC, body=NULL)
    (raw,) = peer.raw_frames()
    assert raw[-8:] == bytes(4) + NULL
    assert ask(peer, ops.ADD_WATCH, NULL + bytes(4)).err == 0
    assert ask(peer, ops.ADD_WATCH, NULL + b"\0\0\0\1").err == MARSHALLING
    assert ask(peer, ops.GET_DATA, NULL + b"\0").err == MARSHALLING
    assert peer.create("/a").err == peer.delete("/a").err == 0


@pytest.mark.parametrize(("count", "watches", "entries"), [(-1, -5, -114), (-2, 0, -114)])
def test_a_count_below_null_is_none(count: int, watches: int, entries: int) -> None:
    peer, size = connected(), struct.pack(">i", count)
    assert ask(peer, ops.SET_WATCHES, bytes(8) + 3 * size).err == watches
    assert ask(peer, ops.CREATE, text(b"/a") + text(b"") + size + bytes(4)).err == entries


@pytest.mark.parametrize("body", [b"", b"\0", text(b"/a")[:-1], struct.pack(">i", -2), NULL])
def test_what_cannot_be_read(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        java.read(r.SyncRequest, body)
    with pytest.raises(ProtocolError):
        java.read(r.CreateRequest, text(b"/\xff") + text(b"") + b"\x7f\xff\xff\xff" + bytes(7))
