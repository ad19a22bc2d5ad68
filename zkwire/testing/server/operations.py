"""The operations, as ``FinalRequestProcessor`` and ``PrepRequestProcessor`` of 3.8 decide them.

A function for a read gets the server's state, the connection and the request's body, and returns
the reply's body.  It raises one of the client's error classes for a refusal, and ProtocolError for
a body that cannot be decoded.  Trailing bytes are ignored, as on a real server.

A function for a write gets the request's record, within a transaction that has begun; it returns
the reply's body and the events, which must be sent before the reply.  :func:`write` begins the
transaction; :func:`multi` puts several operations into one.

Two differences: a real server that finds a null path in a multi_read sends the part of the answer
that it has encoded so far together with the error; and before 3.9, a multi with a null path is no
transaction on a real server, and is refused with an end marker as the body.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from zkwire import errors
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.server import java
from zkwire.testing.server.configuration import reconfig
from zkwire.testing.server.credentials import without_digests
from zkwire.testing.server.rules import DELETE_CONTAINER
from zkwire.testing.server.sessions import Connection
from zkwire.testing.server.state import Kind, ServerState
from zkwire.testing.server.tree import CONTAINER, LONGEST_TTL, Event, NewNode, Node, ttl_owner
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms

Read: TypeAlias = Callable[[ServerState, Connection, bytes], bytes]

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


def exists(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """The stat of a node.  3.8.0 asks for no permission; 3.8.4 and 3.9.2 want READ."""
    request, _ = java.read(r.ExistsRequest, body)
    if "\0" in request.path:
        raise errors.BadArgumentsError
    if not state.rules.before_39 and (request.path or "/") in state.tree.nodes:
        _readable(state, connection, request.path)
    if request.watch:
        state.watchers.watch_data(request.path, connection)  # also where there is no node
    return r.ExistsResponse.pack(state.tree.node(request.path).stat())


def get_data(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """A node's data and stat."""
    request, _ = java.read(r.GetDataRequest, body)
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watchers.watch_data(request.path, connection)
    return r.GetDataResponse.pack(node.data, node.stat())


def get_children(
    state: ServerState, connection: Connection, body: bytes, *, with_stat: bool = False
) -> bytes:
    """The names of a node's children; for get_children2 with its stat."""
    request, _ = java.read(r.GetChildrenRequest, body)
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watchers.watch_children(request.path, connection)
    names = tuple(node.children)
    if with_stat:
        return r.GetChildren2Response.pack(names, node.stat())
    return r.GetChildrenResponse.pack(names)


