"""Counters and queues of zkwire and of kazoo, and bare sockets, on one real server.

    python3 -m benchmarks.classic [--rounds N] [--only add] [--update-readme]

Each round does each job once for each side, on a node of its own; what is printed are the medians.
The bare socket sends as many requests behind one another as the job needs at the least: with one
for an item, no client can be faster than that by the clock.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from benchmarks.figures import this_machine, write_between
from benchmarks.servers import real_server, version_of
from benchmarks.wire import EPHEMERAL, SEQUENTIAL, Bare, multi, request
from zkwire import Client, Counter, Queue

DATA = b"x" * 100
FEW = 400
MANY = 2000
THREADS = 8
TOGETHER = 100
CONTENDED_SECONDS = 2.0

BEGIN = "<!-- written by `python3 -m benchmarks.classic --update-readme` -->\n"
END = "<!-- end of the counters and queues -->\n"

_numbers = itertools.count()


class Cost(NamedTuple):
    """Microseconds for one operation."""

    wall: float
    cpu: float


def _path() -> str:
    return f"/classic-{next(_numbers)}"


def _measured(count: int, work: Callable[[], object]) -> Cost:
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    used = time.process_time() - cpu
    return Cost(1e6 * (time.perf_counter() - begun) / count, 1e6 * used / count)


def _times(number: int, work: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(number):
            work()

    return repeat


def _in_threads(works: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _for_a_while(adds: Sequence[Callable[[], object]]) -> Cost:
    """All of them at once, again and again; each is done or raises."""
    ends, done = time.monotonic() + CONTENDED_SECONDS, [0] * len(adds)

    def work(index: int) -> None:
        while time.monotonic() < ends:
            with suppress(Exception):  # kazoo gives up where another one was faster
                adds[index]()
                done[index] += 1

    works = [partial(work, index) for index in range(len(adds))]
    cost = _measured(1, lambda: _in_threads(works))
    return Cost(*(each / max(1, sum(done)) for each in cost))


class Putting:
    """The jobs that both clients do in the same words."""

    def _queue(self) -> Any:
        raise NotImplementedError

    def put(self) -> Cost:
        queue = self._queue()
        return _measured(FEW, _times(FEW, lambda: queue.put(DATA)))

    def put_by_threads(self) -> Cost:
        queue = self._queue()
        work = _times(FEW, lambda: queue.put(DATA))
        return _measured(THREADS * FEW, lambda: _in_threads([work] * THREADS))


class Zkwire(Putting):
    """The jobs, as zkwire does them."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._client = Client(hosts)

    def close(self) -> None:
        self._client.close()

    def add(self) -> Cost:
        counter = Counter(self._client, _path())
        counter.add(1)
        return _measured(FEW, _times(FEW, lambda: counter.add(1)))

    def add_by_threads(self) -> Cost:
        counter = Counter(self._client, _path())
        counter.add(1)
        return _for_a_while([counter.add] * THREADS)

    def add_contended(self, writers: int) -> Cost:
        path = _path()
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(self._hosts)) for _ in range(writers)]
            counters = [Counter(client, path) for client in clients]
            for counter in counters:
                counter.add(1)
            return _for_a_while([counter.add for counter in counters])

    def _queue(self, filled: int = 0, flat: bool = True) -> Queue:
        """In the layout of kazoo's Queue, or in that of its LockingQueue."""
        queue = Queue(self._client, _path(), flat=flat)
        queue.put_many([DATA] * (filled or 1))
        return queue

    def put_many(self) -> Cost:
        queue = self._queue(flat=False)
        return _measured(MANY, lambda: queue.put_many([DATA] * MANY))

    def get(self) -> Cost:
        queue = self._queue(MANY)
        return _measured(FEW, _times(FEW, queue.get))

    def take(self) -> Cost:
        queue = self._queue(MANY, flat=False)

        def work() -> None:
            with queue.take():
                pass

        return _measured(FEW, _times(FEW, work))


