"""One client shared by several threads, each with one request at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, pairwise

from benchmarks.candidate import Arguments
from benchmarks.jobs import Outcome
from benchmarks.measure import outcome, timed_calls

PATIENCE_SECONDS = 60.0


def timed_threads(call: Callable[..., object], arguments: Arguments, threads: int) -> Outcome:
    """All threads begin together; the segment ends with the last of them."""
    start, end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
    failures: list[BaseException] = []
    latencies: list[float] = []

    def work(share: Arguments) -> None:
        start.wait()
        marks = [time.perf_counter()]
        try:
            for each in share:
                call(*each)
                marks.append(time.perf_counter())
        except Exception as error:
            failures.append(error)
        end.wait()
        latencies.extend(later - earlier for earlier, later in pairwise(marks))

    workers = [threading.Thread(target=work, args=(arguments[n::threads],)) for n in range(threads)]
    for worker in workers:
        worker.start()
    cpu, started = time.process_time(), time.perf_counter()
    start.wait()
    end.wait()
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return outcome(len(arguments), seconds, used, latencies)


@contextmanager
def calling(call: Callable[..., object], arguments: Arguments, threads: int) -> Iterator[list[int]]:
    """So many threads that call all the time; how often each has so far."""
    done, over, failures = [0] * threads, threading.Event(), list[BaseException]()
    begun = threading.Barrier(threads + 1)

    def work(index: int) -> None:
        begun.wait(PATIENCE_SECONDS)
        try:
            for each in cycle(arguments):
                if over.is_set():
                    break
                call(*each)
                done[index] += 1
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    begun.wait(PATIENCE_SECONDS)
    try:
        yield done
    finally:
        over.set()
        for worker in workers:
            worker.join()
    if failures:
        raise failures[0]


def timed_beside(call: Callable[..., object], arguments: Arguments, threads: int) -> Outcome:
    """The latencies of one thread while the others call, too; CPU time for one call of any."""
    with calling(call, arguments, threads - 1) as done:
        before = sum(done)
        result = timed_calls(call, arguments)
        others = sum(done) - before
    result.cpu_seconds *= result.ops / (result.ops + others)
    return result
