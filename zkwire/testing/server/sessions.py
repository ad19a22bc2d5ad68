"""Connections and sessions of the embedded server: which exist, and until when.

A connection has the incomplete frame, the output, the credentials and the session.  It decides
where a request ends and which lengths end the connection (``NIOServerCnxn``: negative, or above
jute.maxbuffer).  Once ``ended`` is set, nothing more is read from it, and the peer gets ``output``
and nothing after it.

`Sessions` decides ids, passwords, timeouts and when a session has expired.  Time is in milliseconds
of any clock that does not stop.  Neither may know nodes, sockets or what a frame means.

Rules taken from the real server:

* a timeout is clamped to [2, 20] ticks (ZooKeeperServer.getMinSessionTimeout);
* expiry is rounded UP to the next boundary of ticks, at exact boundaries by a whole tick
  (ExpiryQueue.roundToNextInterval), so sessions live up to one tick longer than promised;
* every server of an ensemble has its own connections.  Attaching a session to one server does not
  end its connection to another: the other server finds out at the next write on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from zkwire.errors import ProtocolError
from zkwire.jute.frames import SEND_LIMIT, FrameSplitter
from zkwire.testing.server.credentials import Credentials, DigestServer


@dataclass(slots=True, eq=False)
class Session:
    """One session.  ``connections`` has its connections, by the number of the member.

    A ``local`` session is known only to the read-only server that opened it.
    """

    session_id: int
    passwd: bytes
    timeout: int
    local: bool
    expires: int = 0
    member: int = 0  # the server that the session is attached to now
    connections: dict[int, Connection] = field(default_factory=dict[int, "Connection"])


@dataclass(slots=True, eq=False)
class Connection:
    """See the module's docstring.

    ``member`` is the server of the ensemble that accepted it, ``number`` counts connections from 0.
    ``on_output`` is called when the loop has work: bytes to send, or a connection to close.
    ``splitter`` has the limit of a request's length.
    ``queued`` returns, once, the requests that have arrived and were not carried out.
    """

    number: int
    on_output: Callable[[Connection], object]
    member: int = 0
    credentials: Credentials = field(default_factory=Credentials)
    sasl: DigestServer | None = None  # the exchange, from its first token on
    session: Session | None = None
    first_bytes: bytes | None = b""  # up to three; None once four have arrived
    greeted: bool = False
    ended: bool = False
    output: list[bytes] = field(default_factory=list[bytes])
    waiting: int = 0  # bytes in the output
    mute: bool = False  # a fault swallows all output
    reset: bool = False  # a fault ends the connection with RST
    queued: Callable[[], Iterable[bytes]] = tuple
    splitter: FrameSplitter = field(default_factory=lambda: FrameSplitter(SEND_LIMIT))

    def split(self, data: bytes) -> Iterator[bytes]:
        """The frames without their lengths that ``data`` completes; a bad length is the end.

        The iterator must be exhausted before the next call.
        """
        try:
            for chunk, at, end in self.splitter.feed(data):
                if self.ended:
                    return
                yield chunk[at:end]
        except ProtocolError:
            self.end()

    def send(self, frame: bytes) -> None:
        """Append bytes to the output."""
        if not self.ended and not self.mute:
            self.output.append(frame)
            self.waiting += len(frame)
            self.on_output(self)

    def send_ahead(self, frame: bytes) -> None:
        """Put bytes before everything in the output."""
        rest, self.output = self.output, []
        self.send(frame)
        self.output += rest

    def undo_send(self) -> bytes:
        """Undo the last :meth:`send`."""
        last = self.output.pop()
        self.waiting -= len(last)
        return last

    def end(self) -> None:
        """Close the connection after the output so far."""
        self.ended = True
        self.on_output(self)

    def take_output(self) -> bytes:
        """The bytes for the peer; they count as sent."""
        data, self.output = b"".join(self.output), []
        self.waiting -= len(data)
        return data


_PASSWD_BYTES = 16
_MIN_TICKS, _MAX_TICKS = 2, 20


class Sessions:
    """All living sessions, and when each one expires."""

    shortest: int
    longest: int

    def __init__(
        self, *, tick: int, rng: Random, first_id: int, limits: tuple[int, int] | None = None
    ) -> None:
        if tick <= 0:
            raise ValueError(f"a tick must last at least a millisecond: {tick!r}")
        self.tick = tick
        self.shortest, self.longest = limits or (_MIN_TICKS * tick, _MAX_TICKS * tick)
        if not 0 < self.shortest <= self.longest:
            raise ValueError(f"timeouts must be (shortest, longest), above 0: {limits!r} ms")
        self._rng = rng
        self._next_id = first_id
        self._living: dict[int, Session] = {}
        self._buckets: dict[int, set[int]] = {}  # by the moment of expiry

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._living.values()))

    def __len__(self) -> int:
        return len(self._living)

    def get(self, session_id: int) -> Session | None:
        """The living session with this id."""
        return self._living.get(session_id)

    def clamp(self, timeout: int) -> int:
        """The timeout that a client gets when it asks for this one."""
        return min(max(timeout, self.shortest), self.longest)

    def open(self, timeout: int, member: int, now: int, *, local: bool = False) -> Session:
        """A new session."""
        # The highest byte names the server, as in SessionTrackerImpl.initializeNextSessionId.
        session_id = (member << 56) | self._next_id
        self._next_id += 1
        passwd = self._rng.randbytes(_PASSWD_BYTES)
        session = Session(session_id, passwd, self.clamp(timeout), local=local)
        self._living[session_id] = session
        self.touch(session, now)
        return session

    def attach(self, session: Session, connection: Connection) -> None:
        """Make ``connection`` the one whose writes are accepted."""
        session.member = connection.member
        session.connections[connection.member] = connection
        connection.session = session

    def touch(self, session: Session, now: int, timeout: int | None = None) -> None:
        """Have the session end that many milliseconds from now, or its own: a request has come."""
        ends = now + (session.timeout if timeout is None else timeout)
        expires = (ends // self.tick + 1) * self.tick
        if expires != session.expires:
            self._forget_expiry(session)
            session.expires = expires
            self._buckets.setdefault(expires, set()).add(session.session_id)

    def close(self, session: Session) -> None:
        """Remove a session that has ended."""
        self._living.pop(session.session_id, None)
        self._forget_expiry(session)

    def _forget_expiry(self, session: Session) -> None:
        bucket = self._buckets.get(session.expires)
        if bucket is not None:
            bucket.discard(session.session_id)
            if not bucket:
                del self._buckets[session.expires]

    @property
    def next_expiry(self) -> int | None:
        """When the next session expires, if no request of it arrives before."""
        return min(self._buckets, default=None)

    def expired(self, now: int) -> list[Session]:
        """The sessions that have expired, the earliest first; the caller closes them."""
        due = sorted(moment for moment in self._buckets if moment <= now)
        return [self._living[i] for moment in due for i in sorted(self._buckets[moment])]
