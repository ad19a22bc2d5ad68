"""The requests that are transactions, as ``PrepRequestProcessor`` of 3.8 decides them.

Each function gets the server's state, the connection and the request's record, within a transaction
that has begun; it returns the reply's body and the events, which must be sent before the reply.
:func:`write` begins the transaction; :func:`multi` puts several operations into one.

One difference: before 3.9, a multi with a null path is no transaction on a real server, and is
refused with an end marker as the body.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from zkwire.errors import (
    BadArgumentsError,
    MarshallingError,
    ProtocolError,
    RuntimeInconsistencyError,
    ServerError,
    UnimplementedError,
)
from zkwire.jute import records as r
from zkwire.jute.record import Record
from zkwire.testing.server import java
from zkwire.testing.server.configuration import reconfig
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.node import CONTAINER, LONGEST_TTL, NewNode, ttl_owner
from zkwire.testing.server.rules import DELETE_CONTAINER
from zkwire.testing.server.state import ServerState
from zkwire.testing.server.tree import Event
from zkwire.wire import ops

Outcome: TypeAlias = tuple[bytes, list[Event]]
Write: TypeAlias = Callable[[ServerState, Connection, Any], Outcome]

# PathUtils.validatePath refuses null like any other invalid path; elsewhere null causes a
# NullPointerException and so a MarshallingError.
_NULL: Final = b"\xff\xff\xff\xff"
_EMPTY: Final = bytes(4)
_NO_PATH: Final = {ops.RECONFIG.opcode, DELETE_CONTAINER.opcode}
_VALIDATED_FIRST: Final = {ops.SET_DATA.opcode, ops.SET_ACL.opcode, ops.CHECK.opcode}

# CreateMode.java: flags are an enumeration, not bits.
_EPHEMERAL: Final = {1, 3}
_SEQUENTIAL: Final = {2, 3, 6}
_CONTAINER: Final = 4
_TTL: Final = {5, 6}
_LAST_FLAG: Final = 6

_ERROR: Final = -1  # the type of a refused operation in the answer to a multi
_END: Final = r.MultiHeader.pack(_ERROR, True, -1)


def _owner(state: ServerState, connection: Connection, opcode: int, flags: int, ttl: int) -> int:
    """The owner that a create's flags ask for (PrepRequestProcessor.validateCreateRequest).

    A create_ttl whose flags name no TTL mode and whose ttl is -1 crashes a real server; here it is
    refused.
    """
    if not 0 <= flags <= _LAST_FLAG:
        raise BadArgumentsError
    if flags in _TTL:
        if not state.rules.extended_types:
            raise UnimplementedError
        if not 0 < ttl <= LONGEST_TTL:
            raise BadArgumentsError
        # Without the opcode create_ttl, ttl is -1: the flag alone makes no TTL node.
        return ttl_owner(ttl)
    if ttl >= 0 or opcode == ops.CREATE_TTL.opcode:
        raise BadArgumentsError
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


WRITES: Final[dict[int, tuple[type[Record], Write]]] = {
    ops.CREATE.opcode: (r.CreateRequest, partial(create, opcode=ops.CREATE.opcode)),
    ops.DELETE.opcode: (r.DeleteRequest, delete),
    ops.SET_DATA.opcode: (r.SetDataRequest, set_data),
    ops.SET_ACL.opcode: (r.SetACLRequest, set_acl),
    ops.CREATE2.opcode: (r.CreateRequest, partial(create, opcode=ops.CREATE2.opcode)),
    ops.RECONFIG.opcode: (r.ReconfigRequest, reconfig),
    ops.CREATE_CONTAINER.opcode: (
        r.CreateRequest,
        partial(create, opcode=ops.CREATE_CONTAINER.opcode),
    ),
    ops.CREATE_TTL.opcode: (r.CreateTTLRequest, partial(create, opcode=ops.CREATE_TTL.opcode)),
    DELETE_CONTAINER.opcode: (r.SyncRequest, delete_container),
}

WRITES_BEFORE_39: Final = (ops.CHECK.opcode,)
"""From 3.9 on a check alone is unknown.  Before, a check that succeeds is never answered."""

_IN_MULTI: Final[dict[int, tuple[type[Record], Write]]] = {
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
        raise BadArgumentsError  # for any body
    kind, carry_out = WRITES.get(opcode) or _IN_MULTI[opcode]
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
        raise MarshallingError
    return carry_out(state, connection, request)


def multi(state: ServerState, connection: Connection, body: bytes) -> Outcome:
    """Operations in one transaction: all or none.

    A refused operation is no error of the whole multi: each operation has its own code, 0 before
    the refused one and RuntimeInconsistency after it.  A multi that cannot be decoded is refused
    as a whole (MarshallingError).
    """
    requests = _begin_multi(state, body)
    events: list[Event] = []
    parts: list[bytes] = []
    for index, (opcode, request) in enumerate(requests):
        try:
            result, caused = _IN_MULTI[opcode][1](state, connection, request)
        except ServerError as refusal:
            state.tree.roll_back()
            return _refused(index, refusal.code, len(requests)), []
        events += caused
        parts += (r.MultiHeader.pack(_ANSWERED_AS.get(opcode, opcode), False, 0), result)
    parts.append(_END)
    return b"".join(parts), events


def refused_multi(state: ServerState, body: bytes, code: int) -> bytes:
    """The answer to a multi of which the first operation is refused with ``code``."""
    count = len(_begin_multi(state, body))
    return _refused(0, code, count) if count else _END


class _NoTransactionError(MarshallingError):
    """Java reports another exception than IOException here, and takes no zxid for the request."""


def _begin_multi(state: ServerState, body: bytes) -> list[tuple[int, Record]]:
    """The operations of a multi; takes a zxid, also if the multi cannot be decoded."""
    try:
        requests = _read_multi(state, body)
    except _NoTransactionError:
        raise
    except (MarshallingError, ProtocolError):
        state.tree.begin(state.now)
        raise
    state.tree.begin(state.now)
    return requests


def _read_multi(state: ServerState, body: bytes) -> list[tuple[int, Record]]:
    requests: list[tuple[int, Record]] = []
    header, at = r.MultiHeader.unpack(body)
    while not header.done:
        opcode = header.type
        if opcode not in _IN_MULTI or opcode in state.rules.unknown:
            raise MarshallingError
        request, at = java.read(_IN_MULTI[opcode][0], body, at)
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
            raise MarshallingError
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
        raise MarshallingError
    if request.acl is None or request.flags in _TTL:
        raise _NoTransactionError
    found, request = _by_flags(opcode, request)
    return (opcode if opcode == ops.CREATE_CONTAINER.opcode else found), request


def _refused(culprit: int, code: int, count: int) -> bytes:
    codes = [0] * culprit + [code] + [RuntimeInconsistencyError.code] * (count - culprit - 1)
    parts = [r.MultiHeader.pack(_ERROR, False, c) + r.ErrorResponse.pack(c) for c in codes]
    return b"".join(parts) + _END
