"""Producers, and consumers that are killed, of one queue: `python3 -m tests.interop.queue`.

    python3 -m tests.interop.queue --items 5000 --seed 1

Four processes put, four take items and spend some milliseconds on each.  All connections go through
a proxy that cuts them now and then; a consumer is killed at a random moment, and another one begins
in its place.  What must be true in the end:

* Each item was begun, and the queue is empty: none was lost.
* No item was removed by two, and none was begun after it had been removed.
* An item is begun twice only where an earlier consumer of it was killed, or had to say that its
  claim was lost or in doubt.
* `deliveries` is how often the item was begun, unless a consumer was killed between its claim and
  the line about it.
"""

from __future__ import annotations

import random
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from tests.interop.trial import Crew, Moments, Worker, main, say
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

PATH = "/queue"
PRODUCERS, CONSUMERS = 4, 4
PRODUCER_SECONDS = 60.0  # of its session: its end would leave a put in doubt
SESSION_SECONDS = 4.0
EMPTY_SECONDS = 3 * SESSION_SECONDS  # a claim of a killed consumer is gone by then
TOGETHER = 25
WORK = 0.004
LONGEST = 1800.0


def work(what: str, hosts: str, first: str = "0", number: str = "0") -> None:
    """Produce so many items, or consume until there are no more."""
    if what == "produce":
        produce(hosts, range(int(first), int(first) + int(number)))
        return
    rng = random.Random()
    while True:
        ended = suppress(SessionExpiredError, UnreachableError)
        with ended, Client(hosts, session_timeout=SESSION_SECONDS) as client:
            consume(Queue(client, PATH), rng)
            return


def produce(hosts: str, numbers: range) -> None:
    with Client(hosts, session_timeout=PRODUCER_SECONDS) as client:
        queue = Queue(client, PATH)
        items = [b"%d" % item for item in numbers]
        while items:
            together, items = items[:TOGETHER], items[TOGETHER:]
            if len(items) // TOGETHER % 2:
                queue.put_many(together, timeout=LONGEST)
            else:
                for item in together:
                    queue.put(item, timeout=LONGEST)


def consume(queue: Queue, rng: random.Random) -> None:
    """In one session: say what is begun and, after the end of the block, what is removed."""
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


class Report:
    """What has become of the items."""

    def __init__(self, items: int, consumers: list[Worker]) -> None:
        self._items = items
        self.begun: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()  # deliveries that ended without a removal
        self.deliveries: Counter[str] = Counter()
        self.lost = 0
        for consumer in consumers:
            self._add(consumer)

    def _add(self, consumer: Worker) -> None:
        open_item = ""
        for what, name, *more in consumer.lines:
            open_item = ""
            if what == "began":
                open_item = name
                self.begun[name] += 1
                self.deliveries[name] = max(self.deliveries[name], int(more[0]))
            elif what == "removed":
                self.removed[name] += 1
            else:
                self.excused[name] += 1
                self.lost += 1
        if open_item:
            self.excused[open_item] += consumer.killed > 0

    def wrong(self) -> Iterator[str]:
        for item in map(str, range(self._items)):
            begun = self.begun[item]
            if not begun:
                yield f"{item} was lost"
            if self.removed[item] > 1:
                yield f"{item} was removed by {self.removed[item]}"
            if begun - 1 > self.excused[item]:
                yield f"{item} was begun {begun} times, {self.excused[item]} excused"
            if begun > self.deliveries[item]:
                yield f"{item}: begun {begun} times, {self.deliveries[item]} deliveries"

    def __str__(self) -> str:
        twice = sum(count - 1 for count in self.begun.values() if count > 1)
        return (
            f"{len(self.begun)} of {self._items} items processed, {self.removed.total()} removals "
            f"reported, {twice} deliveries more than one, {self.lost} claims lost or in doubt"
        )


def run(options: Namespace, rng: random.Random) -> list[str]:
    """Let them work."""
    share = options.items // PRODUCERS
    with (
        find_backend().standalone() as server,
        FaultProxy(server.hosts) as proxy,
        Client(server.hosts) as client,
        Crew(CONSUMERS, lambda: Worker("consume", proxy.hosts)) as consumers,
    ):
        queue, began = Queue(client, PATH), time.monotonic()
        producers = [Worker("produce", proxy.hosts, n * share, share) for n in range(PRODUCERS)]
        kill, cut = Moments(rng, 0, 3), Moments(rng, 0, 3)
        while any(p.running for p in producers) or len(queue):
            if time.monotonic() > began + LONGEST:
                break
            at_work = [one for one in consumers.now if one.running and one.lines]
            if at_work and kill.come():
                rng.choice(at_work).kill()
            if cut.come():
                proxy.cut_all()
            for one in [one for one in consumers.now if not one.running]:
                consumers.replace(one)
            time.sleep(0.02)
        seconds, left = time.monotonic() - began, len(queue)
        codes = [producer.end() for producer in producers]
        for consumer in consumers.all:
            consumer.end()
        report = Report(share * PRODUCERS, consumers.all)
        wrong = list(report.wrong())
        wrong += [f"{left} items are left"] * bool(left)
        wrong += [f"producers ended with {codes}"] * any(codes)
        for folder in ("taken", "marks", "waiting"):
            with suppress(ZooKeeperError):
                names = client.get_children(f"{PATH}/{folder}")
                wrong += [f"{folder}: {len(names)} nodes are left"] * bool(names)
    print(
        f"{report}; {consumers.kills} consumers killed, {cut.count} times all connections cut, "
        f"{seconds:.0f} s"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main(run, work, items=5000))
