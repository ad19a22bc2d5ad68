"""How long it takes to connect, and what many clients in one process cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.jobs import Job, Outcome
from benchmarks.measure import outcome, resident

Opened = Callable[[], Callable[[], None]]


def connect_time(opened: Opened, job: Job) -> Outcome:
    """Clients one after the other, each closed (outside the clock) before the next."""
    latencies, used = [], 0.0
    for _ in range(job.count):
        cpu, started = time.process_time(), time.perf_counter()
        close = opened()
        latencies.append(time.perf_counter() - started)
        used += time.process_time() - cpu
        close()
    return outcome(job.count, sum(latencies), used, latencies)


def many_clients(opened: Opened, job: Job) -> Outcome:
    """`job.width` clients that stay; what each adds to the process's memory, and all threads."""
    before = resident()
    latencies, closers = [], []
    cpu = time.process_time()
    for _ in range(job.width):
        started = time.perf_counter()
        closers.append(opened())
        latencies.append(time.perf_counter() - started)
    used = time.process_time() - cpu
    result = outcome(job.width, sum(latencies), used, latencies)
    result.added = (result.rss - before) / job.width / 1024
    result.note = f"{result.added:,.0f} KiB each, {threading.active_count()} threads"
    for close in closers:
        close()
    return result
