"""The recipes of a chaos run that are no locks: what their contenders do, and what must be true.

The number of the counter is what calls have added that succeeded, and some of those in doubt.  An
item that was put is begun, or still there in the end; it is removed once, and not begun after that.
A member of a double barrier enters when all of its round have come, and has left when all of them
have called.  An item of the partitioner is a lock: its owner's claims are checked as those of
others.  A cache, what its events make of an empty dict, and a watch forever are the tree at each
rest of its writer, whatever happens meanwhile.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import zkwire
from tests.interop.chaos_ways import EXPECTED, ROOT, Contender, clock

Line = dict[str, Any]
TREE = "/tree"
NAMES = [TREE] + [f"{TREE}/{n}" for n in range(5)] + [f"{TREE}/{n % 5}/{n}" for n in range(20)]
NUMBER, QUEUE, ITEMS = f"{ROOT}/count", f"{ROOT}/queue", tuple("ABCDE")
TOGETHER = 2  # members of a round
WORK, LOOK_SECONDS, CALL_SECONDS = 0.02, 0.05, 30.0
BURST = 60
REST_SECONDS = 300.0


class Adder(Contender):
    """Adds one to the number."""

    async def turn(self, client: Any) -> None:
        counter = self.make(client, "Counter", NUMBER)
        await self.change("add", "1", counter.add, 1, CALL_SECONDS)


class Producer(Contender):
    """Puts one item after the other."""

    async def turn(self, client: Any) -> None:
        item = f"{self.who} {clock()}"
        await self.change("put", item, self.make(client, "Queue", QUEUE).put, item.encode())


class Consumer(Contender):
    """Takes items, and works on them for a moment."""

    async def turn(self, client: Any) -> None:
        taken = ""

        async def work(item: Any) -> None:
            nonlocal taken
            taken = item.data.decode()
            self.tell("began", value=taken)
            await self.worker.sleep(self.rng.uniform(0, WORK))

        with suppress(zkwire.QueueEmptyError):
            await self.worker.under(self.make(client, "Queue", QUEUE).take(1.0), work)
            self.tell("removed", value=taken)


class Member(Contender):
    """Enters a double barrier and leaves it, now and then before the others have."""

    async def turn(self, client: Any) -> None:
        member = self.make(client, "DoubleBarrier", f"{ROOT}/bar", TOGETHER)
        called = clock()
        if not await self.worker.call(member.enter, self.rng.choice((0.2, 9.0, 9.0))):
            return
        round = getattr(member, "_algorithm", member)._round
        self.tell("in", round=round, called=called)
        called = clock()
        left = await self.worker.call(member.leave, self.rng.choice((0.1, None, None)))
        self.tell("out" if left else "impatient", round=round, called=called)


class Sharer(Contender):
    """A member of a partitioner; it claims what its share says that it has."""

    async def contend(self) -> None:
        working: dict[str, int] = {}

        def end(items: Iterable[str]) -> None:
            for item in items:
                if working.pop(item, 0):
                    self.tell("end", key=item, role="")

        async def share_out(partitioner: Any) -> None:
            while not self.worker.stopped.is_set():
                share = await self.worker.call(partitioner.next, 1.0)
                if share is not None:
                    end([item for item in working if share.get(item) != working[item]])
                    await self._work(share, working)
                    end(share.leaving)

        path, name = f"{ROOT}/part", self.worker.name
        try:
            make = self.make(self.worker.supervisor, "Partitioner", path, ITEMS, name=name)
            await self.worker.under(make, share_out)
        except Exception as error:
            self.tell("bug", note=repr(error))

    async def _work(self, share: Any, working: dict[str, int]) -> None:
        for item in share.keys() - working.keys() - share.lost:
            working[item] = share[item]
            self.tell("grant", key=item, role="", fence=share[item])
        while not (share.changed or self.worker.stopped.is_set()):
            now = clock()
            for item in working.keys() - share.lost:
                self.tell("look", at=now, key=item, role="")
            await self.worker.call(share.wait, LOOK_SECONDS)


class Copy:
    """What events of a cache make of an empty dict; ``wrong`` are those that cannot follow."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.wrong: list[str] = []

    def add(self, event: zkwire.CacheEvent) -> None:
        if (event.path in self.data) != (event.kind != "added"):
            self.wrong.append(repr(event))
        if event.kind == "removed":
            self.data.pop(event.path, None)
        else:
            self.data[event.path] = event.data or b""


