"""Locks between processes: that they exclude each other, and what a stopped one may still do."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.lock_helpers import (
    ALL_KINDS,
    PATIENCE,
    SHORT,
    Kind,
    Stage,
    Worker,
    Workers,
    acquire_soon,
    all_kinds,
    assert_strictly_rising,
)
from tests.support.lock_workers import fenced_write, kind_named

PROCESSES = 4
TIMES = 50


@all_kinds
def test_processes_count_without_losing_one(
    stage: Stage, kind: Kind, fresh_path: str, tmp_path: Path
) -> None:
    """The counter is a plain file: two at a time would read the same number."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    arguments = (stage.hosts, kind.__name__, fresh_path, TIMES, counter)
    with Workers() as workers:
        crew = [workers.start("counting", *arguments) for _ in range(PROCESSES)]
        for worker in crew:
            worker.expect("ready")
        for worker in crew:
            worker.say("go")
        lines = [line for worker in crew for line in worker.end(4 * PATIENCE)]
    turns = sorted(tuple(map(int, line.split())) for line in lines)
    assert [number for number, _ in turns] == list(range(PROCESSES * TIMES))
    assert counter.read_text() == str(PROCESSES * TIMES)
    assert_strictly_rising(fence for _, fence in turns)
    assert stage.nodes(fresh_path) == []


def outrun(worker: Worker, rival: Any, register: Path) -> None:
    """Stop the holder, which writes into the register, until the rival has its lock and writes."""
    register.write_text("0\n")
    said, fence = (worker.hear() or "").split()
    assert said == "fence"
    worker.say("write")
    worker.expect("held True written True told False")
    os.kill(worker.pid, signal.SIGSTOP)
    acquire_soon(rival, PATIENCE)
    assert rival.fence > int(fence)
    assert fenced_write(register, "by the rival", rival.fence)
    worker.say("write")
    os.kill(worker.pid, signal.SIGCONT)
    worker.expect("held False written False told True")
    assert rival.held
    assert register.read_text() == f"{rival.fence}\nby the rival\n"
    rival.release()


# Who holds, and who gets it when the holder is stopped for too long.
STOPPED = {kind.__name__: kind.__name__ for kind in ALL_KINDS} | {
    "ReadLock": "WriteLock",
    "WriteLock": "ReadLock",
    "Lease": "Lease",
}
FAIR = ("SequentialLock", "Lease")
"""What a real server has, too."""


@pytest.mark.parametrize(
    ("holder", "next_one"),
    [
        pytest.param(*both, id=both[0], marks=[pytest.mark.own_server] * (both[0] not in FAIR))
        for both in STOPPED.items()
    ],
)
def test_stopped_holder_knows_when_it_wakes(
    stage: Stage, holder: str, next_one: str, fresh_path: str, tmp_path: Path
) -> None:
    """Stopped for longer than its session lives; what it must look at waits for it already."""
    register = tmp_path / "register"
    rival = kind_named(next_one)(stage.observer, fresh_path)
    with Workers() as workers:
        worker = workers.start("writing", stage.hosts, holder, fresh_path, SHORT, register)
        outrun(worker, rival, register)
