"""Sessions of the embedded server: which exist, until when, and attached to which connection.

Decides ids, passwords, timeouts and when a session has expired; must not know nodes, frames or
sockets.  Time is in milliseconds of any clock that does not stop.

Rules taken from the real server:

* a timeout is clamped to [2, 20] ticks (ZooKeeperServer.getMinSessionTimeout);
* expiry is rounded UP to the next boundary of ticks, at exact boundaries by a whole tick
  (ExpiryQueue.roundToNextInterval), so sessions live up to one tick longer than promised;
* every server of an ensemble has its own connections.  Attaching a session to one server does not
  end its connection to another: the other server finds out at the next write on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from zkwire.testing.server.connection import Connection, Session

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
