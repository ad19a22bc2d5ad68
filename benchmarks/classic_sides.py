"""The sides of benchmarks/classic.py: the same jobs with each client, and on bare sockets."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.costs import Cost
from benchmarks.jobs import Job
from benchmarks.processes import WorkerProcess
from benchmarks.programs import curator
from benchmarks.wire import EPHEMERAL, SEQUENTIAL, Bare, multi, request, watching
from zkwire import Client, Counter, Queue

DATA = b"x" * 100
FEW = 400
MANY = 2000
THREADS = 8
TOGETHER = 100
WARMING = 5
CONTENDED_SECONDS = 2.0
PATIENCE_SECONDS = 60.0

_numbers = itertools.count()


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

    _hosts: str

    def _queue(self) -> Any:
        raise NotImplementedError

    def put(self) -> Cost:
        queue = self._queue()
        return _measured(FEW, _times(FEW, lambda: queue.put(DATA)))

    def put_by_threads(self) -> Cost:
        queue = self._queue()
        work = _times(FEW, lambda: queue.put(DATA))
        return _measured(THREADS * FEW, lambda: _in_threads([work] * THREADS))

    def _changed(self, path: str, told: Callable[[], object]) -> Cost:
        """A bare socket changes the node, and each change is told before the next is made."""
        host, _, port = self._hosts.partition(":")
        bare, change = Bare((host, int(port))), request("set", path, DATA)
        try:
            return _measured(FEW, _times(FEW, lambda: (bare.ask(change), told())))
        finally:
            bare.close()


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

    def watch_data(self) -> Cost:
        path = self._client.create(_path())
        with self._client.watch_data(path) as seen:
            seen.next(PATIENCE_SECONDS)
            return self._changed(path, lambda: seen.next(PATIENCE_SECONDS))


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

    def watch_data(self) -> Cost:
        """Its DataWatch; once set, one cannot be taken back."""
        path, told = self._client.create(_path()), SimpleQueue[object]()
        self._client.DataWatch(path, lambda _data, stat: told.put(stat))
        told.get(timeout=PATIENCE_SECONDS)
        return self._changed(path, lambda: told.get(timeout=PATIENCE_SECONDS))


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

    def watch_data(self) -> Cost:
        """The event, and behind it a read that sets the next watch."""
        path, other = self._folder(), Bare(self._address)
        change, read = request("set", path, DATA), watching(path)
        other.ask(read)

        def work() -> None:
            self._bare.ask(change)
            other.read_frame()
            other.ask(read)

        try:
            return _measured(FEW, _times(FEW, work))
        finally:
            other.close()


class Curator:
    """The jobs, as a program with Curator does them; MissingError where it cannot be run."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        with tempfile.TemporaryDirectory(prefix="zkwire-bench-") as directory:
            command = curator(Path(directory), "Recipes")
            self._worker = WorkerProcess([*command, hosts], (host, int(port)))
            for kind in ("add", "put", "get", "put_many", "take", "watch_data"):
                for _ in range(WARMING):  # classes are read from the directory meanwhile
                    self._done(kind, FEW, MANY if kind == "get" else 1)

    def close(self) -> None:
        self._worker.end()

    def _done(self, kind: str, count: int, width: int = 1) -> Cost:
        outcome = self._worker.run(Job("real", kind, count, width))
        if outcome.error:
            raise RuntimeError(f"Curator, {kind}: {outcome.error}")
        return Cost(*(1e6 * each / outcome.ops for each in (outcome.seconds, outcome.cpu_seconds)))

    def add(self) -> Cost:
        return self._done("add", FEW)

    def add_by_threads(self) -> Cost:
        return self._done("add-threads", round(1000 * CONTENDED_SECONDS), THREADS)

    def add_contended(self, writers: int) -> Cost:
        return self._done("add-writers", round(1000 * CONTENDED_SECONDS), writers)

    def put(self) -> Cost:
        return self._done("put", FEW)

    def put_by_threads(self) -> Cost:
        return self._done("put", THREADS * FEW, THREADS)

    def put_many(self) -> Cost:
        return self._done("put_many", MANY)

    def get(self) -> Cost:
        return self._done("get", FEW, MANY)

    def take(self) -> Cost:
        return self._done("take", FEW)

    def watch_data(self) -> Cost:
        return self._done("watch_data", FEW)
