"""One run of the command under the lock, watched until it has ended.

One thread waits for the command, for signals, for the loss of the lock and for the next deadline
together; each of them is a byte in a socket, so none is missed.  No wait is longer than a tenth of
the session timeout, or a second: what a sleeping or stopped machine has missed is noticed then.
"""

from __future__ import annotations

import os
import select
from signal import SIGCONT

from zkwire.cli.lock.child import Child
from zkwire.cli.lock.deadline import NOT_PROLONGED, Deadline
from zkwire.cli.lock.signals import FOR_COMMAND
from zkwire.cli.lock.stand_by import Watchdog
from zkwire.cli.output import hex_id
from zkwire.net.pacing import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from zkwire.cli.context import Context
    from zkwire.cli.lock.grant import Grant
    from zkwire.cli.lock.signals import Signals

GROUP_POLL = 0.05  # nothing tells of the end of a group


class Running:
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
        self._output = context.output
        self._grant = grant
        self._signals = signals
        self._warn = asked.on_lost == "warn"
        margin, kill_after = times if asked.on_lost == "term" else (times[0], 0.0)
        self._deadline = Deadline(margin, kill_after)
        self.loss: str | None = None
        signals.hear(FOR_COMMAND)
        self._watchdog = None if self._warn else Watchdog(margin, kill_after)
        self._deadline.prolong(grant.lease_end())
        group = 0
        if self._watchdog is not None and not asked.foreground:
            group = self._watchdog.group
            self._watchdog.tell(
                [-group], self._deadline
            )  # first: this may be stopped behind any line
        try:
            self._child = Child(
                asked.command,
                environment_of(context, grant),
                None if asked.foreground else group,
            )
        except BaseException:
            self._end_watchdog()
            raise
        grant.lock.lost.add_callback(signals.wake)

    def wait(self) -> int:
        """Wait for the end of the command; its exit status, or 128 and a signal's number."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._watchdog is not None:
            poll.register(self._watchdog, select.POLLIN)
        try:
            while True:
                self._look()
                if self._child.exited():
                    break
                for fd, _ in poll.poll(self._pause(self._grant.longest_wait) * 1000):
                    if fd != self._signals.fileno():
                        poll.unregister(fd)  # it says one thing at most
                        self._hear_watchdog()
                self._look()  # before a signal continues the command
                self._forward()
            self._hear_watchdog()
        except BaseException:  # without this loop nothing else would end the command at a loss
            if self._watchdog is not None:
                self._watchdog.let_go()
            if self._child.exited():
                self._child.reap()
            raise
        self._end_watchdog()
        status = self._child.reap()
        while self._deadline.ending and self._child.group_lives():
            self._look()
            if self._deadline.next == float("inf"):
                break  # all that can be done
            select.select([], [], [], self._pause(GROUP_POLL))
        return status

    def _pause(self, longest: float) -> float:
        return max(0.0, min(longest, self._deadline.next - clock()))

    def _look(self) -> None:
        """Take in what is known of the lock, and do what is due."""
        lost = self._grant.lock.lost
        if self._warn:
            if lost.is_set() and self.loss is None:
                self._lose(f"{lost.reason}; the command goes on")
            return
        self._deadline.prolong(self._grant.lease_end())
        if lost.is_set():
            self._deadline.lose()
        number = self._deadline.due(clock())
        if number is not None:
            self._child.send(number)
            self._child.send(SIGCONT)  # TERM does nothing to what is stopped
        if self._watchdog is not None:
            self._watchdog.tell(self._child.targets(), self._deadline)
        if self._deadline.ending and self.loss is None:  # last: a reader of it may be slow
            self._lose(lost.reason or NOT_PROLONGED)

    def _lose(self, reason: str) -> None:
        self.loss = reason
        self._output.note(f"zkwire: {self._grant.lock.path} is lost: {reason}")

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
            self._output.note(
                "zkwire: stopped, the lock is lost unless it goes on within "
                f"{self._grant.client.lease_remaining():.0f} s"
            )
            self._signals.stop_here()


def environment_of(context: Context, grant: Grant) -> dict[str, str]:
    """The environment of the command: an inner lock's values replace those of an outer one."""
    return {
        **os.environ,
        "ZKWIRE_LOCK_PATH": grant.node,
        "ZKWIRE_LOCK_TOKEN": str(grant.lock.fence),
        "ZKWIRE_LOCK_SESSION": hex_id(grant.client.session_id),
        "ZKWIRE_SERVER": context.server,
    }
