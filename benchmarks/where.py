"""Where the CPU time of a get, of a lock's cycle and of an event goes, by function.

    python3 -m benchmarks.where [--seconds N] [--write]

A timer that runs while the process does interrupts it, and `faulthandler` writes down what is being
executed: at once, also within a system call, and at a price that does not depend on the code.  The
kernel counts such timers in its ticks, so one operation is never seen whole; thousands are.  What
is written to `where.json` is drawn by tests/support/speed_pictures.py, for docs/how-fast.md.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import linecache
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from benchmarks.pages import ROOT, this_machine
from benchmarks.servers import real_server, version_of
from benchmarks.wire import Address, Bare, request
from zkwire import Client, SequentialLock, Watch

PATH = "/where/node"
KEPT = Path(__file__).with_name("where.json")
TICK_SECONDS = 0.001
LEAST_SHARE = 0.005
"""What is rarer is counted with the function that has called it."""

EVENTS = 5000
PATIENCE_SECONDS = 60.0
SYSTEM_CALLS = {
    "send": r"self\._send\b",
    "receive": r"self\._recv\b",
    "wait": r"\.poll\(|connection\.wait\(",
    "lock": r"\.acquire\(|\.release\(\)",
}
"""By the line that is being executed; the time of the Python around the call is below a tenth."""

FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')

Stacks = Counter[str]


class Sampling:
    """What the process executes, each millisecond of its CPU time or each tick of the kernel."""

    def __init__(self) -> None:
        self._file: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives with this
        self.cpu = self.system = self.wall = 0.0

    def run(self, work: Callable[[], object]) -> None:
        """Do this, watched."""
        faulthandler.register(signal.SIGPROF, self._file, all_threads=False)
        before, started = os.times(), time.perf_counter()
        signal.setitimer(signal.ITIMER_PROF, TICK_SECONDS, TICK_SECONDS)
        try:
            work()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            self.wall += time.perf_counter() - started
            after = os.times()
            self.system += after.system - before.system
            self.cpu += after.system - before.system + after.user - before.user
            faulthandler.unregister(signal.SIGPROF)

    def stacks(self) -> Stacks:
        """How often each stack was seen, from the outermost function of zkwire's."""
        self._file.seek(0)
        found, frames = Stacks(), list[tuple[str, str, str]]()
        for line in [*self._file.read().splitlines(), "Stack"]:
            if seen := FRAME.match(line):
                frames.append((seen[1], seen[2], seen[3]))
            elif line.startswith(("Stack", "Current thread")) and frames:
                found[";".join(_named(frames))] += 1
                frames.clear()
        self._file.close()
        return found


def _named(frames: list[tuple[str, str, str]]) -> Iterator[str]:
    """Layer, module and function of each frame, the outermost first; then a system call."""
    for file, _, function in reversed(frames):
        path = Path(file)
        if path.is_relative_to(ROOT / "zkwire"):
            module = ".".join(path.relative_to(ROOT / "zkwire").with_suffix("").parts)
            yield f"{module}:{function}"
    file, line, _ = frames[0]
    text = linecache.getline(file, int(line))
    called = [name for name, found in SYSTEM_CALLS.items() if re.search(found, text)]
    if called and Path(file).parent.name in ("net", "blocking"):
        yield f"kernel:{called[0]}"


def pruned(stacks: Stacks) -> dict[str, int]:
    """Without the rare: they count for their callers."""
    least = LEAST_SHARE * sum(stacks.values())
    while rare := [stack for stack, count in stacks.items() if count < least and ";" in stack]:
        deepest = max(stack.count(";") for stack in rare)
        for stack in [each for each in rare if each.count(";") == deepest]:
            stacks[stack.rpartition(";")[0]] += stacks.pop(stack)
    return dict(sorted(stacks.items()))


# --- what is watched ------------------------------------------------------------------------------


