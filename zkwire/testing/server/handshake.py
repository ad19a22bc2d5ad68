"""The start of a connection: the session that it gets, and the credentials that it shows.

Decides what ``ZooKeeperServer.processConnectRequest``, ``ReadOnlyZooKeeperServer``,
``ZooKeeperServer.processPacket`` and ``AuthenticationHelper`` of 3.8 decide.

:func:`answer_handshake` must not send or close anything: the processor does what its result says.
The functions for authentication send the answer and return whether the connection may stay open.
No request of theirs is a transaction, so no reply has a zxid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from zkwire.errors import AUTH_FAILED, SESSION_CLOSED_REQUIRE_AUTH, NotReadOnlyError, ProtocolError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.testing.server import java
from zkwire.testing.server.credentials import DigestServer, SaslError
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.sessions import Connection, Session
from zkwire.testing.server.state import ServerState, reply_frame

_SASL = "sasl"
_NULL, _EMPTY = b"\xff\xff\xff\xff", bytes(4)


def may_ask(rules: Rules, connection: Connection, xid: int) -> bool:
    """Whether the connection has shown the credentials that the server requires."""
    if not rules.enforce_auth or connection.credentials.has_scheme(rules.enforce_auth):
        return True
    connection.send(reply_frame(xid, 0, SESSION_CLOSED_REQUIRE_AUTH))
    return False


def authenticate(connection: Connection, xid: int, body: bytes) -> bool:
    """Carry out an auth packet.  Null counts as an unknown scheme."""
    if body[4:8] == _NULL:
        body = body[:4] + _EMPTY + body[8:]
    try:
        packet, _ = java.read(r.AuthPacket, body)
        accepted = connection.credentials.authenticate(packet.scheme, packet.auth)
    except ProtocolError:
        return False
    connection.send(reply_frame(xid, 0, 0 if accepted else AUTH_FAILED))
    return accepted


def sasl_step(
    rules: Rules, connection: Connection, xid: int, body: bytes, new_nonce: Callable[[], str]
) -> bool:
    """Carry out one step of a SASL exchange.  A server without SASL answers null to every token."""
    try:
        request, _ = r.GetSASLRequest.unpack(body)
    except ProtocolError:
        return False
    if request.token is None:
        return False
    if rules.sasl_users is None:
        connection.send(reply_frame(xid, 0, 0, r.SetSASLResponse(None).encode()))
        return True
    if connection.sasl is None:
        connection.sasl = DigestServer(rules.sasl_users, new_nonce())
    try:
        token = connection.sasl.step(request.token)
    except SaslError:
        code = SESSION_CLOSED_REQUIRE_AUTH if _SASL in rules.enforce_auth else AUTH_FAILED
        connection.send(reply_frame(xid, 0, code, r.SetSASLResponse(None).encode()))
        return False
    if connection.sasl.user is not None:
        connection.credentials.add_sasl_user(connection.sasl.user)
    connection.send(reply_frame(xid, 0, 0, r.SetSASLResponse(token).encode()))
    return True


_PASSWD_BYTES: Final = 16


class HandshakeResult(NamedTuple):
    """The session and the answer, if there are any, and which connections end.

    ``ends`` is about the new connection; ``superseded`` is the session's earlier connection to this
    member.
    """

    session: Session | None
    answer: bytes
    ends: bool
    superseded: Connection | None = None


_REFUSED: Final = HandshakeResult(None, b"", True)


def answer_handshake(
    state: ServerState, connection: Connection, body: bytes, now: int
) -> HandshakeResult:
    """The result of a connect request; the caller attaches the session, sends and closes."""
    try:
        request, _ = r.ConnectRequest.unpack(body)
    except ProtocolError:
        return _REFUSED
    read_only = connection.member in state.read_only
    if read_only and not request.read_only:
        return _REFUSED
    if request.last_zxid_seen > state.tree.zxid:
        return _REFUSED  # without an answer: the client then tries another server
    flag = None if request.read_only is None else read_only
    if request.session_id == 0:
        if read_only and not state.rules.local_sessions:
            # The creation of a global session is refused like any write, with a reply's header, and
            # the connection stays open.
            refusal = reply_frame(0, state.tree.zxid, NotReadOnlyError.code)
            return HandshakeResult(None, refusal, False)
        if not read_only:
            state.tree.begin(state.now)
        session = state.sessions.open(request.time_out, connection.member, now, local=read_only)
        return HandshakeResult(session, accepted(session, flag), False)
    return _resume_session(state, connection, request, flag, now)


def _resume_session(
    state: ServerState,
    connection: Connection,
    request: r.ConnectRequest,
    flag: bool | None,
    now: int,
) -> HandshakeResult:
    """The result for a client that names its session."""
    gone = HandshakeResult(
        None, frame(r.ConnectResponse(0, 0, 0, bytes(_PASSWD_BYTES), flag).encode()), True
    )
    session = state.sessions.get(request.session_id)
    if session is None or (session.local and session.member != connection.member):
        return gone
    if connection.member in state.read_only and not session.local:
        return _REFUSED
    # The session's earlier connection to this member ends even if the password is wrong.
    superseded = session.connections.get(connection.member)
    if session.passwd != request.passwd:
        return gone._replace(superseded=superseded)
    session.timeout = state.sessions.clamp(request.time_out)
    state.sessions.touch(session, now)
    return HandshakeResult(session, accepted(session, flag), False, superseded)


def accepted(session: Session, read_only: bool | None) -> bytes:
    """The answer to a peer that has got this session."""
    answer = r.ConnectResponse(0, session.timeout, session.session_id, session.passwd, read_only)
    return frame(answer.encode())
