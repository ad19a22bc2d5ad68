"""A guard against slowness: what zkwire executes beside plain code and beside kazoo, in one run.

Time says little on a machine that others use, and how two clients compare depends on the machine.
So the instructions of Python are counted, of all threads, on a server that answers at once: the
counts of two runs differ by a few per cent, whatever else goes on.  Of what this does not see, one
thing is counted besides: how often a lone call enters the kernel.  The rest is for the benchmarks.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import pytest

from benchmarks.servers import replay_server
from benchmarks.wire import Address
from benchmarks.worker import kind_of

# Instructions of zkwire in proportion to another's: seen with Python 3.11 to 3.13, and bounds that
# a client does not keep that executes twice as much.
ONE_TO_CODEC = 12.0  # seen: 6.9 to 7.6
MANY_TO_CODEC = 7.5  # seen: 4.2 to 4.8
ONE_TO_KAZOO = 0.36  # seen: 0.20 to 0.22
MANY_TO_KAZOO = 0.25  # seen: 0.14 to 0.15

KERNEL = (
    *("select", "poll", "epoll", "send", "recv", "write", "read", "acquire", "wait", "sleep"),
    "deque.extend",  # in which a connection sends, or receives
)
"""Of what the calls into C are called that may block or wake another thread."""

ONE, MANY = 50, 1000
ATTEMPTS = 5


class Instructions:
    """Counts what is executed in threads that begin, and calls that are made, while it traces."""

    def __init__(self) -> None:
        self.count = 0

    def called(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        """The trace function: of a frame, only its instructions are wanted."""
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self.executed

    def executed(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        self.count += event == "opcode"
        return self.executed

    @contextmanager
    def in_new_threads(self) -> Iterator[None]:
        before = threading.gettrace()
        threading.settrace(self.called)
        try:
            yield
        finally:
            threading.settrace(before)

    def of(self, work: Callable[[], object]) -> int:
        """How many instructions this takes, those of the traced threads included."""
        before, start = sys.gettrace(), self.count
        sys.settrace(self.called)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.count - start


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Address]:
    """The server that costs nothing."""
    with replay_server(tmp_path) as (address, _):
        yield address


def per_get(name: str, address: Address, how: str) -> float:
    """Instructions per get: the median of some attempts."""
    instructions = Instructions()
    paths = [(f"/bench/d100/{number % 100:02d}",) for number in range(MANY)]
    with instructions.in_new_threads(), closing(kind_of(name)(address)) as candidate:
        get = candidate.one("get")

        def one_at_a_time() -> None:
            for each in paths[:ONE]:
                get(*each)

        def pipelined() -> None:
            candidate.many("get", paths)

        work, gets = (one_at_a_time, ONE) if how == "one" else (pipelined, MANY)
        work()
        return median(instructions.of(work) for _ in range(ATTEMPTS)) / gets


@pytest.mark.parametrize(
    ("how", "other", "bound"),
    [
        pytest.param("one", "codec", ONE_TO_CODEC, id="one at a time, to plain code"),
        pytest.param("many", "codec", MANY_TO_CODEC, id="pipelined, to plain code"),
        pytest.param("one", "kazoo", ONE_TO_KAZOO, id="one at a time, to kazoo"),
        pytest.param("many", "kazoo", MANY_TO_KAZOO, id="pipelined, to kazoo"),
    ],
)
def test_a_get_executes_no_more_than_it_did(
    address: Address, how: str, other: str, bound: float
) -> None:
    ours, theirs = (per_get(name, address, how) for name in ("zkwire", other))
    print(f"zkwire {ours:.0f}, {other} {theirs:.0f}: {ours / theirs:.3f}, bound {bound}")
    assert ours / theirs < bound


def kernel_calls(work: Callable[[], object]) -> Counter[str]:
    """The calls of this thread that may block or wake somebody, by name."""
    calls: Counter[str] = Counter()

    def profile(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and any(each in called.__qualname__ for each in KERNEL):
            calls[called.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_a_lone_get_is_one_send_one_wait_and_one_receive(address: Address) -> None:
    """No thread is woken, no lock is slept on.

    At a moment when the background thread reads for once, a call does sleep on a lock.
    """
    with closing(kind_of("zkwire")(address)) as candidate:
        get = candidate.one("get")

        def one_at_a_time() -> None:
            for _ in range(ONE):
                get("/bench/d100/00")

        attempts = [kernel_calls(one_at_a_time) for _ in range(ATTEMPTS)]
    assert {"extend": 2 * ONE, "poll": ONE} in attempts, attempts
