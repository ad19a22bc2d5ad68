"""One side of `benchmarks.compare`: does work with the zkwire of the tree that PYTHONPATH names.

Speaks lines of JSON: ``{"work": NAME, "count": N}`` is answered with what that took of the whole
process, or, if that is asked for on the command line, with the steps of Python by thread.
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
from functools import partial
from types import FrameType
from typing import Any

import zkwire

SESSION_SECONDS = 600.0  # an idle side does not ping
BASE = "/compare"
DATA = b"x" * 100


class Works:
    """What a side can be asked for by name: ``get``, ``window 10``, ``threads 8``, ..."""

    def get(self, count: int) -> None:
        raise NotImplementedError

    def threads(self, count: int, width: int) -> None:
        workers = [threading.Thread(target=self.get, args=(count // width,)) for _ in range(width)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def work(self, name: str) -> Callable[[int], None]:
        """The method for a work; its width is its second argument."""
        kind, _, width = name.partition(" ")
        method: Callable[..., None] = getattr(self, kind)
        return partial(method, width=int(width)) if width else method

    def close(self) -> None:
        """End the session."""


class Side(Works):
    """zkwire's client for threads."""

    def __init__(self, hosts: str, name: str) -> None:
        self.client = zkwire.Client(hosts, session_timeout=SESSION_SECONDS)
        self.client.connect(10.0)
        self.client.ensure_path(f"{BASE}/{name}/new")
        self.client.set_data(BASE, DATA)
        self.new = f"{BASE}/{name}/new/n"
        self.lock = zkwire.SequentialLock(self.client, f"{BASE}/{name}/lock")
        self._path = f"{BASE}/{name}"

    def close(self) -> None:
        self.client.close()

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

    def window(self, count: int, width: int) -> None:
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
            self.client.set_data(BASE, DATA)
            watch.wait(10.0)

    def counter(self, count: int) -> None:
        counter = zkwire.Counter(self.client, f"{self._path}/counter")  # which old commits lack
        for _ in range(count):
            counter.add(1)

    def queue(self, count: int) -> None:
        """One item put, and got."""
        queue = zkwire.Queue(self.client, f"{self._path}/queue")
        for _ in range(count):
            queue.put(DATA)
            queue.get(10.0)


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


def serve(side: Works, measure: Callable[[Callable[[int], None], int], dict[str, float]]) -> None:
    """Do what the lines of the input ask for, until they end."""
    print(json.dumps({"from": zkwire.__path__[0]}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measure(side.work(asked["work"]), asked["count"])), flush=True)
    side.close()


def main() -> None:
    hosts, name, mode = sys.argv[1:4]
    measure = spent
    if mode == "steps":
        steps = Steps()
        measure = steps.counted
        threading.settrace(steps.trace)
        sys.settrace(steps.trace)
    serve(Side(hosts, name), measure)


if __name__ == "__main__":
    main()
