"""Moments that a coroutine in the background waits for.

The shell keeps them with the session's other deadlines, so that they come in virtual time too.  An
alarm may be set and dropped by any thread; it rings under the shell's state lock.
"""

from __future__ import annotations

from zkwire.session.waitable import Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.session.waitable import Waker


class Alarm(Waitable):
    """Ready from the moment ``at`` on, in seconds on the shell's clock, once it has rung."""

    __slots__ = ("_rung", "at")

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at: float = at
        self._rung = False

    @property
    def ready(self) -> bool:
        """Whether the moment has come."""
        return self._rung


class Alarms:
    """The alarms of a session that have not rung."""

    __slots__ = ("_callbacks", "_waiting")

    def __init__(self, callbacks: list[Waker]) -> None:
        self._callbacks = callbacks
        self._waiting: dict[Alarm, None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def set(self, alarm: Alarm) -> None:
        """Have it ring."""
        self._waiting[alarm] = None

    def drop(self, alarm: Alarm) -> None:
        """It need not ring any more.  Idempotent."""
        self._waiting.pop(alarm, None)

    def next(self) -> float:
        """When the first one is due; infinity if there is none."""
        return min((alarm.at for alarm in list(self._waiting)), default=float("inf"))

    def ring(self, now: float) -> None:
        """Those that are due are ready."""
        for alarm in list(self._waiting):
            if alarm.at <= now:
                alarm._rung = True
                self._callbacks.extend(alarm._take_wakers())
                self.drop(alarm)  # interrupt-safe: last, so that it rings again
