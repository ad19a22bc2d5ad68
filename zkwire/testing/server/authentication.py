"""Authentication: the auth packet, SASL, and servers that require one of them.

Decides what ``ZooKeeperServer.processPacket`` and ``AuthenticationHelper`` of 3.8 decide.  No
request here is a transaction, so no reply has a zxid.  Each function sends the answer and returns
whether the connection may stay open.
"""

from __future__ import annotations

from collections.abc import Callable

from zkwire.errors import AUTH_FAILED, SESSION_CLOSED_REQUIRE_AUTH, ProtocolError
from zkwire.jute.records import AuthPacket, GetSASLRequest, SetSASLResponse
from zkwire.testing.server import java
from zkwire.testing.server.connection import Connection
from zkwire.testing.server.rules import Rules
from zkwire.testing.server.sasl import DigestServer, SaslError
from zkwire.testing.server.state import reply_frame

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
        packet, _ = java.read(AuthPacket, body)
        accepted = connection.credentials.authenticate(packet.scheme, packet.auth)
    except ProtocolError:
        return False
    connection.send(reply_frame(xid, 0, 0 if accepted else AUTH_FAILED))
    return accepted


def sasl(
    rules: Rules, connection: Connection, xid: int, body: bytes, new_nonce: Callable[[], str]
) -> bool:
    """Carry out one step of a SASL exchange.  A server without SASL answers null to every token."""
    try:
        request, _ = GetSASLRequest.unpack(body)
    except ProtocolError:
        return False
    if request.token is None:
        return False
    if rules.sasl_users is None:
        connection.send(reply_frame(xid, 0, 0, SetSASLResponse(None).encode()))
        return True
    if connection.sasl is None:
        connection.sasl = DigestServer(rules.sasl_users, new_nonce())
    try:
        token = connection.sasl.step(request.token)
    except SaslError:
        code = SESSION_CLOSED_REQUIRE_AUTH if _SASL in rules.enforce_auth else AUTH_FAILED
        connection.send(reply_frame(xid, 0, code, SetSASLResponse(None).encode()))
        return False
    if connection.sasl.user is not None:
        connection.credentials.add_sasl_user(connection.sasl.user)
    connection.send(reply_frame(xid, 0, 0, SetSASLResponse(token).encode()))
    return True
