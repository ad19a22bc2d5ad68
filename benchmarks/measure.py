"""Clocks around a segment, the memory of a process, percentiles."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.jobs import Outcome


class NotOffered(Exception):
    """The client cannot do this at all."""


def resident() -> int:
    """Resident bytes of this process; 0 where the kernel does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def cpu_of(pid: int) -> int:
    """Nanoseconds of CPU time of another process, threads that have ended included.

    -1 where the kernel does not say; what is asked for is clock_getcpuclockid(3) of Linux.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return -1


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of an ordered sequence lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def outcome(ops: int, seconds: float, cpu_seconds: float, latencies: Sequence[float]) -> Outcome:
    """An outcome from raw times in seconds."""
    result = Outcome(ops, seconds, cpu_seconds, rss=resident())
    if latencies:
        ordered = sorted(latencies)
        result.p50 = percentile(ordered, 0.50) * 1e6
        result.p99 = percentile(ordered, 0.99) * 1e6
    return result


def timed(ops: int, work: Callable[[], object]) -> Outcome:
    """Run `work`, which does so many operations."""
    cpu, started = time.process_time(), time.perf_counter()
    work()
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    return outcome(ops, seconds, used, ())


def timed_calls(call: Callable[..., object], arguments: Iterable[tuple[Any, ...]]) -> Outcome:
    """Call again and again, with the latency of each call."""
    now = time.perf_counter
    cpu = time.process_time()
    marks = [now()]
    mark = marks.append
    for each in arguments:
        call(*each)
        mark(now())
    used = time.process_time() - cpu
    return from_marks(marks, used)


def from_marks(marks: Sequence[float], cpu_seconds: float) -> Outcome:
    """The outcome of calls between these moments."""
    latencies = [later - earlier for earlier, later in pairwise(marks)]
    return outcome(len(latencies), marks[-1] - marks[0], cpu_seconds, latencies)
