"""The operations of the protocol, one :class:`Op` per opcode, and the bytes of a request.

An Op has what the layers above need to know about an operation: its opcode (Java's
``ZooDefs.OpCode``), the records of its request and reply, the kind of watch that it can set,
whether it changes anything on the server (if not, repeating it is safe), and ``since``, the first
release whose servers know it.  It must not know paths, chroots or sessions.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from zkwire.errors import ProtocolError
from zkwire.jute import records as r
from zkwire.jute.multi import MultiResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from zkwire.jute.record import Record


class WatchKind(IntEnum):
    """The kinds of watch, by the request that sets them, in the order of a set_watches2 request.

    A server keeps DATA, EXIST and RECURSIVE watches in one table, CHILD watches in another, and
    PERSISTENT ones in both (Java's ``DataTree.addWatch``).
    """

    DATA = 0
    EXIST = 1
    CHILD = 2
    PERSISTENT = 3
    RECURSIVE = 4


# Persistent kinds: firing does not end them.
LASTING = (WatchKind.PERSISTENT, WatchKind.RECURSIVE)


_PATHS = ("path", "prefix_path")


class Op:
    """One operation; see the module's docstring."""

    __slots__ = ("changes", "name", "opcode", "release", "reply", "request", "since", "watch")

    def __init__(
        self,
        name: str,
        opcode: int,
        request: type[Record] | None,
        reply: type[Record | MultiResponse] | None,
        *,
        changes: bool = False,
        watch: WatchKind | None = None,
        since: str = "3.0",
    ) -> None:
        self.name: str = name
        self.opcode: int = opcode
        self.request: type[Record] | None = request
        self.reply: type[Record | MultiResponse] | None = reply
        self.changes: bool = changes
        self.watch: WatchKind | None = watch
        self.since: str = since
        self.release: tuple[int, ...] = tuple(map(int, since.split(".")))

    @property
    def has_path(self) -> bool:
        """Whether the request begins with the path of a node."""
        return self.request is not None and next(iter(self.request.__annotations__), "") in _PATHS

    def decode_reply(self, data: bytes, at: int, end: int) -> Record | MultiResponse | None:
        """The record that fills ``data[at:end]``, None if there is none; raises ProtocolError."""
        if self.reply is not None:
            return self.reply.decode(data, at, end)
        if at != end:
            raise ProtocolError(f"{end - at} unknown trailing bytes")
        return None

    def __repr__(self) -> str:
        return f"<Op {self.name} {self.opcode}>"


CREATE = Op("create", 1, r.CreateRequest, r.CreateResponse, changes=True)
DELETE = Op("delete", 2, r.DeleteRequest, None, changes=True)
# The replies of the schema that hold a stat and nothing else are read as that stat.
EXISTS = Op("exists", 3, r.ExistsRequest, r.Stat, watch=WatchKind.EXIST)
GET_DATA = Op("get_data", 4, r.GetDataRequest, r.GetDataResponse, watch=WatchKind.DATA)
SET_DATA = Op("set_data", 5, r.SetDataRequest, r.Stat, changes=True)
GET_ACL = Op("get_acl", 6, r.GetACLRequest, r.GetACLResponse)
SET_ACL = Op("set_acl", 7, r.SetACLRequest, r.Stat, changes=True)
GET_CHILDREN = Op(
    "get_children", 8, r.GetChildrenRequest, r.GetChildrenResponse, watch=WatchKind.CHILD
)
SYNC = Op("sync", 9, r.SyncRequest, r.SyncResponse)
PING = Op("ping", 11, None, None)
GET_CHILDREN2 = Op(
    "get_children2",
    12,
    r.GetChildren2Request,
    r.GetChildren2Response,
    watch=WatchKind.CHILD,
    since="3.3.0",
)
CHECK = Op("check", 13, r.CheckVersionRequest, None, since="3.4.0")
MULTI = Op("multi", 14, None, MultiResponse, changes=True, since="3.4.0")
CREATE2 = Op("create2", 15, r.CreateRequest, r.Create2Response, changes=True, since="3.5.0")
RECONFIG = Op("reconfig", 16, r.ReconfigRequest, r.GetDataResponse, changes=True, since="3.5.0")
CHECK_WATCHES = Op("check_watches", 17, r.CheckWatchesRequest, None, since="3.5.0")
REMOVE_WATCHES = Op("remove_watches", 18, r.RemoveWatchesRequest, None, since="3.5.0")
CREATE_CONTAINER = Op(
    "create_container", 19, r.CreateRequest, r.Create2Response, changes=True, since="3.5.1"
)
CREATE_TTL = Op(
    "create_ttl", 21, r.CreateTTLRequest, r.Create2Response, changes=True, since="3.5.3"
)
MULTI_READ = Op("multi_read", 22, None, MultiResponse, since="3.6.0")
AUTH = Op("auth", 100, r.AuthPacket, None)
SET_WATCHES = Op("set_watches", 101, r.SetWatches, None)
SASL = Op("sasl", 102, r.GetSASLRequest, r.SetSASLResponse, since="3.4.0")
GET_EPHEMERALS = Op(
    "get_ephemerals", 103, r.GetEphemeralsRequest, r.GetEphemeralsResponse, since="3.6.0"
)
GET_ALL_CHILDREN_NUMBER = Op(
    "get_all_children_number",
    104,
    r.GetAllChildrenNumberRequest,
    r.GetAllChildrenNumberResponse,
    since="3.6.0",
)
SET_WATCHES2 = Op("set_watches2", 105, r.SetWatches2, None, since="3.6.0")
ADD_WATCH = Op("add_watch", 106, r.AddWatchRequest, r.ErrorResponse, since="3.6.0")
WHO_AM_I = Op("who_am_i", 107, None, r.WhoAmIResponse, since="3.7.0")
CLOSE_SESSION = Op("close_session", -11, None, None, changes=True)

OPS: dict[int, Op] = {op.opcode: op for op in list(globals().values()) if isinstance(op, Op)}

# Reserved xids; ordinary requests use 1 to 2**31 - 1.
NOTIFICATION_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8

# --- the header of a request ----------------------------------------------------------------------

_HEADER = struct.Struct(">iii")
HEADER_BYTES = _HEADER.size
LENGTH_BYTES = 4  # at the header's beginning; the length does not count itself

pack_header: Final = _HEADER.pack
"""A header, of three numbers: how many bytes follow the length, the xid, the opcode."""


def encode(xid: int, op: Op, body: bytes = b"") -> bytes:
    """A whole request."""
    return pack_header(len(body) + HEADER_BYTES - LENGTH_BYTES, xid, op.opcode) + body


PING_FRAME = encode(PING_XID, PING)
