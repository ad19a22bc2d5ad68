"""A clock that stands still until a test moves it."""

from __future__ import annotations

import math
from collections.abc import Callable


class VirtualClock:
    """A call returns the time in seconds.  `Server(now=clock)` runs on this time.

    ``advance`` returns when the server has done everything that is due by the new time.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._listeners: list[Callable[[], object]] = []

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        later = self._now + seconds
        if not (seconds >= 0 and later < math.inf):
            raise ValueError(f"the seconds to advance must be finite and not negative: {seconds!r}")
        self._now = later
        for listener in list(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` after each move."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], object]) -> None:
        """End a :meth:`subscribe`."""
        self._listeners.remove(listener)
