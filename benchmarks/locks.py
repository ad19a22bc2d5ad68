"""Locks for threads: a free one, one that two contend for, and how long a hand-off takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from benchmarks.jobs import Outcome
from benchmarks.measure import outcome, timed, timed_calls
from benchmarks.wire import Bare, request

SETTLE_SECONDS = 0.01


class Lock(Protocol):
    """What zkwire's and kazoo's locks have in common."""

    def acquire(self) -> bool: ...
    def release(self) -> object: ...


def free_lock(lock: Lock, count: int) -> Outcome:
    """Acquire and release a lock that nobody else wants."""

    def cycle() -> None:
        lock.acquire()
        lock.release()

    return timed_calls(cycle, [()] * count)


def contended(locks: tuple[Lock, Lock], count: int) -> Outcome:
    """Two threads, each with a client of its own, take the lock from each other."""
    half = count // 2

    def contend(lock: Lock) -> None:
        for _ in range(half):
            lock.acquire()
            lock.release()

    def work() -> None:
        threads = [threading.Thread(target=contend, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return timed(2 * half, work)


def hand_off(locks: tuple[Lock, Lock], path: str, server: Bare, count: int) -> Outcome:
    """From before the holder's release to when the waiter's `acquire` has returned.

    The pause before it lets the waiter come to rest; it is not part of the measured time.
    """
    holder, waiter = locks
    children = request("children", path)
    holder.acquire()
    latencies, used = [], 0.0
    for _ in range(count):
        got: list[float] = []
        thread = threading.Thread(target=_take, args=(waiter, got.append))
        thread.start()
        while server.ask(children)[16:20] != b"\0\0\0\2":
            time.sleep(0.001)
        time.sleep(SETTLE_SECONDS)
        cpu, started = time.process_time(), time.perf_counter()
        holder.release()
        thread.join()
        used += time.process_time() - cpu
        latencies.append(got[0] - started)
        holder, waiter = waiter, holder
    holder.release()
    return outcome(count, sum(latencies), used, latencies)


def _take(lock: Lock, tell: Callable[[float], object]) -> None:
    lock.acquire()
    tell(time.perf_counter())
