"""The side of ``zkwire lock`` that keeps a watchdog: best effort, the lock is kept without it too.

The watchdog leads a process group, into which the command is started.  So it knows what to end
before there is anything to end, and the group's number is no other's as long as it lives.  What
keeps to the foreground is in another group, and is told once it runs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from zkwire.cli.lock import watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkwire.cli.lock.deadline import Deadline

LONGEST_DELAY = 0.25  # seconds by which it leaves the first try to its parent


def _program() -> list[str]:
    """The watchdog, as arguments of Python: its file, or where that is in a zip file its name."""
    file = os.path.abspath(watchdog.__file__)
    if os.path.exists(file):
        return [file]
    name = watchdog.__name__  # a zip file may have no source: Python's -c could not be given that
    archive = os.path.abspath(file + "/.." * (name.count(".") + 1))
    return ["-c", f"import sys; sys.path.insert(0, {archive!r}); from {name} import main; main()"]


class Watchdog:
    """One watchdog, running until :meth:`end`.

    ``group`` is the process group that it leads; 0 if it could not be started.
    """

    def __init__(self, margin: float, kill_after: float) -> None:
        self._delay = min(LONGEST_DELAY, margin / 2)
        self._kill_after = kill_after
        self._told = ""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None
        # It is in the command's group, so from the first on it must not get the command's signals.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with theirs, suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", *_program()],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    process_group=0,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        self.group: int = 0 if self._process is None else self._process.pid

    def fileno(self) -> int:
        """To wait until it acts."""
        return self._socket.fileno()

    def tell(self, targets: Iterable[int], deadline: Deadline) -> None:
        """Tell it what to end, and the times, if that has changed."""
        ends = ",".join(map(str, targets))
        words = ends, self._delay, self._kill_after, deadline.term_at, deadline.kill_at
        line = " ".join(map(str, words)) + "\n"
        if line != self._told:
            self._told = line
            with suppress(OSError):  # it is gone
                self._socket.send(line.encode())

    def acts(self) -> bool:
        """Whether it has begun to end the command since the last look."""
        with suppress(OSError):
            return self._socket.recv(1) == b"!"
        return False

    def let_go(self) -> None:
        """Have it end the command, as if this process had died, and wait for that."""
        self._socket.close()
        if self._process is not None:
            self._process.wait()

    def end(self) -> None:
        """End it, without a trace."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket.close()
