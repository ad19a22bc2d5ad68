"""One client shared by several threads, each with one request at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.candidate import Arguments
from benchmarks.jobs import Outcome
from benchmarks.measure import outcome


def timed_threads(call: Callable[..., object], arguments: Arguments, threads: int) -> Outcome:
    """All threads begin together; the segment ends with the last of them."""
    start, end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
    failures: list[BaseException] = []

    def work(share: Arguments) -> None:
        start.wait()
        try:
            for each in share:
                call(*each)
        except Exception as error:
            failures.append(error)
        end.wait()

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
    return outcome(len(arguments), seconds, used, ())
