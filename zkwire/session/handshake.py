"""From the first byte of a connection to the moment when it can replace the one before.

    greeting -> SASL, if the client has a mechanism -> credentials and watches, in one go -> done

A new connection knows neither the old one's credentials nor its watches.  This module decides in
which order a server is told, and when that is done; it must not know what is sent after that.
"""

from __future__ import annotations

from collections import deque

from zkwire.errors import REJECTIONS, AuthFailedError, NotReadOnlyError, ProtocolError
from zkwire.jute import records as r
from zkwire.jute.frames import frame
from zkwire.session import outcomes
from zkwire.wire import ops
from zkwire.wire.model import Credentials

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from zkwire.session.request import Request
    from zkwire.session.watch_table import WatchTable

    Credential = tuple[str, bytes]  # a scheme and its secret


class Authentication:
    """The credentials of a session, sent on every connection, and the requests that wait for them.

    A server answers credentials at once, before the replies to earlier requests.  These answers
    keep their own order, so they are matched with the credentials that were sent on this
    connection, and not with the unanswered requests.  A lost connection ends nothing: the
    credential is sent again on the next connection."""

    __slots__ = ("_sent", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Credential, deque[Request]] = {}
        self._sent: deque[Credential] = deque()  # on this connection, not answered

    def __iter__(self) -> Iterator[Request]:
        """The requests that wait."""
        return (request for waiting in self.waiting for request in waiting)

    @property
    def answered(self) -> bool:
        """Whether the server has answered all that was sent."""
        return not self._sent

    def submit(self, request: Request) -> Credential:
        """The credential that an ``auth`` request holds; its answer ends the request."""
        packet = r.AuthPacket.decode(request.body)
        credential = self.add(packet.scheme, packet.auth or b"")
        self._waiting[credential].append(request)
        return credential

    def add(self, scheme: str, secret: bytes) -> Credential:
        """The credential with these values, known already or new."""
        self._waiting.setdefault((scheme, secret), deque())
        return scheme, secret

    def send(self, credential: Credential) -> bytes:
        """The frame with a credential."""
        self._sent.append(credential)
        packet = r.AuthPacket.pack(0, *credential)
        return ops.encode(ops.AUTH_XID, ops.AUTH, packet)

    def restart(self) -> list[bytes]:
        """The frames with all credentials, for a new connection."""
        self._sent.clear()
        return [self.send(credential) for credential in self._waiting]

    @property
    def waiting(self) -> list[deque[Request]]:
        """The requests that wait for each credential; it stays when its requests have ended."""
        return list(self._waiting.values())

    def receive(self, code: int) -> Iterator[Request]:
        """The requests that an answer ends, to be ended one by one.  Raises AuthFailedError."""
        credential = self._sent.popleft() if self._sent else None
        if code:
            what = f" of scheme {credential[0]!r}" if credential else ""
            raise AuthFailedError(f"the server rejected the credentials{what}")
        while credential is not None and self._waiting[credential]:
            yield self._waiting[credential][0]
            self._waiting[credential].popleft()


# A connect request names a protocol version that has never changed.
_PROTOCOL_VERSION = 0
_PASSWD_BYTES = 16
_REPLY_HEADER_BYTES = 16
# No server's greeting has more bytes: a length, a version, a time, an id and a password of 16.
_LONGEST_GREETING = 1024
_SHOWN_BYTES = 40
_REFUSALS = {
    NotReadOnlyError.code: (
        "the server is read-only and refuses new sessions: for those it must have "
        "localSessionsEnabled=true; a session from before is taken"
    )
}


class Identity:
    """By what a server recognises the session: id, password, credentials.

    ``timeout`` is the session timeout to ask for, in seconds.  ``sasl``: a mechanism comes first.
    ``read_only``: a server that has lost the ensemble is accepted.  ``resume``: an earlier session.
    """

    __slots__ = (
        "_local", "_timeout", "authentication", "passwd", "read_only", "sasl", "session_id",
    )  # fmt: skip
    passwd: bytes
    session_id: int

    def __init__(
        self,
        timeout: float,
        *,
        sasl: bool = False,
        read_only: bool = False,
        resume: Credentials | None = None,
    ) -> None:
        known = resume or Credentials(0, bytes(_PASSWD_BYTES))
        self.session_id, self.passwd = known.session_id, known.passwd
        self.authentication: Authentication = Authentication()
        self.sasl: bool = sasl
        self.read_only: bool = read_only
        self._local = False  # only the read-only server that made the session knows it
        self._timeout = timeout

    @property
    def credentials(self) -> Credentials:
        """What another client needs to continue the session."""
        return Credentials(self.session_id, self.passwd)

    def greeting(self, last_zxid: int, *, only_asking: bool = False) -> bytes:
        """The first frame of a connection; without an id it asks for a new session.

        ``only_asking``: not a read-only server, which may not have heard of the session.
        """
        request = r.ConnectRequest(
            _PROTOCOL_VERSION,
            last_zxid,
            round(self._timeout * 1000),
            0 if self._local else self.session_id,
            bytes(_PASSWD_BYTES) if self._local else self.passwd,
            self.read_only and not only_asking,
        )
        return frame(request.encode())

    def recognised(self, answer: r.ConnectResponse) -> bool:
        """Whether the server has accepted the connection for this session; False: it has ended.

        A server that answers with a session of its own making does not know this one either.
        """
        known = 0 if self._local else self.session_id
        if answer.time_out <= 0 or answer.session_id == 0:
            if known == 0:
                raise ProtocolError("the server refuses a new session")
            return False
        if known not in {0, answer.session_id}:
            return False
        self.session_id, self.passwd = answer.session_id, answer.passwd or b""
        # A session that the ensemble knows is never local, also on a read-only server.
        self._local = bool(answer.read_only) and known == 0
        return True


