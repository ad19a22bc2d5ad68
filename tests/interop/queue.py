"""Producers, and consumers that are killed, of one queue: `python3 -m tests.interop.queue`.

    python3 -m tests.interop.queue --items 5000 --seed 1

Four processes put, four take items and spend some milliseconds on each.  All connections go through
a proxy that cuts them now and then; a consumer is killed at a random moment, and another one begins
in its place.  Each consumer writes down what it begins and, behind the end of the block, what it
has removed.  What must be true in the end:

* Each item was begun, and the queue is empty: none was lost.
* No item was removed by two, and none was begun after it had been removed.
* An item is begun twice only where an earlier consumer of it was killed, or had to say that its
  claim was lost or in doubt.
* `deliveries` is how often the item was begun, unless a consumer was killed between its claim and
  the line about it.

It prints how many there were of each, and ends with 1 if any of it is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.real_servers import find_backend
from zkwire import (
    Client,
    LockLostError,
    OperationTimeoutError,
    Queue,
    QueueEmptyError,
    SessionExpiredError,
    UnreachableError,
    ZooKeeperError,
)
from zkwire.testing.proxy import FaultProxy

ROOT = Path(__file__).resolve().parents[2]
PATH = "/queue"
PRODUCERS, CONSUMERS = 4, 4
PRODUCER_SECONDS = 60.0  # of its session: its end would leave a put in doubt
SESSION_SECONDS = 4.0
EMPTY_SECONDS = 3 * SESSION_SECONDS  # a claim of a killed consumer is gone by then
TOGETHER = 25
WORK = 0.004
BETWEEN_KILLS = 1.5
BETWEEN_CUTS = 1.5
LONGEST = 1800.0


# --- the processes --------------------------------------------------------------------------------


def say(*words: object) -> None:
    """A line, written at once and as a whole: what is killed later cannot take it back."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def produce(hosts: str, first: int, number: int) -> None:
    with Client(hosts, session_timeout=PRODUCER_SECONDS) as client:
        queue = Queue(client, PATH)
        items = [b"%d" % item for item in range(first, first + number)]
        while items:
            together, items = items[:TOGETHER], items[TOGETHER:]
            if len(items) // TOGETHER % 2:
                queue.put_many(together, timeout=LONGEST)
            else:
                for item in together:
                    queue.put(item, timeout=LONGEST)


def consume(hosts: str) -> None:
    rng = random.Random()
    while True:
        ended = suppress(SessionExpiredError, UnreachableError)
        with ended, Client(hosts, session_timeout=SESSION_SECONDS) as client:
            consume_in_one_session(Queue(client, PATH), rng)
            return


def consume_in_one_session(queue: Queue, rng: random.Random) -> None:
    while True:
        name = ""
        try:
            with queue.take(EMPTY_SECONDS) as item:
                name = item.data.decode()
                say("began", name, item.deliveries)
                time.sleep(rng.uniform(0, WORK))
            say("removed", name)
        except QueueEmptyError:
            return
        except (LockLostError, OperationTimeoutError) as error:
            if name:
                say("lost", name, type(error).__name__)


# --- the judge ------------------------------------------------------------------------------------


class Process:
    """One process, and what it has said."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.queue", *map(str, arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        self.lines: list[tuple[float, list[str]]] = []
        self.killed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.monotonic(), line.decode().split()))

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self.killed = True
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> int:
        """Its exit code, with all that it has said."""
        code = self._process.wait(LONGEST)
        self._reader.join()
        return code


class Report:
    """What has become of the items."""

    def __init__(self, items: int) -> None:
        self._items = items
        self.begun: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()  # deliveries that ended without a removal
        self.deliveries: defaultdict[str, int] = defaultdict(int)
        self.lost = 0

    def add(self, process: Process) -> None:
        open_item = ""
        for _, (what, *words) in process.lines:
            name = words[0] if words else ""
            if what == "began":
                open_item = name
                self.begun[name] += 1
                self.deliveries[name] = max(self.deliveries[name], int(words[1]))
            elif what == "removed":
                open_item = ""
                self.removed[name] += 1
            elif what == "lost":
                open_item = ""
                self.excused[name] += 1
                self.lost += 1
        if open_item:
            self.excused[open_item] += process.killed

    def wrong(self) -> Iterator[str]:
        for item in map(str, range(self._items)):
            if not self.begun[item]:
                yield f"{item} was lost"
            if self.removed[item] > 1:
                yield f"{item} was removed by {self.removed[item]}"
            if self.begun[item] - 1 > self.excused[item]:
                yield f"{item} was begun {self.begun[item]} times, {self.excused[item]} excused"
            if self.begun[item] > self.deliveries[item]:
                yield f"{item}: begun {self.begun[item]} times, {self.deliveries[item]} deliveries"

    def __str__(self) -> str:
        twice = sum(count - 1 for count in self.begun.values() if count > 1)
        return (
            f"{len(self.begun)} of {self._items} items processed, {self.removed.total()} removals "
            f"reported, {twice} deliveries more than one, {self.lost} claims lost or in doubt"
        )


def run(items: int, rng: random.Random) -> int:
    """Let them work; the exit code."""
    kills = cuts = 0
    with (
        find_backend().standalone() as server,
        FaultProxy(server.hosts) as proxy,
        Client(server.hosts) as client,
    ):
        queue = Queue(client, PATH)
        share = items // PRODUCERS
        producers = [
            Process("produce", proxy.hosts, place * share, share) for place in range(PRODUCERS)
        ]
        consumers = [Process("consume", proxy.hosts) for _ in range(CONSUMERS)]
        began = time.monotonic()
        next_kill = next_cut = began
        while any(p.running for p in producers) or len(queue):
            now = time.monotonic()
            if now > began + LONGEST:
                break
            living = [consumer for consumer in consumers if consumer.running]
            at_work = [consumer for consumer in living if consumer.lines]
            if now > next_kill and at_work:
                rng.choice(at_work).kill()
                kills += 1
                next_kill = now + rng.uniform(0, 2 * BETWEEN_KILLS)
            if now > next_cut:
                proxy.cut_all()
                cuts += 1
                next_cut = now + rng.uniform(0, 2 * BETWEEN_CUTS)
            for _ in range(CONSUMERS - len(living)):
                consumers.append(Process("consume", proxy.hosts))
            time.sleep(0.02)
        seconds = time.monotonic() - began
        left = len(queue)
        codes = [producer.end() for producer in producers]
        report = Report(share * PRODUCERS)
        for consumer in consumers:
            consumer.end()
            report.add(consumer)
        wrong = list(report.wrong())
        wrong += [f"{left} items are left"] * bool(left)
        wrong += [f"producers ended with {codes}"] * any(codes)
        for folder in ("taken", "marks", "waiting"):
            with suppress(ZooKeeperError):
                names = client.get_children(f"{PATH}/{folder}")
                wrong += [f"{folder}: {len(names)} nodes are left"] * bool(names)
    print(f"{report}; {kills} consumers killed, {cuts} times all connections cut, {seconds:.0f} s")
    for line in wrong[:30]:
        print(f"WRONG: {line}")
    print(f"{len(wrong)} violations")
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["produce"]:
        produce(arguments[1], int(arguments[2]), int(arguments[3]))
        return 0
    if arguments[:1] == ["consume"]:
        consume(arguments[1])
        return 0
    parser = argparse.ArgumentParser(prog="tests.interop.queue")
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}")
    return run(options.items, random.Random(options.seed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
