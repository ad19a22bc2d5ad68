"""What can be waited for, alarms, and the time limits of waits.

Decides when a wait may end and which functions to call then.  It must not know how the I/O layer
waits: that puts wakers into a :class:`Waitable`, and calls them after the state machine has
returned them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Never

    Waker = Callable[[], object]


class Bound:
    """What refuses to be copied or pickled: a client, and what is made with one.

    The copy of a client would be a second owner of its connection, and the end of either would end
    the session; the copy of a lock would say that it is held when the lock has been released.
    """

    __slots__ = ()

    def __reduce__(self) -> Never:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: it belongs to this process. Give "
            "another process the hosts, to make a client of its own there; to hand a session over, "
            "give it also the credentials that detach() returns, for Client(hosts, resume=...)"
        )


class Waitable(Bound):
    """Something that becomes ready.

    ``_wakers`` are functions that the I/O layer calls once, soon after ``ready`` has turned true,
    outside all locks.  Adding one, and turning ready, happens under the I/O layer's state lock.
    Most waitables have one waker at most, a tuple; for thousands of them a dict is faster.
    """

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: tuple[Waker, ...] | dict[Waker, None] = ()  # in the order of arrival

    @property
    def ready(self) -> bool:
        """Whether a wait for this ends at once."""
        raise NotImplementedError

    def _add_waker(self, waker: Waker) -> None:
        """Have ``waker`` called when this turns ready."""
        if not self._wakers:
            self._wakers = (waker,)
        elif isinstance(self._wakers, tuple):
            self._wakers = dict.fromkeys((*self._wakers, waker))
        else:
            self._wakers[waker] = None

    def _drop_waker(self, waker: Waker) -> None:
        """Forget ``waker``.  Idempotent."""
        if isinstance(self._wakers, dict):
            self._wakers.pop(waker, None)
        elif waker in self._wakers:
            self._wakers = ()

    def _take_wakers(self) -> tuple[Waker, ...]:
        """The wakers to call now; each is returned once."""
        wakers = tuple(self._wakers)  # interrupt-safe: before the store
        self._wakers = ()
        return wakers


class Either(Waitable):
    """Ready once one of several is.  For one wait."""

    __slots__ = ("_parts", "_waker")

    def __init__(self, *parts: Waitable) -> None:
        super().__init__()
        self._parts = parts
        self._waker: list[Waker] = []  # one at most

    @property
    def ready(self) -> bool:
        """Whether one is."""
        return any(part.ready for part in self._parts)

    def _add_waker(self, waker: Waker) -> None:
        self._waker = [waker]
        for part in self._parts:
            part._add_waker(self._wake)

    def _drop_waker(self, waker: Waker) -> None:
        for part in self._parts:
            part._drop_waker(self._wake)

    def _wake(self) -> None:
        for waker in self._waker[:]:  # none if another part has been ready before
            waker()  # interrupt-safe: before it is forgotten, so perhaps twice
            self._waker.clear()


def check_timeout(name: str, seconds: float | None) -> float | None:
    """``seconds`` if it is a time limit: a number not below 0, or None.

    Raises TypeError or ValueError, which call the argument ``name``.
    """
    if seconds is None:
        return None
    if type(seconds) is float and seconds >= 0.0:
        return seconds  # the usual case first, for speed
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    try:
        limit = float(seconds)
    except OverflowError:
        raise ValueError(f"{name} is out of the range of a float") from None
    if limit < 0:
        raise ValueError(f"{name} must not be negative: {seconds}")
    if not limit >= 0:
        raise ValueError(f"{name} must be a number of seconds, not nan")
    return limit


class Awaited:
    """What a background task (:class:`zkwire.net.background.Task`) awaits until it is ready."""

    __slots__ = ("_waitable",)

    def __init__(self, waitable: Waitable) -> None:
        self._waitable = waitable

    def __await__(self) -> Generator[Waitable, None, None]:
        if not self._waitable.ready:
            yield self._waitable


class Alarm(Waitable):
    """Ready from the moment ``at`` on, in seconds on the I/O layer's clock, once it has rung."""

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
    """The alarms of a session that have not rung.

    The I/O layer keeps them with the session's other deadlines, so that they come in virtual time
    too.  Any thread may set and drop an alarm; it rings under the state lock.
    """

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
