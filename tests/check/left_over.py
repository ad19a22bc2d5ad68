"""Finds and ends the processes that a step has left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

END_SECONDS = 15
"""How long a process may take to end, by itself or when asked to."""

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of whatever outlives its own parent, so that nothing gets out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes_left() -> dict[int, str]:
    """The processes below this one that do not end by themselves: id and command."""
    deadline = time.monotonic() + END_SECONDS
    while (left := dict(descendants())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def descendants() -> Iterator[tuple[int, str]]:
    """The living processes below this one; the dead are reaped on the way."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            process, _, rest = status.read_text().rpartition(")")
            number, _, name = process.partition(" (")
            names[int(number)] = name
            parents[int(number)] = int(rest.split()[1])
    for pid, parent in parents.items():
        ancestor = parent
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            yield pid, names[pid]


def end_all(pids: list[int]) -> None:
    """End the processes with these ids: politely first, then for certain."""
    for order in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, order)
        deadline = time.monotonic() + END_SECONDS
        while any(pid in pids for pid, _ in descendants()) and time.monotonic() < deadline:
            time.sleep(0.05)
