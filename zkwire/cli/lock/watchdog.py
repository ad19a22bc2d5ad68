"""A process that ends the command if ``zkwire lock`` cannot: when that is killed, or stopped.

It is run as a script, with nothing but the standard library.  Standard input is a socket from which
it reads lines ``targets delay kill_after term_at kill_at``, the last of which counts; ``targets``,
with commas between, are what kill(2) takes.  The last of them is the process group that this
process leads and the command is in, unless that keeps to the foreground.  At the end of the stream
TERM is due, as ``zkwire lock`` has died; ``delay`` seconds behind ``term_at`` as well, as it has
been stopped.  KILL follows, and ends this process too.  A byte in the socket says that it has
begun.

Times are on the clock of :mod:`zkwire.net.timing`.  No wait is longer than a second, as the kernel
leaves the sleep of a machine out of it.  The starter blocks all signals.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
POLL_SECONDS = 0.05


def now() -> float:
    """Seconds, those of a sleeping machine included."""
    return time.monotonic() if CLOCK is None else time.clock_gettime(CLOCK)


def send(targets: list[int], number: int) -> list[int]:
    """Send a signal; returns the targets that are left."""
    left: list[int] = []
    for target in targets:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, number)
            left.append(target)
    return left


def end(targets: list[int], kill_at: float) -> None:
    """TERM, and KILL at ``kill_at`` if something is left by then."""
    if now() < kill_at:
        targets = send(send(targets, signal.SIGTERM), signal.SIGCONT)
    while targets and now() < kill_at:
        time.sleep(POLL_SECONDS)
        targets = send(targets, 0)  # what is gone is left out: its number may be another's then
    send(targets, signal.SIGKILL)


def parts(line: bytes) -> tuple[list[int], float, float, float, float]:
    """What a line says."""
    targets, *times = line.split()
    delay, kill_after, term_at, kill_at = map(float, times)
    return list(map(int, targets.split(b","))), delay, kill_after, term_at, kill_at


def wait(line: bytes) -> float:
    """Seconds until something is due if nothing more is heard."""
    _, delay, _, term_at, kill_at = parts(line)
    return min(term_at, kill_at) + delay - now()


def main() -> None:
    """Watch until it is time, or until ``zkwire lock`` ends this process."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    line, rest, alive = b"", b"", True
    while alive and not (line and wait(line) <= 0):
        pause = min(1.0, wait(line)) if line else 1.0
        if poll.poll(max(0.0, pause) * 1000):
            data = os.read(0, 65536)
            alive = bool(data)
            *lines, rest = (rest + data).split(b"\n")
            line = lines[-1] if lines else line
    if line:
        with contextlib.suppress(OSError):
            os.write(0, b"!")
        targets, _, kill_after, _, kill_at = parts(line)
        end(targets, min(now() + kill_after, kill_at))


if __name__ == "__main__":
    main()
