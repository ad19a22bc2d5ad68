"""When to ping, when a connection counts as dead, and until when the session surely lives.

Plain arithmetic on the caller's clock, in seconds.  This module must not read a clock, send, or
decide what follows.  If the client sends nothing for a third of the session timeout, the connection
is pinged.  If nothing arrives for two thirds of it, the connection is dead.  Both are as in the
Java client (``ClientCnxn.SendThread``).

Two more rules are for a connection whose session has ended unnoticed.  Another client takes the
session over and asks the server to close it.  That ends this client's connection, and this client
may reconnect before the request to close is carried out.  ZooKeeper then drops everything that
this client sends, pings included, but still tells it of changes
(``ZooKeeperServer.submitRequestNow``, seen with 3.8.0).

* A connection that brings nothing but events for a whole session timeout is dead.
* A connection made right after this server has closed the last one is in *doubt*.  It is pinged
  when the other client's request has surely been carried out, and is dead if no answer follows
  within a third of the session timeout.

The *session's lease* is stricter than that.  Only a server can say that a session has expired.  But
whatever is held in the session's name must act as if the session had expired when a session timeout
has passed since the *sending* of the last answered request: the server's own timer surely did not
start before that moment.  Bytes that arrive keep a connection alive, but do not prolong the lease:
they may have been on their way for any length of time.  While one reply takes longer than a session
timeout to arrive, the answers to pings can only come after it.  So a lock counts as lost although
the session lives on; a shorter reply or a longer session timeout avoids that.

The lease has two gaps.  A follower answers pings and reads by itself, and reports its clients to
the leader only when the leader asks, every half tickTime (``Leader.lead``, ``Learner.ping``; a
write does not count as a report either).  In both gaps two contenders can believe that they hold a
lock, and only ``guard``, or ``fence`` if the resource checks it, protects.

* A follower that is cut off from its leader continues to answer for up to syncLimit times tickTime
  (10 s in ZooKeeper's sample configuration) and so prolongs the lease here, while the leader may
  expire the session a session timeout after the last report.  An answered write or ``sync`` shows
  that the server was in touch.
* A follower that crashes between an answer and its next report has not reported that request, so
  the leader counts from an earlier request.  That was sent up to a ping interval earlier (more if
  this side was late), and half a tick earlier still if several requests came after the last report.
  The leader rounds up to a whole tick, which gives up to one tick back.  :class:`Reported` closes
  this gap.
"""

from __future__ import annotations

import math
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from zkwire.session.waitable import Waker

    class LeaseHolder(Protocol):
        """What counts as held while the session's lease runs; exactly one of these is called."""

        def _lose(self, message: str) -> Sequence[Waker]: ...
        def _let_go(self) -> Sequence[Waker]: ...


# A part of a frame is a sign of life only if it is at least this long.
PROGRESS_BYTES = 1024

# Seconds from the greeting of a connection in doubt to a ping.  The answer may take a third of the
# session timeout: it comes after those to the session's writes, and a disk may take seconds.
SETTLED = 0.1

# Seconds after which a connection has served, even if nothing was answered on it.
STEADY = 1.0

# The time from ping to ping, in margins: an answer confirms the answer before it if it arrives
# within a quarter of a margin.
_PINGS_APART = 1.25
# A session timeout has at least so many margins: up to twice two ping intervals pass before an
# answer counts.
LEAST_MARGINS = 5

LAPSED = (
    "the session's lease has ended: no answer has prolonged it for a session timeout, and the "
    "session may have expired"
)


