"""One run of the command under the lock, watched until it has ended.

One thread waits for the command, for signals, for the loss of the lock and for the next deadline
together; each of them is a byte in a socket, so none is missed.  No wait is longer than a tenth of
the session timeout, or a second: what a sleeping or stopped machine has missed is noticed then.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from zkwire.cli.context import Context
from zkwire.cli.lock import holding, watchdog
from zkwire.cli.lock.holding import Deadline, Grant, Signals, known

HAS_GROUPS: bool = hasattr(os, "killpg")  # of processes, to which signals go; else it is Windows
GROUP_POLL = 0.05  # nothing tells of the end of a group
BRIEFLY = 0.05  # seconds that a message may delay the next look at the lock


class Running:
    """The command, started; OSError if that is impossible.

    ``times``: the margin, and the seconds between TERM and KILL.  ``loss`` is why the command was
    ended, or (``--on-lost warn``) would have been.
    """

    def __init__(
        self, context: Context, asked: Namespace, grant: Grant, signals: Signals,
        times: tuple[float, float],
    ) -> None:  # fmt: skip
        self._output, self._grant, self._signals = context.output, grant, signals
        self._warn = asked.on_lost == "warn"
        margin, kill_after = times if asked.on_lost == "term" and HAS_GROUPS else (times[0], 0.0)
        self._deadline = Deadline(margin, kill_after)
        self.loss: str | None = None
        signals.hear(holding.FOR_COMMAND)
        watched = HAS_GROUPS and not self._warn
        self._watchdog = Watchdog(margin, kill_after) if watched else None
        self._deadline.prolong(grant.lease_end())
        group: int | None = None if asked.foreground else 0
        if self._watchdog is not None and group is not None:
            group = self._watchdog.group
            # First: this may be stopped behind any line.
            self._watchdog.tell([-group], self._deadline)
        environment = holding.environment_of(context, grant)
        try:
            self._child: PlainChild = (
                Child(asked.command, environment, group)
                if HAS_GROUPS
                else PlainChild(asked.command, environment, signals.wake)
            )
        except BaseException:
            self._end_watchdog()
            raise
        grant.lock.lost.add_callback(signals.wake)

    def wait(self) -> int:
        """Wait for the end of the command; its exit status, or 128 and a signal's number."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            if self._watchdog is not None:
                selector.register(self._watchdog, selectors.EVENT_READ)
            try:
                self._watch(selector)
            except BaseException:  # without this loop nothing else would end the command at a loss
                if self._watchdog is not None:
                    self._watchdog.let_go()
                elif not self._warn:
                    self._child.send(holding.SIGKILL)
                if self._child.exited():
                    self._child.reap()
                raise
        self._end_watchdog()
        status = self._child.reap()
        while self._deadline.ending and self._child.group_lives():
            self._look()
            if self._deadline.next == float("inf"):
                break  # all that can be done
            time.sleep(self._deadline.pause(GROUP_POLL))
        return status

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Until the command has ended."""
        while True:
            self._look()
            if self._child.exited():
                break
            for key, _ in selector.select(self._deadline.pause(self._grant.longest_wait)):
                if key.fileobj is self._watchdog:
                    selector.unregister(key.fileobj)  # it says one thing at most
                    self._hear_watchdog()
            self._look()  # before a signal continues the command
            self._forward()
        self._hear_watchdog()

    def _look(self) -> None:
        """Take in what is known of the lock, and do what is due."""
        lost = self._grant.lock.lost
        if self._warn:
            if lost.is_set() and self.loss is None:
                self._lose(f"{lost.reason}; the command goes on")
            return
        number = self._deadline.look(self._grant)
        if number is not None:
            self._child.send(number)
        if self._watchdog is not None:
            self._watchdog.tell(self._child.targets(), self._deadline)
        if self._deadline.ending and self.loss is None:  # last: a reader of it may be slow
            self._lose(lost.reason or holding.NOT_PROLONGED)

    def _lose(self, reason: str) -> None:
        self.loss = reason
        self._note(f"{self._grant.lock.path} is lost: {reason}")

    def _note(self, text: str) -> None:
        self._output.note(f"zkwire: {text}", BRIEFLY)

    def _hear_watchdog(self) -> None:
        if self._watchdog is not None and self._watchdog.acts():
            self._deadline.lose()
            if self.loss is None:
                self._lose("zkwire did not run in time; perhaps it was stopped")

    def _end_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.end()
            self._watchdog = None

    def _forward(self) -> None:
        for number in self._signals.take():
            if number in self._signals.forwarded:
                self._child.forward(number)
        if self._child.foreground and self._child.stopped():
            left = f"{self._grant.client.lease_remaining():.0f} s"
            self._note(f"stopped; the lock is lost unless it continues within {left}")
            self._signals.stop_here()


# --- child ----------------------------------------------------------------------------------------
# The command as a process, and its process group.
#
# Signals go to the whole group, so what the command has started ends with it, unless that has made
# a group of its own.  If the command itself has, as timeout(1) and setsid(1) do, signals go to that
# group, too.  In the ``foreground`` the command stays in the group of its starter, which the
# terminal knows, and signals go to it alone.  Both are as with timeout(1).

# The terminal sends these to its whole foreground group, the command included.
FROM_TERMINAL = known("SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH")


class PlainChild:
    """The command where processes have neither groups nor signals: Windows.

    It alone is ended, at once, and not what it has started; there is no watchdog, so it outlives a
    ``zkwire lock`` that is killed.  ``ended`` is called, in a thread, when it has ended.
    """

    foreground = False
    _process: subprocess.Popen[bytes]

    def __init__(
        self, command: Sequence[str], env: dict[str, str], ended: Callable[[], object]
    ) -> None:
        self._process = subprocess.Popen(command, env=env)
        self._ended = ended
        threading.Thread(target=self._wait, name="zkwire-command", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        self._ended()

    def send(self, number: int) -> None:
        """Have it end by TERM or KILL, if anything is left; what is stopped goes on for TERM."""
        with suppress(OSError):  # it has just ended
            self._process.kill()

    def forward(self, number: int) -> None:
        """Send on a signal, unless the terminal has sent it to the command as well."""

    def targets(self) -> list[int]:
        """What signals go to, as kill(2) takes it: the process, or its groups."""
        return []

    def stopped(self) -> bool:
        """Whether it has been stopped since the last look."""
        return False

    def exited(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def reap(self) -> int:
        """How it has ended: its exit status, or 128 and the signal's number."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def group_lives(self) -> bool:
        """Whether something of its groups is left, behind :meth:`reap` and without a watchdog."""
        return False


