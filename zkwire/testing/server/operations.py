"""The operations, as ``FinalRequestProcessor`` and ``PrepRequestProcessor`` of 3.8 decide them.

Each operation is a function that gets the server's state, the connection and the request's record,
and raises one of the client's error classes for a refusal.  A read returns the reply's body.  A
write runs within a transaction, which :func:`write` begins; it returns the reply's body and the
events, which must be sent before the reply.  :func:`multi` puts several writes into one
transaction.

:func:`read` and :func:`write` decode the body, and raise ProtocolError if that is impossible.
Trailing bytes are ignored, as on a real server.

Two differences: a real server that finds a null path in a multi_read sends the part of the answer
that it has encoded so far together with the error; and before 3.9, a multi with a null path is no
transaction on a real server, and is refused with an end marker as the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

from zkwire import errors
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.server import java
from zkwire.testing.server.credentials import without_digests
from zkwire.testing.server.rules import DELETE_CONTAINER
from zkwire.testing.server.sessions import Connection
from zkwire.testing.server.state import Kind, ServerState, Watchers, WatchTable
from zkwire.testing.server.tree import CONTAINER, LONGEST_TTL, Event, NewNode, Node, ttl_owner
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms
from zkwire.wire.paths import CONFIG_NODE

Read: TypeAlias = Callable[[ServerState, Connection, Any], bytes]

_NULL: Final = b"\xff\xff\xff\xff"
_ERROR: Final = -1  # the type of a refused operation in the answer to a multi
_END: Final = r.MultiHeader.pack(_ERROR, True, -1)
_ADD_WATCH_MODES: Final = {0: False, 1: True}  # whether recursive


class PartialAnswerError(errors.MarshallingError):
    """The request cannot be decoded, and part of the answer (``body``) is encoded already."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


def _readable(state: ServerState, connection: Connection, path: str) -> Node:
    node = state.tree.node(path)
    connection.credentials.require(node.acl, Perms.READ)
    return node


def exists(state: ServerState, connection: Connection, request: r.ExistsRequest) -> bytes:
    """The stat of a node.  3.8.0 asks for no permission; 3.8.4 and 3.9.2 want READ."""
    if "\0" in request.path:
        raise errors.BadArgumentsError
    if not state.rules.before_39 and (request.path or "/") in state.tree.nodes:
        _readable(state, connection, request.path)
    if request.watch:
        state.watchers.data.add(request.path, connection)  # also where there is no node
    return r.ExistsResponse.pack(state.tree.node(request.path).stat())


def get_data(state: ServerState, connection: Connection, request: r.GetDataRequest) -> bytes:
    """A node's data and stat."""
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watchers.data.add(request.path, connection)
    return r.GetDataResponse.pack(node.data, node.stat())


def get_children(
    state: ServerState,
    connection: Connection,
    request: r.GetChildrenRequest | r.GetChildren2Request,
) -> bytes:
    """The names of a node's children; for get_children2 with its stat."""
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watchers.child.add(request.path, connection)
    names = tuple(node.children)
    if isinstance(request, r.GetChildren2Request):
        return r.GetChildren2Response.pack(names, node.stat())
    return r.GetChildrenResponse.pack(names)


def get_acl(state: ServerState, connection: Connection, request: r.GetACLRequest) -> bytes:
    """A node's ACL, without hashes unless the connection may change it."""
    node = state.tree.node(request.path)
    connection.credentials.require(node.acl, Perms.READ | Perms.ADMIN)
    may_change = connection.credentials.allows(node.acl, Perms.ADMIN)
    acl = node.acl if may_change else without_digests(node.acl)
    return java.write(r.GetACLResponse(acl, node.stat()))


def sync(_state: ServerState, _connection: Connection, body: bytes) -> bytes:
    """Answer at once, since all members share one tree.  Any path is accepted, even null."""
    if body.startswith(_NULL):
        return _NULL
    request, _ = java.read(r.SyncRequest, body)
    return java.write(r.SyncResponse(request.path))


