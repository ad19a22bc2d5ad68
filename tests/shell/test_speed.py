"""A guard against slowness: what zkwire executes beside kazoo, and how often it enters the kernel.

Time says little on a machine that others use, and how two clients compare depends on the machine.
So the instructions of Python are counted, of all threads of a client: the counts of two runs differ
by a few per cent, whatever else goes on.  `tests/shell/test_calls.py` holds zkwire's own counts.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

import pytest

from benchmarks.compare_worker import Steps, Works
from benchmarks.sides import SIDES
from zkwire.testing import Server

# Instructions of zkwire in proportion to kazoo's: seen with Python 3.11, and bounds that a client
# does not keep that executes twice as much.
TO_KAZOO = {"get": 0.36, "window 1000": 0.25}

KERNEL = (
    *("select", "poll", "epoll", "send", "recv", "write", "read", "acquire", "wait", "sleep"),
    "deque.extend",  # in which a connection sends, or receives
)
"""Of what the calls into C are called that may block or wake another thread."""

COUNTS = {"get": 50, "window 1000": 1000}
ATTEMPTS = 5


@pytest.fixture
def hosts() -> Iterator[str]:
    """The server for tests, whose thread is there before any that is traced."""
    with Server() as server:
        yield server.hosts


@contextmanager
def traced(side: str, hosts: str) -> Iterator[tuple[Works, Steps]]:
    """A client whose threads are counted."""
    steps, before, of_threads = Steps(), sys.gettrace(), threading.gettrace()
    threading.settrace(steps.trace)
    sys.settrace(steps.trace)
    try:
        with closing(SIDES[side](hosts)) as made:
            yield made, steps
    finally:
        sys.settrace(before)
        threading.settrace(of_threads)


def per_get(side: str, hosts: str, work: str) -> float:
    """Instructions per get, of all threads: the median of some attempts."""
    with traced(side, hosts) as (made, steps):
        runs = [steps.counted(made.work(work), COUNTS[work]) for _ in range(ATTEMPTS + 1)][1:]
    return median(sum(n for name, n in run.items() if "instructions" in name) for run in runs)


@pytest.mark.parametrize("work", TO_KAZOO)
def test_a_get_executes_no_more_beside_kazoos_than_it_did(hosts: str, work: str) -> None:
    ours, theirs = (per_get(side, hosts, work) for side in ("zkwire", "kazoo"))
    print(f"zkwire {ours:.0f}, kazoo {theirs:.0f}: {ours / theirs:.3f}, bound {TO_KAZOO[work]}")
    assert ours / theirs < TO_KAZOO[work]


def kernel_calls(work: Callable[[], object]) -> Counter[str]:
    """The calls of this thread that may block or wake somebody, by name."""
    calls: Counter[str] = Counter()

    def profile(_frame: object, event: str, called: Any) -> None:
        if event == "c_call" and any(each in called.__qualname__ for each in KERNEL):
            calls[called.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_a_lone_get_is_one_send_one_wait_and_one_receive(hosts: str) -> None:
    """No thread is woken, no lock is slept on.

    At a moment when the background thread reads for once, a call does sleep on a lock.
    """
    gets = COUNTS["get"]
    with closing(SIDES["zkwire"](hosts)) as made:
        attempts = [kernel_calls(lambda: made.work("get")(gets)) for _ in range(ATTEMPTS)]
    assert {"extend": 2 * gets, "poll": gets} in attempts, attempts
