"""The signals of the process, for one thread that waits for them together with other things.

A signal is a byte in a socket, written by the interpreter when it comes (``signal.set_wakeup_fd``),
so none gets lost between a look and a wait.  While something blocks that knows of no socket, as the
client's own waits do, ``raising`` makes the next ending signal an exception in the main thread
instead.

Invariant: a signal that was ignored when the process was started stays so, for the command too
(``nohup``).
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self


def _signals(*names: str) -> tuple[signal.Signals, ...]:
    """Those of them that the system has."""
    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


# What ends a process by default.
ENDING = _signals(
    *("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"),
)
# What else there is to hear while a command runs.
FOR_COMMAND = _signals("SIGCHLD", "SIGWINCH", "SIGTSTP", "SIGCONT")
_ALWAYS = set(_signals("SIGCHLD"))  # ignoring it means something else


class Interrupted(BaseException):
    """An ending signal has come while ``raising`` was set."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The ending signals from here to the end of the ``with``; in the main thread alone."""

    def __init__(self) -> None:
        self.raising: bool = False
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self._former: dict[int, Any] = {}
        self._former_fd = -1

    def __enter__(self) -> Self:
        self._former_fd = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        self.hear(ENDING)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._reading.close()
        self._writing.close()

    def hear(self, numbers: Iterable[int]) -> None:
        """Hear of these signals too, if they are not ignored."""
        for number in numbers:
            former = signal.getsignal(number)
            if former is not signal.SIG_IGN or number in _ALWAYS:
                self._former.setdefault(number, former)
                signal.signal(number, self._came)

    def _came(self, number: int, _: object) -> None:
        if self.raising and number in ENDING:
            self.raising = False  # first: one exception is enough
            raise Interrupted(number)

    @property
    def forwarded(self) -> Iterable[int]:
        """Those that are heard for another process."""
        return self._former.keys() - _ALWAYS

    def fileno(self) -> int:
        """To wait until something has come."""
        return self._reading.fileno()

    def take(self) -> bytes:
        """The numbers of the signals that have come, in order; 0 for a :meth:`wake`."""
        with suppress(BlockingIOError):
            return self._reading.recv(4096)
        return b""

    def wake(self, _: object = None) -> None:
        """End the wait, from any thread."""
        with suppress(OSError):  # it is full, so the wait ends anyway; or closed
            self._writing.send(b"\0")

    def stop_here(self) -> None:
        """Stop the process, as the terminal's key would have done, until it is continued."""
        heard = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, heard)
