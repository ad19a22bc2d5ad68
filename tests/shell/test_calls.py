"""What an operation costs: steps of Python (`benchmarks/counts.json`), and calls of the kernel."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.compare_worker import Steps, Works
from benchmarks.gate import VERSION, WORKS
from benchmarks.sides import SIDES
from zkwire import Client
from zkwire.testing import Server

# --- zkwire's own counts --------------------------------------------------------------------------

GROWTH = 1.02
OTHER_VERSIONS = 1.2
"""Other versions of Python have other instructions."""
MOST_RUNS = 40
KEPT: dict[str, dict[str, float]] = json.loads(gate.PATH.read_text())


def grown(work: str) -> dict[str, tuple[float, float]]:
    """The counts that no run keeps to: the least that was seen, and what is allowed."""
    margin = GROWTH if f"{sys.version_info[0]}.{sys.version_info[1]}" == VERSION else OTHER_VERSIONS
    allowed = {name: count * margin for name, count in KEPT[work].items()}
    with gate.side() as (made, steps):
        found = gate.run(made, steps, work)
        for _ in range(MOST_RUNS):
            found = gate.least([found, gate.run(made, steps, work)])
            if all(found[name] <= allowed[name] for name in found):
                break
    return {name: (found[name], most) for name, most in allowed.items() if found[name] > most}


@pytest.mark.parametrize("work", WORKS)
def test_an_operation_takes_no_more_steps_than_it_did(work: str) -> None:
    """Else say why in the commit, and: python3 -m benchmarks.gate --write."""
    assert grown(work) == {}


INLINE = 30
"""So many attributes of an object CPython finds without a look-up in a dict."""


def test_what_requests_need_is_found_at_once() -> None:
    """Attributes beyond that belong into the slots of their class."""
    with Server() as server, Client(server.hosts) as client:
        client.get_data("/")
        assert len(vars(client._driver)) <= INLINE
        assert not hasattr(client._session, "__dict__")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the margin of other versions is wide")
def test_two_more_calls_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, as under load the I/O thread makes some of the calls."""
    plain = Client.get_data

    def inner(self: Client, path: str) -> object:
        return plain(self, path)

    def get_data(self: Client, path: str) -> object:
        return inner(self, path)

    monkeypatch.setattr(Client, "get_data", get_data)
    assert "calls" in grown("get")


# --- beside kazoo ---------------------------------------------------------------------------------

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