class Kazoo(Putting):
    """The jobs, as kazoo does them."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._client = self._started()

    def _started(self) -> Any:
        from kazoo.client import KazooClient  # for this comparison alone

        client = KazooClient(self._hosts)
        client.start()
        return client

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def add(self) -> Cost:
        counter = self._client.Counter(_path())
        counter.__add__(1)
        return _measured(FEW, _times(FEW, lambda: counter.__add__(1)))

    def add_by_threads(self) -> Cost:
        counter = self._client.Counter(_path())
        counter.__add__(1)
        return _for_a_while([partial(counter.__add__, 1)] * THREADS)

    def add_contended(self, writers: int) -> Cost:
        path = _path()
        clients = [self._started() for _ in range(writers)]
        try:
            counters = [client.Counter(path) for client in clients]
            counters[0].__add__(1)
            return _for_a_while([partial(each.__add__, 1) for each in counters])
        finally:
            for client in clients:
                client.stop()
                client.close()

    def _queue(self, filled: int = 0) -> Any:
        queue = self._client.Queue(_path())
        queue.put(DATA)
        for _ in range(filled):
            self._client.create_async(f"{queue.path}/entry-100-", DATA, sequence=True)
        self._client.get_children(queue.path)
        return queue

    def _locking_queue(self, filled: int) -> Any:
        queue = self._client.LockingQueue(_path())
        queue.put(DATA)
        for _ in range(filled // TOGETHER):
            queue.put_all([DATA] * TOGETHER)
        return queue

    def put_many(self) -> Cost:
        """What its LockingQueue has for that; a transaction for each hundred."""
        queue = self._locking_queue(0)
        return _measured(MANY, _times(MANY // TOGETHER, lambda: queue.put_all([DATA] * TOGETHER)))

    def get(self) -> Cost:
        queue = self._queue(MANY)
        return _measured(FEW, _times(FEW, queue.get))

    def take(self) -> Cost:
        """Of its LockingQueue, as its Queue has no claims."""
        queue = self._locking_queue(MANY)

        def work() -> None:
            queue.get()
            queue.consume()

        return _measured(FEW, _times(FEW, work))


class Floor:
    """The jobs' requests on a bare socket, without any promise."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._address = host, int(port)
        self._bare = Bare(self._address)

    def close(self) -> None:
        self._bare.close()

    def _folder(self, filled: int = 0) -> str:
        path = _path()
        self._bare.ask(request("create", path))
        self._bare.do_all([request("create", f"{path}/{n}", DATA) for n in range(filled)])
        return path

    def _asked(self, *frames: bytes) -> Cost:
        return _measured(FEW, _times(FEW, lambda: [self._bare.ask(frame) for frame in frames]))

    def add(self) -> Cost:
        return self._asked(request("set", self._folder(), b"1"))

    def add_by_threads(self) -> Cost:
        """One thread, and one change behind the other: each needs the number before it."""
        return self.add()

    def add_contended(self, writers: int) -> Cost:
        """Each writes, and none minds the others."""
        frame = request("set", self._folder(), b"1")
        bares = [Bare(self._address) for _ in range(writers)]
        try:
            return _for_a_while([partial(bare.ask, frame) for bare in bares])
        finally:
            for bare in bares:
                bare.close()

    def put(self) -> Cost:
        path = self._folder()
        return self._asked(request("create", f"{path}/", DATA, flags=SEQUENTIAL))

    def put_by_threads(self) -> Cost:
        """One thread, with as many requests under way."""
        frames = request("create", f"{self._folder()}/", DATA, flags=SEQUENTIAL) * THREADS

        def work() -> None:
            self._bare.socket.sendall(frames)
            for _ in range(THREADS):
                self._bare.read_frame()

        return _measured(THREADS * FEW, _times(FEW, work))

    def put_many(self) -> Cost:
        path, names = self._folder(), itertools.count()

        def work() -> None:
            paths = [f"{path}/{next(names)}" for _ in range(TOGETHER)]
            self._bare.ask(multi("create", paths, DATA))

        return _measured(MANY, _times(MANY // TOGETHER, work))

    def get(self) -> Cost:
        """An item's data has come ahead of the request that deletes it."""
        path, names = self._folder(MANY), itertools.count()
        return _measured(
            FEW, _times(FEW, lambda: self._bare.ask(request("delete", f"{path}/{next(names)}")))
        )

    def take(self) -> Cost:
        """A claim, and behind that the removal of item and claim."""
        path, names = self._folder(MANY), itertools.count()

        def work() -> None:
            name = next(names)
            self._bare.ask(request("create", f"{path}/c{name}", flags=EPHEMERAL))
            self._bare.ask(multi("delete", [f"{path}/{name}", f"{path}/c{name}"]))

        return _measured(FEW, _times(FEW, work))


JOBS: dict[str, Callable[[Any], Cost]] = {
    "add": lambda side: side.add(),
    "add, 8 threads": lambda side: side.add_by_threads(),
    "add, 8 writers": lambda side: side.add_contended(8),
    "add, 50 writers": lambda side: side.add_contended(50),
    "put": lambda side: side.put(),
    "put, 8 threads": lambda side: side.put_by_threads(),
    "put_many": lambda side: side.put_many(),
    "get": lambda side: side.get(),
    "take": lambda side: side.take(),
}
SIDES: dict[str, type[Any]] = {"floor": Floor, "zkwire": Zkwire, "kazoo": Kazoo}


def measure(rounds: int, jobs: list[str]) -> tuple[str, dict[tuple[str, str], list[Cost]]]:
    """The server's version, and what each job has cost each side, round by round."""
    found: dict[tuple[str, str], list[Cost]] = {}
    with real_server() as address, ExitStack() as stack:
        sides = {name: kind(f"{address[0]}:{address[1]}") for name, kind in SIDES.items()}
        for side in sides.values():
            stack.callback(side.close)
        for number in range(rounds):
            # In turns: what the first has left to the server is a burden on the second.
            order = list(sides.items())[:: -1 if number % 2 else 1]
            for job, (name, side) in itertools.product(jobs, order):
                found.setdefault((job, name), []).append(JOBS[job](side))
        return version_of(address), found


def table(rounds: int, jobs: list[str]) -> str:
    """Microseconds, and how many times as much kazoo needs."""
    version, found = measure(rounds, jobs)
    machine = "; ".join(f"{what} {value}" for what, value in this_machine().items())
    lines = [
        f"{machine}; ZooKeeper {version}.",
        f"Medians of {rounds} rounds, microseconds for one operation; ratios within each round.",
        "",
        "| job | floor: wall | CPU | zkwire: wall | CPU | kazoo: wall | CPU | kazoo / zkwire: wall "
        "| CPU | kazoo / floor: wall |",
        "| --- |" + " ---: |" * 9,
    ]
    for job in jobs:
        costs = {side: _median(found[job, side]) for side in SIDES}
        cells = [f"{each:,.0f}" for side in SIDES for each in costs[side]]
        times = _times_as_much(found[job, "kazoo"], found[job, "zkwire"])
        bare = _times_as_much(found[job, "kazoo"], found[job, "floor"])
        ratios = times.wall, times.cpu, bare.wall
        lines.append("| " + " | ".join([job, *cells, *(f"{each:.1f}" for each in ratios)]) + " |")
    return "\n".join(lines)


def _times_as_much(costs: list[Cost], others: list[Cost]) -> Cost:
    """The median of the rounds' ratios: both had the same machine."""
    pairs = zip(costs, others, strict=True)
    return _median([Cost(a.wall / b.wall, a.cpu / b.cpu) for a, b in pairs])


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(each) for each in zip(*costs, strict=True)))


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=JOBS)
    parser.add_argument("--update-readme", action="store_true")
    asked = parser.parse_args()
    text = table(asked.rounds, asked.only or list(JOBS))
    print(text)
    if asked.update_readme:
        write_between(BEGIN, END, text)


if __name__ == "__main__":
    main()
