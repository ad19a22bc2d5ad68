"""The embedded server without its sockets: bytes of each connection in, bytes of each one out.

It decides what happens to a connection from its first byte to its end: four-letter words, the
handshake, authentication, the order of requests, which session a request belongs to, when sessions
end.  It has no socket, no clock, no thread and no randomness of its own; ``now`` is in seconds of
any clock that does not stop.  It must not know what proves an identity (`credentials`) or what an
operation does (`operations`, `tree`).

One processor is a whole ensemble: each connection has the number of its member.  All members share
one tree, so no read is stale; everything else about moving a session between servers is as on real
ones.

Rules taken from the real server:

* each write takes a zxid, also a refused one, and so do opening and closing a session; for a write
  that cannot be decoded it depends on the version;
* the events that a write causes are sent before its reply, on all connections;
* a session that expires ends after the requests that wait in its queue: each of them is refused
  with SessionExpired (SessionTrackerImpl.checkSession), a multi in its results;
* an operation that the server does not know is answered with the zxid -1, before all answers that
  are still to be sent, and the connection ends (UnimplementedRequestProcessor);
* a member without a quorum refuses writes; if no member has a quorum, no session expires.

Four-letter words that clients, tests and probes use get their answer; the others get the text of
``FourLetterCommands`` of 3.8 for a word that is not allowed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Final, Unpack

from zkwire import errors
from zkwire.jute import records as r
from zkwire.jute.frames import FrameSplitter, frame
from zkwire.testing.server import java, operations
from zkwire.testing.server.credentials import Credentials, DigestServer, SaslError
from zkwire.testing.server.rules import CREATE_SESSION, Behaviour, Rules
from zkwire.testing.server.sessions import Connection, Session, Sessions
from zkwire.testing.server.state import ServerState, reply_frame
from zkwire.testing.server.tree import DataTree
from zkwire.wire import ops
from zkwire.wire.paths import CONFIG_NODE

READ_ONLY: Final = "read-only"  # the mode of a server without a quorum

_KNOWN: Final = frozenset(
    b"conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk "
    b"wchc wchp wchs".split()
)

# The names that a Java process lists for envi, after the version.
ENVIRONMENT: Final = (
    *("host.name", "java.version", "java.vendor", "java.home", "java.class.path"),
    *("java.library.path", "java.io.tmpdir", "java.compiler", "os.name", "os.arch", "os.version"),
    *("user.name", "user.home", "user.dir", "os.memory.free", "os.memory.max", "os.memory.total"),
)


def four_letter_word(word: bytes, state: ServerState, mode: str, connections: int) -> bytes | None:
    """The text for a word; None for other bytes, which then are the length of a frame."""
    if word not in _KNOWN:
        return None
    match word:
        case b"ruok":
            return b"imok"
        case b"isro":
            return b"ro" if mode == READ_ONLY else b"rw"
        case b"srvr":
            return _srvr(state, mode, connections)
        case b"envi":
            lines = ["Environment:", f"zookeeper.version={_version(state)}"]
            lines += [f"{name}=<NA>" for name in ENVIRONMENT]
            return "".join(line + "\n" for line in lines).encode()
        case _:
            return word + b" is not executed because it is not in the whitelist.\n"


def _version(state: ServerState) -> str:
    return f"{state.rules.version}.0-zkwire embedded, for tests only"


def _srvr(state: ServerState, mode: str, connections: int) -> bytes:
    lines = {
        "Zookeeper version": _version(state),
        "Latency min/avg/max": "0/0.0/0",
        "Received": "0",
        "Sent": "0",
        "Connections": str(connections),
        "Outstanding": "0",
        "Zxid": f"{state.tree.zxid:#x}",
        "Mode": mode,
        # A real tree counts its root twice, as "" and as "/".
        "Node count": str(len(state.tree.nodes) + 1),
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items()).encode()


_REQUEST: Final = struct.Struct(">ii")  # xid, opcode
_INT: Final = struct.Struct(">i")
_NULL: Final = b"\xff\xff\xff\xff"
_NONCE_BYTES: Final = 16
_PASSWD_BYTES: Final = 16
_MOST_MEMBERS: Final = 127  # a session id begins with the member's number, a signed byte
_REAP_SECONDS: Final = 60.0  # ContainerManager: znode.container.checkIntervalMs


class Processor:
    """See the module's docstring.

    ``tick`` and ``timeouts`` (the shortest and the longest session timeout) are in seconds;
    ``epoch`` plus ``now`` is the time in seconds since 1970, for the times in stats.
    ``x509``: the server knows that scheme, since it has TLS.  `Behaviour` describes the other
    options.
    """

    def __init__(
        self,
        *,
        rng: Random,
        tick: float = 2.0,
        timeouts: tuple[float, float] | None = None,
        epoch: float = 0.0,
        members: int = 1,
        x509: bool = False,
        **behaviour: Unpack[Behaviour],
    ) -> None:
        if not 1 <= members <= _MOST_MEMBERS:
            raise ValueError(f"an ensemble has 1 to {_MOST_MEMBERS} members: {members!r}")
        limits = (_ms(timeouts[0]), _ms(timeouts[1])) if timeouts else None
        # Java takes five bytes of the time and leaves two for counting; five random bytes will do.
        first_id = rng.getrandbits(40) << 16 | 1
        sessions = Sessions(tick=_ms(tick), rng=rng, first_id=first_id, limits=limits)
        self.rules: Rules = Rules(**behaviour)
        tree = DataTree(config=self.rules.has_config)
        self.state: ServerState = ServerState(tree, sessions, self.rules, members)
        self._writes = {*operations.WRITES, ops.MULTI.opcode}
        if not self.rules.before_39:
            self._writes.remove(ops.CHECK.opcode)
        self._not_read_only = {*self._writes, ops.SYNC.opcode}  # ReadOnlyRequestProcessor
        self.rules.schemes |= {"x509"} if x509 else set()
        self._rng = rng
        self._without_session: dict[Connection, float] = {}  # and when they end; sorted
        self.connections: set[Connection] = set()
        self._ready: dict[Connection, None] = {}
        self._accepted = 0
        self._epoch = epoch
        self._now = 0  # milliseconds
        self._reap_at = 0.0

    # --- for the loop -----------------------------------------------------------------------------

    def connect(
        self, *, member: int = 0, address: str = "127.0.0.1", now: float = 0.0
    ) -> Connection:
        """The connection for a peer that has connected to this member."""
        connection = Connection(
            self._accepted,
            self._ready.setdefault,
            member=member,
            credentials=Credentials(address, self.rules),
            splitter=FrameSplitter(self.rules.jute_maxbuffer),
        )
        self._accepted += 1
        self.connections.add(connection)
        # NIOServerCnxnFactory.cnxnExpiryQueue, whose interval is its timeout
        limit = self.rules.handshake_timeout
        self._without_session[connection] = ((now + limit) // limit + 1) * limit
        return connection

    def receive(self, connection: Connection, data: bytes, now: float) -> None:
        """Process bytes that have arrived; no bytes make it raise."""
        for request in self.frames(connection, data):
            self.process(connection, request, now)

    def frames(self, connection: Connection, data: bytes) -> Iterator[bytes]:
        """The requests that ``data`` completes, for :meth:`process`."""
        if connection.first_bytes is not None:
            data = self._check_first_bytes(connection, data)
        if data and not connection.ended:
            yield from connection.split(data)
        if connection.ended:
            self.lost(connection)

    def lost(self, connection: Connection) -> None:
        """Note that a connection has ended: its watches end with it, its session does not."""
        connection.ended = True
        self.connections.discard(connection)
        self._without_session.pop(connection, None)
        self.state.watchers.forget(connection)
        session = connection.session
        if session is not None and session.connections.get(connection.member) is connection:
            del session.connections[connection.member]

    def take_ready(self) -> list[Connection]:
        """The connections with output or an end, since the last call."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def advance(self, now: float) -> None:
        """Do what is due: end silent connections and sessions, delete nodes past their time."""
        self._set_time(now)
        for stranger in [c for c, end in self._without_session.items() if end <= now]:
            self.end(stranger)
        for session in self.state.sessions.expired(self._now):
            if self.state.frozen and not session.local:
                self.state.sessions.touch(session, self._now)
            else:
                self._expire(session)
        if now >= self._reap_at:
            self._reap_at = now + _REAP_SECONDS
            if not self.state.frozen:
                self._reap()

    @property
    def next_deadline(self) -> float:
        """The latest time for the next call of :meth:`advance`."""
        expiry = self.state.sessions.next_expiry
        return min(
            self._reap_at,
            self._reap_at if expiry is None else expiry / 1000,
            next(iter(self._without_session.values()), self._reap_at),
        )

    def expire(self, session_id: int, now: float) -> bool:
        """Expire a session now, whatever its timeout; whether there was one."""
        self._set_time(now)
        session = self.state.sessions.get(session_id)
        if session is not None:
            self._expire(session)
        return session is not None

    def end(self, connection: Connection) -> None:
        """Close a connection from the server's side; its session stays."""
        connection.end()
        self.lost(connection)

    def refuse(
        self, connection: Connection, body: bytes, code: int, now: float, *, close: bool
    ) -> None:
        """Answer a frame with an error, without carrying it out."""
        self._set_time(now)
        if connection.session is None or len(body) < _REQUEST.size:
            self.end(connection)
            return
        self.state.sessions.touch(connection.session, self._now)
        xid, _ = _REQUEST.unpack_from(body)
        self._reply(connection, xid, code)
        if close:
            self.end(connection)

    # --- for the operator -------------------------------------------------------------------------

    def set_read_only(self, read_only: bool, now: float, member: int) -> None:
        """Take a member's quorum away or give it back; either ends all its connections.

        Local sessions end with the read-only server.  If no member had a quorum, the new leader
        gives every session its full timeout again.
        """
        self._set_time(now)
        state = self.state
        if read_only == (member in state.read_only):
            return
        was_frozen = state.frozen
        state.read_only ^= {member}
        for connection in [c for c in self.connections if c.member == member]:
            self.end(connection)
        for session in state.sessions:
            if session.local and session.member == member:
                self._close_session(session)
            elif was_frozen and not session.local:
                state.sessions.touch(session, self._now)

    def configure(self, text: bytes, now: float) -> None:
        """Write ``/zookeeper/config`` as a reconfiguration would, and send the events."""
        if not self.rules.has_config:
            raise ValueError("a server of 3.4 has no /zookeeper/config")
        self._set_time(now)
        self.state.tree.begin(self.state.now)
        self.state.send_events(self.state.tree.configure(text))

    def set_members(self, members: operations.Members) -> None:
        """Write ``/zookeeper/config`` as servers do at their start, without a transaction."""
        if not self.rules.has_config:
            return
        node = self.state.tree.node(CONFIG_NODE)
        if node.mzxid == 0:  # otherwise it was reconfigured since
            node.data, node.version = operations.text_of(members, 0), -1

    # --- time -------------------------------------------------------------------------------------

    def _set_time(self, now: float) -> None:
        self._now = _ms(now)
        self.state.now = _ms(now + self._epoch)

    # --- the start of a connection ----------------------------------------------------------------

    def _check_first_bytes(self, connection: Connection, data: bytes) -> bytes:
        """Answer a four-letter word; for other bytes, return all of them for the splitter."""
        assert connection.first_bytes is not None
        connection.first_bytes += data
        if len(connection.first_bytes) < 4:
            return b""
        received, connection.first_bytes = connection.first_bytes, None
        mode = self._mode(connection.member)
        text = four_letter_word(received[:4], self.state, mode, len(self.connections))
        if text is None:
            return received
        connection.send(text)
        self.end(connection)
        return b""

    def _mode(self, member: int) -> str:
        if member in self.state.read_only:
            return READ_ONLY
        return "standalone" if self.state.members == 1 else "follower" if member else "leader"

    def _handshake(self, connection: Connection, body: bytes) -> None:
        """Answer a connect request (ZooKeeperServer.processConnectRequest), or end the connection.

        Without an answer the client tries another server.
        """
        connection.greeted = True
        state, member = self.state, connection.member
        try:
            request, _ = r.ConnectRequest.unpack(body)
        except errors.ProtocolError:
            self.end(connection)
            return
        read_only = member in state.read_only
        session = state.sessions.get(request.session_id)
        if session is not None and session.local and session.member != member:
            session = None
        is_global = session is not None and not session.local
        if request.last_zxid_seen > state.tree.zxid or (
            read_only and (is_global or not request.read_only)
        ):
            self.end(connection)
            return
        if session is not None:
            session = self._resume(session, connection, request)
        elif request.session_id == 0:
            if read_only and not self.rules.local_sessions:
                # The creation of a global session is refused like any write, with a reply's header,
                # and the connection stays open.
                self._reply(connection, 0, errors.NotReadOnlyError.code)
                return
            if not read_only:
                state.tree.begin(state.now)
            session = state.sessions.open(request.time_out, member, self._now, local=read_only)
        flag = None if request.read_only is None else read_only
        if session is None:
            gone = r.ConnectResponse(0, 0, 0, bytes(_PASSWD_BYTES), flag)
            connection.send(frame(gone.encode()))
            self.end(connection)
            return
        del self._without_session[connection]
        state.sessions.attach(session, connection)
        connection.send(_greeting(session, flag))

    def _resume(
        self, session: Session, connection: Connection, request: r.ConnectRequest
    ) -> Session | None:
        """The session, if the client knows its password.

        The session's earlier connection to this member ends even if the password is wrong.
        """
        superseded = session.connections.get(connection.member)
        if superseded is not None:
            self.end(superseded)
        if session.passwd != request.passwd:
            return None
        session.timeout = self.state.sessions.clamp(request.time_out)
        self.state.sessions.touch(session, self._now)
        return session

    # --- requests ---------------------------------------------------------------------------------

    def process(self, connection: Connection, body: bytes, now: float) -> None:
        """Carry out one frame of a connection."""
        self._set_time(now)
        if connection.ended:
            return
        if not connection.greeted:
            self._handshake(connection, body)
        elif len(body) < _REQUEST.size:
            self.end(connection)
        elif connection.session is not None:  # without one, its requests are ignored
            xid, opcode = _REQUEST.unpack_from(body)
            self.state.sessions.touch(connection.session, self._now)
            rest = body[_REQUEST.size :]
            if self._is_authorised(connection, xid, opcode, rest):
                self._request(connection, connection.session, xid, opcode, rest)

    def _is_authorised(self, connection: Connection, xid: int, opcode: int, body: bytes) -> bool:
        """Whether a request is left to carry out; auth and SASL requests are carried out here.

        They are no transactions, so no reply of this has a zxid.
        """
        known = opcode not in self.rules.unknown
        left = False
        if opcode == ops.AUTH.opcode and known:
            lives = _authenticate(connection, xid, body)
        elif opcode == ops.SASL.opcode and known:
            lives = self._sasl_step(connection, xid, body)
        else:
            required = self.rules.enforce_auth
            lives = left = not required or connection.credentials.has_scheme(required)
            if not lives:
                connection.send(reply_frame(xid, 0, errors.SESSION_CLOSED_REQUIRE_AUTH))
        if not lives:
            self.end(connection)
        return left

    def _sasl_step(self, connection: Connection, xid: int, body: bytes) -> bool:
        """Carry out one step of a SASL exchange; whether the connection may stay open.

        A server without SASL answers null to every token.
        """
        token, code = None, 0
        try:
            request, _ = r.GetSASLRequest.unpack(body)
        except errors.ProtocolError:
            return False
        if request.token is None:
            return False
        if self.rules.sasl_users is not None:
            if connection.sasl is None:
                nonce = self._rng.randbytes(_NONCE_BYTES).hex()
                connection.sasl = DigestServer(self.rules.sasl_users, nonce)
            try:
                token = connection.sasl.step(request.token)
            except SaslError:
                required = "sasl" in self.rules.enforce_auth
                code = errors.SESSION_CLOSED_REQUIRE_AUTH if required else errors.AUTH_FAILED
            if connection.sasl.user is not None:
                connection.credentials.add("sasl", connection.sasl.user)
        connection.send(reply_frame(xid, 0, code, r.SetSASLResponse(token).encode()))
        return not code

    def _request(
        self, connection: Connection, session: Session, xid: int, opcode: int, body: bytes
    ) -> None:
        moved = session.member != connection.member
        if opcode in self.rules.unknown:
            self._unknown(connection, xid)
        elif opcode == ops.PING.opcode:
            # The answer to a ping has the ping's own xid, not the xid of the request.
            self._reply(connection, ops.PING_XID)
        elif opcode == ops.CLOSE_SESSION.opcode:
            self._close_session(session, connection, xid)
        elif opcode in self._not_read_only and connection.member in self.state.read_only:
            self._reply(connection, xid, errors.NotReadOnlyError.code)
        elif opcode in self._writes:
            if moved:
                self.state.tree.begin(self.state.now)
                self.end(connection)  # SessionMovedException reaches no client, ZOOKEEPER-710
            else:
                self._carry_out(operations.write, connection, xid, opcode, body)
        elif opcode == ops.SYNC.opcode and moved:
            self.end(connection)
        elif opcode in operations.READS:
            self._carry_out(operations.read, connection, xid, opcode, body)
        elif opcode == CREATE_SESSION.opcode:
            self._create_session(connection, session, xid, body)
        else:
            self._unknown(connection, xid)

    def _unknown(self, connection: Connection, xid: int) -> None:
        connection.send_ahead(reply_frame(xid, -1, errors.UnimplementedError.code))
        self.end(connection)

    def _carry_out(
        self, operation: operations.Operation, connection: Connection, xid: int, opcode: int,
        body: bytes,
    ) -> None:  # fmt: skip
        try:
            result, events = operation(self.state, connection, opcode, body)
        except operations.PartialAnswerError as refusal:
            self._reply(connection, xid, refusal.code, refusal.body)
        except errors.ServerError as refusal:
            self._reply(connection, xid, refusal.code)
        except errors.ProtocolError:
            self._reply(connection, xid, errors.MarshallingError.code)
        else:
            self.state.send_events(events)
            if opcode != ops.CHECK.opcode:
                self._reply(connection, xid, 0, result)

    def _reply(self, connection: Connection, xid: int, code: int = 0, body: bytes = b"") -> None:
        connection.send(reply_frame(xid, self.state.tree.zxid, code, body))

    def _create_session(
        self, connection: Connection, session: Session, xid: int, body: bytes
    ) -> None:
        """A request among servers, which they take from clients, too: the greeting comes again.

        The session has this many milliseconds then, until its next request.
        """
        self.state.tree.begin(self.state.now)
        if len(body) < _INT.size:
            self._reply(connection, xid, errors.MarshallingError.code)
            return
        connection.send(_greeting(session, connection.member in self.state.read_only))
        self.state.sessions.touch(session, self._now, _INT.unpack_from(body)[0])

    # --- the ends of sessions and nodes -----------------------------------------------------------

    def _expire(self, session: Session) -> None:
        for connection in list(session.connections.values()):
            for body in connection.queued():
                self._refuse_expired(connection, body)
        self._close_session(session)

    def _refuse_expired(self, connection: Connection, body: bytes) -> None:
        """Answer a request that waits while its session expires."""
        xid, opcode = _REQUEST.unpack_from(body) if len(body) >= _REQUEST.size else (0, 0)
        known = opcode in operations.READS or opcode in self._writes or opcode == ops.PING.opcode
        if not known or opcode in self.rules.unknown:  # it is not asked for its session
            self.process(connection, body, self._now / 1000)
        elif opcode == ops.MULTI.opcode:
            rest = body[_REQUEST.size :]
            self._carry_out(operations.refuse_expired_multi, connection, xid, opcode, rest)
        else:
            if opcode in self._writes:
                self.state.tree.begin(self.state.now)
            self._reply(connection, xid, errors.SESSION_EXPIRED)

    def _close_session(
        self, session: Session, asker: Connection | None = None, xid: int = 0
    ) -> None:
        """End a session, its ephemeral nodes and its connections to all members."""
        if not session.local:
            self.state.tree.begin(self.state.now)
        events = list(self.state.tree.end_session(session.session_id))
        self.state.sessions.close(session)
        self.state.send_events(events)
        if asker is not None:
            self._reply(asker, xid)
            self.end(asker)
        for connection in list(session.connections.values()):
            self.end(connection)

    def _reap(self) -> None:
        for path in self.state.tree.reapable(self.state.now):
            self.state.tree.begin(self.state.now)
            self.state.send_events(self.state.tree.remove(path))


def _authenticate(connection: Connection, xid: int, body: bytes) -> bool:
    """Carry out an auth packet; whether the connection may stay open.

    Null counts as an unknown scheme.
    """
    if body[4:8] == _NULL:
        body = body[:4] + bytes(4) + body[8:]
    try:
        packet, _ = java.read(r.AuthPacket, body)
        accepted = connection.credentials.authenticate(packet.scheme, packet.auth)
    except errors.ProtocolError:
        return False
    connection.send(reply_frame(xid, 0, 0 if accepted else errors.AUTH_FAILED))
    return accepted


def _greeting(session: Session, read_only: bool | None) -> bytes:
    """The answer to a peer that has got this session."""
    answer = r.ConnectResponse(0, session.timeout, session.session_id, session.passwd, read_only)
    return frame(answer.encode())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
