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
    """All holders of one session.  ``callbacks`` is the automaton's list of functions to call."""

    __slots__ = ("_callbacks", "holders")

    def __init__(self, callbacks: list[Waker]) -> None:
        self.holders: dict[LeaseHolder, None] = {}  # a set in the order of its making
        self._callbacks = callbacks

    def add(self, holder: LeaseHolder) -> None:
        """From now on tell ``holder`` when the session may be gone."""
        self.holders[holder] = None

    def remove(self, holder: LeaseHolder) -> None:
        """The opposite.  Idempotent; nothing for what is not held."""
        if holder in self.holders:
            self._callbacks += holder.let_go()
            self.holders.pop(holder, None)  # last: an interrupt must not leave one untold

    def lose_all(self, message: str) -> None:
        """The session may be gone, or is."""
        for holder in list(self.holders):
            self._callbacks += holder.lose(message)
            self.holders.pop(holder, None)  # last: an interrupt must not leave one untold
