"""The requests that change nothing, as ``FinalRequestProcessor`` of 3.8 answers them.

Each function gets the server's state, the connection and the request's body, and returns the
reply's body.  It raises one of the client's error classes for a refusal, and ProtocolError for a
body that cannot be decoded.  Trailing bytes are ignored, as on a real server.

One difference: a real server that finds a null path in a multi_read sends the part of the answer
that it has encoded so far together with the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from zkwire.errors import (
    BadArgumentsError,
    MarshallingError,
    NoAuthError,
    NoNodeError,
    NoWatcherError,
)
from zkwire.jute import records as r
from zkwire.testing.server import java
from zkwire.testing.server.acl import without_digests
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.node import Node
from zkwire.testing.server.state import ServerState
from zkwire.testing.server.watchers import Kind
from zkwire.wire import ops
from zkwire.wire.model import EventType, Perms

Read: TypeAlias = Callable[[ServerState, Connection, bytes], bytes]

_NULL: Final = b"\xff\xff\xff\xff"
_ADD_WATCH_MODES: Final = {0: False, 1: True}  # whether recursive


class PartialAnswerError(MarshallingError):
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
        raise BadArgumentsError
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


def _children(state: ServerState, connection: Connection, path: str, watch: bool) -> Node:
    node = _readable(state, connection, path)
    if watch:
        state.watchers.watch_children(path, connection)
    return node


def get_children(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """The names of a node's children."""
    request, _ = java.read(r.GetChildrenRequest, body)
    node = _children(state, connection, request.path, request.watch)
    return r.GetChildrenResponse.pack(tuple(node.children))


def get_children2(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """The names of a node's children, and its stat."""
    request, _ = java.read(r.GetChildren2Request, body)
    node = _children(state, connection, request.path, request.watch)
    return r.GetChildren2Response.pack(tuple(node.children), node.stat())


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


def set_watches(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Set the watches of an earlier connection, and send the events that it missed (DataTree)."""
    request, _ = java.read(r.SetWatches, body)
    _catch_up(state, connection, request)
    return b""


def set_watches2(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """As set_watches, with persistent watches; these get no events for changes that they missed."""
    request, _ = java.read(r.SetWatches2, body)
    _catch_up(state, connection, request)
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
        raise MarshallingError
    recursive = _ADD_WATCH_MODES[request.mode]
    state.watchers.watch_persistently(request.path, connection, recursive=recursive)
    return r.ErrorResponse.pack(0)


def check_watches(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Whether the connection has a watch of this type; up to 3.8, whether any connection has."""
    request, _ = java.read(r.CheckWatchesRequest, body)
    if not state.watchers.has(request.path, connection, _watch_kind(state, request.type)):
        raise NoWatcherError
    return b""


def remove_watches(state: ServerState, connection: Connection, body: bytes) -> bytes:
    """Remove the connection's watches of this type."""
    request, _ = java.read(r.RemoveWatchesRequest, body)
    if not state.watchers.remove(request.path, connection, _watch_kind(state, request.type)):
        raise NoWatcherError
    return b""


def _watch_kind(state: ServerState, number: int) -> Kind:
    """The kind with this number; else MarshallingError: fromInt throws no KeeperException."""
    if state.rules.before_39 and number > Kind.ANY:
        raise MarshallingError
    try:
        return Kind(number)
    except ValueError:
        raise MarshallingError from None


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
        kind, answer = _IN_MULTI[opcode]
        try:
            result = answer(state, connection, kind.pack(path, False))
            parts += (r.MultiHeader.pack(opcode, False, 0), result)
        except (NoNodeError, NoAuthError) as refusal:
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
        kind = _WRITES_IN_MULTI.get(header.type) or _IN_MULTI.get(header.type, (None,))[0]
        if kind is None:
            raise MarshallingError
        request, at = java.read(kind, body, at)
        found.append((header.type, request.path))
        header, at = r.MultiHeader.unpack(body, at)
    if found and all(opcode in _WRITES_IN_MULTI for opcode, _ in found):
        raise PartialAnswerError(_END)
    if any(opcode in _WRITES_IN_MULTI for opcode, _ in found):
        raise MarshallingError
    return found


_END: Final = r.MultiHeader.pack(-1, True, -1)

_IN_MULTI: dict[int, tuple[type[r.GetDataRequest] | type[r.GetChildrenRequest], Read]] = {
    ops.GET_DATA.opcode: (r.GetDataRequest, get_data),
    ops.GET_CHILDREN.opcode: (r.GetChildrenRequest, get_children),
}

_WRITES_IN_MULTI: Final[dict[int, Any]] = {
    ops.CREATE.opcode: r.CreateRequest,
    ops.DELETE.opcode: r.DeleteRequest,
    ops.SET_DATA.opcode: r.SetDataRequest,
    ops.CHECK.opcode: r.CheckVersionRequest,
    ops.CREATE2.opcode: r.CreateRequest,
    ops.CREATE_CONTAINER.opcode: r.CreateRequest,
    ops.CREATE_TTL.opcode: r.CreateTTLRequest,
}

READS: Final[dict[int, Read]] = {
    ops.EXISTS.opcode: exists,
    ops.GET_DATA.opcode: get_data,
    ops.GET_ACL.opcode: get_acl,
    ops.GET_CHILDREN.opcode: get_children,
    ops.GET_CHILDREN2.opcode: get_children2,
    ops.SYNC.opcode: sync,
    ops.CHECK_WATCHES.opcode: check_watches,
    ops.REMOVE_WATCHES.opcode: remove_watches,
    ops.MULTI_READ.opcode: multi_read,
    ops.SET_WATCHES.opcode: set_watches,
    ops.SET_WATCHES2.opcode: set_watches2,
    ops.ADD_WATCH.opcode: add_watch,
    ops.GET_EPHEMERALS.opcode: get_ephemerals,
    ops.GET_ALL_CHILDREN_NUMBER.opcode: get_all_children_number,
    ops.WHO_AM_I.opcode: who_am_i,
}