class Handshake:
    """The handshake of one connection; see the module's docstring.

    ``challenge`` is what the I/O layer's SASL mechanism must answer, b"" at the beginning, None for
    nothing.  ``greeted``: the server has accepted the session.  ``restored``: credentials and
    watches have been sent.  ``read_only``: the server has lost the ensemble.
    """

    __slots__ = (
        "_identity", "_missing", "_sasl_xid", "challenge", "greeted", "read_only", "restored",
    )  # fmt: skip

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._missing = 0  # answers to the frames that set watches
        self._sasl_xid = 0
        self.challenge: bytes | None = None
        self.greeted: bool = False
        self.read_only: bool = False
        self.restored: bool = False

    @property
    def done(self) -> bool:
        """Whether the connection is ready for requests."""
        return self.restored and self._missing == 0 and self._identity.authentication.answered

    @staticmethod
    def check_beginning(data: bytes) -> None:
        """Raise ProtocolError if ``data`` cannot be the beginning of a greeting."""
        if len(data) >= 4 and not 0 <= int.from_bytes(data[:4], signed=True) <= _LONGEST_GREETING:
            raise _not_zookeeper(data)

    def receive_greeting(self, chunk: bytes, at: int, end: int) -> r.ConnectResponse | None:
        """The server's first frame; None if it says that the session has ended."""
        if end - at == _REPLY_HEADER_BYTES:
            code = r.ReplyHeader.decode(chunk, at, end).err
            refused = f"the server refused the session with error code {code}"
            raise ProtocolError(_REFUSALS.get(code, refused))
        try:
            answer = r.ConnectResponse.decode(chunk, at, end)
        except ProtocolError as error:
            raise _not_zookeeper(chunk[at - 4 : end]) from error
        if not self._identity.recognised(answer):
            return None
        self.greeted = True
        self.read_only = bool(answer.read_only)
        if self._identity.sasl:
            self.challenge = b""
        return answer

    def explain(self, why: str, last_zxid: int) -> str:
        """``why`` the connection has ended, with what that usually means at this point."""
        if self.greeted and not self._sasl_xid:
            return why
        return outcomes.unmet(why, last_zxid, greeted=self.greeted)

    # --- SASL -------------------------------------------------------------------------------------

    def sasl_token(self, token: bytes, xid: int) -> bytes:
        """The frame with the mechanism's answer to the challenge."""
        self.challenge, self._sasl_xid = None, xid
        return ops.encode(xid, ops.SASL, r.GetSASLRequest.pack(token))

    def receive_sasl(self, xid: int, code: int, chunk: bytes, at: int, end: int) -> None:
        """The server's answer to a token.  Raises AuthFailedError or ProtocolError."""
        if xid != self._sasl_xid:
            raise ProtocolError(f"a reply has the xid {xid}, but none is expected")
        self._sasl_xid = 0
        if code in REJECTIONS:
            raise AuthFailedError("the server rejected the SASL authentication")
        if code:
            raise ProtocolError(f"the server answered SASL with the error code {code}")
        # A server without SASL sends null, and so may a server with nothing to add at the end.
        self.challenge = r.SetSASLResponse.decode(chunk, at, end).token or b""

    # --- credentials and watches ------------------------------------------------------------------

    def restore(self, watches: WatchTable, last_zxid: int) -> list[bytes]:
        """The frames that restore on this connection what the last one had."""
        self.challenge, self.restored = None, True
        frames = list(watches.frames(last_zxid))
        self._missing = len(frames)
        return self._identity.authentication.restart() + frames

    def receive_watches(self, code: int) -> None:
        """An answer to a frame that sets watches.  Raises AuthFailedError or ProtocolError."""
        if code in REJECTIONS:
            raise AuthFailedError(REJECTIONS[code])
        if code:
            raise ProtocolError(f"the server refused to set watches again: {code}")
        self._missing -= self._missing > 0


def _not_zookeeper(data: bytes) -> ProtocolError:
    """The error for a server whose first bytes are not a greeting."""
    if data.startswith(b"\x15\x03"):  # an alert
        return ProtocolError(
            "the server expects TLS on this port: tls=ssl.create_default_context()"
        )
    said = "HTTP" if data.startswith(b"HTTP/") else repr(bytes(data[:_SHOWN_BYTES]))
    return ProtocolError(f"this is not a ZooKeeper server; it answered {said}")
