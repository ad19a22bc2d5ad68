"""Queues of zkwire and of kazoo, one beside the other: items a second on one real server.

    python3 -m benchmarks.queues [rounds]

Each round does each job once for each client, on a queue of its own; what is printed is the median.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.servers import real_server, version_of
from zkwire import Client, Queue

DATA = b"x" * 100
FEW = 400
MANY = 2000
THREADS = 8
TOGETHER = 100

_numbers = itertools.count()


def _path() -> str:
    return f"/queue-{next(_numbers)}"


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _in_threads(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _times(number: int, work: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(number):
            work()

    return repeat


class Zkwire:
    """The jobs, as zkwire does them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def _queue(self, filled: int = 0) -> Queue:
        queue = Queue(self._client, _path())
        queue.put_many([DATA] * (filled or 1))
        return queue

    def put(self) -> float:
        queue = self._queue()
        return FEW / _timed(_times(FEW, lambda: queue.put(DATA)))

    def put_by_threads(self) -> float:
        queue = self._queue()
        work = _times(FEW, lambda: queue.put(DATA))
        return THREADS * FEW / _timed(lambda: _in_threads(work))

    def put_many(self) -> float:
        queue = self._queue()
        return MANY / _timed(lambda: queue.put_many([DATA] * MANY))

    def get(self) -> float:
        queue = self._queue(MANY)
        return FEW / _timed(_times(FEW, queue.get))

    def take(self) -> float:
        queue = self._queue(MANY)

        def work() -> None:
            with queue.take():
                pass

        return FEW / _timed(_times(FEW, work))


class Kazoo:
    """The jobs, as kazoo does them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def _queue(self, filled: int = 0) -> Any:
        queue = self._client.Queue(_path())
        queue.put(DATA)
        for _ in range(filled):
            self._client.create_async(f"{queue.path}/entry-100-", DATA, sequence=True)
        self._client.get_children(queue.path)
        return queue

    def put(self) -> float:
        queue = self._queue()
        return FEW / _timed(_times(FEW, lambda: queue.put(DATA)))

    def put_by_threads(self) -> float:
        queue = self._queue()
        work = _times(FEW, lambda: queue.put(DATA))
        return THREADS * FEW / _timed(lambda: _in_threads(work))

    def put_many(self) -> float:
        """What its LockingQueue has for that; a transaction for each hundred."""
        queue = self._client.LockingQueue(_path())
        queue.put(DATA)
        work = _times(MANY // TOGETHER, lambda: queue.put_all([DATA] * TOGETHER))
        return MANY / _timed(work)

    def get(self) -> float:
        queue = self._queue(MANY)
        return FEW / _timed(_times(FEW, queue.get))

    def take(self) -> float:
        queue = self._client.LockingQueue(_path())
        for _ in range(MANY // TOGETHER):
            queue.put_all([DATA] * TOGETHER)

        def work() -> None:
            queue.get()
            queue.consume()

        return FEW / _timed(_times(FEW, work))


JOBS = ("put", "put_by_threads", "put_many", "get", "take")


def main(rounds: int) -> None:
    from kazoo.client import KazooClient  # for this comparison alone

    with real_server() as address:
        hosts = f"{address[0]}:{address[1]}"
        kazoo_client = KazooClient(hosts)
        kazoo_client.start()
        with Client(hosts) as client:
            sides = {"zkwire": Zkwire(client), "kazoo": Kazoo(kazoo_client)}
            found: dict[tuple[str, str], list[float]] = {}
            for number in range(rounds):
                # In turns: what the first has left to the server is a burden on the second.
                order = list(sides.items())[:: -1 if number % 2 else 1]
                for job, (name, side) in itertools.product(JOBS, order):
                    found.setdefault((job, name), []).append(getattr(side, job)())
        kazoo_client.stop()
        kazoo_client.close()
        print(f"ZooKeeper {version_of(address)}, median of {rounds} rounds, items a second")
    for job in JOBS:
        ours, theirs = (statistics.median(found[job, name]) for name in ("zkwire", "kazoo"))
        print(f"{job:15} zkwire {ours:8.0f}   kazoo {theirs:8.0f}   {ours / theirs:5.1f} x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
