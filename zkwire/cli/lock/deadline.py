"""When a command has to end because its lock may be lost: arithmetic on the caller's clock.

The server cannot give the lock to another contender before the lease ends.  So TERM is due a margin
and ``kill_after`` before that, and KILL a margin before.  These times follow from what the client
itself has sent and received; no news from a server is needed for them.

Invariants: a longer lease moves both times, until TERM is due; from then on the command ends,
whatever comes.  KILL is never due later than a margin before the end of the longest known lease,
unless that is past.
"""

from __future__ import annotations

import signal
from math import inf
from signal import SIGTERM, Signals

SIGKILL: Signals = getattr(signal, "SIGKILL", SIGTERM)  # Windows has one way to end a process
NOT_PROLONGED = "no answer has prolonged the session's lease in time"


class Deadline:
    """The two times for one command, in seconds; ``kill_after`` 0: KILL alone."""

    def __init__(self, margin: float, kill_after: float) -> None:
        self._margin = margin
        self._kill_after = kill_after
        self._lease_end = -inf
        self._lost = False
        self.ending: bool = False
        self._sent_kill = False
        self._kill_at = -inf

    def prolong(self, lease_end: float) -> None:
        """The lease lasts until then, at least."""
        self._lease_end = max(self._lease_end, lease_end)

    def lose(self) -> None:
        """The lock is lost, be the lease what it is."""
        self._lost = True

    @property
    def term_at(self) -> float:
        """When TERM is due; infinity once it has been."""
        if self.ending:
            return inf
        return -inf if self._lost else self._lease_end - self._margin - self._kill_after

    @property
    def kill_at(self) -> float:
        """When KILL is due; infinity once it has been."""
        if self._sent_kill:
            return inf
        return self._kill_at if self.ending else self._lease_end - self._margin

    @property
    def next(self) -> float:
        """When something is due next."""
        return min(self.term_at, self.kill_at)

    def due(self, now: float) -> Signals | None:
        """What is to be sent now, each once."""
        begins = now >= self.term_at
        if begins:
            last = max(now, self._lease_end - self._margin)
            self.ending, self._kill_at = True, min(now + self._kill_after, last)
        if self.ending and now >= self.kill_at:
            self._sent_kill = True
            return SIGKILL
        return SIGTERM if begins else None