def set_watches(
    state: ServerState, connection: Connection, request: r.SetWatches | r.SetWatches2
) -> bytes:
    """Set the watches of an earlier connection, and send the events that it missed (DataTree).

    Persistent watches, which only SetWatches2 has, get no events for changes that they missed.
    """
    nodes, watchers = state.tree.nodes, state.watchers

    def resume(path: str, zxid: str, change: EventType, table: WatchTable) -> None:
        """Send the event that was missed, or set the watch; ``zxid`` names the change's zxid."""
        node = nodes.get(path or "/")
        if node is None:
            state.send_event(connection, EventType.NODE_DELETED, path)
        elif getattr(node, zxid) > request.relative_zxid:
            state.send_event(connection, change, path)
        else:
            table.add(path, connection)

    for path in request.data_watches:
        resume(path, "mzxid", EventType.NODE_DATA_CHANGED, watchers.data)
    for path in request.exist_watches:
        if (path or "/") in nodes:
            state.send_event(connection, EventType.NODE_CREATED, path)
        else:
            watchers.data.add(path, connection)
    for path in request.child_watches:
        resume(path, "pzxid", EventType.NODE_CHILDREN_CHANGED, watchers.child)
    if isinstance(request, r.SetWatches2):
        for path in request.persistent_watches:
            watchers.watch_persistently(path, connection, recursive=False)
        for path in request.persistent_recursive_watches:
            watchers.watch_persistently(path, connection, recursive=True)
    return b""


