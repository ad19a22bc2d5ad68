"""A client of the pure processor, for tests: records in, replies and events out.

It knows the wire and nothing of what a right answer would be.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from zkwire.jute import records as r
from zkwire.jute.frames import FrameSplitter, frame
from zkwire.jute.record import Record
from zkwire.testing.server.processor import Processor
from zkwire.wire import ops
from zkwire.wire.model import OPEN_ACL_UNSAFE


class Reply(NamedTuple):
    """A reply, its record if the operation has one."""

    xid: int
    zxid: int
    err: int
    body: Any


class Told(NamedTuple):
    """A watch event."""

    type: int
    path: str


Received = Reply | Told


class Peer:
    """One connection to a processor; ``now`` is the time at which it does what it does."""

    def __init__(self, processor: Processor, *, member: int = 0, now: float = 0.0) -> None:
        self.processor = processor
        self.connection = processor.connect(member=member)
        self.now = now
        self.xid = 0
        self.greeting: r.ConnectResponse | None = None
        self._splitter = FrameSplitter()
        self._asked: dict[int, ops.Op] = {}

    @property
    def ended(self) -> bool:
        return self.connection.ended

    def send(self, data: bytes) -> None:
        self.processor.receive(self.connection, data, self.now)

    def raw_frames(self) -> list[bytes]:
        output = self.connection.take_output()
        return [chunk[at:end] for chunk, at, end in self._splitter.feed(output)]

    def connect(
        self,
        *,
        session_id: int = 0,
        passwd: bytes = bytes(16),
        timeout: int = 10_000,
        last_zxid: int = 0,
        read_only: bool | None = False,
    ) -> Peer:
        request = r.ConnectRequest(0, last_zxid, timeout, session_id, passwd, read_only)
        self.send(frame(request.encode()))
        frames = self.raw_frames()
        self.greeting = r.ConnectResponse.decode(frames[0]) if frames else None
        return self

    def again(self, *, member: int = 0, timeout: int = 10_000, now: float = 0.0) -> Peer:
        """Another connection for the same session."""
        assert self.greeting is not None
        other = Peer(self.processor, member=member, now=now)
        return other.connect(
            session_id=self.greeting.session_id, passwd=self.greeting.passwd or b"", timeout=timeout
        )

    @property
    def session_id(self) -> int:
        assert self.greeting is not None
        return self.greeting.session_id

    def ask(self, op: ops.Op, record: Record | None = None, *, body: bytes = b"") -> None:
        self.xid += 1
        self._asked[self.xid] = op
        header = r.RequestHeader(self.xid, op.opcode).encode()
        self.send(frame(header + (record.encode() if record is not None else body)))

    def received(self) -> list[Received]:
        """What has come since the last look."""
        return [self._read(body) for body in self.raw_frames()]

    def _read(self, raw: bytes) -> Received:
        header, at = r.ReplyHeader.unpack(raw)
        if header.xid == ops.NOTIFICATION_XID:
            event = r.WatcherEvent.decode(raw, at)
            return Told(event.type, event.path)
        op = self._asked.get(header.xid)
        kind: Any = op.reply if op is not None else None
        # What is no single record, as the answer to a multi, is looked at in bytes.
        is_record = isinstance(kind, type) and issubclass(kind, Record)
        body = kind.decode(raw, at) if is_record and not header.err else raw[at:]
        return Reply(header.xid, header.zxid, header.err, body)

    def call(self, op: ops.Op, record: Record | None = None) -> Reply:
        """Ask, and return the one thing that comes back."""
        self.ask(op, record)
        (reply,) = self.received()
        assert isinstance(reply, Reply)
        return reply

    # --- shorthands -------------------------------------------------------------------------------

    def create(self, path: str, flags: int = 0, acl: Any = OPEN_ACL_UNSAFE) -> Reply:
        return self.call(ops.CREATE, r.CreateRequest(path, b"", acl, flags))

    def exists(self, path: str, watch: bool = False) -> Reply:
        return self.call(ops.EXISTS, r.ExistsRequest(path, watch))

    def get(self, path: str, watch: bool = False) -> Reply:
        return self.call(ops.GET_DATA, r.GetDataRequest(path, watch))

    def children(self, path: str, watch: bool = False) -> Reply:
        return self.call(ops.GET_CHILDREN, r.GetChildrenRequest(path, watch))

    def set(self, path: str, data: bytes = b"x", version: int = -1) -> Reply:
        return self.call(ops.SET_DATA, r.SetDataRequest(path, data, version))

    def delete(self, path: str, version: int = -1) -> Reply:
        return self.call(ops.DELETE, r.DeleteRequest(path, version))


def multi_body(*parts: tuple[ops.Op, Record]) -> bytes:
    pieces = [r.MultiHeader(op.opcode, False, -1).encode() + q.encode() for op, q in parts]
    return b"".join(pieces) + r.MultiHeader(-1, True, -1).encode()


def make_processor(**options: Any) -> Processor:
    return Processor(rng=random.Random(1), **options)


def connected(**options: Any) -> Peer:
    """A new session on a processor of its own."""
    return Peer(make_processor(**options)).connect()
