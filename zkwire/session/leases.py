"""What is held only as long as the session surely lives: locks.

Only a server can say that a session has expired.  Whoever holds something must act as if it had
once a session timeout has passed since the *sending* of the last request that was answered.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from zkwire.session.waitable import Waker

    class LeaseHolder(Protocol):
        """Something that is held: it is told once, by one of these."""

        def lose(self, message: str) -> Sequence[Waker]: ...
        def let_go(self) -> Sequence[Waker]: ...


class LeaseHolders:
    """All holds of one session.  ``callbacks`` is the automaton's list of functions to call."""

    __slots__ = ("_callbacks", "holds")

    def __init__(self, callbacks: list[Waker]) -> None:
        self.holds: dict[LeaseHolder, None] = {}  # a set in the order of its making
        self._callbacks = callbacks

    def add(self, hold: LeaseHolder) -> None:
        """From now on tell ``hold`` when the session may be gone."""
        self.holds[hold] = None

    def remove(self, hold: LeaseHolder) -> None:
        """The opposite.  Idempotent; nothing for what is not held."""
        if hold in self.holds:
            self._callbacks += hold.let_go()
            self.holds.pop(hold, None)  # last: an interrupt must not leave one untold

    def lose_all(self, message: str) -> None:
        """The session may be gone, or is."""
        for hold in list(self.holds):
            self._callbacks += hold.lose(message)
            self.holds.pop(hold, None)  # last: an interrupt must not leave one untold
