"""A cache and watches forever against the truth: ``python3 -m tests.interop.cache [--seconds N]``.

A writer changes a tree at random, on an ensemble of three.  A cache of a supervisor mirrors it, and
two clients, one of threads and one of asyncio, follow one node with ``watch_data``, all through a
proxy before each server.  Connections are cut, at random frames in either direction, too, and
driven from server to server; servers are killed and started again, and the cache's sessions expire.
Now and then the writer rests: then the cache, and what its events have made of an empty dict, must
become the tree, stats included.  In the end those who follow have seen the last version, none after
a later one, and ``skipped`` was False only where no version lay between; no server has a watch.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from random import Random

from tests.interop.trial import main
from tests.support.installed_servers import find_installed
from tests.support.lock_helpers import Running, watch_count
from tests.support.server_control import Ensemble, Settings, poll
from zkwire import (
    AsyncClient,
    Cache,
    CacheEvent,
    Client,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SeenData,
    Stat,
    Supervisor,
)
from zkwire.testing import FaultProxy
from zkwire.testing.proxy import (
    Action,
    Frame,
    cut_after,
    cut_before,
    rst_after,
    rst_before,
    truncate,
)

ROOT, FOLLOWED, LAST = "/cached", "/followed", b"last"
TIMEOUT = 1.0  # of the cache's sessions
LONG = 40.0
PATIENCE = 60.0
BURST = 150
SLOW = 0.002  # seconds that one who follows may take for a state
FAULTS = ("nothing", "cut", "frame", "frame", "move", "refuse", "silence", "expire", "kill")
CUTS: tuple[Action, ...] = (cut_before, cut_after, rst_before, rst_after, truncate(9))
Content = dict[str, tuple[bytes, Stat]]


def paths() -> list[str]:
    """A tree of a few hundred names, three levels deep."""
    parents = [f"{ROOT}/{n}" for n in range(6)]
    below = [f"{parent}/{n}" for parent in parents for n in range(6)]
    return [ROOT, *parents, *below, *(f"{path}/{n}" for path in below for n in range(4))]


class Copy:
    """What events make of an empty dict; ``wrong`` are those that cannot follow."""

    def __init__(self, cache: Cache) -> None:
        self.data: dict[str, bytes] = {}
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._cache = cache
        self._exact = True

    def add(self, event: CacheEvent) -> None:
        self.kinds[event.kind] += 1
        if event.kind == "resynced":
            nodes = [self._cache.get(path) for path in self._cache]
            self.data = {node.path: node.data for node in nodes if node is not None}
            self._exact = False
            return
        if self._exact and (event.path in self.data) != (event.kind != "added"):
            self.wrong.append(repr(event))
        if event.kind == "removed":
            self.data.pop(event.path, None)
        else:
            self.data[event.path] = event.data or b""

    def read(self) -> None:
        """Read to the end of the cache."""
        for event in self._cache.events():
            self.add(event)


class Followed:
    """What one who follows has seen, and what of it was wrong."""

    def __init__(self) -> None:
        self.count = self.skipped = self.back = self.lies = 0
        self.last: Stat | None = None

    def __repr__(self) -> str:
        return (
            f"{self.count} states seen, {self.skipped} of them after skipped ones, {self.back} "
            f"times back, {self.lies} times skipped without a word"
        )

    def add(self, seen: SeenData) -> bool:
        """Whether it was the last one."""
        stat, last = seen.stat, self.last
        assert stat is not None
        self.count += 1
        self.skipped += seen.skipped
        if last is not None:
            self.back += stat.mzxid <= last.mzxid
            self.lies += not seen.skipped and stat.version != last.version + 1
        self.last = stat
        return seen.data == LAST

    def in_threads(self, hosts: str) -> int:
        """Follow to the last version; how many watches are left in the client then."""
        with Client(hosts, session_timeout=LONG) as client:
            for one in client.watch_data(FOLLOWED):
                if self.add(one):
                    break
                time.sleep(Random().random() * SLOW)
            poll("none", lambda: client._session.watch_count == 0 or None, PATIENCE)
            return client._session.watch_count

    def under_asyncio(self, hosts: str) -> int:
        async def follow() -> int:
            async with AsyncClient(hosts, session_timeout=LONG) as client:
                async for one in client.watch_data(FOLLOWED):
                    if self.add(one):
                        break
                    await asyncio.sleep(Random().random() * SLOW)
                await asyncio.sleep(0.1)
                return client._session.watch_count

        return asyncio.run(follow())


def write(client: Client, random: Random, names: list[str], stop: threading.Event) -> int:
    """Random changes, some of which fail, in bursts; how many."""
    count = 0
    while not stop.is_set():
        for _ in range(BURST):
            path, data = random.choice(names), b"%d" % random.randrange(10**6)
            count += 1
            with suppress(NodeExistsError, NoNodeError, NotEmptyError, ConnectionLossError):
                if random.random() < 0.2:
                    client.set_data(FOLLOWED, data)
                elif random.random() < 0.6:
                    client.create(path, data)
                elif random.random() < 0.6:
                    client.set_data(path, data)
                else:
                    client.delete(path)
        stop.wait(0.05)
    return count


def truth(client: Client) -> Content | None:
    """The tree; None if the connection is lost meanwhile."""
    try:
        return {path: client.get_data(path) for path in client.walk(ROOT)}
    except NoNodeError:
        return {}
    except ConnectionLossError:
        return None


def shown(cache: Cache) -> Content:
    nodes = [cache.get(path) for path in cache]
    return {node.path: (node.data, node.stat) for node in nodes if node is not None}


def settle(cache: Cache, copies: list[Copy], writer: Client) -> None:
    """TimeoutError unless the cache, and all that its events have made, become the tree."""
    wanted = poll("the tree", lambda: truth(writer), PATIENCE)
    data = {path: content for path, (content, _) in wanted.items()}
    poll("equal", lambda: (cache.fresh and shown(cache) == wanted) or None, PATIENCE)
    poll("told", lambda: all(copy.data == data for copy in copies) or None, PATIENCE)


class Faults:
    """What happens to connections, sessions and servers; after each the way is open again."""

    def __init__(self, ensemble: Ensemble, proxies: list[FaultProxy], random: Random) -> None:
        self.count: Counter[str] = Counter()
        self._ensemble, self._proxies, self._random = ensemble, proxies, random

    def happen(self) -> None:
        name = self._random.choice(FAULTS)
        self.count[name] += 1
        getattr(self, name)()

    def nothing(self) -> None:
        time.sleep(0.2)

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.cut_all()

    def frame(self) -> None:
        """One of the next frames, in either direction, is the last of its connection."""
        left = [self._random.randint(1, 20)]
        action = self._random.choice(CUTS)

        def rule(_: Frame) -> Action | None:
            left[0] -= 1
            return action if left[0] == 0 else None

        for proxy in self._proxies:
            proxy.rule(rule)
        with suppress(TimeoutError):
            poll("it", lambda: left[0] <= 0 or None, TIMEOUT)
        for proxy in self._proxies:
            proxy.reset()

    def _shut(self, proxies: list[FaultProxy], seconds: float) -> None:
        for proxy in proxies:
            proxy.refuse()
            proxy.cut_all()
        time.sleep(seconds)
        for proxy in proxies:
            proxy.refuse(False)

    def move(self) -> None:
        used = [proxy for proxy in self._proxies if proxy.connections]
        self._shut(used[:1], 0.3)

    def refuse(self) -> None:
        self._shut(self._proxies, 0.2)

    def expire(self) -> None:
        self._shut(self._proxies, 3 * TIMEOUT)

    def silence(self) -> None:
        for proxy in self._proxies:
            proxy.black_hole()
        time.sleep(TIMEOUT)
        for proxy in self._proxies:
            proxy.black_hole(False)

    def kill(self) -> None:
        """Here, in the main thread: a server ends with the thread that has started it."""
        server = self._random.choice(self._ensemble.servers)
        server.kill()
        server.start(wait=False)
        self._ensemble.wait_serving()


def run(options: Namespace, random: Random) -> list[str]:
    """Run; what was wrong."""
    names, found, quiet, changes = paths(), list[str](), 0, 0
    with ExitStack() as stack:
        ensemble = stack.enter_context(find_installed().ensemble(Settings(tick_ms=200)))
        proxies = [stack.enter_context(FaultProxy(each.hosts)) for each in ensemble.servers]
        hosts = ",".join(proxy.hosts for proxy in proxies)
        writer = stack.enter_context(Client(ensemble.hosts, session_timeout=LONG))
        writer.create(FOLLOWED)
        faults, followed = Faults(ensemble, proxies, random), [Followed(), Followed()]
        following = [
            Running(partial(followed[0].in_threads, hosts)),
            Running(partial(followed[1].under_asyncio, hosts)),
        ]
        with Supervisor(hosts, session_timeout=TIMEOUT) as supervisor:
            with Cache(supervisor, ROOT) as cache:
                copies = [Copy(cache), Copy(cache)]
                readers = [Running(copy.read) for copy in copies]
                end = time.monotonic() + options.seconds
                while time.monotonic() < end and not found:
                    stop = threading.Event()
                    busy = Running(partial(write, writer, random, names, stop))
                    for _ in range(random.randint(1, 3)):
                        faults.happen()
                    stop.set()
                    changes += busy.result(PATIENCE)
                    quiet += 1
                    try:
                        settle(cache, copies, writer)
                    except TimeoutError as error:
                        found.append(f"quiet moment {quiet}: not {error}")
                requests = cache._algorithm._reading.requests
            for reader, copy in zip(readers, copies, strict=True):
                reader.result(PATIENCE)
                found += copy.wrong
        version = writer.set_data(FOLLOWED, LAST).version
        for one, running in zip(followed, following, strict=True):
            left = running.result(PATIENCE)
            print(one)
            if one.back or one.lies or left or one.last is None or one.last.version != version:
                found.append(f"{one}, the last one {one.last}; {left} watches left in the client")
        try:
            poll("no watch", lambda: not sum(map(watch_count, ensemble.servers)) or None, PATIENCE)
        except TimeoutError as error:
            found.append(str(error))
    print(f"{changes} changes, {quiet} quiet moments, {requests} requests; {dict(faults.count)}")
    print(f"events: {dict(copies[0].kinds)}")
    return found


if __name__ == "__main__":
    sys.exit(main(run, seconds=120.0))