def gets(client: Client, address: Address, sampling: Sampling, seconds: float) -> int:
    """Gets, one at a time."""
    return _repeated(lambda: client.get_data(PATH), sampling, seconds)


def cycles(client: Client, address: Address, sampling: Sampling, seconds: float) -> int:
    """A free lock, taken and given back."""
    lock = SequentialLock(client, "/where/lock")

    def cycle() -> None:
        lock.acquire()
        lock.release()

    return _repeated(cycle, sampling, seconds)


def _repeated(work: Callable[[], object], sampling: Sampling, seconds: float) -> int:
    count = 0

    def until_over() -> None:
        nonlocal count
        while sampling.cpu + time.process_time() - begun < seconds:
            for _ in range(100):
                work()
            count += 100

    for _ in range(1000):
        work()
    begun = time.process_time()
    sampling.run(until_over)
    return count


def events(client: Client, address: Address, sampling: Sampling, seconds: float) -> int:
    """Watches whose nodes another process deletes, one request for each, behind one another."""
    count = 0
    while sampling.cpu < seconds:
        watches = [Watch() for _ in range(EVENTS)]
        paths = [f"/where/{count}-{n}" for n in range(EVENTS)]
        bare = Bare(address)
        bare.do_all([request("create", path) for path in paths])
        bare.close()
        replies = [
            client.pipeline.exists(path, watch=watch)
            for path, watch in zip(paths, watches, strict=True)
        ]
        for reply in replies:
            reply.result()
        command = [sys.executable, "-m", "benchmarks.where", "--delete", f"{address[1]}"]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True) as deleting:
            assert deleting.stdin is not None
            deleting.stdin.write("\n".join(paths))
            deleting.stdin.close()
            watches[0].wait(PATIENCE_SECONDS)
            sampling.run(partial(_wait_for, watches[1:]))
        count += EVENTS
    return count


def _wait_for(watches: list[Watch]) -> None:
    for watch in watches:
        if watch.wait(PATIENCE_SECONDS) is None:
            raise TimeoutError("an event has not come")


def delete(port: int) -> None:
    """What another process does: paths from standard input, each deleted by a request."""
    bare = Bare(("127.0.0.1", port))
    for frame in [request("delete", path) for path in sys.stdin.read().split()]:
        bare.ask(frame)
    bare.close()


WATCHED: dict[str, Callable[[Client, Address, Sampling, float], int]] = {
    "get": gets,
    "lock": cycles,
    "event": events,
}


def watched(seconds: float) -> dict[str, Any]:
    """All of it: for each operation its microseconds and where they are."""
    found: dict[str, Any] = {}
    with real_server() as address:
        bare = Bare(address)
        bare.do_all([request("create", "/where"), request("create", PATH, b"x" * 100)])
        bare.close()
        found["machine"] = {**this_machine(), "ZooKeeper": version_of(address)}
        for name, work in WATCHED.items():
            with Client(f"{address[0]}:{address[1]}") as client:
                sampling = Sampling()
                count = work(client, address, sampling, seconds)
            stacks = sampling.stacks()
            found[name] = {
                "operations": count,
                **{
                    each: round(1e6 * getattr(sampling, each) / count, 1)
                    for each in ("cpu", "system", "wall")
                },
                "samples": sum(stacks.values()),
                "stacks": pruned(stacks),
            }
            print({key: value for key, value in found[name].items() if key != "stacks"}, flush=True)
    return found


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time for each operation")
    parser.add_argument("--write", action="store_true", help="keep it")
    parser.add_argument("--delete", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.delete:
        delete(asked.delete)
        return
    found = watched(asked.seconds)
    if asked.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
        return
    for name in WATCHED:
        print(f"\n{name}")
        for stack, count in sorted(found[name]["stacks"].items(), key=lambda each: -each[1])[:40]:
            print(f"{found[name]['cpu'] * count / found[name]['samples']:6.1f} µs  {stack}")


if __name__ == "__main__":
    main()
