"""The first frame of a connection: which session it gets, or why none.

Decides what ``ZooKeeperServer.processConnectRequest`` and ``ReadOnlyZooKeeperServer`` decide; what
becomes of earlier connections of the session it says, and the processor does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkwire.errors import NotReadOnlyError, ProtocolError
from zkwire.jute.frames import frame
from zkwire.jute.records import ConnectRequest, ConnectResponse
from zkwire.testing.server.connection import Connection, Session
from zkwire.testing.server.state import ServerState, reply_frame

_PASSWD_BYTES: Final = 16


class Greeting(NamedTuple):
    """The outcome: the session if there is one, the answer if there is one, and what must end."""

    session: Session | None
    answer: bytes
    ends: bool
    victim: Connection | None = None


_SENT_AWAY: Final = Greeting(None, b"", True)


def greet(state: ServerState, connection: Connection, body: bytes, now: int) -> Greeting:
    """Judge a handshake; the caller attaches the session, and sends and ends what is said."""
    try:
        request, _ = ConnectRequest.unpack(body)
    except ProtocolError:
        return _SENT_AWAY
    read_only = connection.member in state.read_only
    if read_only and not request.read_only:
        return _SENT_AWAY
    if request.last_zxid_seen > state.tree.zxid:
        return _SENT_AWAY  # without an answer: the client is to try another server
    flag = None if request.read_only is None else read_only
    if request.session_id == 0:
        if read_only and not state.rules.local_sessions:
            # The creation of a global session is refused as any write is, in a reply's form, and
            # the connection is left to itself.
            refusal = reply_frame(0, state.tree.zxid, NotReadOnlyError.code)
            return Greeting(None, refusal, False)
        if not read_only:
            state.tree.begin(state.now)
        session = state.sessions.open(request.time_out, connection.member, now, local=read_only)
        return Greeting(session, _welcome(session, flag), False)
    return _again(state, connection, request, flag, now)


def _again(
    state: ServerState, connection: Connection, request: ConnectRequest, flag: bool | None, now: int
) -> Greeting:
    """Somebody names a session that should exist."""
    gone = Greeting(
        None, frame(ConnectResponse(0, 0, 0, bytes(_PASSWD_BYTES), flag).encode()), True
    )
    session = state.sessions.get(request.session_id)
    if session is None or (session.local and session.member != connection.member):
        return gone
    if connection.member in state.read_only and not session.local:
        return _SENT_AWAY
    # The connection that the session has here ends even if the password turns out wrong.
    victim = session.connections.get(connection.member)
    if session.passwd != request.passwd:
        return gone._replace(victim=victim)
    session.timeout = state.sessions.clamp(request.time_out)
    state.sessions.touch(session, now)
    return Greeting(session, _welcome(session, flag), False, victim)


def _welcome(session: Session, read_only: bool | None) -> bytes:
    answer = ConnectResponse(0, session.timeout, session.session_id, session.passwd, read_only)
    return frame(answer.encode())
