"""The steps of Python that an operation costs its callers: what a test holds every change to.

Times say little on a machine that others use. These counts, of calls and of bytecode instructions
in all threads of the caller, are nearly the same in every run: what differs is who reads for whom,
so the least of several runs is held to the lower quartile of those before. `counts.json` has that,
for one version of Python; ``python3 -m benchmarks.gate --write`` writes it, and the commit says why
a count has grown.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare_worker import Side, Steps
from zkwire.testing import Server

PATH = Path(__file__).with_name("counts.json")
WORKS = {"get": 20, "event": 20, "free_lock": 20, "window 10": 200, "threads 8": 160}
"""Each work and how many operations one run has."""
RUNS = 30
VERSION = "3.11"


@contextmanager
def side() -> Iterator[tuple[Side, Steps]]:
    """A client on the server for tests, whose threads are traced."""
    steps, before, of_threads = Steps(), sys.gettrace(), threading.gettrace()
    with Server() as server:
        threading.settrace(steps.trace)
        sys.settrace(steps.trace)
        try:
            made = Side(server.hosts, "gate")
            yield made, steps
        finally:
            sys.settrace(before)
            threading.settrace(of_threads)
        made.client.close()


def run(made: Side, steps: Steps, work: str) -> dict[str, float]:
    """The calls and the instructions of one operation."""
    found = steps.counted(made.work(work), WORKS[work])
    return {name: found[f"{name}, callers"] for name in ("calls", "instructions")}


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(each[name] for each in runs) for name in runs[0]}


def counts() -> dict[str, dict[str, float]]:
    """The lower quartile of the runs of each work; of the first run much is done only once."""
    found: dict[str, dict[str, float]] = {}
    with side() as (made, steps):
        for work in WORKS:
            runs = [run(made, steps, work) for _ in range(RUNS + 1)][1:]
            found[work] = {n: statistics.quantiles(r[n] for r in runs)[0] for n in runs[0]}
    return found


if __name__ == "__main__":
    seen = counts()
    print(json.dumps(seen, indent=1))
    if "--write" in sys.argv:
        PATH.write_text(json.dumps(seen, indent=1) + "\n")