class Followed:
    """What a watch forever has seen: nothing older, and nothing skipped without a word."""

    def __init__(self) -> None:
        self.last: zkwire.Stat | None = None
        self.wrong: list[str] = []

    def add(self, seen: zkwire.SeenData) -> None:
        stat, last = seen.stat, self.last
        if stat is not None and last is not None:
            skips = not seen.skipped and stat.version != last.version + 1
            if stat.mzxid <= last.mzxid or skips:
                self.wrong.append(f"{stat} behind {last}, skipped: {seen.skipped}")
        self.last = stat


class Mirror(Contender):
    """Has a cache of the tree, follows its root, keeps a node; compares at each rest."""

    rests: Path  # where it says of which rest it has seen everything

    async def contend(self) -> None:
        supervisor, copy, followed = self.worker.supervisor, Copy(), Followed()
        cache = self.make(supervisor, "Cache", TREE, on_event=copy.add)
        supervisor.watch_data(TREE, followed.add)
        self._node = f"{ROOT}/nodes/{self.who}"
        node = self.make(supervisor, "PersistentNode", self._node, b"here")
        seen = b""
        while not self.worker.stopped.is_set():
            root = cache.get(TREE)
            if root is not None and root.data.startswith(b"rest") and root.data != seen:
                with suppress(*EXPECTED, zkwire.NoNodeError):
                    client = await self.worker.call(supervisor.client, 1.0)
                    if await self._equal(client, cache, copy, followed):
                        seen = root.data
                        self.rests.write_bytes(seen)
            await self.worker.sleep(LOOK_SECONDS)
            for wrong in (*copy.wrong, *followed.wrong):
                self.tell("bug", note=wrong)
                return
        await self.worker.call(node.close)
        await self.worker.call(cache.close)

    async def _equal(self, client: Any, cache: Any, copy: Copy, followed: Followed) -> bool:
        truth: dict[str, tuple[bytes, zkwire.Stat]] = {}
        for path in NAMES:
            with suppress(zkwire.NoNodeError):
                data, stat = await self.worker.call(client.get_data, path)
                truth[path] = data, stat
        found = [cache.get(path) for path in cache]
        shown = {node.path: (node.data, node.stat) for node in found if node is not None}
        await self.worker.call(client.get_data, self._node)
        return (
            cache.fresh
            and shown == truth
            and copy.data == {path: data for path, (data, _) in truth.items()}
            and followed.last == truth[TREE][1]
        )


RECIPES: dict[str, type[Contender]] = {
    "count": Adder, "put": Producer, "take": Consumer, "bar": Member, "part": Sharer,
    "tree": Mirror,
}  # fmt: skip
DONE = {"count": "add", "put": "put", "take": "removed", "bar": "out"}
"""What a contender tells that has done what it is for."""

# --- the writer of the tree -----------------------------------------------------------------------


