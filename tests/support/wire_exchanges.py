"""What a client and a server of each release say to each other, byte for byte: real exchanges.

    python3 -m tests.support.wire_exchanges

runs them on Debian's ZooKeeper and on each in ``ZOOKEEPER_HOME``, and writes
docs/wire-exchanges.json. A connection by hand sends the requests: a client would not send what a
server refuses.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.installed_servers import every_release, find_installed
from tests.support.operation_samples import SAMPLES, Sample
from tests.support.server_control import Settings
from zkwire import Client
from zkwire.cli.spy.message import Message
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.jute.multi import pack_multi
from zkwire.jute.record import Record
from zkwire.operations import Operations
from zkwire.session.request import Request
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE

PATH = Path(__file__).resolve().parents[2] / "docs" / "wire-exchanges.json"
SETTINGS = Settings(java_flags=("-Dzookeeper.extendedTypesEnabled=true",))
"""Without this flag servers refuse nodes with a time to live."""

ROOT, NODE, GONE = "/wire", "/wire/node", "/wire/gone"
ACL = tuple(OPEN_ACL_UNSAFE)
LIMIT = 10.0  # seconds for an answer
UNKNOWN = 99
NAMED = {op.name: op for op in ops.OPS.values()}
NAMED["an unknown operation"] = ops.Op("unknown", UNKNOWN, None, None)
GREETING = r.ConnectRequest(0, 0, 10_000, 0, bytes(16), False)


class Line:
    """A connection with a session: sends a frame, receives a frame."""

    def __init__(self, hosts: str, greeting: Record = GREETING) -> None:
        host, _, port = hosts.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), LIMIT)
        self._read = self._socket.makefile("rb")
        self.sent = frame(greeting.encode())
        self._socket.sendall(self.sent)
        self.greeted = self.receive()

    def close(self) -> None:
        self._read.close()
        self._socket.close()

    def receive(self) -> bytes:
        """The next frame with its length; empty if the server has closed the connection."""
        try:
            length = self._read.read(4)
            return length + self._read.read(*struct.unpack(">i", length)) if length else b""
        except ConnectionResetError:
            return b""

    def ask(self, xid: int, op: ops.Op, body: bytes = b"") -> tuple[bytes, bytes]:
        """A request and its reply; what comes before that is passed over."""
        asked = frame(r.RequestHeader(xid, op.opcode).encode() + body)
        self._socket.sendall(asked)
        while (answer := self.receive()) and struct.unpack_from(">i", answer, 4) != (xid,):
            pass
        return asked, answer


class Frames(NamedTuple):
    """What was said: the request, the reply, and an event if one followed."""

    request: bytes
    reply: bytes
    event: bytes = b""


class Exchange(NamedTuple):
    """One of them; what it shows is written in the page, or is ``about``."""

    name: str
    op: ops.Op | None
    run: Callable[[str], Frames]
    about: str = ""


def asks(name: str, body: Record | bytes = b"", xid: int = 1) -> Exchange:
    """The first request of a session; its operation is named before the colon."""

    def run(hosts: str) -> Frames:
        with closing(Line(hosts)) as line:
            return Frames(*line.ask(xid, op, body if isinstance(body, bytes) else body.encode()))

    op = NAMED[name.partition(":")[0]]
    return Exchange(name, op if op.opcode != UNKNOWN else None, run)


def greets(name: str, request: Record) -> Exchange:
    """The handshake alone."""

    def run(hosts: str) -> Frames:
        with closing(Line(hosts, request)) as line:
            return Frames(line.sent, line.greeted)

    return Exchange(name, None, run)


def watches(name: str, body: Record, changed: Callable[[Client], object]) -> Exchange:
    """A request that sets a watch, and the event of a change by another client."""
    op = NAMED[name.partition(":")[0]]

    def run(hosts: str) -> Frames:
        with closing(Line(hosts)) as line, Client(hosts) as other:
            request, reply = line.ask(1, op, body.encode())
            if not reply:
                return Frames(request, reply)
            changed(other)
            return Frames(request, reply, line.receive())

    return Exchange(name, op, run)


def removing(hosts: str) -> Frames:
    """A watch is set, looked for and removed; this is the last of the three."""
    with closing(Line(hosts)) as line:
        line.ask(1, ops.GET_DATA, r.GetDataRequest(NODE, True).encode())
        return Frames(*line.ask(2, ops.REMOVE_WATCHES, r.RemoveWatchesRequest(NODE, 2).encode()))


def multi(*parts: tuple[ops.Op, Record]) -> bytes:
    """The body of a multi."""
    return pack_multi((op.opcode, record.encode()) for op, record in parts)


def create(name: str, flags: int = 0, data: bytes = b"hi") -> r.CreateRequest:
    """The request of one node."""
    return r.CreateRequest(f"{ROOT}/{name}", data, ACL, flags)


BY_HAND = (
    greets("connect", GREETING),
    greets("connect: no such session", r.ConnectRequest(0, 0, 10_000, 0x1234, bytes(16), False)),
    asks("ping", xid=-2),
    asks("create", create("new")),
    asks("create: ephemeral and sequential", create("queue-", 3, b"")),
    asks("create: refused", create("node")),
    asks("create2", create("new2")),
    asks("create_container", create("container", 4, b"")),
    asks("create_ttl", r.CreateTTLRequest(f"{ROOT}/ttl", b"", ACL, 5, 60_000)),
    asks("delete", r.DeleteRequest(GONE, -1)),
    asks("exists", r.ExistsRequest(NODE, False)),
    watches(
        "exists: no such node, with a watch",
        r.ExistsRequest(f"{ROOT}/later", True),
        lambda other: other.create(f"{ROOT}/later"),
    ),
    watches(
        "get_data: with a watch",
        r.GetDataRequest(NODE, True),
        lambda other: other.set_data(NODE, b"ho"),
    ),
    asks("set_data", r.SetDataRequest(NODE, b"he", 1)),
    asks("get_acl", r.GetACLRequest(NODE)),
    asks("set_acl", r.SetACLRequest(NODE, ACL, 0)),
    watches(
        "get_children: with a watch",
        r.GetChildrenRequest(NODE, True),
        lambda other: other.create(f"{NODE}/child"),
    ),
    asks("get_children2", r.GetChildren2Request(NODE, False)),
    asks("sync", r.SyncRequest(NODE)),
    asks(
        "multi",
        multi(
            (ops.CHECK, r.CheckVersionRequest(NODE, 2)),
            (ops.CREATE, create("multi", 0, b"")),
            (ops.SET_DATA, r.SetDataRequest(NODE, b"hu", 2)),
            (ops.DELETE, r.DeleteRequest(f"{ROOT}/multi", -1)),
        ),
    ),
    asks(
        "multi: refused",
        multi(
            (ops.CREATE, create("multi2", 0, b"")),
            (ops.CHECK, r.CheckVersionRequest(NODE, 99)),
            (ops.DELETE, r.DeleteRequest(NODE, -1)),
        ),
    ),
    asks(
        "multi_read",
        multi(
            (ops.GET_DATA, r.GetDataRequest(NODE, False)),
            (ops.GET_CHILDREN, r.GetChildrenRequest(NODE, False)),
            (ops.GET_DATA, r.GetDataRequest(f"{ROOT}/none", False)),
        ),
    ),
    asks("check_watches", r.CheckWatchesRequest(NODE, 3)),
    Exchange("remove_watches", ops.REMOVE_WATCHES, removing),
    watches("add_watch", r.AddWatchRequest(NODE, 1), lambda other: other.delete(f"{NODE}/child")),
    asks("set_watches", r.SetWatches(0x7FFFFFFF, (NODE,), (), (NODE,)), xid=-8),
    asks("set_watches2", r.SetWatches2(0x7FFFFFFF, (NODE,), (), (), (ROOT,), (NODE,)), xid=-8),
    asks("auth", r.AuthPacket(0, "digest", b"user:password"), xid=-4),
    asks("sasl", r.GetSASLRequest(b"")),
    asks("get_ephemerals", r.GetEphemeralsRequest(ROOT)),
    asks("reconfig", r.ReconfigRequest(None, "9", None, -1)),
)
LAST = (asks("an unknown operation"), asks("close_session"))


class _Bodies(Operations):
    """The operations of a client that sends nothing: a call returns the body of its request."""

    _chroot = ""

    def _submit(self, request: Request) -> Any:
        return request.body


def _sampled(sample: Sample) -> Exchange:
    """The exchange of an operation about which its docstring says enough."""
    about = (getattr(Operations, sample.method).__doc__ or "").partition("\n")[0]
    body = sample.call(_Bodies(), NODE)
    return asks(sample.op.name, body)._replace(about=about.replace("``", "`"))


_SHOWN = {exchange.op for exchange in BY_HAND}
_OTHERS = [sample for sample in SAMPLES if sample.op not in _SHOWN]
EXCHANGES = (*BY_HAND, *map(_sampled, _OTHERS), *LAST)
"""Those by hand, and the samples of all other operations."""

Release = dict[str, Frames]


def exchanges(hosts: str) -> Release:
    """All of them on this server, on which ``/wire`` must not exist."""
    with Client(hosts) as client:
        for path, data in ((ROOT, b""), (NODE, b"hi"), (GONE, b"")):
            client.create(path, data)
        try:
            return {exchange.name: exchange.run(hosts) for exchange in EXCHANGES}
        finally:
            client.delete_tree(ROOT)


CHANGING = {
    *("zxid", "czxid", "mzxid", "pzxid", "ctime", "mtime", "session_id", "ephemeral_owner"),
    *("passwd", "user", "last_zxid_seen"),
}
"""Fields that differ from run to run."""


def message(data: bytes, exchange: str, part: str) -> Message:
    """One of the frames, read."""
    op = {each.name: each.op for each in EXCHANGES}[exchange]
    kind = "connect" if exchange.startswith("connect") else part
    return Message(data, "c2s" if part == "request" else "s2c", kind, op.opcode if op else UNKNOWN)


def masked(data: bytes, exchange: str, part: str) -> bytes:
    """The frame with zeros in the place of what differs from run to run."""
    if not data:
        return data
    bare = bytearray(data)
    for row in message(data, exchange, part).rows:
        if row.name.rpartition(".")[2] in CHANGING:
            bare[row.at : row.at + row.size] = bytes(row.size)
    return bytes(bare)


def alike(one: Frames, other: Frames, exchange: str) -> bool:
    """Whether two runs say the same, but for zxids, times and secrets."""
    pairs = zip(Frames._fields, one, other, strict=True)
    return all(masked(a, exchange, part) == masked(b, exchange, part) for part, a, b in pairs)


def stored() -> dict[str, Release]:
    """By the release, what docs/wire-exchanges.json has."""
    found = json.loads(PATH.read_text())["releases"]
    return {
        release: {
            name: Frames(*(bytes.fromhex(frames.get(part, "")) for part in Frames._fields))
            for name, frames in found[release].items()
        }
        for release in found
    }


ABOUT = (
    "Frames with their lengths, in hexadecimal digits, as ZooKeeper servers of these releases have "
    "answered them. An empty reply: the server has closed the connection. wire-reference.md has "
    "the same, explained."
)


def written(found: dict[str, Release]) -> str:
    """The file."""
    releases = {
        release: {
            name: {
                part: data.hex()
                for part, data in frames._asdict().items()
                if data or part == "reply"
            }
            for name, frames in found[release].items()
        }
        for release in sorted(found, key=lambda name: [*map(int, name.split("."))])
    }
    return json.dumps({"about": ABOUT, "releases": releases}, indent=1) + "\n"


def main() -> None:
    """Run them on each release that is installed, and keep the others' columns."""
    found = stored() if PATH.exists() else {}
    for release in every_release():
        os.environ["ZKWIRE_TEST_RELEASE"] = release
        with find_installed().standalone(SETTINGS) as server:
            old, new = found.get(release, {}), exchanges(server.hosts)
        # What differs in nothing but times and the like stays, so that a diff shows what is new.
        same = {name for name in old.keys() & new.keys() if alike(old[name], new[name], name)}
        found[release] = {name: (old if name in same else new)[name] for name in new}
        print(f"{release}: {len(new)} exchanges, {len(new) - len(same)} of them new", flush=True)
    names = [exchange.name for exchange in EXCHANGES]
    lacking = [release for release in found if list(found[release]) != names]
    assert not lacking, f"to be tried with ZOOKEEPER_HOME: releases {lacking}"
    PATH.write_text(written(found))


if __name__ == "__main__":
    main()
