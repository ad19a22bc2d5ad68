"""Whether a thread may wait for the client, and how it sleeps: nothing here reads or writes.

Code of a user's (a finalizer, a signal handler, a trace function) can run on top of the client's
own work in the same thread.  What it finds is half done, and what it would wait for stands still
below it.  So the state lock knows its owner, and a wait is refused there.
"""

from __future__ import annotations

import threading

from zkwire.errors import ForkedError
from zkwire.net.serving import ServingDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from typing import Any

    from zkwire.net.bell import Bell
    from zkwire.session.session import Session
    from zkwire.session.waitable import Waitable

# A signal that comes between the interpreter's last check for one and the system call is not
# noticed before that call returns (CPython's lock.acquire), so a Ctrl-C must not depend on what
# else wakes the thread.
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

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken, at most ``seconds``, and never longer than LONGEST_SLEEP.

        Whether it was woken.
        """
        seconds = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        return seconds > 0 and self._lock.acquire(timeout=seconds)


class Listener(Sleeper):
    """The same, until bytes have come that no reader waits for."""

    __slots__ = ("_asleep", "_bell")

    def __init__(self, waitable: Waitable, bell: Bell) -> None:
        self.waitable: Waitable = waitable
        self._bell = bell
        self._asleep = False

    def __call__(self) -> None:
        """End the sleep.  Idempotent."""
        if self._asleep:  # it calls itself as well, with what it has read
            self._bell.ring_listener()

    def sleep(self, seconds: float | None) -> bool:
        """Sleep until woken, at most ``seconds``, and never longer than LONGEST_SLEEP.

        Whether bytes have come: the kernel has told no other thread of them.
        """
        seconds = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        self._asleep = True
        told = not self.waitable.ready and self._bell.listen(max(0.0, seconds))
        self._asleep = False
        return told


class MutexDriver(ServingDriver):
    """A driver whose session is guarded by a lock that knows its owner."""

    mutex: Any

    def __init__(self, session: Session, rng: Random, **options: Any) -> None:
        super().__init__(session, rng, **options)
        self.threads: object = threading.get_ident  # gevent replaces it, and locks and sockets too
        self.renew_mutex()

    def check(self) -> None:
        """Raise ForkedError in a forked child."""
        if self.forked:
            raise ForkedError(
                "this client belongs to the parent process; make a Client in this process"
            )

    def renew_mutex(self) -> None:
        """Have locks of the present kind, which no thread holds."""
        self.mutex = threading.RLock()
        self.fetching = threading.RLock()
        self.owned: Callable[[], bool] = self.mutex._is_owned

    @property
    def nested(self) -> bool:
        """Whether this is a user's code on top of the client's own work in the same thread."""
        return self.owned()

    def threads_replaced(self) -> None:
        """Threads and locks are others than those that the client was made with."""
        raise RuntimeError(
            "threads and sockets were replaced (by gevent's monkey.patch_all()) after the first "
            "use of this client, which could wait for itself: call monkey.patch_all() first in "
            "the program, or make the client after it (with gunicorn --preload: in the worker)"
        )

    def check_thread(self) -> None:
        """Raise if the caller would wait for its own thread."""
        if self.threads is not threading.get_ident:
            self.threads_replaced()
        if self.interrupting:
            raise RuntimeError(
                "this signal handler (or finalizer) has interrupted the client's own work in this "
                "thread, and would wait for itself: leave the call to another thread, or set a "
                "flag here and make the call behind the signal"
            )

    @property
    def interrupting(self) -> bool:
        """Whether a wait in this thread would be a wait for the thread itself."""
        if self.owned():
            return True
        connection = self.current_connection
        writer = None if connection is None else connection.writer
        return writer is not None and writer == [threading.get_ident()]

    def after_fork(self) -> None:
        """In a forked child: close the parent's connection without a byte or a FIN."""
        self.renew_mutex()  # its holder may be a thread that does not exist here
        super().after_fork()
