"""Every record that a client and a server exchange: ZooKeeper's ``zookeeper.jute``, transcribed.

The order and the record names are the schema's, field names are the schema's in snake case.  This
module decides nothing but which values may be null on the wire: their layout says ``| None``.
"""

from __future__ import annotations

from zkwire.jute.record import Bool, Buffer, Int, Long, Record, Secret, Tail, UString, Vector

# --- module org.apache.zookeeper.data -------------------------------------------------------------


class Id(Record):
    """The clients that an ACL entry is for: ``("world", "anyone")``, ``("auth", "")``, ...

    ``("digest", "user:" + base64(sha1("user:password")))`` is a client with that password.
    """

    scheme: UString
    id: UString


class ACL(Record):
    """One entry of a node's access list: ``perms``, a sum of ``Perms``, is what ``id`` may do."""

    perms: Int
    id: Id


class Stat(Record):
    """What a server stores about a node: zxids, times in milliseconds since 1970, versions, sizes.

    ``czxid`` and ``mzxid`` name the transactions that created the node and last changed its data,
    ``pzxid`` the last one that changed its list of children.  ``ephemeral_owner`` is the session id
    of an ephemeral node and 0 for every other node that a client can see.
    """

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long


class ClientInfo(Record):
    """One identity that a server has given a connection: a scheme, and a user of that scheme."""

    auth_scheme: UString
    user: UString


# --- module org.apache.zookeeper.proto ------------------------------------------------------------


class ConnectRequest(Record):
    """The greeting, the first frame of a connection: without a header, and without an xid.

    ``time_out`` is asked for, in milliseconds; ``session_id`` is 0 for a new session.  A server
    that is behind ``last_zxid_seen`` closes the connection.
    """

    protocol_version: Int
    last_zxid_seen: Long
    time_out: Int
    session_id: Long
    passwd: Secret | None
    read_only: Tail[Bool]


class ConnectResponse(Record):
    """The answer to it; ``time_out`` is granted, in milliseconds, 0 for an expired session."""

    protocol_version: Int
    time_out: Int
    session_id: Long
    passwd: Secret | None
    read_only: Tail[Bool]


class SetWatches(Record):
    """Watches to set again on a new connection; a change after the zxid fires them at once."""

    relative_zxid: Long
    data_watches: Vector[UString]
    exist_watches: Vector[UString]
    child_watches: Vector[UString]


class SetWatches2(Record):
    """The same, with persistent watches; servers know it since 3.6."""

    relative_zxid: Long
    data_watches: Vector[UString]
    exist_watches: Vector[UString]
    child_watches: Vector[UString]
    persistent_watches: Vector[UString]
    persistent_recursive_watches: Vector[UString]


class RequestHeader(Record):
    """The beginning of every request but the greeting; ``type`` is the opcode."""

    xid: Int
    type: Int


class MultiHeader(Record):
    """The header of each operation of a multi and of each result; ``done`` behind the last one."""

    type: Int
    done: Bool
    err: Int


class AuthPacket(Record):
    """A credential; ``type`` is always 0."""

    type: Int
    scheme: UString
    auth: Secret | None


class ReplyHeader(Record):
    """The beginning of every reply but the greeting's, and of every watch event."""

    xid: Int
    zxid: Long
    err: Int


class GetDataRequest(Record):
    path: UString
    watch: Bool


class SetDataRequest(Record):
    path: UString
    data: Buffer | None
    version: Int


class ReconfigRequest(Record):
    """Servers to add and to remove, or all members; a ``cur_config_id`` of -1 is any."""

    joining_servers: UString | None
    leaving_servers: UString | None
    new_members: UString | None
    cur_config_id: Long


class SetDataResponse(Record):
    stat: Stat


class GetSASLRequest(Record):
    token: Secret | None


class SetSASLRequest(Record):
    token: Secret | None


class SetSASLResponse(Record):
    token: Secret | None


class CreateRequest(Record):
    """``flags`` is 0, 1 ephemeral, 2 sequential, 3 both; or 4 container."""

    path: UString
    data: Buffer | None
    acl: Vector[ACL] | None
    flags: Int


class CreateTTLRequest(Record):
    """``flags`` is 5 or, sequential, 6; ``ttl`` 1 to 2**40 - 1 milliseconds.

    Anything else can end the server's process, and keep it from starting again.
    """

    path: UString
    data: Buffer | None
    acl: Vector[ACL] | None
    flags: Int
    ttl: Long


class DeleteRequest(Record):
    path: UString
    version: Int


class GetChildrenRequest(Record):
    path: UString
    watch: Bool


class GetAllChildrenNumberRequest(Record):
    path: UString


class GetChildren2Request(Record):
    path: UString
    watch: Bool


class CheckVersionRequest(Record):
    path: UString
    version: Int


class GetMaxChildrenRequest(Record):
    path: UString


class GetMaxChildrenResponse(Record):
    max: Int


class SetMaxChildrenRequest(Record):
    path: UString
    max: Int


class SyncRequest(Record):
    path: UString


class SyncResponse(Record):
    path: UString


class GetACLRequest(Record):
    path: UString


class SetACLRequest(Record):
    path: UString
    acl: Vector[ACL] | None
    version: Int


class SetACLResponse(Record):
    stat: Stat


class AddWatchRequest(Record):
    path: UString
    mode: Int


class WatcherEvent(Record):
    """A watch has fired; ``state`` is always 3, connected."""

    type: Int
    state: Int
    path: UString


class ErrorResponse(Record):
    err: Int


class CreateResponse(Record):
    path: UString


class Create2Response(Record):
    path: UString
    stat: Stat


class ExistsRequest(Record):
    path: UString
    watch: Bool


class ExistsResponse(Record):
    stat: Stat


class GetDataResponse(Record):
    data: Buffer | None
    stat: Stat


class GetChildrenResponse(Record):
    children: Vector[UString]


class GetAllChildrenNumberResponse(Record):
    total_number: Int


class GetChildren2Response(Record):
    children: Vector[UString]
    stat: Stat


class GetACLResponse(Record):
    acl: Vector[ACL]
    stat: Stat


class CheckWatchesRequest(Record):
    path: UString
    type: Int


class RemoveWatchesRequest(Record):
    path: UString
    type: Int


class GetEphemeralsRequest(Record):
    prefix_path: UString | None


class GetEphemeralsResponse(Record):
    ephemerals: Vector[UString]


class WhoAmIResponse(Record):
    client_info: Vector[ClientInfo]


RECORDS: tuple[type[Record], ...] = tuple(
    value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, Record) and value is not Record
)