class Child(PlainChild):
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
        if self.foreground:
            return [self._pid]
        with suppress(OSError):  # of an ended process, on some systems
            if self._process.returncode is None and os.getpgid(self._pid) == self._pid:
                self._groups = list({self._pid: None, self._groups[-1]: None})
        return [-group for group in self._groups]

    def send(self, number: int) -> None:
        self._send(number)
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        for target in self.targets():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)

    def forward(self, number: int) -> None:
        if not (self.foreground and number in FROM_TERMINAL):
            self._send(number)

    def stopped(self) -> bool:
        with suppress(ChildProcessError):  # it has ended
            return os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG) is not None
        return False

    def exited(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def group_lives(self) -> bool:
        return not self.foreground and any(map(_lives, self._groups))


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, and alive
    return True


# --- stand by -------------------------------------------------------------------------------------
# The side of ``zkwire lock`` that keeps a watchdog: best effort, the lock is kept without it too.
#
# The watchdog leads a process group, into which the command is started.  So it knows what to end
# before there is anything to end, and the group's number is no other's as long as it lives.  What
# keeps to the foreground is in another group, and is told once it runs.

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
        self._process: subprocess.Popen[Any] | None = None
        # It is in the command's group, so from the first on it must not get the command's signals.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        words, null = [sys.executable, "-I", "-S", *_program()], subprocess.DEVNULL
        streams: Any = {"stdin": theirs.fileno(), "stdout": null, "stderr": null}
        try:
            with theirs, suppress(OSError):
                self._process = subprocess.Popen(words, **streams, cwd="/", process_group=0)
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
