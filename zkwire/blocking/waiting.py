"""How one thread sleeps until something is ready: nothing here reads, writes or decides."""

from __future__ import annotations

import threading

from zkwire.session.waitable import Waitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

# A signal that comes between the interpreter's last look and the system call is not noticed before
# that call returns (CPython's lock.acquire), so a Ctrl-C must not depend on who else wakes us.
LONGEST_SLEEP = 1.0


class Sleeper:
    """Lets one thread sleep until any other has called it, now or before."""

    __slots__ = ("_lock", "waitable")

    def __init__(self, waitable: Waitable) -> None:
        self.waitable: Waitable = waitable
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        """End the sleep.  Idempotent."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # already awake

    def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, at most ``seconds``, and never longer than LONGEST_SLEEP."""
        seconds = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        if seconds > 0:
            self._lock.acquire(timeout=seconds)
