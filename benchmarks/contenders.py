"""Locks of zkwire, of kazoo and of a warm Curator, on one real server, in turn.

    CURATOR_HOME=FOLDER:FOLDER python3 -m benchmarks.contenders [--rounds N] [--quick] [--write]

A free lock, a lock that two contend for, and a queue of contenders, each of which has its place
before the first one releases, and holds for no time.  The contenders of a queue are threads on ten
clients.  Curator's process is warm; without its jars it is left out.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pages import preface, table, write
from benchmarks.servers import real_server, version_of
from benchmarks.wire import Address, Bare, request
from tests.interop.curator.process import find_classes
from tests.interop.other_clients.clients import NoClientError
from zkwire import Client, SequentialLock

COMMAND = "benchmarks.contenders --write"
PROGRAM = Path(__file__).with_name("native") / "CuratorLocks.java"
CLIENTS = 10
SESSION_SECONDS = 1800
FREE = 300
PAIR = 300
QUEUES = (10, 100, 1000)
WARM_SECONDS = 8.0
STACK_BYTES = 1 << 18

_numbers = itertools.count()


class Cost(NamedTuple):
    """Microseconds for one operation; or how many times another one's."""

    wall: float
    cpu: float

    def __truediv__(self, other: Cost) -> Cost:
        return Cost(self.wall / other.wall, self.cpu / other.cpu)


def middle(costs: Iterable[Cost]) -> Cost:
    """The medians of both, each by itself."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


class Threads:
    """The jobs for a client in this process; a subclass makes its clients' locks."""

    def __init__(self, address: Address) -> None:
        self._bare = Bare(address)
        self._clients = [self._started(f"{address[0]}:{address[1]}") for _ in range(CLIENTS)]

    def _started(self, hosts: str) -> Any:
        raise NotImplementedError

    def _lock(self, client: Any, path: str) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._bare.close()

    def run(self, job: str, path: str, count: int) -> Cost:
        """One job: "free", "pair" or "queue", with so many acquisitions."""
        contenders = {"free": 1, "pair": 2, "queue": count}[job]
        locks = [self._lock(self._clients[n % CLIENTS], path) for n in range(contenders)]
        threads = [threading.Thread(target=_cycles, args=(x, count // contenders)) for x in locks]
        gate = self._lock(self._clients[0], path)
        begin: list[Callable[[], object]] = [thread.start for thread in threads]
        if job == "queue":
            gate.acquire()
            for each in begin:
                each()
            listing = request("children", path)
            while int.from_bytes(self._bare.ask(listing)[16:20], "big") <= count:
                time.sleep(0.01)
            begin = [gate.release]
        cpu, started = time.process_time(), time.perf_counter()
        for each in begin:
            each()
        for thread in threads:
            thread.join()
        wall, used = time.perf_counter() - started, time.process_time() - cpu
        return Cost(1e6 * wall / count, 1e6 * used / count)


def _cycles(lock: Any, times: int) -> None:
    for _ in range(times):
        lock.acquire()
        lock.release()


class Zkwire(Threads):
    """Its SequentialLock."""

    def _started(self, hosts: str) -> Client:
        client = Client(hosts, session_timeout=SESSION_SECONDS)
        client.connect(10.0)
        return client

    def _lock(self, client: Any, path: str) -> SequentialLock:
        return SequentialLock(client, path)


class Kazoo(Threads):
    """Its Lock."""

    def _started(self, hosts: str) -> Any:
        from kazoo.client import KazooClient  # for this comparison alone

        client = KazooClient(hosts, timeout=SESSION_SECONDS)
        client.start()
        return client

    def _lock(self, client: Any, path: str) -> Any:
        return client.Lock(path)

    def close(self) -> None:
        for client in self._clients:
            client.stop()
        super().close()


class Curator:
    """Its InterProcessMutex, in a process of its own that has run for a while."""

    def __init__(self, address: Address) -> None:
        classes = ["-cp", find_classes()]
        self._process = subprocess.Popen(
            ["java", "-Xmx512m", *classes, str(PROGRAM), f"{address[0]}:{address[1]}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1,
        )  # fmt: skip
        self._said()
        warm = time.monotonic() + WARM_SECONDS
        while time.monotonic() < warm:
            self.run("free", _path(), FREE)
            self.run("pair", _path(), PAIR)

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Curator has ended with status {self._process.wait()}")
        return line

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, job: str, path: str, count: int) -> Cost:
        self._say(f"{job} {path} {count}")
        self._said()
        cpu = cpu_of(self._process.pid)
        self._say("")
        wall = int(self._said())
        return Cost(wall / 1e3 / count, (cpu_of(self._process.pid) - cpu) / 1e3 / count)


def cpu_of(pid: int) -> int:
    """Nanoseconds of CPU time of another process: clock_getcpuclockid(3) of Linux."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def _path() -> str:
    return f"/contenders-{next(_numbers)}"


Round = dict[tuple[str, str], Cost]
SIDES: dict[str, Callable[[Address], Any]] = {
    "zkwire": Zkwire,
    "kazoo": Kazoo,
    "Curator": Curator,
}
JOBS: dict[str, tuple[str, int]] = {
    "free lock": ("free", FREE),
    "two contend": ("pair", PAIR),
    **{f"{count:,} in a queue": ("queue", count) for count in QUEUES},
}


def measure(
    address: Address, rounds: int, jobs: Sequence[str], names: Iterable[str]
) -> list[Round]:
    """What each job has cost each side, round by round."""
    found: list[Round] = []
    with ExitStack() as stack:
        sides = {name: SIDES[name](address) for name in names}
        for side in sides.values():
            stack.callback(side.close)
        for number in range(rounds):
            # In turns: what the first has left to the server is a burden on the second.
            order = list(sides.items())[:: -1 if number % 2 else 1]
            found.append(
                {
                    (job, name): side.run(JOBS[job][0], _path(), JOBS[job][1])
                    for job, (name, side) in itertools.product(jobs, order)
                }
            )
    return found


def rows(found: Sequence[Round], jobs: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    """Microseconds of each side, and how many times as much the others need."""
    lines: list[list[str]] = []
    for job in jobs:
        own = [middle(each[job, name] for each in found) for name in names]
        cells = [f"{value:,.0f}" for cost in own for value in cost]
        for other in names[1:]:
            times = middle(each[job, other] / each[job, "zkwire"] for each in found)
            cells += [f"{value:.2f}" for value in times]
        lines.append([job, *cells])
    return lines


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, no long queue")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    threading.stack_size(STACK_BYTES)  # a thousand threads
    names = list(SIDES)
    try:
        find_classes()
    except NoClientError as error:
        if asked.write:
            raise
        names.remove("Curator")
        print(f"Not measured: Curator: {error}.")
    jobs, rounds = (list(JOBS)[:-1], 1) if asked.quick else (list(JOBS), asked.rounds)
    with real_server() as address:
        found = measure(address, rounds, jobs, names)
        about = preface(version_of(address), f"Medians of {rounds} rounds, microseconds for one "
                        "acquisition and its release; ratios within each round.")  # fmt: skip
    heads = [f"{name}: {what}" for name in names for what in ("wall", "CPU")]
    heads += [f"{name} / zkwire: {what}" for name in names[1:] for what in ("wall", "CPU")]
    text = f"{about}\n\n{table(['job', *heads], rows(found, jobs, names))}"
    print(text)
    if asked.write:
        write(COMMAND, text)


if __name__ == "__main__":
    main()
