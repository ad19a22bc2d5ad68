"""No command: show what is held, and hold it until standard input ends or a signal comes."""

from __future__ import annotations

import os
import select
import sys

from zkwire.cli.lock.deadline import NOT_PROLONGED, Deadline
from zkwire.cli.output import hex_id
from zkwire.net.pacing import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zkwire.cli.lock.grant import Grant
    from zkwire.cli.lock.signals import Signals
    from zkwire.cli.output import Output


def show(output: Output, grant: Grant) -> None:
    """The path of the node and the token, a line each."""
    token = grant.lock.fence
    if output.json:
        session = hex_id(grant.client.session_id)
        output.record({"path": grant.node, "token": token, "session": session}, flush=True)
    else:
        output.line(grant.node)
        output.line(str(token), flush=True)


def hold(grant: Grant, signals: Signals, margin: float) -> str | None:
    """Hold the lock until it is to be released (None), or lost: then why."""
    deadline = Deadline(margin, 0.0)
    grant.lock.lost.add_callback(signals.wake)
    poll = select.poll()
    poll.register(signals, select.POLLIN)
    if sys.__stdin__ is None:
        return None
    poll.register(0, select.POLLIN)
    while True:
        deadline.prolong(grant.lease_end())
        if grant.lock.lost.is_set():
            deadline.lose()
        if deadline.due(clock()):
            return grant.lock.lost.reason or NOT_PROLONGED
        pause = max(0.0, min(grant.longest_wait, deadline.next - clock()))
        ready = {fd for fd, _ in poll.poll(pause * 1000)}
        if any(signals.take()) or (0 in ready and _ended()):
            return None


def _ended() -> bool:
    """Whether standard input has ended; what it has is read."""
    try:
        return not os.read(0, 4096)
    except OSError:
        return True
