"""A cache against the truth on a real server: ``python3 -m tests.interop.cache [--seconds N]``.

A writer changes a tree at random.  A cache of a supervisor mirrors it through a proxy; its
connection is cut, the server is killed and started again, and sessions expire.  Now and then the
writer rests: then the cache, and what its events have made of an empty dict, must become the tree,
stats included.  `ZOOKEEPER_HOME` chooses the release.  Exit code 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random

from tests.support.installed_servers import find_installed
from tests.support.lock_helpers import Running, watch_count
from tests.support.server_control import Settings, ZooKeeperServer, poll
from zkwire import (
    Cache,
    CacheEvent,
    Client,
    ClientClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
    Supervisor,
)
from zkwire.testing import FaultProxy

ROOT = "/cached"
TIMEOUT = 1.0
PATIENCE = 60.0
BURST = 150
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


def write(client: Client, random: Random, names: list[str], stop: threading.Event) -> int:
    """Random changes, some of which fail, in bursts; how many."""
    count = 0
    while not stop.is_set():
        for _ in range(BURST):
            path, data = random.choice(names), b"%d" % random.randrange(10**6)
            count += 1
            with suppress(NodeExistsError, NoNodeError, NotEmptyError, ConnectionLossError):
                if random.random() < 0.6:
                    client.create(path, data)
                elif random.random() < 0.6:
                    client.set_data(path, data)
                else:
                    client.delete(path)
        stop.wait(0.05)
    return count


def truth(client: Client) -> Content:
    try:
        return {path: client.get_data(path) for path in client.walk(ROOT)}
    except NoNodeError:
        return {}


def shown(cache: Cache) -> Content:
    nodes = [cache.get(path) for path in cache]
    return {node.path: (node.data, node.stat) for node in nodes if node is not None}


def is_equal(cache: Cache, wanted: Content) -> bool | None:
    return (cache.fresh and shown(cache) == wanted) or None


def are_told(copies: list[Copy], wanted: Content) -> bool | None:
    data = {path: content for path, (content, _) in wanted.items()}
    return all(copy.data == data for copy in copies) or None


class Faults:
    """What happens to the cache's connection, its session and the server."""

    def __init__(self, server: ZooKeeperServer, proxy: FaultProxy, random: Random) -> None:
        self.count: Counter[str] = Counter()
        self._server = server
        self._proxy = proxy
        self._random = random

    def happen(self) -> None:
        """One of them; afterwards the way is open again."""
        name = self._random.choice(["nothing", "cut", "cut", "refuse", "silence", "expire", "kill"])
        self.count[name] += 1
        if name == "cut":
            self._proxy.cut_all()
        elif name in ("refuse", "expire"):
            self._proxy.refuse()
            self._proxy.cut_all()
            time.sleep(0.2 if name == "refuse" else 3 * TIMEOUT)
            self._proxy.refuse(False)
        elif name == "silence":
            self._proxy.black_hole()
            time.sleep(TIMEOUT)
            self._proxy.black_hole(False)
        elif name == "kill":
            self._server.kill()
            self._server.start()


def run(seconds: float, seed: int) -> list[str]:
    """Run; what was wrong."""
    random, names, found, quiet, changes = Random(seed), paths(), list[str](), 0, 0
    with (
        find_installed().standalone(Settings(tick_ms=200)) as server,
        FaultProxy(server.hosts) as proxy,
        Client(server.hosts, session_timeout=40.0) as writer,
        Supervisor(proxy.hosts, session_timeout=TIMEOUT) as supervisor,
    ):
        print(f"release {'.'.join(map(str, server.release))}, seed {seed}")
        faults = Faults(server, proxy, random)
        with Cache(supervisor, ROOT) as cache:
            copies = [Copy(cache), Copy(cache)]
            readers = [threading.Thread(target=copy.read, daemon=True) for copy in copies]
            for reader in readers:
                reader.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                stop = threading.Event()
                busy = Running(partial(write, writer, random, names, stop))
                for _ in range(random.randint(1, 3)):
                    faults.happen()  # here: a server ends with the thread that has started it
                stop.set()
                changes += busy.result(PATIENCE)
                quiet += 1
                wanted = truth(writer)
                try:
                    poll("equal", partial(is_equal, cache, wanted), PATIENCE)
                    poll("told", partial(are_told, copies, wanted), PATIENCE)
                except TimeoutError as error:
                    found.append(f"quiet moment {quiet}: not {error}")
                    break
            requests = cache._algorithm._reading.requests
        for reader, copy in zip(readers, copies, strict=True):
            reader.join(PATIENCE)
            found += copy.wrong
        try:
            poll("no watch is left", lambda: watch_count(server) == 0 or None, PATIENCE)
        except (TimeoutError, ClientClosedError) as error:
            found.append(str(error))
    print(f"{changes} changes, {quiet} quiet moments, {requests} requests; {dict(faults.count)}")
    print(f"events: {dict(copies[0].kinds)}")
    return found


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="tests.interop.cache", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    wanted = parser.parse_args()
    found = run(wanted.seconds, wanted.seed)
    print("\n".join(found) or "equal to the tree in each quiet moment")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
