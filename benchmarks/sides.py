"""The sides of the main table: ``python3 -m benchmarks.sides SIDE HOSTS time``.

Each does the same works as `benchmarks.compare_worker.Side`, as its user would write them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import zkwire
from benchmarks.compare_worker import BASE, DATA, SESSION_SECONDS, Side, Works, serve, spent
from benchmarks.wire import EPHEMERAL_SEQUENTIAL, Bare, request, watching

NEW = f"{BASE}/floor/new"
LOCK = f"{BASE}/floor/lock"


class Floor(Works):
    """A bare socket and frames that are ready: it counts the bytes of the replies, no more.

    For threads it is one thread with as many requests in flight.  It knows nothing of ZooKeeper, so
    no client in Python can be faster.
    """

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._bare = Bare((host, int(port)))
        for path in (BASE, f"{BASE}/floor", NEW, LOCK):
            self._bare.ask(request("create", path))
        self._bare.ask(request("set", BASE, DATA))
        paths = [f"{NEW}/n{number:04d}" for number in range(4000)]
        self._creates = [request("create", path) for path in paths]
        self._deletes = [request("delete", path) for path in paths]
        self._created = 24 + len(paths[0])
        self._get = request("get", BASE)
        self._got = 4 + len(self._bare.ask(self._get))

    def close(self) -> None:
        self._bare.close()

    def get(self, count: int) -> None:
        send, receive, frame, length = (
            self._bare.socket.sendall, self._bare.receive, self._get, self._got,
        )  # fmt: skip
        for _ in range(count):
            send(frame)
            receive(length)

    def create(self, count: int) -> None:
        for frame in self._creates[:count]:
            self._bare.socket.sendall(frame)
            self._bare.receive(self._created)
        self._remove(count)

    def _remove(self, count: int) -> None:
        self._bare.flood(b"".join(self._deletes[:count]), 20 * count)

    def window(self, count: int, width: int) -> None:
        frames = self._get * width
        for _ in range(count // width):
            self._bare.flood(frames, self._got * width)

    threads = window

    def create_1000(self, count: int) -> None:
        for begin in range(0, count, 1000):
            self._bare.flood(b"".join(self._creates[begin : begin + 1000]), 1000 * self._created)
        self._remove(count)

    def free_lock(self, count: int) -> None:
        """Create and list in one write, then delete; nothing is decided."""
        path = len(f"{LOCK}/n-") + 10
        enter = request("create", f"{LOCK}/n-", flags=EPHEMERAL_SEQUENTIAL)
        enter += request("children", LOCK)
        answers = 24 + path + 24 + 4 + path - len(f"{LOCK}/")
        for _ in range(count):
            self._bare.socket.sendall(enter)
            reply = self._bare.receive(answers)
            self._bare.socket.sendall(request("delete", reply[24 : 24 + path].decode()))
            self._bare.receive(20)

    def event(self, count: int) -> None:
        watch, change = watching(BASE), request("set", BASE, DATA)
        told = 20 + 12 + len(BASE) + 20 + 68
        for _ in range(count):
            self._bare.ask(watch)
            self._bare.socket.sendall(change)
            self._bare.skip(told)


class Asyncio(Works):
    """zkwire's client for asyncio."""

    def __init__(self, hosts: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.client = zkwire.AsyncClient(hosts, session_timeout=SESSION_SECONDS)
        self._loop.run_until_complete(self.client.connect(10.0))
        self._base = f"{BASE}/asyncio"
        self._loop.run_until_complete(self.client.ensure_path(f"{self._base}/new"))
        self._loop.run_until_complete(self.client.set_data(BASE, DATA))
        self._lock = zkwire.AsyncSequentialLock(self.client, f"{self._base}/lock")
        self._counter = zkwire.AsyncCounter(self.client, f"{self._base}/counter")
        self._queue = zkwire.AsyncQueue(self.client, f"{self._base}/queue")

    def close(self) -> None:
        self._loop.run_until_complete(self.client.close())
        self._loop.close()

    def work(self, name: str) -> Callable[[int], None]:
        kind, _, width = name.partition(" ")
        method = getattr(self, f"do_{kind}")
        more = (int(width),) if width else ()
        return lambda count: self._loop.run_until_complete(method(count, *more))

    async def do_get(self, count: int) -> None:
        for _ in range(count):
            await self.client.get_data(BASE)

    async def do_create(self, count: int) -> None:
        for path in self._paths(count):
            await self.client.create(path)
        await _all(map(self.client.delete, self._paths(count)))

    def _paths(self, count: int) -> list[str]:
        return [f"{self._base}/new/n{number}" for number in range(count)]

    async def do_window(self, count: int, width: int) -> None:
        for _ in range(count // width):
            await _all(self.client.get_data(BASE) for _ in range(width))

    async def do_create_1000(self, count: int) -> None:
        paths = self._paths(count)
        for begin in range(0, count, 1000):
            await _all(map(self.client.create, paths[begin : begin + 1000]))
        await _all(map(self.client.delete, paths))

    async def do_threads(self, count: int, width: int) -> None:
        """So many tasks instead."""
        await asyncio.gather(*(self.do_get(count // width) for _ in range(width)))

    async def do_free_lock(self, count: int) -> None:
        for _ in range(count):
            await self._lock.acquire()
            await self._lock.release()

    async def do_event(self, count: int) -> None:
        for _ in range(count):
            watch = zkwire.Watch()
            await self.client.get_data(BASE, watch=watch)
            await self.client.set_data(BASE, DATA)
            await watch

    async def do_counter(self, count: int) -> None:
        for _ in range(count):
            await self._counter.add(1)

    async def do_queue(self, count: int) -> None:
        for _ in range(count):
            await self._queue.put(DATA)
            await self._queue.get(10.0)


async def _all(started: Iterable[Any]) -> None:
    """All in flight, and then all results."""
    for each in list(started):
        await each


class Kazoo(Works):
    """kazoo's client, with its ordinary threads."""

    def __init__(self, hosts: str) -> None:
        from kazoo.client import KazooClient  # for this comparison alone

        self.client: Any = KazooClient(hosts, timeout=SESSION_SECONDS)
        self.client.start(10.0)
        self.client.ensure_path(f"{BASE}/kazoo/new")
        self.client.set(BASE, DATA)
        self._lock: Any = self.client.Lock(f"{BASE}/kazoo/lock")
        self._counter: Any = self.client.Counter(f"{BASE}/kazoo/counter")
        self._queue: Any = self.client.LockingQueue(f"{BASE}/kazoo/queue")

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def get(self, count: int) -> None:
        for _ in range(count):
            self.client.get(BASE)

    def create(self, count: int) -> None:
        for path in self._paths(count):
            self.client.create(path)
        self._each(self.client.delete_async, self._paths(count))

    def _paths(self, count: int) -> list[str]:
        return [f"{BASE}/kazoo/new/n{number}" for number in range(count)]

    def _each(self, start: Callable[[str], Any], paths: list[str]) -> None:
        for reply in [start(path) for path in paths]:
            reply.get()

    def window(self, count: int, width: int) -> None:
        for _ in range(count // width):
            self._each(self.client.get_async, [BASE] * width)

    def create_1000(self, count: int) -> None:
        paths = self._paths(count)
        for begin in range(0, count, 1000):
            self._each(self.client.create_async, paths[begin : begin + 1000])
        self._each(self.client.delete_async, paths)

    def free_lock(self, count: int) -> None:
        for _ in range(count):
            self._lock.acquire()
            self._lock.release()

    def event(self, count: int) -> None:
        for _ in range(count):
            told = threading.Event()
            self.client.get(BASE, watch=lambda _event, told=told: told.set())
            self.client.set(BASE, DATA)
            told.wait(10.0)

    def counter(self, count: int) -> None:
        for _ in range(count):
            self._counter += 1

    def queue(self, count: int) -> None:
        for _ in range(count):
            self._queue.put(DATA)
            self._queue.get(10.0)
            self._queue.consume()


SIDES: dict[str, Callable[[str], Works]] = {
    "floor": Floor,
    "zkwire": partial(Side, name="zkwire"),
    "asyncio": Asyncio,
    "kazoo": Kazoo,
}
OFFERS_NOT = {"floor": ("counter", "queue")}


if __name__ == "__main__":
    serve(SIDES[sys.argv[1]](sys.argv[2]), spent)
