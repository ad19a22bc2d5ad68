"""When to ping, when a connection is dead, and until when the session is surely alive.

Plain arithmetic on the caller's clock, in seconds.  The rules are the Java client's where both
sides must agree (a third of the session timeout idle: ping; two thirds without a byte: dead), and
stricter for the lease: it counts from the *sending* of the last request that was answered, because
that is the latest moment of which it is known that the server's timer started no earlier.

Bytes that come prolong a connection and not the lease: they tell nothing of when the server last
heard of this side, as they may have been on their way for as long as it takes.  While one reply
takes longer to arrive than a session timeout, the answers to pings wait behind it, so a lock counts
as lost though the session lives on: a shorter reply or a longer session timeout keeps it.

The lease has two limits, since a follower answers pings and reads by itself, and reports its
clients to the leader only when that asks for it, every half tickTime (``Leader.lead``,
``Learner.ping``; a write does not count for it either).  In both cases two contenders can believe
that they hold a lock, and only ``fence``, checked by the resource, or ``guard`` protects.

* A follower that is cut off from its leader goes on answering for up to syncLimit times tickTime
  (10 s in ZooKeeper's sample configuration), and prolongs the lease here, while the leader may
  expire the session a session timeout after the last report.  An answered write or ``sync`` shows
  that the server was in touch.
* A follower that crashes between an answer and its next report has told nobody of that request, so
  the leader counts from the one before.  That was sent up to a ping interval earlier (more if this
  side was late), and half a tick if several came after the last report; the leader rounds up to a
  whole tick, which gives up to one back.  :class:`Reported` closes this gap.
"""

from __future__ import annotations

from collections import deque

# A frame that has begun is a sign of life as long as at least so much of it comes at a time.
PROGRESS_BYTES = 1024

# Seconds after which a connection has been of use whatever has come of it.
STEADY = 1.0

# Margins from ping to ping: each answer confirms the one before, if it takes a quarter of one.
_PINGS_APART = 1.25
# Margins that a session timeout must have: twice two pings' time may pass until an answer counts.
LEAST_MARGINS = 5


class Liveness:
    """The clock readings of one session; ``timeout`` is what the server granted."""

    __slots__ = (
        "_contact", "_counts", "_opened", "_pings", "_trickle", "last_receive", "last_send",
        "timeout",
    )  # fmt: skip

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._contact: float | None = None
        self.open(0.0)

    def open(self, now: float) -> None:
        """A new connection: nothing has been heard on it yet."""
        self._opened = now
        self._counts = True  # answers say that the ensemble has heard of the session
        self._pings: deque[float] = deque()
        self.last_send = now
        self.last_receive = now
        self._trickle = 0

    def received(self, size: int, whole: bool, now: float) -> None:
        """So many bytes have come; with ``whole`` they have completed a frame.

        A few inside of one frame are no sign of life: if its length is garbage, the answers to
        pings go there, and would keep a connection alive that answers nothing.
        """
        self._trickle += size
        if whole or self._trickle >= PROGRESS_BYTES:
            self.last_receive, self._trickle = now, 0

    def greeted(self, timeout: float, *, read_only: bool = False) -> None:
        """The server has accepted the session, for ``timeout`` seconds at a time.

        A ``read_only`` one has lost the ensemble, which may expire the session meanwhile.
        """
        self.timeout = timeout
        self._counts = not read_only
        # A follower has asked its leader, which counts from then on (REVALIDATE, createSession).
        Liveness.answered(self, self._opened, self._opened)

    def answered(self, sent_at: float, now: float) -> None:
        """A request sent at ``sent_at`` has been answered."""
        if self._counts and (self._contact is None or sent_at > self._contact):
            self._contact = sent_at

    def heard(self, sent_at: float, now: float) -> None:
        """:meth:`received` and :meth:`answered` in one, for an answer that has come as a whole."""
        self.last_receive, self._trickle = now, 0
        self.answered(sent_at, now)

    def ping(self, now: float) -> None:
        """A ping is being sent."""
        self._pings.append(now)
        self.last_send = now

    def pong(self, now: float) -> None:
        """The oldest unanswered ping has been answered."""
        if self._pings:
            self.answered(self._pings.popleft(), now)

    def has_served(self, now: float) -> bool:
        """Whether the connection was of use: something was answered on it, or it has lasted.

        A request that breaks each connection, and is repeated on the next, makes none of use.
        """
        answered = self._contact is not None and self._contact > self._opened
        return answered or now - self._opened >= STEADY

    @property
    def ping_at(self) -> float:
        """When the server must hear something again."""
        return self.last_send + self.timeout / 3

    @property
    def dead_at(self) -> float:
        """When a connection that stays silent must be given up."""
        return self.last_receive + self.timeout * 2 / 3

    @property
    def lease_deadline(self) -> float:
        """Until then, but for that limit, no server can have expired the session; at first 0."""
        return 0.0 if self._contact is None else self._contact + self.timeout


class Reported(Liveness):
    """Only what the server has had ``margin`` seconds to report prolongs the lease.

    An answer counts once the same server has answered what was sent so much later: a server that
    was alive then, and in touch with its leader, has reported the client meanwhile, if the margin
    is more than half a tick.  Hence pings a little more than a margin apart.
    """

    __slots__ = ("_answered_at", "_margin", "_sent_at")

    def __init__(self, timeout: float, margin: float) -> None:
        self._margin = margin
        super().__init__(timeout)

    def open(self, now: float) -> None:
        """A new connection: what the last one's server has reported cannot be known any more."""
        super().open(now)
        self._sent_at: float | None = None  # of the answer that does not count yet
        self._answered_at = now

    def answered(self, sent_at: float, now: float) -> None:
        """A request sent at ``sent_at`` has been answered: one before it may count now."""
        if self._sent_at is not None:
            if sent_at < self._answered_at + self._margin:
                return
            super().answered(self._sent_at, now)
        self._sent_at, self._answered_at = sent_at, now

    def has_served(self, now: float) -> bool:
        """Whether the connection was of use: something was answered on it, or it has lasted."""
        return self._sent_at is not None or super().has_served(now)

    @property
    def ping_at(self) -> float:
        """When the server must hear something again."""
        return self.last_send + min(self.timeout / 3, _PINGS_APART * self._margin)
