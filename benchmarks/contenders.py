"""Locks of zkwire, of kazoo and of a warm Curator, on one real server, in turn.

    CURATOR_HOME=FOLDER:FOLDER python3 -m benchmarks.contenders [--rounds N] [--update-readme]

A free lock, a lock that two contend for, and a queue of contenders, each of which has its place
before the first one releases, and holds for no time.  The contenders of a queue are threads on ten
clients.  The bare socket sends the requests of a free lock.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import floor_locks
from benchmarks.costs import Cost, arguments, median
from benchmarks.figures import this_machine, write_between
from benchmarks.jobs import Job
from benchmarks.measure import cpu_of
from benchmarks.processes import LineProcess
from benchmarks.programs import NATIVE
from benchmarks.servers import real_server, set_up, version_of
from benchmarks.wire import Address, Bare, request
from tests.interop.curator.process import NoCuratorError, find_curator
from zkwire import Client, SequentialLock

CLIENTS = 10
SESSION_SECONDS = 1800
FREE = 300
PAIR = 300
QUEUES = (10, 100, 1000)
WARM_SECONDS = 8.0
STACK_BYTES = 1 << 18

BEGIN = "<!-- written by `python3 -m benchmarks.contenders --update-readme` -->\n"
END = "<!-- end of the contenders -->\n"

_numbers = itertools.count()


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
        classes = find_curator()[-3:-1]
        source = str(NATIVE / "CuratorLocks.java")
        hosts = f"{address[0]}:{address[1]}"
        self._process = LineProcess(["java", "-Xmx512m", *classes, source, hosts])
        self._process.read()
        warm = time.monotonic() + WARM_SECONDS
        while time.monotonic() < warm:
            self.run("free", _path(), FREE)
            self.run("pair", _path(), PAIR)

    def close(self) -> None:
        self._process.end()

    def run(self, job: str, path: str, count: int) -> Cost:
        self._process.write(f"{job} {path} {count}")
        self._process.read()
        cpu = cpu_of(self._process.pid)
        self._process.write("")
        wall = int(self._process.read())
        return Cost(wall / 1e3 / count, (cpu_of(self._process.pid) - cpu) / 1e3 / count)


class Floor:
    """The requests of a free lock on a bare socket."""

    def __init__(self, address: Address) -> None:
        self._address = address
        set_up(address, (), ())

    def close(self) -> None:
        pass

    def run(self, job: str, path: str, count: int) -> Cost | None:
        """The floor has no contenders; its path is its own."""
        if job != "free":
            return None
        found = floor_locks.free_lock(self._address, Job("real", "lock", count))
        return Cost(1e6 * found.seconds / count, 1e6 * found.cpu_seconds / count)


def _path() -> str:
    return f"/contenders-{next(_numbers)}"


Round = dict[tuple[str, str], Cost]
SIDES: dict[str, Callable[[Address], Any]] = {
    "floor": Floor,
    "zkwire": Zkwire,
    "kazoo": Kazoo,
    "Curator": Curator,
}
JOBS: dict[str, tuple[str, int]] = {
    "free lock": ("free", FREE),
    "two contend": ("pair", PAIR),
    **{f"{count:,} in a queue": ("queue", count) for count in QUEUES},
}


def measure(rounds: int, jobs: Sequence[str], names: Sequence[str]) -> tuple[str, list[Round]]:
    """The server's version, and what each job has cost each side, round by round."""
    found: list[Round] = []
    with real_server() as address, ExitStack() as stack:
        sides = {name: SIDES[name](address) for name in names}
        for side in sides.values():
            stack.callback(side.close)
        for number in range(rounds):
            found.append({})
            # In turns: what the first has left to the server is a burden on the second.
            order = list(sides.items())[:: -1 if number % 2 else 1]
            for job, (name, side) in itertools.product(jobs, order):
                if (cost := side.run(JOBS[job][0], _path(), JOBS[job][1])) is not None:
                    found[-1][job, name] = cost
        return version_of(address), found


def table(rounds: int, jobs: Sequence[str], names: Sequence[str]) -> str:
    """Microseconds of each side, and how many times as much the others need."""
    version, found = measure(rounds, jobs, names)
    machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    others = [name for name in names if name != "zkwire"]
    heads = [
        *(f"{name}: wall | CPU" for name in names),
        *(f"{n} / zkwire: wall | CPU" for n in others),
    ]
    lines = [
        f"{machine}; ZooKeeper {version}.",
        f"Medians of {rounds} rounds, microseconds for one acquisition and its release; ratios "
        "within each round.",
        "",
        "| job | " + " | ".join(heads) + " |",
        "| --- |" + " ---: |" * 2 * len(heads),
    ]
    for job in jobs:
        own = [median(each[job, name] for each in found if (job, name) in each) for name in names]
        cells = [*(f"{value:,.0f}" for cost in own for value in cost)]
        for other in others:
            times = median(
                each[job, other] / each[job, "zkwire"] for each in found if (job, other) in each
            )
            cells += [f"{value:.2f}" for value in times]
        lines.append(f"| {' | '.join([job, *cells])} |".replace("nan", ""))
    return "\n".join(lines)


def main() -> None:
    """See the module's docstring."""
    asked = arguments(__doc__, JOBS).parse_args()
    threading.stack_size(STACK_BYTES)  # a thousand threads
    names = list(SIDES)
    try:
        find_curator()
    except NoCuratorError as error:
        if asked.update_readme:
            raise
        names.remove("Curator")
        print(f"Not measured: Curator: {error}.")
    text = table(asked.rounds, asked.only or list(JOBS), names)
    print(text)
    if asked.update_readme:
        write_between(BEGIN, END, text)


if __name__ == "__main__":
    main()
