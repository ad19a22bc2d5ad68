"""The first frame of a connection: which session the connection gets, or why it gets none.

Decides what ``ZooKeeperServer.processConnectRequest`` and ``ReadOnlyZooKeeperServer`` decide.  It
must not send or close anything: the processor does what the result says.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkwire.errors import NotReadOnlyError, ProtocolError
from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.server.connection import Connection, Session
from zkwire.testing.server.state import ServerState, reply_frame

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
        request, _ = ConnectRequest.unpack(body)
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
    state: ServerState, connection: Connection, request: ConnectRequest, flag: bool | None, now: int
) -> HandshakeResult:
    """The result for a client that names its session."""
    gone = HandshakeResult(
        None, frame(ConnectResponse(0, 0, 0, bytes(_PASSWD_BYTES), flag).encode()), True
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
    answer = ConnectResponse(0, session.timeout, session.session_id, session.passwd, read_only)
    return frame(answer.encode())
