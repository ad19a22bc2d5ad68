"""The command as a process, and its process group.

Signals go to the whole group, so what the command has started ends with it, unless that has made a
group of its own.  If the command itself has, as timeout(1) and setsid(1) do, signals go to that
group, too.  In the ``foreground`` the command stays in the group of its starter, which the terminal
knows, and signals go to it alone.  Both are as with timeout(1).
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The terminal sends these to its whole foreground group, the command included.
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)


class Child:
    """The command; OSError if it cannot be started.

    ``group`` is the process group that it joins, 0 for one of its own; None is the foreground.
    """

    def __init__(self, command: Sequence[str], env: dict[str, str], group: int | None) -> None:
        self.foreground: bool = group is None
        # What is inherited beside the three streams (a job server's pipe) is the command's, too.
        self._process = subprocess.Popen(command, env=env, close_fds=False, process_group=group)
        self._pid = self._process.pid
        self._groups = [group or self._pid]

    def targets(self) -> list[int]:
        """What signals go to, as kill(2) takes it: the process, or its groups."""
        if self.foreground:
            return [self._pid]
        with suppress(OSError):  # of an ended process, on some systems
            if self._process.returncode is None and os.getpgid(self._pid) == self._pid:
                self._groups = list({self._pid: None, self._groups[-1]: None})
        return [-group for group in self._groups]

    def send(self, number: int) -> None:
        """Send a signal, if there is anything left to get it."""
        for target in self.targets():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)

    def forward(self, number: int) -> None:
        """Send on a signal, unless the terminal has sent it to the command as well."""
        if not (self.foreground and number in FROM_TERMINAL):
            self.send(number)

    def stopped(self) -> bool:
        """Whether it has been stopped since the last look."""
        with suppress(ChildProcessError):  # it has ended
            return os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG) is not None
        return False

    def exited(self) -> bool:
        """Whether it has ended."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """How it has ended: its exit status, or 128 and the signal's number."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def group_lives(self) -> bool:
        """Whether something of its groups is left, behind :meth:`reap` and without a watchdog."""
        return not self.foreground and any(map(_lives, self._groups))


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, and alive
    return True