def get_acl(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """A node's ACL, without hashes unless the connection may change it."""
    request, _ = java.read(r.GetACLRequest, body)
    node = state.tree.node(request.path)
    connection.credentials.require(node.acl, Perms.READ | Perms.ADMIN)
    may_change = connection.credentials.allows(node.acl, Perms.ADMIN)
    acl = node.acl if may_change else without_digests(node.acl)
    return java.write(r.GetACLResponse(acl, node.stat()))


def sync(_state: ServerState, _connection: Connection, body: bytes) -> bytes:
    """Answers at once, since all members share one tree.  Any path is accepted, even null."""
    if body.startswith(_NULL):
        return _NULL
    request, _ = java.read(r.SyncRequest, body)
    return java.write(r.SyncResponse(request.path))


def set_watches(
    state: ServerState, connection: Connection, body: bytes,
    kind: type[r.SetWatches | r.SetWatches2] = r.SetWatches,
) -> bytes:  # fmt: skip
    """Set the watches of an earlier connection, and send the events that it missed (DataTree).

    Persistent watches, which only SetWatches2 has, get no events for changes that they missed.
    """
    request, _ = java.read(kind, body)
    _catch_up(state, connection, request)
    if isinstance(request, r.SetWatches2):
        for path in request.persistent_watches:
            state.watchers.watch_persistently(path, connection, recursive=False)
        for path in request.persistent_recursive_watches:
            state.watchers.watch_persistently(path, connection, recursive=True)
    return b""


def _catch_up(
    state: ServerState, connection: Connection, request: r.SetWatches | r.SetWatches2
) -> None:
    since, nodes, watchers = request.relative_zxid, state.tree.nodes, state.watchers
    for path in request.data_watches:
        node = nodes.get(path or "/")
        if node is None:
            state.send_event(connection, EventType.NODE_DELETED, path)
        elif node.mzxid > since:
            state.send_event(connection, EventType.NODE_DATA_CHANGED, path)
        else:
            watchers.watch_data(path, connection)
    for path in request.exist_watches:
        if (path or "/") in nodes:
            state.send_event(connection, EventType.NODE_CREATED, path)
        else:
            watchers.watch_data(path, connection)
    for path in request.child_watches:
        node = nodes.get(path or "/")
        if node is None:
            state.send_event(connection, EventType.NODE_DELETED, path)
        elif node.pzxid > since:
            state.send_event(connection, EventType.NODE_CHILDREN_CHANGED, path)
        else:
            watchers.watch_children(path, connection)


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


def check_watches(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Whether the connection has a watch of this type; up to 3.8, whether any connection has."""
    request, _ = java.read(r.CheckWatchesRequest, body)
    if not state.watchers.has(request.path, connection, _watch_kind(state, request.type)):
        raise errors.NoWatcherError
    return b""


def remove_watches(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Remove the connection's watches of this type."""
    request, _ = java.read(r.RemoveWatchesRequest, body)
    if not state.watchers.remove(request.path, connection, _watch_kind(state, request.type)):
        raise errors.NoWatcherError
    return b""


def _watch_kind(state: ServerState, number: int) -> Kind:
    """The kind with this number; else MarshallingError: fromInt throws no KeeperException."""
    if state.rules.before_39 and number > Kind.ANY:
        raise errors.MarshallingError
    try:
        return Kind(number)
    except ValueError:
        raise errors.MarshallingError from None


def get_ephemerals(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """The session's ephemeral nodes whose path starts with these characters."""
    request, _ = java.read(r.GetEphemeralsRequest, body)
    assert connection.session is not None
    paths = state.tree.ephemerals(connection.session.session_id)
    prefix = request.prefix_path or ""
    if prefix.strip() not in {"", "/"}:
        paths = [path for path in paths if path.startswith(prefix)]
    return r.GetEphemeralsResponse.pack(tuple(paths))


def get_all_children_number(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """How many nodes there are below a node."""
    request, _ = java.read(r.GetAllChildrenNumberRequest, body)
    _readable(state, connection, request.path)
    return r.GetAllChildrenNumberResponse.pack(state.tree.descendants(request.path))


def who_am_i(_state: ServerState, connection: Connection, _body: bytes) -> bytes:
    """The connection's ids."""
    return java.write(r.WhoAmIResponse(connection.credentials.client_infos()))


def multi_read(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Several reads; each succeeds or fails on its own."""
    parts: list[bytes] = []
    for opcode, path in _paths_to_read(body):
        kind, answer = _READS_IN_MULTI[opcode]
        try:
            result = answer(state, connection, kind.pack(path, False))
            parts += (r.MultiHeader.pack(opcode, False, 0), result)
        except (errors.NoNodeError, errors.NoAuthError) as refusal:
            parts += (
                r.MultiHeader.pack(-1, False, refusal.code),
                r.ErrorResponse.pack(refusal.code),
            )
    return b"".join(parts) + _END


def _paths_to_read(body: bytes) -> list[tuple[int, str]]:
    """The opcodes and paths of a multi_read.

    A mix of reads and writes cannot be decoded.  If there are only writes, the first is refused
    after the answer has begun.
    """
    found: list[tuple[int, str]] = []
    header, at = java.read(r.MultiHeader, body)
    while not header.done:
        known: Any = _WRITES_IN_MULTI.get(header.type) or _READS_IN_MULTI.get(header.type)
        if known is None:
            raise errors.MarshallingError
        kind, _ = known
        request, at = java.read(kind, body, at)
        found.append((header.type, request.path))
        header, at = r.MultiHeader.unpack(body, at)
    if found and all(opcode in _WRITES_IN_MULTI for opcode, _ in found):
        raise PartialAnswerError(_END)
    if any(opcode in _WRITES_IN_MULTI for opcode, _ in found):
        raise errors.MarshallingError
    return found


_READS_IN_MULTI: dict[int, tuple[type[r.GetDataRequest] | type[r.GetChildrenRequest], Read]] = {
    ops.GET_DATA.opcode: (r.GetDataRequest, get_data),
    ops.GET_CHILDREN.opcode: (r.GetChildrenRequest, get_children),
}

READS: Final[dict[int, Read]] = {
    ops.EXISTS.opcode: exists,
    ops.GET_DATA.opcode: get_data,
    ops.GET_ACL.opcode: get_acl,
    ops.GET_CHILDREN.opcode: get_children,
    ops.GET_CHILDREN2.opcode: partial(get_children, with_stat=True),
    ops.SYNC.opcode: sync,
    ops.CHECK_WATCHES.opcode: check_watches,
    ops.REMOVE_WATCHES.opcode: remove_watches,
    ops.MULTI_READ.opcode: multi_read,
    ops.SET_WATCHES.opcode: set_watches,
    ops.SET_WATCHES2.opcode: partial(set_watches, kind=r.SetWatches2),
    ops.ADD_WATCH.opcode: add_watch,
    ops.GET_EPHEMERALS.opcode: get_ephemerals,
    ops.GET_ALL_CHILDREN_NUMBER.opcode: get_all_children_number,
    ops.WHO_AM_I.opcode: who_am_i,
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
    """Replace a node's ACL; causes no event."""
    node = state.tree.set_acl(request.path, request.acl, request.version, connection.credentials)
    return r.SetACLResponse.pack(node.stat()), []


def check(state: ServerState, connection: Connection, request: r.CheckVersionRequest) -> Outcome:
    """Check a node's version, in a multi; for a check alone see :data:`WRITES_BEFORE_39`."""
    state.tree.check(request.path, request.version, connection.credentials)
    return b"", []


def delete_container(state: ServerState, connection: Connection, request: r.SyncRequest) -> Outcome:
    """An operation of servers; 3.9.5 carries it out for any client, whatever the ACL says."""
    return b"", state.tree.delete_container(request.path)


_CREATES = (ops.CREATE, ops.CREATE2, ops.CREATE_CONTAINER, ops.CREATE_TTL)
WRITES: Final[dict[int, tuple[Any, Write]]] = {
    **{op.opcode: (op.request, partial(create, opcode=op.opcode)) for op in _CREATES},
    ops.DELETE.opcode: (r.DeleteRequest, delete),
    ops.SET_DATA.opcode: (r.SetDataRequest, set_data),
    ops.SET_ACL.opcode: (r.SetACLRequest, set_acl),
    ops.RECONFIG.opcode: (r.ReconfigRequest, reconfig),
    DELETE_CONTAINER.opcode: (r.SyncRequest, delete_container),
}

WRITES_BEFORE_39: Final = (ops.CHECK.opcode,)
"""From 3.9 on a check alone is unknown.  Before, a check that succeeds is never answered."""

_WRITES_IN_MULTI: Final[dict[int, tuple[Any, Write]]] = {
    **{
        opcode: write
        for opcode, write in WRITES.items()
        if opcode not in {ops.SET_ACL.opcode, ops.RECONFIG.opcode, DELETE_CONTAINER.opcode}
    },
    ops.CHECK.opcode: (r.CheckVersionRequest, check),
}

# OpResult: an answer has the type of its operation, but every create with a stat has create2.
_ANSWERED_AS: Final = {
    ops.CREATE_CONTAINER.opcode: ops.CREATE2.opcode,
    ops.CREATE_TTL.opcode: ops.CREATE2.opcode,
}


def read(state: ServerState, connection: Connection, opcode: int, body: bytes) -> Outcome:
    """Carry out one operation of READS."""
    return READS[opcode](state, connection, body), []


def write(state: ServerState, connection: Connection, opcode: int, body: bytes) -> Outcome:
    """Carry out one operation of WRITES or WRITES_BEFORE_39, or a multi.

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
    kind, carry_out = WRITES.get(opcode) or _WRITES_IN_MULTI[opcode]
    nameless = opcode not in _NO_PATH and body.startswith(_NULL)
    try:
        request, _ = java.read(kind, _EMPTY + body[4:] if nameless else body)
    except java.NullIdError:
        if reads_first:
            state.tree.begin(state.now)
        raise
    if reads_first:
        state.tree.begin(state.now)
    if nameless and opcode not in _VALIDATED_FIRST:
        raise errors.MarshallingError
    return carry_out(state, connection, request)


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
            result, caused = _WRITES_IN_MULTI[opcode][1](state, connection, request)
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
        if opcode not in _WRITES_IN_MULTI or opcode in state.rules.unknown:
            raise errors.MarshallingError
        request, at = java.read(_WRITES_IN_MULTI[opcode][0], body, at)
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
    parts = [r.MultiHeader.pack(_ERROR, False, c) + r.ErrorResponse.pack(c) for c in codes]
    return b"".join(parts) + _END
