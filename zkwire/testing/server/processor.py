"""The embedded server without its sockets: bytes of each connection in, bytes of each one out.

It decides what happens to a connection from its first byte to its end: four-letter words, the
handshake, the order of requests, whose session a request belongs to, when sessions end.  It has no
socket, no clock, no thread and no randomness of its own; ``now`` is in seconds of any clock that
does not stop.  Who gets which session is the business of `handshake`, who somebody is that of
`authentication`, what an operation does that of `reads`, `writes` and `tree`.

One processor stands for a whole ensemble: connections say through which member they came.  All
members share one tree, so nobody ever sees stale data; everything else about moving a session
between servers is as on real ones.

Rules taken from the real server:

* each write takes a zxid, also one that is refused, and so do opening and closing a session; what
  becomes of one that cannot be read depends on the version;
* the events that a write causes leave before its reply, on whichever connection;
* an operation that the server does not know is answered with the zxid -1, before all answers that
  have not been sent, and with the end of the connection (UnimplementedRequestProcessor);
* a member without a quorum refuses writes, and where no member has one no session expires.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Final, Unpack

from zkwire.errors import (
    MarshallingError,
    NotReadOnlyError,
    ProtocolError,
    ServerError,
    UnimplementedError,
)
from zkwire.testing.server import authentication, four_letter_words
from zkwire.testing.server.acl import Credentials
from zkwire.testing.server.configuration import Members, text_of
from zkwire.testing.server.connection import Connection, Session
from zkwire.testing.server.handshake import greet
from zkwire.testing.server.reads import READS, BegunAnswerError
from zkwire.testing.server.rules import Behaviour, Rules
from zkwire.testing.server.sessions import Sessions
from zkwire.testing.server.state import ServerState, reply_frame
from zkwire.testing.server.tree import DataTree
from zkwire.testing.server.writes import WRITES, WRITES_BEFORE_39, write
from zkwire.wire import ops
from zkwire.wire.paths import CONFIG_NODE

_REQUEST: Final = struct.Struct(">ii")  # xid, opcode
_NONCE_BYTES: Final = 16
_MOST_MEMBERS: Final = 127  # a session id begins with a signed byte that says whose it is
_REAP_SECONDS: Final = 60.0  # ContainerManager: znode.container.checkIntervalMs


class Processor:
    """See the module's docstring.

    ``tick`` and ``timeouts`` (the shortest and the longest session timeout) are in seconds;
    ``epoch`` is what must be added to ``now`` to have seconds since 1970, for the times in stats.
    ``x509``: it knows that scheme, since it has TLS.  The other options are described with
    `Behaviour`.
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
        # Java starts from the time and leaves two bytes for counting; five random bytes do, too.
        first_id = rng.getrandbits(40) << 16 | 1
        sessions = Sessions(tick=_ms(tick), rng=rng, first_id=first_id, limits=limits)
        self.rules: Rules = Rules(**behaviour)
        self.state: ServerState = ServerState(DataTree(), sessions, self.rules, members)
        self._writes = {*WRITES, ops.MULTI.opcode, *self.rules.before_39 * WRITES_BEFORE_39}
        self._not_read_only = {*self._writes, ops.SYNC.opcode}  # ReadOnlyRequestProcessor
        self._schemes = {"sasl"} if self.rules.sasl_users is not None else set[str]()
        self._schemes |= {"x509"} if x509 else set()
        self._rng = rng
        self._strangers: dict[Connection, float] = {}  # without a session, by their end; sorted
        self.connections: set[Connection] = set()
        self._ready: dict[Connection, None] = {}
        self._accepted = 0
        self._epoch = epoch
        self._now = 0  # milliseconds
        self._reap_at = 0.0

    # --- for the shell ----------------------------------------------------------------------------

    def connect(
        self, *, member: int = 0, address: str = "127.0.0.1", now: float = 0.0
    ) -> Connection:
        """A peer has connected to this member."""
        credentials = Credentials(
            address,
            more=self._schemes,
            six=not self.rules.before_39,
            super_password=self.rules.super_password,
        )
        connection = Connection(self._accepted, self._mark, member=member, credentials=credentials)
        self._accepted += 1
        self.connections.add(connection)
        self._be_patient(connection, now)
        return connection

    def receive(self, connection: Connection, data: bytes, now: float) -> None:
        """Bytes have arrived.  Whatever they are, this does not raise."""
        for request in self.frames(connection, data):
            self.process(connection, request, now)

    def frames(self, connection: Connection, data: bytes) -> Iterator[bytes]:
        """The requests that ``data`` completes, for :meth:`process`."""
        if connection.head is not None:
            data = self._look_at_head(connection, data)
        if data and not connection.ended:
            yield from connection.split(data)
        if connection.ended:
            self.lost(connection)

    def lost(self, connection: Connection) -> None:
        """A connection has ended, by whomever; its watches end with it, its session does not."""
        connection.ended = True
        self.connections.discard(connection)
        self._strangers.pop(connection, None)
        self.state.watchers.forget(connection)
        session = connection.session
        if session is not None and session.connections.get(connection.member) is connection:
            del session.connections[connection.member]

    def take_ready(self) -> list[Connection]:
        """The connections with output or an end that the shell has not been told of."""
        ready, self._ready = self._ready, {}
        return list(ready)

    def advance(self, now: float) -> None:
        """Do what is due: end silent connections and sessions, remove nodes past their time."""
        self._set_time(now)
        for stranger in [c for c, end in self._strangers.items() if end <= now]:
            self.end(stranger)
        for session in self.state.sessions.expired(self._now):
            if self.state.frozen and not session.local:
                self.state.sessions.touch(session, self._now)
            else:
                self._close_session(session)
        if now >= self._reap_at:
            self._reap_at = now + _REAP_SECONDS
            if not self.state.frozen:
                self._reap()

    @property
    def next_deadline(self) -> float:
        """When :meth:`advance` has something to do at the latest."""
        expiry = self.state.sessions.next_expiry
        return min(
            self._reap_at,
            self._reap_at if expiry is None else expiry / 1000,
            next(iter(self._strangers.values()), self._reap_at),
        )

    def expire(self, session_id: int, now: float) -> bool:
        """End a session as if nothing had been heard of it for too long; whether there was one."""
        self._set_time(now)
        session = self.state.sessions.get(session_id)
        if session is not None:
            self._close_session(session)
        return session is not None

    def end(self, connection: Connection) -> None:
        """Close a connection from this side; its session lives on."""
        connection.end()
        self.lost(connection)

    def refuse(
        self, connection: Connection, body: bytes, code: int, now: float, *, close: bool
    ) -> None:
        """Answer a frame with an error, and do nothing of what it asks for."""
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
        """A member has lost its quorum, or has one again: its connections end with its old life.

        Local sessions end with the read-only server.  Where there was no quorum at all, the new
        leader gives every session its whole time-out again.
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
        """Write ``/zookeeper/config`` as a reconfiguration would, and tell those who watch it."""
        self._set_time(now)
        self.state.tree.begin(self.state.now)
        self.state.tell(self.state.tree.configure(text))

    def introduce(self, members: Members) -> None:
        """Write ``/zookeeper/config`` as servers find it when they start: no transaction."""
        node = self.state.tree.node(CONFIG_NODE)
        if node.mzxid == 0:  # else somebody has configured it since
            node.data, node.version = text_of(members, 0), -1

    # --- time -------------------------------------------------------------------------------------

    def _be_patient(self, connection: Connection, now: float) -> None:
        """NIOServerCnxnFactory.cnxnExpiryQueue, whose interval is its time-out."""
        patience = self.rules.handshake_timeout
        self._strangers[connection] = ((now + patience) // patience + 1) * patience

    def _mark(self, connection: Connection) -> None:
        self._ready[connection] = None

    def _set_time(self, now: float) -> None:
        self._now = _ms(now)
        self.state.now = _ms(now + self._epoch)

    # --- the start of a connection ----------------------------------------------------------------

    def _look_at_head(self, connection: Connection, data: bytes) -> bytes:
        """Answer a four-letter word; else return all that was received for the splitter."""
        assert connection.head is not None
        connection.head += data
        if len(connection.head) < 4:
            return b""
        head, connection.head = connection.head, None
        mode = self._mode(connection.member)
        text = four_letter_words.answer(head[:4], self.state, mode, len(self.connections))
        if text is None:
            return head
        connection.send(text)
        self.end(connection)
        return b""

    def _mode(self, member: int) -> str:
        if member in self.state.read_only:
            return four_letter_words.READ_ONLY
        return "standalone" if self.state.members == 1 else "follower" if member else "leader"

    def _greet(self, connection: Connection, body: bytes) -> None:
        greeting = greet(self.state, connection, body, self._now)
        connection.greeted = True
        if greeting.victim is not None:
            self.end(greeting.victim)
        if greeting.session is not None:
            del self._strangers[connection]
            self.state.sessions.attach(greeting.session, connection)
        if greeting.answer:
            connection.send(greeting.answer)
        if greeting.ends:
            self.end(connection)

    # --- requests ---------------------------------------------------------------------------------

    def process(self, connection: Connection, body: bytes, now: float) -> None:
        """Carry out one frame of a connection."""
        self._set_time(now)
        if connection.ended:
            return
        if not connection.greeted:
            self._greet(connection, body)
        elif len(body) < _REQUEST.size:
            self.end(connection)
        elif connection.session is not None:  # else nothing more is read from it
            xid, opcode = _REQUEST.unpack_from(body)
            self.state.sessions.touch(connection.session, self._now)
            rest = body[_REQUEST.size :]
            if self._is_authorised(connection, xid, opcode, rest):
                self._request(connection, connection.session, xid, opcode, rest)

    def _is_authorised(self, connection: Connection, xid: int, opcode: int, body: bytes) -> bool:
        """Whether there is a request left to carry out: what is about credentials is done here."""
        known = opcode not in self.rules.unknown
        if opcode == ops.AUTH.opcode and known:
            lives, left = authentication.authenticate(connection, xid, body), False
        elif opcode == ops.SASL.opcode and known:
            lives = authentication.sasl(self.rules, connection, xid, body, self._nonce)
            left = False
        else:
            lives = left = authentication.may_ask(self.rules, connection, xid)
        if not lives:
            self.end(connection)
        return left

    def _nonce(self) -> str:
        return self._rng.randbytes(_NONCE_BYTES).hex()

    def _request(
        self, connection: Connection, session: Session, xid: int, opcode: int, body: bytes
    ) -> None:
        moved = session.member != connection.member
        if opcode in self.rules.unknown:
            self._unknown(connection, xid)
        elif opcode == ops.PING.opcode:
            # Under its own xid, whichever the request had.
            self._reply(connection, ops.PING_XID)
        elif opcode == ops.CLOSE_SESSION.opcode:
            self._close_session(session, connection, xid)
        elif opcode in self._not_read_only and connection.member in self.state.read_only:
            self._reply(connection, xid, NotReadOnlyError.code)
        elif opcode in self._writes:
            if moved:
                self.state.tree.begin(self.state.now)
                self.end(connection)  # SessionMovedException is never told, ZOOKEEPER-710
            else:
                self._write(connection, xid, opcode, body)
        elif opcode == ops.SYNC.opcode and moved:
            self.end(connection)
        elif opcode in READS:
            self._read(connection, xid, opcode, body)
        else:
            self._unknown(connection, xid)

    def _unknown(self, connection: Connection, xid: int) -> None:
        connection.send_ahead(reply_frame(xid, -1, UnimplementedError.code))
        self.end(connection)

    def _read(self, connection: Connection, xid: int, opcode: int, body: bytes) -> None:
        try:
            self._reply(connection, xid, 0, READS[opcode](self.state, connection, body))
        except BegunAnswerError as refusal:
            self._reply(connection, xid, refusal.code, refusal.body)
        except ServerError as refusal:
            self._reply(connection, xid, refusal.code)
        except ProtocolError:
            self._reply(connection, xid, MarshallingError.code)

    def _write(self, connection: Connection, xid: int, opcode: int, body: bytes) -> None:
        try:
            result, events = write(self.state, connection, opcode, body)
        except ServerError as refusal:
            self._reply(connection, xid, refusal.code)
        except ProtocolError:
            self._reply(connection, xid, MarshallingError.code)
        else:
            self.state.tell(events)
            if opcode != ops.CHECK.opcode:
                self._reply(connection, xid, 0, result)

    def _reply(self, connection: Connection, xid: int, code: int = 0, body: bytes = b"") -> None:
        connection.send(reply_frame(xid, self.state.tree.zxid, code, body))

    # --- the ends of sessions and nodes -----------------------------------------------------------

    def _close_session(
        self, session: Session, asker: Connection | None = None, xid: int = 0
    ) -> None:
        """End a session, its ephemeral nodes and its connections, to all members."""
        if not session.local:
            self.state.tree.begin(self.state.now)
        events = list(self.state.tree.end_session(session.session_id))
        self.state.sessions.close(session)
        self.state.tell(events)
        if asker is not None:
            self._reply(asker, xid)
            self.end(asker)
        for connection in list(session.connections.values()):
            self.end(connection)

    def _reap(self) -> None:
        for path in self.state.tree.reapable(self.state.now):
            self.state.tree.begin(self.state.now)
            self.state.tell(self.state.tree.remove(path))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