def add_watch(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Set a persistent watch.  Any path is accepted, and no permission is needed.

    A watch on null that is not recursive is accepted, too; no event can fire it.
    """
    if body == _NULL + bytes(4):
        return r.ErrorResponse.pack(0)
    request, _ = java.read(r.AddWatchRequest, body)
    if request.mode not in _ADD_WATCH_MODES:
        raise errors.MarshallingError
    recursive = _ADD_WATCH_MODES[request.mode]
    state.watchers.watch_persistently(request.path, connection, recursive=recursive)
    return r.ErrorResponse.pack(0)


def find_watches(
    find: Callable[[Watchers, str, Connection, Kind], bool],
    state: ServerState,
    connection: Connection,
    request: r.CheckWatchesRequest | r.RemoveWatchesRequest,
) -> bytes:
    """Find the watches of this type, to check that there are some or to remove them.

    A number that is no type is a MarshallingError: fromInt throws no KeeperException.
    """
    try:
        kind = Kind(request.type)
    except ValueError:
        raise errors.MarshallingError from None
    if state.rules.before_39 and kind > Kind.ANY:
        raise errors.MarshallingError
    if not find(state.watchers, request.path, connection, kind):
        raise errors.NoWatcherError
    return b""


def get_ephemerals(
    state: ServerState, connection: Connection, request: r.GetEphemeralsRequest
) -> bytes:
    """The session's ephemeral nodes whose path starts with these characters."""
    assert connection.session is not None
    paths = state.tree.ephemerals(connection.session.session_id)
    prefix = request.prefix_path or ""
    if prefix.strip() not in {"", "/"}:
        paths = [path for path in paths if path.startswith(prefix)]
    return r.GetEphemeralsResponse.pack(tuple(paths))


def get_all_children_number(
    state: ServerState, connection: Connection, request: r.GetAllChildrenNumberRequest
) -> bytes:
    """How many nodes there are below a node."""
    _readable(state, connection, request.path)
    return r.GetAllChildrenNumberResponse.pack(state.tree.descendants(request.path))


def who_am_i(_state: ServerState, connection: Connection, _body: bytes) -> bytes:
    """The connection's ids."""
    return java.write(r.WhoAmIResponse(connection.credentials.client_infos()))


def multi_read(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Several reads; each succeeds or fails on its own."""
    parts: list[bytes] = []
    for opcode, request in _reads_in_multi(body):
        try:
            result = READS[opcode](state, connection, request._replace(watch=False))
            parts += (r.MultiHeader.pack(opcode, False, 0), result)
        except (errors.NoNodeError, errors.NoAuthError) as refusal:
            parts.append(_refused(refusal.code))
    return b"".join(parts) + _END


def _reads_in_multi(body: bytes) -> list[tuple[int, Record]]:
    """The operations of a multi_read.

    A mix of reads and writes cannot be decoded.  If there are only writes, the first is refused
    after the answer has begun.
    """
    found: list[tuple[int, Record]] = []
    header, at = java.read(r.MultiHeader, body)
    while not header.done:
        if header.type not in _READ_IN_MULTI | _WRITTEN_IN_MULTI:
            raise errors.MarshallingError
        request, at = java.read(_REQUESTS[header.type], body, at)
        found.append((header.type, request))
        header, at = r.MultiHeader.unpack(body, at)
    are_writes = {opcode in _WRITTEN_IN_MULTI for opcode, _ in found}
    if are_writes == {True}:
        raise PartialAnswerError(_END)
    if True in are_writes:
        raise errors.MarshallingError
    return found


READS: Final[dict[int, Read]] = {
    ops.EXISTS.opcode: exists,
    ops.GET_DATA.opcode: get_data,
    ops.GET_ACL.opcode: get_acl,
    ops.GET_CHILDREN.opcode: get_children,
    ops.GET_CHILDREN2.opcode: get_children,
    ops.SYNC.opcode: sync,
    ops.CHECK_WATCHES.opcode: partial(find_watches, Watchers.has),
    ops.REMOVE_WATCHES.opcode: partial(find_watches, Watchers.remove),
    ops.MULTI_READ.opcode: multi_read,
    ops.SET_WATCHES.opcode: set_watches,
    ops.SET_WATCHES2.opcode: set_watches,
    ops.ADD_WATCH.opcode: add_watch,
    ops.GET_EPHEMERALS.opcode: get_ephemerals,
    ops.GET_ALL_CHILDREN_NUMBER.opcode: get_all_children_number,
    ops.WHO_AM_I.opcode: who_am_i,
}


# The records that bodies are decoded to; None where the function gets the body.
_REQUESTS: Final[dict[int, Any]] = {
    **{op.opcode: op.request for op in (*ops.OPS.values(), DELETE_CONTAINER)},
    ops.SYNC.opcode: None,
    ops.ADD_WATCH.opcode: None,
}

Outcome: TypeAlias = tuple[bytes, list[Event]]
Operation: TypeAlias = Callable[[ServerState, Connection, int, bytes], Outcome]
Write: TypeAlias = Callable[[ServerState, Connection, Any], Outcome]

# PathUtils.validatePath refuses null like any other invalid path; elsewhere null causes a
# NullPointerException and so a errors.MarshallingError.
_EMPTY: Final = bytes(4)
_NO_PATH: Final = {ops.RECONFIG.opcode, DELETE_CONTAINER.opcode}
_VALIDATED_FIRST: Final = {ops.SET_DATA.opcode, ops.SET_ACL.opcode, ops.CHECK.opcode}

# CreateMode.java: flags are an enumeration, not bits.
_EPHEMERAL: Final = {1, 3}
_SEQUENTIAL: Final = {2, 3, 6}
_CONTAINER: Final = 4
_TTL: Final = {5, 6}
_LAST_FLAG: Final = 6


def _owner(state: ServerState, connection: Connection, opcode: int, flags: int, ttl: int) -> int:
    """The owner that a create's flags ask for (PrepRequestProcessor.validateCreateRequest).

    A create_ttl whose flags name no TTL mode and whose ttl is -1 crashes a real server; here it is
    refused.
    """
    if not 0 <= flags <= _LAST_FLAG:
        raise errors.BadArgumentsError
    if flags in _TTL:
        if not state.rules.extended_types:
            raise errors.UnimplementedError
        if not 0 < ttl <= LONGEST_TTL:
            raise errors.BadArgumentsError
        # Without the opcode create_ttl, ttl is -1: the flag alone makes no TTL node.
        return ttl_owner(ttl)
    if ttl >= 0 or opcode == ops.CREATE_TTL.opcode:
        raise errors.BadArgumentsError
    if opcode == ops.CREATE_CONTAINER.opcode:
        return CONTAINER
    assert connection.session is not None
    return connection.session.session_id if flags in _EPHEMERAL else 0


def create(
    state: ServerState,
    connection: Connection,
    request: r.CreateRequest | r.CreateTTLRequest,
    *,
    opcode: int,
) -> Outcome:
    """All four kinds of create; all but the first also answer with the new node's stat."""
    ttl = request.ttl if isinstance(request, r.CreateTTLRequest) else -1
    owner = _owner(state, connection, opcode, request.flags, ttl)
    new = NewNode(request.path, request.data, request.acl, owner, request.flags in _SEQUENTIAL)
    path, node, events = state.tree.create(new, connection.credentials)
    is_plain = opcode == ops.CREATE.opcode
    answer = r.CreateResponse.pack(path) if is_plain else r.Create2Response.pack(path, node.stat())
    state.tree.count_new(path)
    return answer, events


def delete(state: ServerState, connection: Connection, request: r.DeleteRequest) -> Outcome:
    return b"", state.tree.delete(request.path, request.version, connection.credentials)


def set_data(state: ServerState, connection: Connection, request: r.SetDataRequest) -> Outcome:
    node, events = state.tree.set_data(
        request.path, request.data, request.version, connection.credentials
    )
    return r.SetDataResponse.pack(node.stat()), events


def set_acl(state: ServerState, connection: Connection, request: r.SetACLRequest) -> Outcome:
    """Replace a node's ACL, which causes no event."""
    node = state.tree.set_acl(request.path, request.acl, request.version, connection.credentials)
    return r.SetACLResponse.pack(node.stat()), []


def check(state: ServerState, connection: Connection, request: r.CheckVersionRequest) -> Outcome:
    """Check a node's version.

    From 3.9 on a check alone, outside a multi, is unknown.  Before, one that succeeds is never
    answered.
    """
    state.tree.check(request.path, request.version, connection.credentials)
    return b"", []


_ANY_VERSION: Final = -1
_FEWEST: Final = 2  # voters: with fewer a server would be standalone (standaloneEnabled)
_OBSERVER: Final = ":observer;"
_SERVER: Final = re.compile(
    r"(?P<host>[^;]+?):(?P<quorum>\d+):(?P<election>\d+)(?::(?P<role>participant|observer))?"
    r"(?:;(?:(?P<client_host>.+):)?(?P<client>\d+))?"
)

Members = dict[int, str]


def member_line(host: str, client_port: int) -> str:
    """One server's part of the text; the embedded server does not use the other ports."""
    return f"{host}:2888:3888:participant;{host}:{client_port}"


def text_of(members: Members, version: int) -> bytes:
    """QuorumMaj.toString."""
    lines = [f"server.{number}={members[number]}" for number in sorted(members)]
    return "\n".join([*lines, f"version={version:x}"]).encode()


def parse(text: bytes) -> tuple[Members, int]:
    """The members and the version in a text; {} and 0 if they are missing."""
    members: Members = {}
    version = 0
    for line in text.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key == "version":
            version = _number(value, 16)
        elif key.startswith("server."):
            members[_number(key.removeprefix("server."))] = value
    return members, version


def reconfig(state: ServerState, connection: Connection, request: r.ReconfigRequest) -> Outcome:
    """Change the ensemble's configuration, the text of ``/zookeeper/config``.

    It decides what ``PrepRequestProcessor`` and ``QuorumMaj`` of 3.8 decide, and changes only the
    text: the embedded ensemble keeps its servers.
    """
    if not state.rules.reconfig:
        raise errors.ReconfigDisabledError
    if state.members == 1:
        raise errors.UnimplementedError
    node = state.tree.node(CONFIG_NODE)
    members, version = parse(node.data or b"")
    if request.cur_config_id not in {_ANY_VERSION, version}:
        raise errors.BadVersionError
    if request.new_members is not None:
        members = _servers(re.split(r"[,\n]", request.new_members))
    else:
        for leaving in _split(request.leaving_servers):
            members.pop(_number(leaving), None)
        members.update(_servers(_split(request.joining_servers)))
    voters = {number for number, spec in members.items() if _OBSERVER not in spec}
    if len(voters) < _FEWEST:
        raise errors.BadArgumentsError
    if 2 * len(voters & set(range(1, state.members + 1))) <= len(voters):
        raise errors.NewConfigNoQuorumError
    connection.credentials.require(node.acl, Perms.WRITE)
    events = state.tree.configure(text_of(members, state.tree.zxid))
    return r.GetDataResponse.pack(node.data, node.stat()), events


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _number(text: str, base: int = 10) -> int:
    try:
        return int(text if text.replace("-", "").isalnum() else "", base)
    except ValueError:
        raise errors.MarshallingError from None  # a NumberFormatException is no KeeperException


def _servers(parts: Iterable[str]) -> Members:
    """The members in ``server.N=host:port:port[:role];[host:]port``, with defaults filled in."""
    found: Members = {}
    for part in filter(None, map(str.strip, parts)):
        key, _, value = part.partition("=")
        match = _SERVER.fullmatch(value.strip())
        if match is None or match["client"] is None:
            raise errors.BadArgumentsError
        number = _number(key.strip().removeprefix("server."))
        role = match["role"] or "participant"
        client_host = match["client_host"] or "0.0.0.0"
        found[number] = (
            f"{match['host']}:{match['quorum']}:{match['election']}:{role}"
            f";{client_host}:{match['client']}"
        )
    return found


def delete_container(state: ServerState, connection: Connection, request: r.SyncRequest) -> Outcome:
    """An operation of servers; 3.9.5 carries it out for any client, whatever the ACL says."""
    return b"", state.tree.delete_container(request.path)


_CREATES = (ops.CREATE, ops.CREATE2, ops.CREATE_CONTAINER, ops.CREATE_TTL)
WRITES: Final[dict[int, Write]] = {
    **{op.opcode: partial(create, opcode=op.opcode) for op in _CREATES},
    ops.DELETE.opcode: delete,
    ops.SET_DATA.opcode: set_data,
    ops.SET_ACL.opcode: set_acl,
    ops.CHECK.opcode: check,
    ops.RECONFIG.opcode: reconfig,
    DELETE_CONTAINER.opcode: delete_container,
}

_READ_IN_MULTI: Final = {ops.GET_DATA.opcode, ops.GET_CHILDREN.opcode}
_WRITTEN_IN_MULTI: Final = {op.opcode for op in (*_CREATES, ops.DELETE, ops.SET_DATA, ops.CHECK)}

# OpResult: an answer has the type of its operation, but every create with a stat has create2.
_ANSWERED_AS: Final = {
    ops.CREATE_CONTAINER.opcode: ops.CREATE2.opcode,
    ops.CREATE_TTL.opcode: ops.CREATE2.opcode,
}


def read(state: ServerState, connection: Connection, opcode: int, body: bytes) -> Outcome:
    """Carry out one operation of READS."""
    kind = _REQUESTS[opcode]
    request = body if kind is None else java.read(kind, body)[0]
    return READS[opcode](state, connection, request), []


def write(state: ServerState, connection: Connection, opcode: int, body: bytes) -> Outcome:
    """Carry out one operation of WRITES, or a multi.

    3.9 decodes a request before it takes a zxid, so an invalid request takes none; earlier versions
    do so only with a reconfig.  A request with a null path or a null id can be decoded.
    """
    old = state.rules.before_39
    reads_first = opcode == ops.RECONFIG.opcode or not old
    if opcode == ops.MULTI.opcode:
        return multi(state, connection, body)
    if not reads_first:
        state.tree.begin(state.now)
    if opcode == DELETE_CONTAINER.opcode and old:
        raise errors.BadArgumentsError  # for any body
    nameless = opcode not in _NO_PATH and body.startswith(_NULL)
    try:
        request, _ = java.read(_REQUESTS[opcode], _EMPTY + body[4:] if nameless else body)
    except java.NullIdError:
        if reads_first:
            state.tree.begin(state.now)
        raise
    if reads_first:
        state.tree.begin(state.now)
    if nameless and opcode not in _VALIDATED_FIRST:
        raise errors.MarshallingError
    return WRITES[opcode](state, connection, request)


def multi(state: ServerState, connection: Connection, body: bytes) -> Outcome:
    """Operations in one transaction: all or none.

    A refused operation is no error of the whole multi: each operation has its own code, 0 before
    the refused one and RuntimeInconsistency after it.  A multi that cannot be decoded is refused
    as a whole (errors.MarshallingError).
    """
    requests = _begin_multi(state, body)
    events: list[Event] = []
    parts: list[bytes] = []
    for index, (opcode, request) in enumerate(requests):
        try:
            result, caused = WRITES[opcode](state, connection, request)
        except errors.ServerError as refusal:
            state.tree.roll_back()
            return refused_parts(index, refusal.code, len(requests)), []
        events += caused
        parts += (r.MultiHeader.pack(_ANSWERED_AS.get(opcode, opcode), False, 0), result)
    parts.append(_END)
    return b"".join(parts), events


def refuse_expired_multi(
    state: ServerState, _connection: Connection, _opcode: int, body: bytes
) -> Outcome:
    """The answer to a multi whose session has expired: its first operation is refused."""
    count = len(_begin_multi(state, body))
    return (refused_parts(0, errors.SESSION_EXPIRED, count) if count else _END), []


class _NoTransactionError(errors.MarshallingError):
    """Java reports another exception than IOException here, and takes no zxid for the request."""


def _begin_multi(state: ServerState, body: bytes) -> list[tuple[int, Record]]:
    """The operations of a multi; takes a zxid, also if the multi cannot be decoded."""
    try:
        requests = _read_multi(state, body)
    except _NoTransactionError:
        raise
    except (errors.MarshallingError, errors.ProtocolError):
        state.tree.begin(state.now)
        raise
    state.tree.begin(state.now)
    return requests


def _read_multi(state: ServerState, body: bytes) -> list[tuple[int, Record]]:
    requests: list[tuple[int, Record]] = []
    header, at = r.MultiHeader.unpack(body)
    while not header.done:
        opcode = header.type
        if opcode not in _WRITTEN_IN_MULTI or opcode in state.rules.unknown:
            raise errors.MarshallingError
        request, at = java.read(_REQUESTS[opcode], body, at)
        if opcode == ops.CREATE2.opcode and state.rules.before_39:
            opcode = ops.CREATE.opcode  # ZOOKEEPER-4026, fixed in 3.8.2
        by_flags = _by_flags if state.rules.before_39 else _by_flags_and_opcode
        requests.append(by_flags(opcode, request))
        header, at = r.MultiHeader.unpack(body, at)
    return requests


def _by_flags(opcode: int, request: Record) -> tuple[int, Record]:
    """In a multi the flags of a create, not its opcode, decide which node it makes (Op.Create).

    A create_ttl whose flags name no TTL mode loses its ttl.  If the flags name a TTL mode in a
    request without a ttl, the whole multi cannot be decoded.
    """
    if isinstance(request, r.CreateTTLRequest):
        if request.flags in _TTL:
            return opcode, request
        opcode = ops.CREATE.opcode
        request = r.CreateRequest(request.path, request.data, request.acl, request.flags)
    if isinstance(request, r.CreateRequest):
        if request.flags in _TTL:
            raise errors.MarshallingError
        if request.flags == _CONTAINER:
            opcode = ops.CREATE_CONTAINER.opcode
        elif opcode == ops.CREATE_CONTAINER.opcode:
            opcode = ops.CREATE.opcode
    return opcode, request


def _by_flags_and_opcode(opcode: int, request: Record) -> tuple[int, Record]:
    """As :func:`_by_flags`, from 3.9 on: a create without valid flags and an ACL is not decoded.

    The opcode for containers makes a container, whatever the flags say (CreateOptions).
    """
    if not isinstance(request, r.CreateRequest):
        return _by_flags(opcode, request)
    if not 0 <= request.flags <= _LAST_FLAG:
        raise errors.MarshallingError
    if request.acl is None:
        raise _NoTransactionError
    found, request = _by_flags(opcode, request)
    return (opcode if opcode == ops.CREATE_CONTAINER.opcode else found), request


def refused_parts(culprit: int, code: int, count: int) -> bytes:
    """The results of a multi of so many operations, one of which is refused."""
    codes = [0] * culprit + [code] + [errors.RuntimeInconsistencyError.code] * (count - culprit - 1)
    return b"".join(map(_refused, codes)) + _END


def _refused(code: int) -> bytes:
    return r.MultiHeader.pack(_ERROR, False, code) + r.ErrorResponse.pack(code)