class Liveness:
    """The clock readings of one session.

    ``timeout`` is the session timeout in seconds: the one asked for, later the one granted.
    """

    __slots__ = (
        "_contact", "_counts", "_opened", "_pings", "_proof_at", "_trickle", "last_answer",
        "last_receive", "last_send", "margin", "timeout",
    )  # fmt: skip

    def __init__(self, timeout: float) -> None:
        self.timeout: float = timeout
        self.margin: float = 0.0
        self._contact = -math.inf  # when the last answered request was sent
        self.open(0.0)

    def open(self, now: float) -> None:
        """A new connection has been made; nothing has arrived on it yet."""
        self._opened = now
        self._counts = True  # an answer prolongs the lease
        self._pings: deque[float] = deque()
        self._proof_at = -math.inf  # an answer after this ends the doubt
        self.last_send: float = now
        self.last_receive: float = now
        self.last_answer: float = now  # or a good part of one
        self._trickle = 0

    def received(self, size: int, whole: bool, now: float) -> None:
        """``size`` bytes have arrived; with ``whole`` they complete a frame.

        A few bytes inside a frame are no sign of life: if its length is garbage, the answers to
        pings are counted into it and would keep a connection alive that answers nothing.
        """
        self._trickle += size
        if whole or self._trickle >= PROGRESS_BYTES:
            self.last_receive, self._trickle = now, 0
            if not whole:
                self.last_answer = now

    def greeted(self, timeout: float, *, read_only: bool = False) -> None:
        """The server has accepted the session, with a timeout of ``timeout`` seconds.

        A ``read_only`` server has lost the ensemble, which may expire the session meanwhile.
        """
        self.timeout = timeout
        self._counts = not read_only
        if self._counts:
            # A follower asks its leader first, whose timer starts then (REVALIDATE, createSession).
            self._contact = self._opened

    def doubt(self, now: float) -> None:
        """The session that the server has accepted may have ended a moment later."""
        self._proof_at = now + SETTLED

    def answered(self, sent_at: float, now: float) -> None:
        """A request sent at ``sent_at`` has been answered; the answer was whole at ``now``."""
        self.last_receive = self.last_answer = now
        self._trickle = 0
        if self._counts and sent_at > self._contact:
            self._contact = sent_at

    def ping(self, now: float) -> None:
        """A ping is being sent."""
        self._pings.append(now)
        self.last_send = now

    def pong(self, now: float) -> None:
        """The oldest unanswered ping has been answered."""
        if self._pings:
            self.answered(self._pings.popleft(), now)

    def has_served(self, now: float) -> bool:
        """Whether the connection was of use: a request was answered on it, or it has lasted.

        A connection that breaks at its first request, again and again, is of no use.
        """
        return self._contact > self._opened or now - self._opened >= STEADY

    @property
    def _ping_interval(self) -> float:
        return self.timeout / 3

    @property
    def ping_at(self) -> float:
        """When the next ping is due."""
        due = self.last_send + self._ping_interval
        proved = max(self.last_answer, self.last_send) >= self._proof_at
        return due if proved else min(due, self._proof_at)

    @property
    def _silent_at(self) -> float:
        return self.last_receive + self.timeout * 2 / 3

    @property
    def dead_at(self) -> float:
        """When the connection counts as dead unless something arrives."""
        due = min(self._silent_at, self.last_answer + self.timeout)
        in_doubt = self.last_answer < self._proof_at
        return min(due, self._proof_at + self.timeout / 3) if in_doubt else due

    def silence(self, now: float) -> str:
        """Why the connection counts as dead."""
        if now >= self._silent_at:
            return f"nothing arrived for {now - self.last_receive:.1f} s"
        return f"no answer arrived for {now - self.last_answer:.1f} s"

    @property
    def lease_deadline(self) -> float:
        """When the session's lease ends; 0 before the first handshake.

        No server has expired the session before then, except in the two gaps.
        """
        return max(0.0, self._contact + self.timeout)

    @property
    def lease_ends_first(self) -> bool:
        """Whether the lease may end before the next ping is due, as after a slow answer."""
        return self.last_send - self._contact > self.timeout * 2 / 3


class Reported(Liveness):
    """Prolongs the lease only by answers that the server has had ``margin`` seconds to report.

    An answer counts once the same server has answered a request that was sent ``margin`` seconds
    later.  A server that was alive then, and in touch with its leader, has reported the client
    meanwhile, if the margin is more than half a tick.  So pings are a little more than a margin
    apart.

    If a server grants less than five margins, a smaller margin is used: otherwise every lease would
    end although each ping is answered.  The smaller margin is more than half a tick if more than
    2.5 ticks are granted, and no server grants less than 2 unless its ``maxSessionTimeout`` says
    so.
    """

    __slots__ = ("_answered_at", "_sent_at", "_wanted")

    def __init__(self, timeout: float, margin: float) -> None:
        super().__init__(timeout)
        self.margin: float = margin
        self._wanted = margin

    def greeted(self, timeout: float, *, read_only: bool = False) -> None:
        """The server has accepted the session: the margin is at most a fifth of its timeout."""
        super().greeted(timeout, read_only=read_only)
        self.margin = min(self._wanted, timeout / LEAST_MARGINS)

    def open(self, now: float) -> None:
        """A new connection: whether the last server has reported its answers stays unknown."""
        super().open(now)
        self._sent_at = self._answered_at = -math.inf  # of the answer that does not count yet

    def answered(self, sent_at: float, now: float) -> None:
        """A request sent at ``sent_at`` has been answered: an earlier one may count now."""
        reported = sent_at >= self._answered_at + self.margin
        super().answered(self._sent_at if reported else -math.inf, now)
        if reported:
            self._sent_at, self._answered_at = sent_at, now

    def has_served(self, now: float) -> bool:
        """Whether the connection was of use: a request was answered on it, or it has lasted."""
        return self._sent_at >= self._opened or super().has_served(now)

    @property
    def _ping_interval(self) -> float:
        return min(self.timeout / 3, _PINGS_APART * self.margin)
