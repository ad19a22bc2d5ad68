"""One run of the command under the lock where processes have neither groups nor signals: Windows.

The command alone is ended, at once, and not what it has started; there is no watchdog, so a command
outlives a ``zkwire lock`` that is killed.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from argparse import Namespace
from contextlib import suppress

from zkwire.cli.context import Context
from zkwire.cli.lock.deadline import NOT_PROLONGED, Deadline
from zkwire.cli.lock.holding import Grant, environment_of
from zkwire.cli.lock.signals import Signals
from zkwire.net.pacing import clock


def has_groups() -> bool:
    """Whether processes have groups, to which signals go."""
    return hasattr(os, "killpg")


class PlainRunning:
    """The command, started; OSError if that is impossible.

    ``loss`` is why the command was ended, or (``--on-lost warn``) would have been.
    """

    def __init__(
        self,
        context: Context,
        asked: Namespace,
        grant: Grant,
        signals: Signals,
        times: tuple[float, float],
    ) -> None:
        self._output, self._grant, self._signals = context.output, grant, signals
        self._warn = asked.on_lost == "warn"
        self._deadline = Deadline(times[0], 0.0)
        self.loss: str | None = None
        self._process = subprocess.Popen(asked.command, env=environment_of(context, grant))
        threading.Thread(target=self._wait, name="zkwire-command", daemon=True).start()
        grant.lock.lost.add_callback(signals.wake)

    def _wait(self) -> None:
        self._process.wait()
        self._signals.wake()

    def wait(self) -> int:
        """Wait for the end of the command; its exit status."""
        try:
            while self._process.poll() is None:
                self._look()
                pause = min(self._grant.longest_wait, self._deadline.next - clock())
                select.select([self._signals], [], [], max(0.0, pause))
                # The console has sent the command what was sent to this process.
                self._signals.take()
        except BaseException:  # without this loop nothing else would end the command at a loss
            self._process.kill()
            raise
        status = self._process.returncode
        return status if status >= 0 else 128 - status

    def _look(self) -> None:
        """Take in what is known of the lock, and do what is due."""
        lost = self._grant.lock.lost
        self._deadline.prolong(self._grant.lease_end())
        if lost.is_set():
            self._deadline.lose()
        if self._warn:
            if lost.is_set() and self.loss is None:
                self._lose(f"{lost.reason}; the command goes on")
        elif self._deadline.due(clock()) is not None:
            with suppress(OSError):  # it has just ended
                self._process.kill()
            if self.loss is None:
                self._lose(lost.reason or NOT_PROLONGED)

    def _lose(self, reason: str) -> None:
        self.loss = reason
        self._output.note(f"zkwire: {self._grant.lock.path} is lost: {reason}", 0.0)


class Input:
    """Tells ``signals`` when standard input has ended: a thread reads it."""

    def __init__(self, signals: Signals) -> None:
        self.ended: bool = False
        self._signals = signals
        threading.Thread(target=self._read, name="zkwire-input", daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while sys.stdin is not None and os.read(0, 4096):
                pass
        self.ended = True
        self._signals.wake()


def hold(grant: Grant, signals: Signals, margin: float) -> str | None:
    """Hold the lock until it is to be released (None), or lost: then why."""
    deadline, given = Deadline(margin, 0.0), Input(signals)
    grant.lock.lost.add_callback(signals.wake)
    while True:
        deadline.prolong(grant.lease_end())
        if grant.lock.lost.is_set():
            deadline.lose()
        if deadline.due(clock()):
            return grant.lock.lost.reason or NOT_PROLONGED
        pause = max(0.0, min(grant.longest_wait, deadline.next - clock()))
        select.select([signals], [], [], pause)
        if any(signals.take()) or given.ended:
            return None
