"""One side of `benchmarks.compare`: does work with the zkwire of the tree that PYTHONPATH names.

Speaks lines of JSON: ``{"work": NAME, "count": N}`` is answered with what that took of the whole
process, as is ``{"work": NAME, "count": N, "steps": true}``, with the steps of Python by thread.
Uses only names of zkwire that every commit has.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import zkwire

SESSION_SECONDS = 600.0  # an idle side does not ping
BASE = "/compare"


class Side:
    """A client and the work that it can do."""

    def __init__(self, hosts: str, name: str) -> None:
        self.client = zkwire.Client(hosts, session_timeout=SESSION_SECONDS)
        self.client.connect(10.0)
        self.client.ensure_path(f"{BASE}/{name}/new")
        self.client.set_data(BASE, b"x" * 100)
        self.new = f"{BASE}/{name}/new/n"
        self.lock = zkwire.SequentialLock(self.client, f"{BASE}/{name}/lock")

    def get(self, count: int) -> None:
        for _ in range(count):
            self.client.get_data(BASE)

    def create(self, count: int) -> None:
        for number in range(count):
            self.client.create(f"{self.new}{number}")
        self._remove(count)

    def _remove(self, count: int) -> None:
        for reply in [self.client.pipeline.delete(f"{self.new}{n}") for n in range(count)]:
            reply.result()

    def get_window(self, count: int, width: int) -> None:
        for _ in range(count // width):
            for reply in [self.client.pipeline.get_data(BASE) for _ in range(width)]:
                reply.result()

    def create_1000(self, count: int) -> None:
        for begin in range(0, count, 1000):
            paths = [f"{self.new}{number}" for number in range(begin, begin + 1000)]
            for reply in [self.client.pipeline.create(path) for path in paths]:
                reply.result()
        self._remove(count)

    def free_lock(self, count: int) -> None:
        for _ in range(count):
            self.lock.acquire()
            self.lock.release()

    def event(self, count: int) -> None:
        """A watch for each change, which this client makes itself."""
        for _ in range(count):
            watch = zkwire.Watch()
            self.client.get_data(BASE, watch=watch)
            self.client.set_data(BASE, b"x" * 100)
            watch.wait(10.0)

    def threads(self, count: int, width: int) -> None:
        workers = [threading.Thread(target=self.get, args=(count // width,)) for _ in range(width)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def work(self, name: str) -> Callable[[int], None]:
        """``get``, ``window 10``, ``threads 8``, ..."""
        kind, _, width = name.partition(" ")
        if kind == "window":
            return lambda count: self.get_window(count, int(width))
        if kind == "threads":
            return lambda count: self.threads(count, int(width))
        found: Callable[[int], None] = getattr(self, kind)
        return found


def spent(work: Callable[[int], None], count: int) -> dict[str, float]:
    """CPU and wall time in µs, and switches, for one operation."""
    before, wall, cpu = _usage(), time.perf_counter(), time.process_time()
    work(count)
    wall, cpu, after = time.perf_counter() - wall, time.process_time() - cpu, _usage()
    names = ("voluntary switches", "other switches")
    switches = {n: (b - a) / count for n, a, b in zip(names, before, after, strict=True)}
    return {"CPU µs": cpu * 1e6 / count, "wall µs": wall * 1e6 / count, **switches}


def _usage() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw, usage.ru_nivcsw


class Steps:
    """Counts Python calls and bytecode instructions, by the kind of thread, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.found: Counter[str] = Counter()

    def trace(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if self.on:
            library = threading.current_thread().name.startswith("zkwire")
            where = "I/O thread" if library else "callers"
            if event == "call":
                self.found[f"calls, {where}"] += 1
            elif event == "opcode":
                self.found[f"instructions, {where}"] += 1
        return self.trace

    def counted(self, work: Callable[[int], None], count: int) -> dict[str, float]:
        """The steps of one operation, over ``count`` of them."""
        self.found.clear()
        self.on = True
        try:
            work(count)
        finally:
            self.on = False
        return {name: number / count for name, number in sorted(self.found.items())}


def main() -> None:
    hosts, name, traced = sys.argv[1:4]
    steps = Steps()
    if traced == "steps":
        threading.settrace(steps.trace)
        sys.settrace(steps.trace)
    side = Side(hosts, name)
    print(json.dumps({"from": zkwire.__path__[0]}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        work = side.work(asked["work"])
        measure = steps.counted if traced == "steps" else spent
        print(json.dumps(measure(work, asked["count"])), flush=True)
    side.client.close()


if __name__ == "__main__":
    main()