class TreeWriter(threading.Thread):
    """Changes the tree in bursts; after each it rests until every mirror has seen everything."""

    def __init__(
        self,
        outsider: Callable[[], zkwire.Client],
        rng: random.Random,
        rests: Callable[[], set[bytes]],
    ) -> None:
        super().__init__(name="writer of the tree")
        self.found: list[str] = []
        self.rested = 0
        self._outsider, self._rng, self._rests = outsider, rng, rests
        self._over = threading.Event()

    def __enter__(self) -> TreeWriter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not (self._over.is_set() or self.found):
            with suppress(zkwire.ZooKeeperError), self._outsider() as client:
                while not (self._over.is_set() or self.found):
                    self._burst(client)
                    self._rest(client, b"rest %d" % (self.rested + 1))

    def _burst(self, client: zkwire.Client) -> None:
        for _ in range(BURST):
            path, data = self._rng.choice(NAMES), b"%d" % self._rng.randrange(10**6)
            with suppress(zkwire.NodeExistsError, zkwire.NoNodeError, zkwire.NotEmptyError):
                if path == TREE or self._rng.random() < 0.3:
                    client.set_data(path, data)
                elif self._rng.random() < 0.6:
                    client.create(path, data)
                else:
                    client.delete(path)

    def _rest(self, client: zkwire.Client, name: bytes) -> None:
        client.set_data(TREE, name)
        until = clock() + REST_SECONDS
        while self._rests() != {name}:
            if clock() > until:
                self.found.append(f"LIVE: not every mirror has seen {name!r}: {self._rests()}")
                return
            if self._over.wait(LOOK_SECONDS):
                return
        self.rested += 1


# --- what must be true ----------------------------------------------------------------------------


class End(NamedTuple):
    """What is on the server in the end: the number, and the items."""

    number: int
    items: set[str]


def read_end(client: zkwire.Client) -> End:
    """What is there."""
    folder, items = f"{QUEUE}/entries", set[str]()
    client.sync(ROOT)
    for name in client.get_children(folder):
        items.add(client.get_data(f"{folder}/{name}").data.decode())
    return End(int(client.get_data(NUMBER).data), items)


def judge(told: Iterable[Iterable[Line]], end: End) -> Iterator[str]:
    """What is wrong with what all processes have told."""
    lines = [line for each in told for line in each]
    yield from _sum(lines, end.number)
    yield from _items(lines, end.items)
    yield from _rounds(lines)


def outcomes(lines: Iterable[Line], what: str) -> Iterator[tuple[str, bool | None]]:
    """Each change and how it ended; the last one of a killed process is in doubt."""
    open_ones: dict[str, Line] = {}
    for line in lines:
        if line["what"] == "intent" and line.get("of") == what:
            open_ones[line["who"]] = line
        elif line["what"] == what:
            open_ones.pop(line["who"], None)
            yield line["value"], line["ok"]
    for line in open_ones.values():
        yield line["value"], None


def _sum(lines: list[Line], number: int) -> Iterator[str]:
    ends = Counter(ok for _, ok in outcomes(lines, "add"))
    if not ends[True] <= number <= ends[True] + ends[None]:
        yield f"SUM: {number} for {ends[True]} additions and {ends[None]} in doubt"


def _items(lines: list[Line], left: set[str]) -> Iterator[str]:
    put = dict(outcomes(lines, "put"))
    begun: dict[str, list[float]] = defaultdict(list)
    removed: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line["what"] in ("began", "removed"):
            (begun if line["what"] == "began" else removed)[line["value"]].append(line["at"])
    for item, ok in put.items():
        there = item in begun or item in left
        if there != ok and ok is not None:
            yield f"QUEUE: {item} was {'lost' if ok else 'put after all'}"
    for item, moments in removed.items():
        if len(moments) > 1 or max(begun[item]) > moments[0] or item in left:
            yield f"QUEUE: {item} was begun at {begun[item]}, removed at {moments}"


def _rounds(lines: list[Line]) -> Iterator[str]:
    told: dict[int, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if "round" in line:
            told[line["round"]][line["what"]].append(line)
    for round, ended in told.items():
        entered, left = ended["in"], ended["out"]
        if min(line["at"] for line in entered) < max(line["called"] for line in entered):
            yield f"BARRIER: {round}: entered before all had come"
        leaving = [line["called"] for line in (*left, *ended["impatient"])]
        if left and min(line["at"] for line in left) < max(leaving):
            yield f"BARRIER: {round}: left before all had called"
